//! ELMo without dropout against convolutions and layers of PyTorch's, with both losses, a scalar mix of the layers and all
//! gradients: `tests/fixtures/elmo/export.py`. Fused and composed alike.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::blocks::{ScalarMix, ScalarMixConfig};
use cloze_model::elmo::{CharacterEncoderConfig, Elmo, ElmoConfig, ElmoLosses, Filters, PieceBytes};
use cloze_model::{ParamInit, Sequences, weights};

/// Relative to the largest value of a tensor.
const TOLERANCE: f32 = 2e-5;

/// The exporter's vocabulary.
const PIECES: [&[u8]; 10] = [
    b"a",
    b" the",
    b"n\xc3\xa9",
    b" ship",
    b"\xff\x00",
    b" extraordinarily",
    b".",
    b"ing",
    b" s",
    b"<|endoftext|>",
];

#[derive(Module, Debug)]
struct Mixed {
    model: Elmo,
    mix: ScalarMix,
}

fn check(device: &Device) {
    let golden = Golden::open(&fixture("elmo"));
    let close = |what: &str, actual: &TensorData| {
        let error = relative_error(actual, &golden.data(what));
        assert!(error <= TOLERANCE, "{what}: {error}");
    };
    let pieces: PieceBytes = PIECES.into_iter().collect();
    let characters = CharacterEncoderConfig {
        max_characters: 9,
        d_character: 3,
        filters: [[1, 4], [2, 5], [4, 6]].map(Filters::from).to_vec(),
        d_out: 6,
        ..CharacterEncoderConfig::default()
    };
    let config = ElmoConfig { characters, d_hidden: 8, dropout: 0.0, ..ElmoConfig::new(pieces) };
    let init = &mut ParamInit::new(device, 1);
    let new = Mixed { model: config.init(init), mix: ScalarMixConfig::new(3).init(init) };
    let parameters = weights::shapes(&new).into_iter().map(|(path, _)| {
        let data = golden.data(&path);
        (path, data)
    });
    let all = weights::replace(new.clone(), parameters.collect());
    let Mixed { model, mix } = &all;

    close("words", &model.encoder.characters.encode(&PIECES, device).to_data());
    let numbers = |what: &str| -> Vec<i64> { golden.data(what).iter::<i64>().collect() };
    let ids: Vec<i32> = numbers("ids").into_iter().map(|id| id as i32).collect();
    let (mut texts, mut start) = (Sequences::new(), 0);
    for len in numbers("lengths").into_iter().map(|len| len as usize) {
        texts.push(&ids[start..start + len]);
        start += len;
    }
    let layers = model.encoder.forward(&texts, device).layers;
    assert_eq!(layers.len(), 3);
    for (number, states) in layers.iter().enumerate() {
        close(&format!("layer.{number}"), &states.to_data());
    }
    let ElmoLosses { next, previous } = model.losses(&texts, device);
    close("next", &next.to_data());
    close("previous", &previous.to_data());
    let mut normed = mix.clone();
    normed.layer_norm = true;
    close("normed", &normed.forward(&layers).to_data());
    let mixed = mix.forward(&layers);
    close("mix", &mixed.to_data());

    let probe: Tensor<2> = golden.float("probe", device);
    let loss = next.mean() + previous.mean() + (mixed * probe).mean();
    let gradients = gradients_of(&all, GradientsParams::from_grads(loss.backward(), &all));
    // Of the characters; of three widths, two highway layers and the projection; of two layers both ways; the output; the mix.
    assert_eq!(gradients.len(), 1 + 2 * (3 + 2 + 1) + 2 * 2 * 4 + 2 + 2);
    for (path, gradient) in gradients {
        close(&format!("d_{path}"), &gradient);
    }
}

#[test]
fn a_model_of_both_directions_is_that_of_pytorch() {
    let fused = Device::flex().autodiff();
    check(&fused);
    check(&fused.gradient_checkpointing());
}
