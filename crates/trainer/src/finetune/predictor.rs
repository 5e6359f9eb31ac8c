//! A model's folder that is asked: JSON in, JSON out, or a split of labelled data.

use super::config::{FineTuneConfig, TaskSection};
use super::evaluate::{figures, outputs, predict};
use super::model_folder::{TASK_FILE, TaskFile};
use super::prompt::{PromptSection, PromptTask};
use super::task::{Task, argmax, softmax};
use super::texts::TextTask;
use crate::evaluation::figures::Figures;
use crate::evaluation::report::Predictions;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_data::SkipReport;
use cloze_data::labelled::{LabelSet, Target, TextExample};
use cloze_model::ParamInit;
use cloze_model::huggingface::{Architecture, Checkpoint, PretrainedConfig, ProblemType};
use cloze_model::tasks::{BertForMaskedLm, BertForSequenceClassification, DropoutOverrides};
use cloze_tokenizer::Tokenizer;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Tokens in a batch of predictions.
const BATCH_TOKENS: usize = 2_048;

/// A tokenizer and a model for a task, from one folder.
///
/// A further kind of task is an arm of [`Input`] and of the enum in here, and what each `match` of this file
/// asks of it.
#[derive(Debug)]
pub struct Predictor {
    folder: PathBuf,
    tokenizer: Tokenizer,
    task: TaskSection,
    kind: Kind,
    max_len: usize,
    max_positions: usize,
    device: Device,
}

#[derive(Debug)]
enum Kind {
    Texts(TextTask, BertForSequenceClassification),
    Prompt(PromptTask, BertForMaskedLm),
}

/// What is predicted of.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Input {
    /// Nothing, as an empty line is; `null` is predicted.
    Nothing,
    /// A text or a pair of texts.
    Text(TextExample),
}

/// What a model predicts.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// A JSON value for each input, in order: of classes `{"label": …, "score": …, "scores": {…}}` with the
    /// probabilities of all classes, of numbers `{"value": …}`. What is not a finite number is `null`.
    pub values: Vec<Value>,
    /// Inputs that had more than [`Predictor::max_len`] tokens and were cut.
    pub truncated: usize,
}

/// What a model is worth on a split of labelled data.
pub struct Evaluation {
    /// The figures.
    pub figures: Figures,
    /// Every example's prediction.
    pub predictions: Box<dyn Predictions>,
    /// Rows that were left out.
    pub skipped: SkipReport,
}

impl Predictor {
    /// Loads a fine-tuned folder, or any of a class of transformers that has a counterpart here: the task is
    /// that of `task.json`, and without one what `architectures`, `problem_type` and `id2label` say.
    ///
    /// With `int8` the encoder's layers multiply in 8 bits: faster, and a little less exact. `device` is one
    /// without autodiff.
    ///
    /// # Errors
    /// Whatever is missing or damaged in the folder, by name; [`TrainerError::BadTaskFile`] for a task that
    /// cannot be predicted, [`TrainerError::NoTaskHead`] for a model that was never trained for it,
    /// [`TrainerError::VocabularyMismatch`].
    pub fn load(folder: &Path, device: &Device, int8: bool) -> Result<Self> {
        let tokenizer = Tokenizer::load(folder)?;
        let checkpoint = Checkpoint::open(folder)?;
        let TaskFile { task: section, max_len } = match TaskFile::read(folder)? {
            Some(file) => file,
            None => TaskFile {
                task: section(&checkpoint.config, folder)?,
                max_len: tokenizer
                    .config()
                    .model_max_length
                    .or(tokenizer.truncation().map(|truncation| truncation.max_length))
                    .unwrap_or(usize::MAX),
            },
        };
        let init = &mut ParamInit::new(device, 0);
        let dropout = DropoutOverrides::default();
        let (encoder, kind, report) = match &section {
            TaskSection::Classification { .. } | TaskSection::Regression { .. } => {
                let task = TextTask::saved(&section)?;
                let (encoder, mut model, report) = task.model(checkpoint, &dropout, init)?;
                if int8 {
                    model.bert.quantize_int8();
                }
                (encoder, Kind::Texts(task, model), report)
            }
            TaskSection::Prompt(section) => {
                let task = PromptTask::new(section, &tokenizer, folder)?;
                let (encoder, mut model, report) = task.model(checkpoint, &dropout, init)?;
                if int8 {
                    model.bert.quantize_int8();
                }
                (encoder, Kind::Prompt(task, model), report)
            }
            other => {
                let reason = format!("a model for `{}` cannot be asked yet", kind_of(other));
                return Err(TrainerError::BadTaskFile { path: folder.join(TASK_FILE), reason });
            }
        };
        if let Some(missing) = report.missing.into_iter().next() {
            return Err(TrainerError::NoTaskHead { folder: folder.into(), missing });
        }
        if tokenizer.vocab_size() > encoder.vocab_size {
            return Err(TrainerError::VocabularyMismatch {
                folder: folder.into(),
                tokenizer: tokenizer.vocab_size(),
                model: encoder.vocab_size,
            });
        }
        let max_positions = encoder.max_positions;
        let max_len = max_len.min(max_positions);
        Ok(Self {
            folder: folder.into(),
            tokenizer,
            task: section,
            kind,
            max_len,
            max_positions,
            device: device.clone(),
        })
    }

    /// What it predicts, labels spelt out.
    pub fn task(&self) -> &TaskSection {
        &self.task
    }

    /// Tokens of a sequence at most, special ones among them.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// Reads a line of input: of texts `{"text": "…"}`, with `"pair"` for a second one, or a text as a JSON
    /// string. A line of white space is [`Input::Nothing`].
    ///
    /// # Errors
    /// [`TrainerError::BadInput`] for what is not JSON, and for keys and values that the task does not take.
    pub fn read(&self, line: &str) -> Result<Input> {
        if line.trim().is_empty() {
            return Ok(Input::Nothing);
        }
        let value = serde_json::from_str(line).map_err(|error| TrainerError::BadInput {
            problem: format!("not JSON ({error}); expected {}", self.expected()),
        })?;
        let read = match &self.kind {
            Kind::Texts(..) => text(value).map(Input::Text),
            Kind::Prompt(task, _) => text(value).and_then(|example| match task.template().misfit(&example) {
                Some(_) if example.pair.is_some() => {
                    Err("the model's template has no place for `pair`".into())
                }
                Some(_) => Err("`pair` is missing, which the model's template has a place for".into()),
                None => Ok(Input::Text(example)),
            }),
        };
        read.map_err(|found| TrainerError::BadInput {
            problem: format!("{found}; expected {}", self.expected()),
        })
    }

    /// What a line of input looks like.
    fn expected(&self) -> &'static str {
        match &self.kind {
            Kind::Texts(..) => r#"{"text": "…"}, {"text": "…", "pair": "…"} or "…""#,
            Kind::Prompt(task, _) if task.template().has_pair() => r#"{"text": "…", "pair": "…"}"#,
            Kind::Prompt(..) => r#"{"text": "…"} or "…""#,
        }
    }

    /// What the model says of each input. No prediction depends on the others, but in the last digits.
    ///
    /// # Errors
    /// [`TrainerError::BadInput`] for an input of another kind of task; a folder's length of sequences that has
    /// no room for a token of each text.
    pub fn predict(&self, inputs: &[Input]) -> Result<Predicted> {
        let mut values = vec![Value::Null; inputs.len()];
        let truncated = match &self.kind {
            Kind::Prompt(task, model) => {
                let (places, examples) = texts_of(inputs);
                let data = task.encode(&self.tokenizer, examples, self.max_len)?;
                let outputs = outputs(task, model, &data.features, BATCH_TOKENS, &self.device);
                for (place, output) in places.into_iter().zip(outputs) {
                    values[place] = class_of(&task.labels, &output);
                }
                data.features.iter().filter(|features| features.truncated).count()
            }
            Kind::Texts(task, model) => {
                let (places, examples) = texts_of(inputs);
                let data = TextTask::encode(&self.tokenizer, examples, self.max_len)?;
                let outputs = outputs(task, model, &data.features, BATCH_TOKENS, &self.device);
                for (place, output) in places.into_iter().zip(outputs) {
                    values[place] = match &task.labels {
                        Some(labels) => class_of(labels, &output),
                        None => value_of(&output),
                    };
                }
                data.features.iter().filter(|features| features.truncated).count()
            }
        };
        Ok(Predicted { values, truncated })
    }

    /// What the model is worth on `files`, which are read, cut into tokens and measured as `config` says.
    /// Its checkpoint is not read.
    ///
    /// # Errors
    /// A config for another kind of task than the model's, or with longer sequences than it takes; those of
    /// reading the data; [`TrainerError::NoExamples`], [`TrainerError::NoFigure`].
    pub fn evaluate(&self, config: &FineTuneConfig, files: &[String]) -> Result<Evaluation> {
        let (of_model, of_config) = (kind_of(&self.task), kind_of(&config.task));
        if of_model != of_config {
            return Err(TrainerError::Setting {
                key: "task.kind".into(),
                found: of_config,
                expected: format!("{of_model}, the task of the model in {}", self.folder.display()),
            });
        }
        let max_len = config.data.max_len;
        if max_len > self.max_positions {
            return Err(TrainerError::Setting {
                key: "data.max_len".into(),
                found: max_len.to_string(),
                expected: format!("at most {}, the positions of the model", self.max_positions),
            });
        }
        let source = config.data.train.with_files(files.to_vec());
        let (predictions, skipped) = match &self.kind {
            Kind::Texts(task, model) => {
                let mut task = task.clone();
                if let TaskSection::Classification { positive: Some(name), .. } = &config.task {
                    task = task.with_positive(name)?;
                }
                let (examples, skipped) = task.read_more(&source)?;
                let data = TextTask::encode(&self.tokenizer, examples, max_len)?;
                (predict(&task, model, &data, config.eval.batch_tokens, &self.device), skipped)
            }
            Kind::Prompt(task, model) => {
                let mut task = task.clone();
                if let TaskSection::Prompt(PromptSection { positive: Some(name), .. }) = &config.task {
                    task = task.with_positive(name)?;
                }
                let (examples, skipped) = task.read(&source)?;
                let data = task.encode(&self.tokenizer, examples, max_len)?;
                (predict(&task, model, &data, config.eval.batch_tokens, &self.device), skipped)
            }
        };
        if predictions.is_empty() {
            return Err(TrainerError::NoExamples { split: "evaluation" });
        }
        let figures = figures(&*predictions, config.eval.metric.as_deref())?;
        Ok(Evaluation { figures, predictions, skipped })
    }
}

/// The texts among the inputs, and their places.
fn texts_of(inputs: &[Input]) -> (Vec<usize>, Vec<TextExample>) {
    let texts = inputs.iter().enumerate().filter_map(|(place, input)| match input {
        Input::Nothing => None,
        Input::Text(example) => Some((place, example.clone())),
    });
    texts.unzip()
}

/// What a task's `kind` is in a config.
fn kind_of(task: &TaskSection) -> String {
    let task = serde_json::to_value(task).expect("strings and numbers");
    task["kind"].as_str().unwrap_or_default().to_owned()
}

/// The task of a folder without a `task.json`.
fn section(config: &PretrainedConfig, folder: &Path) -> Result<TaskSection> {
    let bad = |reason: String| Err(TrainerError::BadTaskFile { path: folder.join("config.json"), reason });
    match (config.architecture, config.problem_type) {
        (Architecture::SequenceClassification, Some(ProblemType::MultiLabel)) => {
            bad("a text with any number of labels is no task here; expected one label a text".into())
        }
        (Architecture::SequenceClassification, problem) => match (problem, config.labels.len()) {
            // As transformers decides where the file does not.
            (Some(ProblemType::Regression) | None, 1) => Ok(TaskSection::Regression { pooling: None }),
            (Some(ProblemType::Regression), n) => bad(format!("a regression of {n} numbers; expected one")),
            (_, _) => Ok(TaskSection::Classification {
                labels: config.labels.clone(),
                class_weights: Vec::new(),
                label_smoothing: 0.0,
                positive: None,
                pooling: None,
            }),
        },
        _ => bad(format!(
            "no task can be told from `architectures` ({}); expected a fine-tuned model",
            config.architectures.join(", ")
        )),
    }
}

/// A text or a pair of texts; what is wrong with it.
fn text(value: Value) -> std::result::Result<TextExample, String> {
    let mut fields = match value {
        Value::String(text) => Map::from_iter([("text".to_owned(), Value::String(text))]),
        Value::Object(fields) => fields,
        _ => return Err("neither an object nor a string".into()),
    };
    let mut take = |key: &str| match fields.shift_remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` is no string")),
    };
    let (text, pair) = (take("text")?, take("pair")?);
    match (text, fields.keys().next()) {
        (_, Some(key)) => Err(format!("unknown key `{}`", key.escape_debug())),
        (None, None) => Err("`text` is missing".into()),
        (Some(text), None) => Ok(TextExample { text, pair, target: Target::None }),
    }
}

fn class_of(labels: &LabelSet, logits: &[f32]) -> Value {
    let scores = softmax(logits);
    let best = argmax(&scores);
    let all = labels.names().iter().cloned().zip(scores.iter().map(|score| number(*score)));
    Value::Object(Map::from_iter([
        ("label".into(), labels.name(best).into()),
        ("score".into(), number(scores[best])),
        ("scores".into(), Value::Object(all.collect())),
    ]))
}

fn value_of(outputs: &[f32]) -> Value {
    Value::Object(Map::from_iter([("value".into(), number(f64::from(outputs[0])))]))
}

/// A number with the digits that FP32 has.
fn number(value: f64) -> Value {
    (value as f32).to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::super::model_folder::{ModelFolder, TASK_FILE};
    use super::*;
    use cloze_model::bert::{Bert, BertConfig};
    use cloze_model::huggingface::{SaveConfig, save_pretrained};
    use cloze_tokenizer::Vocab;
    use std::fs;
    use tempfile::TempDir;

    fn tokenizer() -> Tokenizer {
        let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
        let letters = ('a'..='z').flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
        Tokenizer::bert(Vocab::from_tokens(specials.into_iter().chain(letters)).unwrap(), true).unwrap()
    }

    fn encoder() -> BertConfig {
        BertConfig { d_ff: 24, n_heads: 2, max_positions: 20, ..BertConfig::new(57, 2, 16) }
    }

    fn init() -> ParamInit {
        ParamInit::new(&Device::flex(), 3).with_std(0.5)
    }

    /// A folder with a model of random weights.
    fn saved(labels: &[&str], max_len: usize) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let labels = (!labels.is_empty()).then(|| LabelSet::given(labels.iter().copied()).unwrap());
        let task = TextTask::new(labels, None);
        let encoder = encoder();
        let bert: Bert = encoder.init_encoder(&mut init());
        let head =
            Architecture::SequenceClassification.sequence_head(&encoder, task.n_outputs(), 0.1, &mut init());
        let model = BertForSequenceClassification::new(bert, head);
        let file = TaskFile { task: task.section(), max_len };
        ModelFolder { encoder: &encoder, tokenizer: &tokenizer(), file: &file, labels: task.labels.as_ref() }
            .save(&model, folder.path())
            .unwrap();
        folder
    }

    fn load(folder: &TempDir) -> Result<Predictor> {
        Predictor::load(folder.path(), &Device::flex(), false)
    }

    fn predict(predictor: &Predictor, lines: &[&str]) -> Predicted {
        let inputs: Vec<Input> = lines.iter().map(|line| predictor.read(line).unwrap()).collect();
        predictor.predict(&inputs).unwrap()
    }

    const LINES: [&str; 5] =
        [r#""some long words of text""#, r#"{"text": "b"}"#, r#"{"text": "a", "pair": "c d"}"#, " ", r#""""#];

    #[test]
    fn a_prediction_depends_on_nothing_but_its_input() {
        let folder = saved(&["no", "yes", "who knows"], 12);
        let predictor = load(&folder).unwrap();
        let all = predict(&predictor, &LINES);
        assert_eq!(all.truncated, 1);
        assert!(all.values[3].is_null());
        let close = |a: &Value, b: &Value| {
            assert_eq!(a["label"], b["label"]);
            for label in ["no", "yes", "who knows"] {
                let [a, b] = [a, b].map(|value| value["scores"][label].as_f64().unwrap());
                assert!((a - b).abs() < 1e-5, "{a} {b}");
            }
        };
        for (line, value) in LINES.iter().zip(&all.values).filter(|(_, value)| !value.is_null()) {
            close(&predict(&predictor, &[line]).values[0], value);
            assert_eq!(value["score"], value["scores"][value["label"].as_str().unwrap()]);
            let sum: f64 = value["scores"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
            assert!((sum - 1.0).abs() < 1e-6);
        }
        let reversed: Vec<&str> = LINES.iter().rev().copied().collect();
        let backwards = predict(&predictor, &reversed).values;
        all.values
            .iter()
            .zip(backwards.iter().rev())
            .filter(|(a, _)| !a.is_null())
            .for_each(|(a, b)| close(a, b));
        assert_ne!(all.values[0]["scores"], all.values[1]["scores"]);
        assert_eq!(predictor.predict(&[]).unwrap().values, Vec::<Value>::new());

        let quantized = Predictor::load(folder.path(), &Device::flex(), true).unwrap();
        let score = |predictor| predict(predictor, &LINES[..1]).values[0]["scores"]["yes"].as_f64().unwrap();
        assert!((score(&quantized) - score(&predictor)).abs() < 0.1);
        assert_ne!(score(&quantized), score(&predictor));
    }

    #[test]
    fn a_regression_predicts_a_number() {
        let predictor = load(&saved(&[], 12)).unwrap();
        let values = predict(&predictor, &LINES[..2]).values;
        assert!(values.iter().all(|value| value["value"].is_f64() && value.as_object().unwrap().len() == 1));
        assert_ne!(values[0], values[1]);
    }

    #[test]
    fn what_the_task_does_not_take_is_refused() {
        let predictor = load(&saved(&["no", "yes"], 12)).unwrap();
        for (line, expected) in [
            ("plain text", "not JSON (expected value at line 1 column 1)"),
            (r#"["a"]"#, "neither an object nor a string"),
            ("7", "neither an object nor a string"),
            (r#"{"pair": "a"}"#, "`text` is missing"),
            (r#"{"text": null}"#, "`text` is missing"),
            (r#"{"text": 7}"#, "`text` is no string"),
            (r#"{"text": "a", "pare": "b"}"#, "unknown key `pare`"),
        ] {
            let message = predictor.read(line).unwrap_err().to_string();
            assert!(message.starts_with(&format!("{expected}; expected ")), "{message}");
            assert!(message.ends_with(r#"{"text": "…"}, {"text": "…", "pair": "…"} or "…""#), "{message}");
        }
        // Shorter than a pair needs.
        let short = load(&saved(&["no", "yes"], 3)).unwrap();
        let pair = short.read(LINES[2]).unwrap();
        assert!(short.predict(&[pair]).unwrap_err().to_string().contains("`max_len` = 3"));
    }

    #[test]
    fn without_a_task_file_the_config_says_the_task() {
        let folder = saved(&["no", "yes"], 12);
        let before = predict(&load(&folder).unwrap(), &LINES[1..]).values;
        fs::remove_file(folder.path().join(TASK_FILE)).unwrap();
        let predictor = load(&folder).unwrap();
        assert_eq!(predictor.max_len(), 20);
        assert_eq!(predict(&predictor, &LINES[1..]).values, before);

        let path = folder.path().join("config.json");
        let config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let with = |changes: &[(&str, Value)]| {
            let mut config = config.clone();
            changes.iter().for_each(|(key, value)| config[key] = value.clone());
            fs::write(&path, config.to_string()).unwrap();
            load(&folder)
        };
        let error = |changes: &[(&str, Value)]| with(changes).unwrap_err().to_string();
        let names =
            with(&[("problem_type", Value::Null), ("id2label", Value::Null), ("label2id", Value::Null)]);
        let labels = predict(&names.unwrap(), &LINES[1..2]).values[0]["scores"].as_object().unwrap().clone();
        assert_eq!(labels.keys().collect::<Vec<_>>(), ["LABEL_0", "LABEL_1"]);
        let many = error(&[("problem_type", "multi_label_classification".into())]);
        assert!(many.contains("config.json: a text with any number of labels"), "{many}");
        let two = error(&[("problem_type", "regression".into())]);
        assert!(two.ends_with("a regression of 2 numbers; expected one"), "{two}");
        let tags = error(&[("architectures", vec!["BertForTokenClassification"].into())]);
        assert!(tags.contains("`architectures` (BertForTokenClassification)"), "{tags}");
        let three = error(&[("id2label", serde_json::json!({"0": "a", "1": "b", "2": "c"}))]);
        assert!(three.contains("classifier.weight` has shape [2, 16]"), "{three}");
    }

    #[test]
    fn a_model_without_a_head_is_none_to_ask() {
        let folder = saved(&["no", "yes"], 12);
        let bert: Bert = encoder().init_encoder(&mut init());
        let save = SaveConfig::new(Architecture::SequenceClassification);
        save_pretrained(folder.path(), &bert, &encoder(), &save).unwrap();
        let message = load(&folder).unwrap_err().to_string();
        assert!(message.contains("has no trained head (`classifier.bias` is missing)"), "{message}");
    }

    #[test]
    fn a_split_is_measured_as_its_config_says() {
        let folder = saved(&["no", "yes"], 12);
        let predictor = load(&folder).unwrap();
        let texts = ["a b c", "x", "quite some other text", "q r", "z z z z", "m"];
        let path = folder.path().join("dev.tsv");
        let rows: String = texts.iter().map(|text| format!("{text}\tyes\n")).collect();
        fs::write(&path, format!("text\tlabel\n{rows}")).unwrap();
        let config = |kind: &str, max_len: usize| {
            let text = format!(
                "[task]\nkind = \"{kind}\"\n[model]\npath = \"none\"\n[data]\ntrain = {{ files = [\"none\"] }}\n\
                 max_len = {max_len}\n[train]\nepochs = 1\nbatch_size = 1\n[optimizer]\nlr = 1e-3\n\
                 [schedule]\nkind = \"constant\"\n"
            );
            let path = folder.path().join("run.toml");
            fs::write(&path, text).unwrap();
            FineTuneConfig::load(&path, &[]).unwrap()
        };
        let files = [path.to_str().unwrap().to_owned()];
        let evaluation = predictor.evaluate(&config("classification", 12), &files).unwrap();
        let lines = texts.map(|text| Value::from(text).to_string());
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let values = predict(&predictor, &lines).values;
        let right = values.iter().filter(|value| value["label"] == "yes").count();
        assert_eq!(evaluation.figures.get("accuracy"), Some(right as f64 / 6.0));
        assert_eq!(evaluation.predictions.len(), 6);

        let error = |config: &FineTuneConfig| predictor.evaluate(config, &files).err().unwrap().to_string();
        let other = error(&config("regression", 12));
        assert!(other.starts_with("`task.kind` is regression; expected classification, the task"), "{other}");
        let long = error(&config("classification", 21));
        assert_eq!(long, "`data.max_len` is 21; expected at most 20, the positions of the model");
        fs::write(&path, "text\tlabel\na\tmaybe\n").unwrap();
        assert!(error(&config("classification", 12)).contains("maybe"));
    }
}
