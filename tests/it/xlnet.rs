//! XLNet against transformers: `tests/fixtures/xlnet/export.py`.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::ParamInit;
use cloze_model::huggingface::{
    FloatType, LoadReport, load_published, load_published_as, read_published, read_tensors, save_published,
};
use cloze_model::weights;
use cloze_model::xlnet::{XlnetConfig, XlnetInput, XlnetLanguageModel, XlnetMemory};
use std::path::PathBuf;

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-5;
/// The same for gradients.
const GRADIENT_TOLERANCE: f32 = 1e-4;

/// Fused parts and composed ones, with gradients or without.
fn devices(autodiff: bool) -> [Device; 2] {
    let fused = if autodiff { Device::flex().autodiff() } else { Device::flex() };
    [fused, Device::flex().autodiff().gradient_checkpointing()]
}

fn folder(class: &str) -> PathBuf {
    fixture("xlnet").join(class)
}

fn numbers(golden: &Golden, name: &str) -> Vec<i32> {
    golden.data(name).iter::<i32>().collect()
}

/// A segment of the language model's fixture.
fn segment(golden: &Golden, name: &str) -> XlnetInput {
    let of = |what: &str| numbers(golden, &format!("{name}.{what}"));
    let order: Vec<Option<u32>> = of("order").into_iter().map(|place| u32::try_from(place).ok()).collect();
    XlnetInput::new(of("input_ids"), 2).with_token_types(of("token_type_ids")).with_order(&order)
}

#[track_caller]
fn assert_close(what: &str, found: &TensorData, expected: &TensorData, tolerance: f32) {
    let error = relative_error(found, expected);
    assert!(error < tolerance, "{what}: off by {error}");
}

fn load(device: &Device) -> (XlnetConfig, XlnetLanguageModel, Golden) {
    let folder = folder("language_model");
    let (config, model, report) =
        load_published::<XlnetConfig>(&folder, &mut ParamInit::new(device, 1)).unwrap();
    assert_eq!(report, LoadReport::default());
    (config, model, Golden::open(&folder))
}

/// Compares a model's gradients with the golden ones.
fn assert_gradients(
    model: &XlnetLanguageModel,
    config: &XlnetConfig,
    grads: GradientsParams,
    golden: &Golden,
) {
    let found = gradients_of(model, grads);
    // The gradients take the parameters' places, so that saving names and transposes them.
    let saved = tempfile::tempdir().unwrap();
    save_published(saved.path(), &weights::replace(model.clone(), found), config, FloatType::F32).unwrap();
    let found = read_tensors(&saved.path().join("model.safetensors")).unwrap();
    let names = golden.names();
    let expected: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("grad.")).collect();
    assert_eq!(expected.len(), found.len());
    for name in expected {
        let gradient = golden.data(&format!("grad.{name}"));
        assert_close(&format!("gradient of {name}"), &found[name], &gradient, GRADIENT_TOLERANCE);
    }
}

#[test]
fn streams_and_memory_are_those_of_transformers() {
    for device in devices(false) {
        let (_, model, golden) = load(&device);
        let mut memory: Option<XlnetMemory> = None;
        for name in ["first", "second"] {
            let input = segment(&golden, name);
            let close = |what: &str, found: TensorData| {
                assert_close(
                    &format!("{name}, {what}"),
                    &found,
                    &golden.data(&format!("{name}.{what}")),
                    TOLERANCE,
                );
            };
            let content = model.xlnet.forward(&input, memory.as_ref(), &device);
            close("content", content.last_hidden_state.into_data());
            let (losses, _) = model.losses(&input, memory.as_ref(), &device);
            close("loss", losses.mean().into_data());
            let (logits, after) = model.logits(&input, memory.as_ref(), &device);
            close("logits", logits.into_data());
            for memory in [&after, &content.memory] {
                for (layer, states) in memory.layers().iter().enumerate() {
                    close(&format!("memory.{layer}"), states.clone().into_data());
                }
            }
            memory = Some(after);
        }
    }
}

#[test]
fn gradients_are_those_of_transformers() {
    for device in devices(true) {
        let (config, model, golden) = load(&device);
        let (_, memory) = model.logits(&segment(&golden, "first"), None, &device);
        let (losses, _) = model.losses(&segment(&golden, "second"), Some(&memory), &device);
        let grads = GradientsParams::from_grads(losses.mean().backward(), &model);
        assert_gradients(&model, &config, grads, &golden);
    }
}

#[test]
fn without_an_order_all_is_seen_but_padding() {
    for device in devices(false) {
        let (_, model, golden) = load(&device);
        let ignored = (0..18).map(|token| (9..13).contains(&token)).collect();
        let input = XlnetInput::new(numbers(&golden, "first.input_ids"), 2).with_pad_mask(ignored);
        let states = model.xlnet.forward(&input, None, &device).last_hidden_state;
        // Padding's own states mean nothing.
        let seen = |states: Tensor<3>| {
            let rows = states.reshape([18, 24]);
            Tensor::cat(vec![rows.clone().narrow(0, 0, 9), rows.narrow(0, 13, 5)], 0).into_data()
        };
        let expected = seen(golden.float::<3>("free", &device));
        assert_close("free", &seen(states), &expected, TOLERANCE);
    }
}

#[test]
fn left_to_right_models_of_same_length_and_clamped_distances_are_those_of_transformers() {
    for device in devices(false) {
        let folder = folder("language_model");
        let mut config: XlnetConfig = read_published(&folder).unwrap();
        (config.causal, config.same_length, config.clamp_len) = (true, true, Some(3));
        let (model, _) = load_published_as(&config, &folder, &mut ParamInit::new(&device, 1)).unwrap();
        let golden = Golden::open(&folder);
        let mut memory = None;
        for name in ["first", "second"] {
            let input = XlnetInput::new(numbers(&golden, &format!("{name}.input_ids")), 2);
            let output = model.xlnet.forward(&input, memory.as_ref(), &device);
            let expected = golden.data(&format!("causal.{name}"));
            assert_close(name, &output.last_hidden_state.into_data(), &expected, TOLERANCE);
            memory = Some(output.memory);
        }
    }
}

#[test]
fn what_is_saved_is_what_was_loaded() {
    let folder = folder("language_model");
    let (config, model, _) =
        load_published::<XlnetConfig>(&folder, &mut ParamInit::new(&Device::flex(), 1)).unwrap();
    let saved = tempfile::tempdir().unwrap();
    save_published(saved.path(), &model, &config, FloatType::F32).unwrap();
    let tensors = |folder: &std::path::Path| read_tensors(&folder.join("model.safetensors")).unwrap();
    assert!(tensors(saved.path()) == tensors(&folder));
    let json = |folder: &std::path::Path| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap()
    };
    let (written, original) = (json(saved.path()), json(&folder));
    for (key, value) in written.as_object().unwrap() {
        // The type has another name there now.
        let key = if key == "torch_dtype" { "dtype" } else { key };
        assert_eq!(value, &original[key], "{key}");
    }
}
