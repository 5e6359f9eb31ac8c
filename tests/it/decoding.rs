//! Decoding against transformers' `generate`: `tests/fixtures/decoding/export.py`. The model is a table of logits.

use crate::golden::{Golden, fixture};
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::blocks::pack_weights;
use cloze_model::generate::{
    BeamSearch, DecodeConfig, EarlyStopping, Hypothesis, LanguageModel, LengthPenalty, NextToken, Request,
    Search, StepOutput, continue_prompts, translate,
};
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{DecodeOptions, load_published, read_decode_settings};
use cloze_model::seq2seq::TransformerConfig;
use cloze_model::{ParamInit, Sequences};
use serde_json::Value;

/// The next token's logits, by the last two tokens.
struct Table {
    logits: Vec<f32>,
    vocab_size: usize,
}

impl Table {
    fn output(&self, rows: &[[i32; 2]]) -> StepOutput {
        let n = self.vocab_size;
        let rows_of = rows
            .iter()
            .map(|[before, last]| &self.logits[(*before as usize * n + *last as usize) * n..][..n]);
        let data = TensorData::new(rows_of.flatten().copied().collect::<Vec<f32>>(), [rows.len(), n]);
        StepOutput::new(Tensor::from_data(data, &Device::flex()))
    }
}

impl NextToken for Table {
    type State = Vec<[i32; 2]>;

    fn step(&self, tokens: &[i32], state: &mut Self::State) -> StepOutput {
        assert_eq!(tokens.len(), state.len());
        state.iter_mut().zip(tokens).for_each(|(row, token)| *row = [row[1], *token]);
        self.output(state)
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) {
        *state = rows.iter().map(|row| state[*row]).collect();
    }

    fn join(&self, state: &mut Self::State, other: Self::State) {
        state.extend(other);
    }
}

impl LanguageModel for Table {
    fn read(&self, prompts: &Sequences, _: &Device) -> (Self::State, StepOutput) {
        let state: Self::State = prompts.iter().map(|ids| [ids[ids.len() - 2], ids[ids.len() - 1]]).collect();
        let output = self.output(&state);
        (state, output)
    }
}

fn ids(value: &Value) -> Vec<i32> {
    match value.as_array() {
        Some(all) => all.iter().map(|id| id.as_i64().unwrap() as i32).collect(),
        None => value.as_i64().into_iter().map(|id| id as i32).collect(),
    }
}

fn config(settings: &Value) -> DecodeConfig {
    let number = |key: &str| settings.get(key).and_then(Value::as_u64).map(|n| n as usize);
    let mut config = DecodeConfig::new(ids(&settings["eos_token_id"]));
    if let Some(beams) = number("num_beams") {
        let mut beam = BeamSearch::new(beams);
        if let Some(alpha) = settings.get("length_penalty").and_then(Value::as_f64) {
            beam.length_penalty = LengthPenalty::Power(alpha);
        }
        beam.early_stopping = match settings.get("early_stopping") {
            None => EarlyStopping::Likely,
            Some(Value::Bool(true)) => EarlyStopping::Full,
            Some(other) => {
                assert_eq!(other, "never");
                EarlyStopping::Never
            }
        };
        config.search = Search::Beam(beam);
    }
    config.n_best = number("num_return_sequences").unwrap_or(1);
    config.min_new = number("min_new_tokens").unwrap_or(0);
    config.no_repeat_ngram = number("no_repeat_ngram_size").unwrap_or(0);
    config.repetition_penalty =
        settings.get("repetition_penalty").and_then(Value::as_f64).unwrap_or(1.0) as f32;
    if let Some(bad) = settings.get("bad_words_ids").and_then(Value::as_array) {
        config.forbidden_ids = bad.iter().flat_map(ids).collect();
    }
    config
}

#[test]
fn texts_and_scores_are_those_of_transformers() {
    let folder = fixture("decoding");
    let table = Golden::open(&folder).data("table");
    let model = Table { vocab_size: table.shape()[0], logits: table.try_into_vec().unwrap() };
    let about: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("cases.json")).unwrap()).unwrap();
    let prompts: Vec<Vec<i32>> = about["prompts"].as_array().unwrap().iter().map(ids).collect();
    let cases = about["cases"].as_object().unwrap();
    assert_eq!(cases.len(), 17);
    let device = Device::flex();
    for (name, case) in cases {
        let max_new = case["settings"]["max_new_tokens"].as_u64().unwrap() as usize;
        // All side by side, and one after the other.
        for batch in [1, 2, 9] {
            let config = config(&case["settings"]);
            let requests = prompts.iter().map(|prompt| Request::new(prompt.clone(), max_new));
            let found = continue_prompts(&model, &config, &device, requests).unwrap().with_batch(batch);
            let mut count = 0;
            for ((found, expected), prompt) in found.zip(case["texts"].as_array().unwrap()).zip(&prompts) {
                let (found, expected) = (found.unwrap(), expected.as_array().unwrap());
                assert_eq!(found.len(), expected.len(), "{name}, {prompt:?}");
                for (found, expected) in found.iter().zip(expected) {
                    assert_eq!(found.ids, ids(&expected["ids"]), "{name}, {prompt:?}");
                    assert_eq!(found.ended, expected["ended"], "{name}, {prompt:?}");
                    if let Some(score) = expected["score"].as_f64() {
                        assert!((found.score - score).abs() < 1e-4, "{name}: {} and {score}", found.score);
                    }
                }
                count += 1;
            }
            assert_eq!(count, prompts.len());
        }
    }
}

/// What a model's search is to find, `[input][text]`: tokens and, of a beam, scores.
fn compare(name: &str, found: &[Vec<Hypothesis>], expected: &Value) {
    let expected = expected.as_array().unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let expected = expected.as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.ids, ids(&expected["ids"]), "{name}");
            if let Some(score) = expected["score"].as_f64() {
                assert!((found.score - score).abs() < 1e-4, "{name}: {} and {score}", found.score);
            }
        }
    }
}

#[test]
fn models_write_what_those_of_transformers_do() {
    let text = std::fs::read_to_string(fixture("decoding").join("models.json")).unwrap();
    let about: Value = serde_json::from_str(&text).unwrap();
    let max_new = about["max_new"].as_u64().unwrap() as usize;
    let mut count = 0;
    // A device with gradients would draw these models' dropout.
    {
        let device = Device::flex();
        for (name, model) in about["models"].as_object().unwrap() {
            let (folder, init) = (fixture(name), &mut ParamInit::new(&device, 0));
            let id = |key: &str| model[key].as_i64().unwrap() as i32;
            let inputs = about["inputs"].as_array().unwrap().iter().map(|input| {
                let mut input = ids(input);
                input.extend(model["seq2seq"].as_bool().unwrap().then(|| id("end")));
                Request::new(input, max_new)
            });
            let inputs: Vec<Request> = inputs.collect();
            for (search, expected) in model["searches"].as_object().unwrap() {
                let mut settings = expected["settings"].clone();
                settings["eos_token_id"] = model["stop"].clone();
                let config = config(&settings);
                let found: Vec<Vec<Hypothesis>> = if model["seq2seq"] == false {
                    let (_, mut model, _) = load_published::<GptConfig>(&folder, init).unwrap();
                    if search == "beam" {
                        pack_weights(&mut model);
                    }
                    let found = continue_prompts(&model, &config, &device, inputs.clone()).unwrap();
                    found.with_batch(2).map(|found| found.unwrap()).collect()
                } else {
                    let (_, mut model, _) = load_published::<TransformerConfig>(&folder, init).unwrap();
                    if search == "beam" {
                        pack_weights(&mut model);
                    }
                    let found = translate(&model, id("start"), &config, &device, inputs.clone()).unwrap();
                    found.with_batch(2).map(|found| found.unwrap()).collect()
                };
                eprintln!(
                    "{name}, {search}: {:?}",
                    found.iter().map(|x| x[0].ids.clone()).collect::<Vec<_>>()
                );
                compare(&format!("{name}, {search}"), &found, &expected["texts"]);
                count += 1;
            }
        }
    }
    assert_eq!(count, 7 * 4);
}

/// What a folder's `generation_config.json` says, read from a folder, does what it does in transformers 4.57 and 5.24:
/// `tests/fixtures/decoding/export_settings.py`.
#[test]
fn a_folders_settings_do_what_they_do_in_transformers() {
    let text = std::fs::read_to_string(fixture("decoding").join("settings.json")).unwrap();
    let about: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(about["versions"], serde_json::json!(["4.57.6", "5.24.0"]));
    let device = Device::flex();
    let mut failed = Vec::new();
    let mut count = 0;
    for (name, model) in about["models"].as_object().unwrap() {
        let id = |key: &str| model[key].as_i64().unwrap() as i32;
        let is_seq2seq = model["seq2seq"].as_bool().unwrap();
        for (case, expected) in model["cases"].as_object().unwrap() {
            let folder = tempfile::tempdir().unwrap();
            let mut file = expected["settings"].clone();
            let n_best = file["num_return_sequences"].take().as_u64().unwrap_or(1) as usize;
            std::fs::write(folder.path().join("generation_config.json"), file.to_string()).unwrap();
            let settings = read_decode_settings(folder.path(), &DecodeOptions::default()).unwrap();
            let config = settings.config(settings.search(Search::Greedy)).with_n_best(n_best);
            let inputs = about["inputs"].as_array().unwrap().iter().map(|input| {
                let mut input = ids(input);
                input.extend(is_seq2seq.then(|| id("end")));
                let before = if is_seq2seq { 1 } else { input.len() };
                let max_new = settings.max_new(before).unwrap();
                Request::new(input, max_new)
            });
            let inputs: Vec<Request> = inputs.collect();
            let (from, init) = (fixture(name), &mut ParamInit::new(&device, 0));
            let found: Vec<Vec<Hypothesis>> = if is_seq2seq {
                let (_, model, _) = load_published::<TransformerConfig>(&from, init).unwrap();
                let found = translate(&model, id("start"), &config, &device, inputs).unwrap();
                found.with_batch(2).map(|found| found.unwrap()).collect()
            } else {
                let (_, model, _) = load_published::<GptConfig>(&from, init).unwrap();
                let found = continue_prompts(&model, &config, &device, inputs).unwrap();
                found.with_batch(2).map(|found| found.unwrap()).collect()
            };
            for (found, expected) in found.iter().zip(expected["texts"].as_array().unwrap()) {
                for (found, expected) in found.iter().zip(expected.as_array().unwrap()) {
                    let score = expected["score"].as_f64();
                    let same = score.is_none_or(|score| (found.score - score).abs() < 1e-4);
                    if found.ids != ids(&expected["ids"]) || !same {
                        failed.push(format!(
                            "{name}, {case}: {:?} {} is not {expected}",
                            found.ids, found.score
                        ));
                    }
                }
            }
            count += 1;
        }
    }
    assert_eq!(count, 5 * 18);
    assert!(failed.is_empty(), "{failed:#?}");
}
