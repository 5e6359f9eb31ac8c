//! Language embeddings and positions that begin anew, against transformers' `XLMModel`: `tests/fixtures/xlm/export.py`.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::bert::{Bert, BertInput};
use cloze_model::huggingface::{Architecture, PretrainedFolder, SaveConfig, read_tensors, save_pretrained};
use cloze_model::{ParamInit, weights};

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;
/// Below it a gradient is rounding: a key's bias shifts all scores of a query alike, which changes nothing.
const ROUNDING: f32 = 1e-5;

/// XLM's encoder, which has no pooler.
fn load(device: &Device) -> Bert {
    let pretrained = PretrainedFolder::open(&fixture("xlm")).unwrap();
    let encoder = pretrained.encoder(Architecture::Encoder).with_pooler(false);
    assert_eq!(encoder.n_token_types, 3);
    let bert = encoder.init_encoder(&mut ParamInit::new(device, 0).deferred());
    let (bert, report) = pretrained.load_into(bert, Architecture::Encoder, &[]).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report:?}");
    bert
}

fn input(golden: &Golden, device: &Device) -> BertInput {
    BertInput::new(golden.int("input_ids", device))
        .with_token_types(golden.int("langs", device))
        .with_positions(golden.int("position_ids", device))
        .with_pad_mask(Tensor::<2, Bool>::from_data(golden.data("pad_mask"), device))
}

/// The states, zero where there is padding, as XLM's are.
fn states(bert: &Bert, golden: &Golden, device: &Device) -> Tensor<3> {
    let states = bert.forward(input(golden, device)).last_hidden_state;
    let mask = Tensor::<2, Bool>::from_data(golden.data("pad_mask"), device).unsqueeze_dim::<3>(2);
    let shape = states.shape();
    states.mask_fill(mask.expand(shape), 0.0)
}

#[test]
fn states_and_gradients_equal_xlms() {
    let device = Device::flex().autodiff();
    let golden = Golden::open(&fixture("xlm"));
    let bert = load(&device);
    let states = states(&bert, &golden, &device);
    let error = relative_error(&states.clone().into_data(), &golden.data("states"));
    assert!(error <= TOLERANCE, "states: off by {error:e} of their scale");

    let n = states.shape().num_elements() as i64;
    let weights_of_loss = Tensor::<1, Int>::arange(0..n, &device).float().sin().reshape(states.shape());
    let grads = GradientsParams::from_grads((states * weights_of_loss).sum().backward(), &bert);
    // The gradients take the parameters' places, so that the saver names and transposes them.
    let as_model = weights::replace(bert.valid(), gradients_of(&bert, grads));
    let folder = tempfile::tempdir().unwrap();
    let config = PretrainedFolder::open(&fixture("xlm")).unwrap().config.encoder.with_pooler(false);
    save_pretrained(folder.path(), &as_model, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
    let found = read_tensors(&folder.path().join("model.safetensors")).unwrap();
    assert_eq!(found.len(), 37, "all parameters of the reference model");
    for (name, gradient) in &found {
        let expected = golden.data(&format!("grad.{name}"));
        let largest =
            |values: &TensorData| values.iter::<f32>().fold(0f32, |most, value| most.max(value.abs()));
        if largest(&expected) < ROUNDING {
            assert!(name.ends_with("key.bias") && largest(gradient) < ROUNDING, "gradient of {name}");
            continue;
        }
        let error = relative_error(gradient, &expected);
        assert!(error <= TOLERANCE, "gradient of {name}: off by {error:e} of its scale");
    }
}

#[test]
fn packed_sentences_side_by_side_equal_xlms_padded_ones() {
    let device = Device::flex();
    let golden = Golden::open(&fixture("xlm"));
    let bert = load(&device);
    let values = |name: &str| -> Vec<i32> { golden.data(name).iter::<i32>().collect() };
    let ignored: Vec<bool> = golden.data("pad_mask").iter::<bool>().collect();
    let kept = |name: &str| -> Vec<i32> {
        values(name)
            .into_iter()
            .zip(&ignored)
            .filter(|(_, ignored)| !**ignored)
            .map(|(value, _)| value)
            .collect()
    };
    let ids = kept("input_ids");
    let row = |name: &str| Tensor::<1, Int>::from_data(kept(name).as_slice(), &device).unsqueeze_dim::<2>(0);
    let packed = BertInput::packed(&ids, &[11, 7], &device)
        .with_token_types(row("langs"))
        .with_positions(row("position_ids"));
    let states = bert.forward(packed).last_hidden_state.squeeze_dim::<2>(0);
    let [n, d] = states.dims();
    let expected = golden.float::<3>("states", &device).reshape([22, d as i32]);
    let places: Vec<i32> = (0..22).filter(|place| !ignored[*place as usize]).collect();
    assert_eq!(places.len(), n);
    let expected = expected.select(0, Tensor::<1, Int>::from_data(places.as_slice(), &device)).into_data();
    let error = relative_error(&states.into_data(), &expected);
    assert!(error <= TOLERANCE, "packed states: off by {error:e} of their scale");
}
