//! Models that describe images, against transformers and PyTorch: `tests/fixtures/captioners/export.py`.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::captions::{
    AnyCaptionDecoder, CaptionDecoder, Captioner, CaptionerConfig, Draws, HardAttentionLoss, Looking,
    RecurrentCaptionConfig, RecurrentCaptionDecoder, Taught, doubly_stochastic_penalty, sums,
};
use cloze_model::generate::{BeamSearch, DecodeConfig, Decoding, InOrder, Request, Search};
use cloze_model::huggingface::{
    FloatType, LoadReport, load_published, read_published, read_tensors, save_published,
};
use cloze_model::ops;
use cloze_model::seq2seq::DecodeOptions;
use cloze_model::vision::{AnyImageEncoder, ImageEncoder, ImageStates};
use cloze_model::{ParamInit, Sequences, weights};
use std::path::Path;

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-5;
/// The same for gradients.
const GRADIENT_TOLERANCE: f32 = 1e-4;

const PUBLISHED: [&str; 2] = ["vit-gpt2", "vit-gpt2-narrow"];
const END: i32 = 2;

/// Fused parts and composed ones, with gradients or without.
fn devices(autodiff: bool) -> [Device; 2] {
    let fused = if autodiff { Device::flex().autodiff() } else { Device::flex() };
    [fused, Device::flex().autodiff().gradient_checkpointing()]
}

type AnyCaptioner = Captioner<AnyImageEncoder, AnyCaptionDecoder>;

fn load(class: &str, device: &Device) -> (CaptionerConfig, AnyCaptioner, Golden) {
    let folder = fixture("captioners").join(class);
    let (config, model, report) =
        load_published::<CaptionerConfig>(&folder, &mut ParamInit::new(device, 1)).unwrap();
    let pooler = ["weight", "bias"].map(|what| format!("encoder.pooler.dense.{what}"));
    let LoadReport { missing, mut unexpected, .. } = report;
    unexpected.sort();
    assert!(
        missing.is_empty() && unexpected == [pooler[1].clone(), pooler[0].clone()],
        "{missing:?} {unexpected:?}"
    );
    (config, model, Golden::open(&folder))
}

#[track_caller]
fn assert_close(what: &str, found: &TensorData, expected: &TensorData, tolerance: f32) {
    let error = relative_error(found, expected);
    assert!(error < tolerance, "{what}: off by {error}");
}

fn ids(golden: &Golden, name: &str) -> Vec<i32> {
    golden.data(name).iter::<i64>().map(|id| id as i32).collect()
}

/// The captions, and the tokens that follow theirs.
fn captions(golden: &Golden) -> (Sequences, Vec<i32>) {
    let (ids, lengths) = (ids(golden, "captions"), ids(golden, "lengths"));
    let (mut captions, mut next, mut start) = (Sequences::new(), Vec::new(), 0);
    for len in lengths {
        let caption = &ids[start..start + len as usize];
        captions.push(caption);
        next.extend(&caption[1..]);
        next.push(END);
        start += len as usize;
    }
    (captions, next)
}

/// The cross-entropy of each token.
fn losses(taught: &Taught, next: &[i32]) -> Tensor<1> {
    let device = taught.logits.device();
    ops::cross_entropy(taught.logits.clone(), Tensor::<1, Int>::from_data(next, &device))
}

#[test]
fn logits_are_those_of_transformers() {
    for class in PUBLISHED {
        for device in devices(false) {
            let (_, model, golden) = load(class, &device);
            let (captions, next) = captions(&golden);
            let taught = model.teach(golden.float("pixels", &device), &captions, &[0, 1], None);
            let loss = losses(&taught, &next).mean();
            assert_close(class, &taught.logits.into_data(), &golden.data("logits"), TOLERANCE);
            assert_close(class, &loss.into_data(), &golden.data("loss"), TOLERANCE);
        }
    }
}

/// Compares gradients that were saved in place of a model's parameters with the golden ones.
fn assert_gradients(class: &str, found: impl Fn(&str) -> TensorData, golden: &Golden) -> usize {
    let names = golden.names();
    let expected: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("grad.")).collect();
    let mut off = Vec::new();
    for name in &expected {
        let gradient = golden.data(&format!("grad.{name}"));
        // A key's bias shifts a row of scores, which softmax ignores: its gradient is 0, and both sides' is rounding.
        let tolerance =
            if name.ends_with("key.bias") { 10.0 * GRADIENT_TOLERANCE } else { GRADIENT_TOLERANCE };
        let error = relative_error(&found(name), &gradient);
        if error >= tolerance {
            off.push(format!("{name} by {error}"));
        }
    }
    assert!(off.is_empty(), "{class}: gradients are off: {off:#?}");
    expected.len()
}

#[test]
fn gradients_are_those_of_transformers() {
    for class in PUBLISHED {
        for device in devices(true) {
            let (config, model, golden) = load(class, &device);
            let (captions, next) = captions(&golden);
            let taught = model.teach(golden.float("pixels", &device), &captions, &[0, 1], None);
            let gradients = losses(&taught, &next).mean().backward();
            let found = gradients_of(&model, GradientsParams::from_grads(gradients, &model));
            // The gradients take the parameters' places, so that saving names and transposes them.
            let saved = tempfile::tempdir().unwrap();
            let gradients = weights::replace(model.clone(), found);
            save_published(saved.path(), &gradients, &config, FloatType::F32).unwrap();
            let found = read_tensors(&saved.path().join("model.safetensors")).unwrap();
            let n = assert_gradients(class, |name| found[name].clone(), &golden);
            assert!(n > 60, "{n}");
        }
    }
}

#[test]
fn a_captioner_is_saved_as_transformers_saved_it() {
    for class in PUBLISHED {
        let (config, model, _) = load(class, &Device::flex());
        let saved = tempfile::tempdir().unwrap();
        save_published(saved.path(), &model, &config, FloatType::F32).unwrap();
        let [theirs, ours] = [fixture("captioners").join(class), saved.path().into()];
        let tensors = |folder: &Path| read_tensors(&folder.join("model.safetensors")).unwrap();
        let mut theirs_tensors = tensors(&theirs);
        theirs_tensors.retain(|name, _| !name.contains("pooler"));
        assert_eq!(tensors(&ours), theirs_tensors, "{class}");
        let config = |folder: &Path| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
        };
        let (ours, theirs) = (config(&ours), config(&theirs));
        for part in ["encoder", "decoder"] {
            for (key, value) in ours[part].as_object().unwrap() {
                // What they have by default need not stand in their file.
                let theirs = theirs[part].get(key).filter(|theirs| !theirs.is_null());
                assert!(theirs.is_none_or(|theirs| theirs == value), "{class}: {part}.{key} {theirs:?}");
            }
        }
        for key in
            ["architectures", "decoder_start_token_id", "eos_token_id", "pad_token_id", "is_encoder_decoder"]
        {
            assert_eq!(ours[key], theirs[key], "{class}: {key}");
        }
    }
}

#[test]
fn version_5_writes_the_same_configuration() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(fixture("captioners").join("config-5.json"), folder.path().join("config.json")).unwrap();
    let of_5 = read_published::<CaptionerConfig>(folder.path()).unwrap();
    assert_eq!(of_5, load("vit-gpt2", &Device::flex()).0);
}

#[test]
fn what_a_part_says_is_followed_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = fixture("captioners").join("vit-gpt2/config.json");
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (part, key, value, expected) in [
        ("decoder", "model_type", "bert".into(), "`model_type` is \"bert\", expected a decoder of captions"),
        ("decoder", "add_cross_attention", false.into(), "`add_cross_attention` is false, expected true"),
        ("decoder", "n_head", 5.into(), "`n_head` is 5, expected a divisor of `n_embd`"),
        (
            "decoder",
            "scale_attn_by_inverse_layer_idx",
            true.into(),
            "`scale_attn_by_inverse_layer_idx` is true",
        ),
        ("decoder", "quantization_config", 4.into(), "quantization_config"),
        ("encoder", "model_type", "swin".into(), "`model_type` is \"swin\", expected an image encoder"),
        ("encoder", "patch_size", 0.into(), "`patch_size` is 0"),
    ] {
        let mut changed = config.clone();
        changed[part][key] = value;
        std::fs::write(folder.path().join("config.json"), changed.to_string()).unwrap();
        let message = match read_published::<CaptionerConfig>(folder.path()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{part}.{key} is read"),
        };
        assert!(message.contains(expected), "{message}");
    }
}

/// What `generate` wrote, without what fills its rows up.
fn written(golden: &Golden, name: &str) -> Vec<Vec<i32>> {
    let data = golden.data(name);
    let width = data.shape()[1];
    let ids: Vec<i32> = data.iter::<i64>().map(|id| id as i32).collect();
    let own = |row: &[i32]| row.iter().copied().take_while(|id| *id != END).collect();
    ids.chunks_exact(width).map(own).collect()
}

#[test]
fn captions_are_those_that_transformers_writes() {
    for class in PUBLISHED {
        for device in devices(false) {
            let (_, model, golden) = load(class, &device);
            let images = model.encoder.forward(golden.float("pixels", &device));
            for (name, search) in [("greedy", Search::Greedy), ("beam", Search::Beam(BeamSearch::new(3)))] {
                let config = DecodeConfig::new(vec![END]).with_search(search);
                let options = DecodeOptions::default();
                let decoding = Decoding::describing(&model.decoder, images.clone(), 1, options, &device);
                let requests = (0..2).map(|image| Request::new(vec![image], 8));
                let texts: Vec<_> = InOrder::new(decoding, &config, requests)
                    .unwrap()
                    .map(|texts| texts.unwrap().remove(0))
                    .collect();
                let found: Vec<Vec<i32>> = texts.iter().map(|text| text.ids.clone()).collect();
                assert_eq!(found, written(&golden, name), "{class}, {name}");
                if name == "beam" {
                    let scores: Vec<f32> = texts.iter().map(|text| text.score as f32).collect();
                    let scores = TensorData::new(scores, [2]);
                    assert_close(class, &scores, &golden.data("beam.scores"), 1e-4);
                }
            }
        }
    }
}

/// The decoder of a folder.
fn recurrent(folder: &str, looking: Looking, device: &Device) -> (RecurrentCaptionDecoder, Golden) {
    let golden = Golden::open(&fixture("captioners").join(folder));
    let config = RecurrentCaptionConfig::new(13, 7, 6, 8)
        .with_d_attention(5)
        .with_looking(looking)
        .with_gate(looking == Looking::Soft)
        .with_output_tanh(folder.ends_with("-tanh"));
    let model = config.init(&mut ParamInit::new(device, 1));
    let names = golden.names();
    let own = names.iter().filter_map(|name| name.strip_prefix("model."));
    let own = own.map(|path| (path.to_owned(), golden.data(&format!("model.{path}"))));
    let own: weights::NamedTensors = own.collect();
    assert_eq!(own.len(), weights::shapes(&model).len());
    (weights::replace(model, own), golden)
}

#[test]
fn show_attend_and_tell_is_that_of_its_equations() {
    for (folder, looking) in [
        ("none", Looking::None),
        ("soft", Looking::Soft),
        ("soft-tanh", Looking::Soft),
        ("hard", Looking::Hard),
    ] {
        for device in devices(true) {
            let (model, golden) = recurrent(folder, looking, &device);
            let (captions, next) = captions(&golden);
            let images = ImageStates::new(golden.float("images", &device), [2, 2]);
            let draws =
                Draws { places: golden.data("draws").iter::<f32>().collect(), expected: vec![false, true] };
            let taught = model.teach(&images, &captions, Some(&draws));
            let words = losses(&taught, &next);
            let mut loss = words.clone().sum();
            match looking {
                Looking::Soft => {
                    let attention = taught.attention.clone().unwrap();
                    loss = loss + doubly_stochastic_penalty(attention, captions.lengths()).sum() * 0.7;
                }
                Looking::Hard => {
                    let terms = HardAttentionLoss { reward: 1.3, entropy: 0.2, baseline: -2.5 };
                    let log_probs = sums(words.clone().neg(), captions.lengths());
                    let drawn = taught.drawn.as_ref().unwrap();
                    loss = loss + terms.forward(drawn, log_probs, captions.lengths()).sum();
                }
                _ => assert!(taught.attention.is_none()),
            }
            assert_close(folder, &taught.logits.into_data(), &golden.data("logits"), TOLERANCE);
            if let Some(attention) = taught.attention {
                assert_close(folder, &attention.into_data(), &golden.data("attention"), TOLERANCE);
            }
            assert_close(folder, &loss.clone().into_data(), &golden.data("loss"), TOLERANCE);
            let gradients = loss.backward();
            let found = gradients_of(&model, GradientsParams::from_grads(gradients, &model));
            let n = assert_gradients(folder, |name| found[name].clone(), &golden);
            assert_eq!(n, weights::shapes(&model.valid()).len());
        }
    }
}
