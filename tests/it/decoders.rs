//! Left-to-right models against transformers: `tests/fixtures/decoders/export.py`.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::generate::{LanguageModel, NextToken};
use cloze_model::gpt::{Gpt, GptConfig};
use cloze_model::huggingface::{FloatType, LoadReport, load_published, read_tensors, save_published};
use cloze_model::weights;
use cloze_model::{ParamInit, Sequences};
use std::fs;
use std::path::PathBuf;

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;
const MODELS: [&str; 5] = ["gpt2", "llama", "llama_linear", "mistral", "qwen2"];

/// Fused operations and composed ones, with gradients or without.
fn devices(autodiff: bool) -> [Device; 2] {
    let fused = if autodiff { Device::flex().autodiff() } else { Device::flex() };
    [fused, Device::flex().autodiff().gradient_checkpointing()]
}

struct Case {
    name: &'static str,
    folder: PathBuf,
    golden: Golden,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        MODELS.into_iter().map(|name| {
            let folder = fixture("decoders").join(name);
            Self { name, golden: Golden::open(&folder), folder }
        })
    }

    fn load(&self, device: &Device) -> (GptConfig, Gpt) {
        let (config, model, report) = load_published(&self.folder, &mut ParamInit::new(device, 1)).unwrap();
        assert_eq!(report, LoadReport::default(), "{}", self.name);
        (config, model)
    }

    fn rows(&self) -> Vec<Vec<i32>> {
        let ids = self.golden.data("input_ids");
        let width = ids.shape()[1];
        let ids: Vec<i32> = ids.iter::<i32>().collect();
        let lengths: Vec<usize> = self.golden.data("lengths").iter::<i64>().map(|n| n as usize).collect();
        ids.chunks(width).zip(lengths).map(|(row, n)| row[..n].to_vec()).collect()
    }

    fn sequences(&self) -> Sequences {
        self.rows().iter().map(Vec::as_slice).collect()
    }

    #[track_caller]
    fn assert_close(&self, what: &str, found: &TensorData, expected: &TensorData) {
        let error = relative_error(found, expected);
        assert!(error < TOLERANCE, "{}, {what}: off by {error}", self.name);
    }
}

#[test]
fn logits_and_gradients_are_those_of_transformers() {
    for case in Case::all() {
        for device in devices(true) {
            let (config, model) = case.load(&device);
            let logits = model.logits(&case.sequences(), &device);
            case.assert_close("logits", &logits.clone().into_data(), &case.golden.data("logits"));
            let n = logits.shape().num_elements();
            let weights: Vec<f32> = (0..n).map(|i| (i as f32).sin()).collect();
            let weights = Tensor::from_data(TensorData::new(weights, logits.dims()), &device);
            let grads = GradientsParams::from_grads((logits * weights).sum().backward(), &model);
            // The gradients take the parameters' places, so that saving names and transposes them.
            let saved = tempfile::tempdir().unwrap();
            let as_model = weights::replace(model.clone(), gradients_of(&model, grads));
            save_published(saved.path(), &as_model, &config, FloatType::F32).unwrap();
            let found = read_tensors(&saved.path().join("model.safetensors")).unwrap();
            let names = case.golden.names();
            let expected: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("grad.")).collect();
            assert_eq!(expected.len(), found.len(), "{}", case.name);
            for name in expected {
                let gradient = case.golden.data(&format!("grad.{name}"));
                case.assert_close(&format!("gradient of {name}"), &found[name], &gradient);
            }
        }
    }
}

#[test]
fn losses_are_those_of_transformers() {
    for case in Case::all() {
        for device in devices(false) {
            let (_, model) = case.load(&device);
            let first = &case.rows()[0];
            let (text, next) = (&first[..first.len() - 1], &first[1..]);
            let losses = model.losses(&[text].into_iter().collect(), next, &device);
            case.assert_close("loss", &losses.sum().into_data(), &case.golden.data("nll"));
        }
    }
}

#[test]
fn decoding_gives_the_logits_of_transformers() {
    for case in Case::all() {
        for device in devices(false) {
            let (_, model) = case.load(&device);
            let rows = case.rows();
            let golden = case.golden.float::<2>("logits", &device);
            let first_row = |row: usize| rows[..row].iter().map(Vec::len).sum::<usize>();
            let at = |row: usize, place: usize| golden.clone().narrow(0, first_row(row) + place, 1);
            // Prompts of unequal length, and then what the rows go on with.
            let prompt = |row: &Vec<i32>| row.len() - 4;
            let prompts: Sequences = rows.iter().map(|row| &row[..prompt(row)]).collect();
            let (mut state, output) = model.read(&prompts, &device);
            let expected = |ahead: usize| {
                let of_row = |(i, row): (usize, &Vec<i32>)| at(i, prompt(row) + ahead - 1);
                Tensor::cat(rows.iter().enumerate().map(of_row).collect(), 0).into_data()
            };
            case.assert_close("prompt", &output.logits.into_data(), &expected(0));
            for ahead in 1..=4 {
                let tokens: Vec<i32> = rows.iter().map(|row| row[prompt(row) + ahead - 1]).collect();
                let output = model.step(&tokens, &mut state);
                case.assert_close(&format!("step {ahead}"), &output.logits.into_data(), &expected(ahead));
            }
        }
    }
}

#[test]
fn what_is_saved_is_what_was_loaded() {
    for case in Case::all() {
        let (config, model) = case.load(&Device::flex());
        let saved = tempfile::tempdir().unwrap();
        save_published(saved.path(), &model, &config, FloatType::F32).unwrap();
        let tensors = |folder: &std::path::Path| read_tensors(&folder.join("model.safetensors")).unwrap();
        assert!(tensors(saved.path()) == tensors(&case.folder), "{}", case.name);
        let json = |folder: &std::path::Path| -> serde_json::Value {
            serde_json::from_str(&fs::read_to_string(folder.join("config.json")).unwrap()).unwrap()
        };
        let (written, original) = (json(saved.path()), json(&case.folder));
        for (key, value) in written.as_object().unwrap() {
            // What transformers leaves out is null, and the type has another name there now.
            let expected = match key.as_str() {
                "torch_dtype" => &original["dtype"],
                // transformers leaves the default of four times the width unsaid.
                "n_inner" | "n_ctx" | "head_dim" | "tie_word_embeddings" if original[key].is_null() => {
                    continue;
                }
                key => &original[key],
            };
            assert_eq!(value, expected, "{}: {key}", case.name);
        }
    }
}
