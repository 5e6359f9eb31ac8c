//! The same settings as each version of transformers writes them, against each version:
//! `tests/fixtures/dialects/export.py`.
//!
//! What is saved here lies in the folder `dialects` of cargo's folder for integration tests' files, where
//! `tests/interop/dialects.py` loads it in transformers.

use crate::golden::{Golden, fixture, relative_error};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::bert::{Bert, BertInput};
use cloze_model::generate::{LanguageModel, NextToken};
use cloze_model::gpt::{Gpt, GptConfig};
use cloze_model::huggingface::{
    ConvertConfig, FloatType, LoadReport, PretrainedFolder, SaveConfig, convert, load_published,
    save_pretrained, save_published,
};
use cloze_model::{ParamInit, Sequences};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;
const VERSIONS: [&str; 2] = ["4.57.6", "5.24.0"];
/// The sequences' lengths, and the places whose outputs are golden.
const SEQUENCES: [(&str, usize, &[i32]); 2] = [("short", 9, &[1, 5, 8]), ("long", 23, &[3, 11, 16, 22])];
const PROMPT: usize = 10;

/// Fused operations and composed ones.
fn devices() -> [Device; 2] {
    [Device::flex(), Device::flex().autodiff().gradient_checkpointing()]
}

struct Case {
    name: String,
    folder: tempfile::TempDir,
    /// What each version computes that reads the case.
    golden: Vec<(&'static str, Golden)>,
}

#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack of a test")]
enum Model {
    Writer(Gpt),
    Encoder(Bert),
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let fixtures = fixture("dialects");
        let cases = fs::read_to_string(fixtures.join("cases.json")).unwrap();
        let cases: Vec<Value> = serde_json::from_str(&cases).unwrap();
        cases.into_iter().map(move |case| {
            let [name, class] = ["name", "class"].map(|key| case[key].as_str().unwrap().to_string());
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("config.json"), case["config"].to_string()).unwrap();
            let weights = fixtures.join(format!("{class}.safetensors"));
            fs::copy(weights, folder.path().join("model.safetensors")).unwrap();
            let golden = VERSIONS.map(|version| {
                (version, Golden::read(&fixtures.join(format!("golden-{version}.safetensors"))))
            });
            let golden: Vec<_> =
                golden.into_iter().filter(|(_, golden)| golden.has(&format!("{name}.long"))).collect();
            assert!(!golden.is_empty(), "{name}: no version reads it");
            Self { name, folder, golden }
        })
    }

    /// The model of this case in a folder, and where to save it.
    fn load(&self, folder: &Path, device: &Device, saved: Option<&Path>) -> Model {
        let config = fs::read_to_string(folder.join("config.json")).unwrap();
        let init = &mut ParamInit::new(device, 1);
        match config.contains("ForCausalLM") {
            true => {
                let (config, model, report) = load_published::<GptConfig>(folder, init)
                    .unwrap_or_else(|error| panic!("{}: {error}", self.name));
                assert_eq!(report, LoadReport::default(), "{}", self.name);
                if let Some(saved) = saved {
                    save_published(saved, &model, &config, FloatType::F32).unwrap();
                }
                Model::Writer(model)
            }
            false => {
                let opened =
                    PretrainedFolder::open(folder).unwrap_or_else(|error| panic!("{}: {error}", self.name));
                let save = SaveConfig::from(&opened.config);
                let (config, model, report) = opened.load_encoder(init).unwrap();
                assert_eq!(report, LoadReport::default(), "{}", self.name);
                if let Some(saved) = saved {
                    save_pretrained(saved, &model, &config, &save)
                        .unwrap_or_else(|error| panic!("{}: {error}", self.name));
                }
                Model::Encoder(model)
            }
        }
    }

    /// Holds a model against all that is golden.
    fn check(&self, model: &Model, device: &Device) {
        for (version, golden) in &self.golden {
            let close = |what: &str, found: TensorData| {
                let error = relative_error(&found, &golden.data(&format!("{}.{what}", self.name)));
                assert!(error < TOLERANCE, "{} as {version}, {what}: off by {error}", self.name);
            };
            let ids: Vec<i32> = golden.data("input_ids").iter::<i32>().collect();
            for (what, len, rows) in SEQUENCES {
                let all = match model {
                    Model::Writer(model) => model.logits(&[&ids[..len]].into_iter().collect(), device),
                    Model::Encoder(model) => {
                        let input = BertInput::packed(&ids[..len], &[len], device);
                        model.forward(input).last_hidden_state.squeeze_dim::<2>(0)
                    }
                };
                close(what, all.select(0, Tensor::from_data(rows, device)).into_data());
            }
            if let Model::Writer(model) = model {
                let (mut state, output) = model.read(&[&ids[..PROMPT]].into_iter().collect(), device);
                let mut logits = vec![output.logits];
                for token in &ids[PROMPT..PROMPT + 5] {
                    logits.push(model.step(&[*token], &mut state).logits);
                }
                close("cached", Tensor::cat(logits, 0).into_data());
            }
        }
    }
}

#[test]
fn every_dialect_computes_what_transformers_computes() {
    for case in Case::all() {
        for device in devices() {
            let model = case.load(case.folder.path(), &device, None);
            case.check(&model, &device);
        }
    }
}

#[test]
fn what_is_saved_of_a_dialect_computes_the_same() {
    let saved =
        |name: &str| -> PathBuf { Path::new(env!("CARGO_TARGET_TMPDIR")).join("dialects").join(name) };
    for case in Case::all() {
        let (folder, device) = (saved(&case.name), Device::flex());
        case.load(case.folder.path(), &device, Some(&folder));
        let model = case.load(&folder, &device, None);
        case.check(&model, &device);
    }
}

#[test]
fn what_is_converted_of_a_dialect_computes_the_same() {
    for case in Case::all() {
        let (to, device) = (tempfile::tempdir().unwrap(), Device::flex());
        convert(case.folder.path(), to.path(), &ConvertConfig::default()).unwrap();
        let model = case.load(to.path(), &device, None);
        case.check(&model, &device);
    }
}

/// Sequences of unequal length, packed and padded: each has the angles of its own length.
#[test]
fn a_batch_changes_no_sequence() {
    let rows: [&[i32]; 3] = [&[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19], &[7, 8, 9], &[20; 13]];
    let lengths = rows.map(<[i32]>::len);
    let all = rows.concat();
    let close = |name: &str, found: Tensor<2>, expected: Tensor<2>| {
        let error = relative_error(&found.into_data(), &expected.into_data());
        assert!(error < TOLERANCE, "{name}: off by {error}");
    };
    for case in Case::all() {
        for device in devices() {
            match case.load(case.folder.path(), &device, None) {
                Model::Writer(model) => {
                    let alone = rows.map(|row| model.logits(&[row].into_iter().collect(), &device));
                    let sequences: Sequences = rows.into_iter().collect();
                    close(&case.name, model.logits(&sequences, &device), Tensor::cat(alone.to_vec(), 0));
                    // The prompts are read side by side, and go on so.
                    let (mut state, _) = model.read(&sequences, &device);
                    let together = model.step(&[6, 7, 8], &mut state).logits;
                    let alone = rows.iter().zip([6, 7, 8]).map(|(row, next)| {
                        let (mut state, _) = model.read(&[*row].into_iter().collect(), &device);
                        model.step(&[next], &mut state).logits
                    });
                    close(&case.name, together, Tensor::cat(alone.collect(), 0));
                }
                Model::Encoder(model) => {
                    let states = |ids: &[i32], lengths: &[usize]| {
                        let input = BertInput::packed(ids, lengths, &device);
                        model.forward(input).last_hidden_state.squeeze_dim::<2>(0)
                    };
                    let alone = rows.map(|row| states(row, &[row.len()]));
                    let alone = Tensor::cat(alone.to_vec(), 0);
                    close(&case.name, states(&all, &lengths), alone.clone());
                    // Padded at the end, with ids that change nothing.
                    let padded = rows.map(|row| [row, &[9; 15][row.len()..]].concat()).concat();
                    let ids = Tensor::<2, Int>::from_data(TensorData::new(padded, [3, 15]), &device);
                    let ignored: Vec<bool> =
                        lengths.iter().flat_map(|len| (0..15).map(move |at| at >= *len)).collect();
                    let mask =
                        Tensor::<2, Bool>::from_data(TensorData::new(ignored.clone(), [3, 15]), &device);
                    let states = model.forward(BertInput::new(ids).with_pad_mask(mask)).last_hidden_state;
                    let kept: Vec<i32> = (0..45).filter(|at| !ignored[*at as usize]).collect();
                    let kept = Tensor::<1, Int>::from_data(kept.as_slice(), &device);
                    close(&case.name, states.reshape([45, 16]).select(0, kept), alone);
                }
            }
        }
    }
}
