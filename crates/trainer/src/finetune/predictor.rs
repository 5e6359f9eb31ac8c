//! Prediction with a model from a folder: JSON in, JSON out, or a split of labelled data.

use super::config::FineTuneRun;
use super::kind::TaskSettings;
use super::model_folder::{TASK_FILE, TaskFile};
use super::predict::InputKey;
use super::recurrent;
use super::saved_model::{OpenedModel, SavedModel};
use super::section::TaskSection;
use super::task::bad_setting;
use super::task_model::{Answered, AnyTaskModel, Asked, Measurement, Predicted, Setup};
use crate::config::Run;
use crate::engine::Advance;
use crate::fit::check_fit;
use crate::requests::Respond;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::PretrainedFolder;
use cloze_tokenizer::Tokenizer;
use serde::Serialize;
use serde_json::Value;
use std::any::Any;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// A tokenizer and a task model from one folder. Can be shared between threads.
///
/// The model multiplies in the precision of the caller's scope, [`with_precision`](cloze_ops::with_precision),
/// whose documentation explains bf16; for an example see [`Embedder`](crate::embed::Embedder).
#[derive(Debug)]
pub struct Predictor {
    folder: PathBuf,
    /// The task's name.
    kind: String,
    /// The task, if it belongs to this crate.
    section: Option<TaskSection>,
    model: Box<dyn AnyTaskModel>,
    setup: Setup,
    max_positions: usize,
    /// The encoder, if the model has one.
    encoder: Option<BertConfig>,
}

/// The labelled examples to evaluate on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EvaluationData<'a> {
    /// All of these files.
    Files(&'a [String]),
    /// The part of the training data that a run with this config holds out, from its `data.dev_fraction` and
    /// its seed.
    HeldOut,
}

impl Predictor {
    /// Loads a fine-tuned folder, or one of any supported transformers class. The task comes from `task.json`
    /// or, without that file, from `architectures`, `problem_type` and `id2label`.
    ///
    /// With `int8` the encoder's layers multiply in 8 bits: faster and slightly less exact. `device` must be
    /// one without autodiff.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; [`TrainerError::BadTaskFile`] if the task cannot be determined,
    /// [`TrainerError::NoTaskHead`] for a model that was never trained for it,
    /// [`TrainerError::VocabularyMismatch`], [`TrainerError::UnfitTokenizer`].
    pub fn load(folder: &Path, device: &Device, int8: bool) -> Result<Self> {
        let tokenizer = Tokenizer::load(folder)?;
        if let Some((file, model)) = recurrent::open(folder, &tokenizer, device, int8)? {
            let setup = Setup { tokenizer, max_len: file.max_len, device: device.clone() };
            let kind = kind_of(&file.task);
            let section = Some(file.task);
            return Ok(Self {
                folder: folder.into(),
                kind,
                section,
                model,
                setup,
                max_positions: usize::MAX,
                encoder: None,
            });
        }
        let pretrained = PretrainedFolder::open(folder)?;
        let file = TaskFile::of_folder(folder, &pretrained.config, &tokenizer)?;
        let section = Some(file.task.clone());
        Ok(Self { section, ..Self::open(file, folder, tokenizer, pretrained, device, int8)? })
    }

    /// Same as [`load`](Self::load), for a folder whose `task.json` has a section of another crate.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn load_as<S: TaskSettings>(folder: &Path, device: &Device, int8: bool) -> Result<Self> {
        let tokenizer = Tokenizer::load(folder)?;
        let pretrained = PretrainedFolder::open(folder)?;
        let missing = || TrainerError::BadTaskFile { path: folder.join(TASK_FILE), reason: "missing".into() };
        let file = TaskFile::<S>::read(folder)?.ok_or_else(missing)?;
        Self::open(file, folder, tokenizer, pretrained, device, int8)
    }

    fn open<S: TaskSettings>(
        TaskFile { task, max_len, pairs }: TaskFile<S>,
        folder: &Path,
        tokenizer: Tokenizer,
        pretrained: PretrainedFolder,
        device: &Device,
        int8: bool,
    ) -> Result<Self> {
        let saved = SavedModel { folder, tokenizer: &tokenizer, pretrained, pairs, int8, device };
        let OpenedModel { encoder, model, report } = task.kind().open(saved)?;
        if let Some(missing) = report.missing.into_iter().next() {
            return Err(TrainerError::NoTaskHead { folder: folder.into(), missing });
        }
        check_fit(&tokenizer, &encoder, folder, model.has_pairs())?;
        let max_positions = encoder.max_positions;
        let setup = Setup { tokenizer, max_len: max_len.min(max_positions), device: device.clone() };
        let kind = kind_of(&task);
        let encoder = Some(encoder);
        Ok(Self { folder: folder.into(), kind, section: None, model, setup, max_positions, encoder })
    }

    /// The task's name, the `kind` in a config.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The task, with its labels; `None` for a task of another crate.
    pub fn task(&self) -> Option<&TaskSection> {
        self.section.as_ref()
    }

    /// The expected form of an input line, for error messages.
    pub fn input(&self) -> &'static str {
        self.model.input()
    }

    /// The keys read from an input line.
    pub fn input_keys(&self) -> &'static [InputKey] {
        self.model.input_keys()
    }

    /// The keys of an answer.
    pub fn answer_keys(&self) -> Vec<&'static str> {
        self.model.answer_keys()
    }

    /// The maximum tokens of a sequence, special tokens included.
    pub fn max_len(&self) -> usize {
        self.setup.max_len
    }

    /// Makes each prediction list the `n` best answers as `n_best`, limited by the task's own `n_best`.
    ///
    /// # Errors
    /// [`TrainerError::Setting`] for a task whose predictions have no such list.
    pub fn list(&mut self, n: usize) -> Result<()> {
        match self.model.list(n) {
            true => Ok(()),
            false => {
                let expected = format!("none: a model for {} has one answer", self.kind);
                Err(bad_setting("n_best", n, expected))
            }
        }
    }

    /// Sets the probability threshold of predicted labels, in place of the folder's own.
    ///
    /// # Errors
    /// [`TrainerError::Setting`] for a task without a threshold, or for a value not between 0 and 1, exclusive.
    pub fn predict_above(&mut self, threshold: f64) -> Result<()> {
        let refuse = |expected| Err(bad_setting("threshold", threshold, expected));
        if !(threshold > 0.0 && threshold < 1.0) {
            return refuse("a number above 0 and below 1".into());
        }
        match self.model.predict_above(threshold) {
            true => Ok(()),
            false => refuse(format!("none: a model for {} has no threshold", self.kind)),
        }
    }

    /// The model's answers to input lines, up to the first invalid line. Other lines only affect the last
    /// digits of a prediction. Reports each batch to `progress`.
    ///
    /// # Errors
    /// A folder whose maximum length is too short for a token of each text.
    pub fn predict<S: AsRef<str>>(
        &self,
        lines: &[S],
        progress: &mut dyn FnMut(Advance),
    ) -> Result<Predicted> {
        let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        self.model.predict(&lines, &self.setup, progress)
    }

    /// Evaluates the model on examples that are read, tokenised and measured as configured. The config's
    /// checkpoint is ignored. Reports each batch to `progress`.
    ///
    /// # Errors
    /// A config for another kind of task than the model's, or with longer sequences than it supports; those of
    /// reading the data; [`TrainerError::NoExamples`],
    /// [`EvaluationError::NoFigure`](cloze_evaluation::EvaluationError::NoFigure).
    pub fn evaluate<S: TaskSettings>(
        &self,
        config: &Run<FineTuneRun<S>>,
        examples: EvaluationData<'_>,
        progress: &mut dyn FnMut(Advance),
    ) -> Result<Measurement> {
        self.evaluate_singly(config, examples, 0, progress)
    }

    /// The same, and answers `singly` of the examples by themselves as well, for their
    /// [latency](super::Cost::latencies).
    ///
    /// # Errors
    /// Those of [`evaluate`](Self::evaluate).
    pub fn evaluate_singly<S: TaskSettings>(
        &self,
        config: &Run<FineTuneRun<S>>,
        examples: EvaluationData<'_>,
        singly: usize,
        progress: &mut dyn FnMut(Advance),
    ) -> Result<Measurement> {
        let (of_model, of_config) = (&self.kind, kind_of(&config.task));
        if *of_model != of_config {
            let expected = format!("{of_model}, the task of the model in {}", self.folder.display());
            return Err(bad_setting("task.kind", of_config, expected));
        }
        let max_len = config.data.max_len;
        if max_len > self.max_positions {
            let expected = format!("at most {}, the positions of the model", self.max_positions);
            return Err(bad_setting("data.max_len", max_len, expected));
        }
        let (files, share) = match (examples, config.data.dev_fraction) {
            (EvaluationData::Files(files), _) => (files, None),
            (EvaluationData::HeldOut, Some(share)) => (&config.data.train.files[..], Some(share)),
            (EvaluationData::HeldOut, None) => {
                let expected = "the share of the training data to hold out".into();
                return Err(bad_setting("data.dev_fraction", "not there", expected));
            }
        };
        let source = config.data.train.with_files(files.to_vec());
        let asked = Asked { config: config.tuning(), section: &config.task, source: &source, share, singly };
        let mut measured = self.model.evaluate(asked, &self.setup, progress)?;
        let lengths = &measured.cost.lengths;
        let flops = |encoder: &BertConfig| lengths.iter().map(|len| encoder.flops(*len)).sum();
        measured.cost.flops = self.encoder.as_ref().map(flops);
        Ok(measured)
    }
}

/// An encoded line of JSON.
pub struct LineUnit(Box<dyn Any + Send>);

/// A request is the JSON value of a line.
impl Respond for Predictor {
    type Request = Value;
    type Unit = LineUnit;
    type Answer = Answered;

    fn encode(&self, line: Value) -> Result<LineUnit> {
        self.model.encode(line, &self.setup).map(LineUnit)
    }

    fn cost(&self, unit: &LineUnit) -> usize {
        self.model.cost(&*unit.0)
    }

    fn answer(&self, units: &[&LineUnit]) -> Vec<Result<Answered>> {
        let units: Vec<&dyn Any> = units.iter().map(|unit| &*unit.0 as &dyn Any).collect();
        self.model.answer(&units, &self.setup)
    }
}

/// A task's `kind` in a config.
pub(super) fn kind_of<S: Serialize>(task: &S) -> String {
    let task = serde_json::to_value(task).expect("strings and numbers");
    task["kind"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::config::FineTuneConfig;
    use super::super::held_out::held_out;
    use super::super::model_folder::TASK_FILE;
    use super::super::predict::testing::{encoder, init, saved};
    use super::super::texts::TextTask;
    use super::*;
    use cloze_data::labelled::LabelSet;
    use cloze_model::bert::Bert;
    use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
    use std::fs;
    use tempfile::TempDir;

    fn classifier(labels: &[&str], max_len: usize) -> TempDir {
        saved(TextTask::new(Some(LabelSet::given(labels.iter().copied()).unwrap()), None), max_len)
    }

    fn load(folder: &TempDir) -> Result<Predictor> {
        Predictor::load(folder.path(), &Device::flex(), false)
    }

    fn predict(predictor: &Predictor, lines: &[&str]) -> Predicted {
        predictor.predict(lines, &mut |_| {}).unwrap()
    }

    const LINES: [&str; 5] =
        [r#""some long words of text""#, r#"{"text": "b"}"#, r#"{"text": "a", "pair": "c d"}"#, " ", r#""""#];

    #[test]
    fn threads_share_a_predictor() {
        fn shared<T: Send + Sync>() {}
        shared::<crate::embed::Embedder>();
        shared::<crate::fill_mask::FillMask>();

        let folder = classifier(&["no", "yes"], 12);
        let predictor = load(&folder).unwrap();
        let alone = predict(&predictor, &LINES).values;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(predict(&predictor, &LINES).values, alone));
            }
        });
    }

    #[test]
    fn a_prediction_depends_on_nothing_but_its_input() {
        let folder = classifier(&["no", "yes", "who knows"], 12);
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
        assert!(predict(&predictor, &[]).values.is_empty());

        let quantized = Predictor::load(folder.path(), &Device::flex(), true).unwrap();
        let score = |predictor| predict(predictor, &LINES[..1]).values[0]["scores"]["yes"].as_f64().unwrap();
        assert!((score(&quantized) - score(&predictor)).abs() < 0.1);
        assert_ne!(score(&quantized), score(&predictor));
    }

    #[test]
    fn a_number_is_one_output_to_those_who_read_the_config_alone() {
        let folder = saved(TextTask::new(None, None), 12);
        let before = predict(&load(&folder).unwrap(), &LINES[1..2]).values;
        assert!(before[0]["value"].is_number(), "{}", before[0]);
        fs::remove_file(folder.path().join(TASK_FILE)).unwrap();
        assert_eq!(predict(&load(&folder).unwrap(), &LINES[1..2]).values, before);
        let config = fs::read(folder.path().join("config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["id2label"], serde_json::json!({ "0": "LABEL_0" }));
    }

    #[test]
    fn without_a_task_file_the_config_says_the_task() {
        let folder = classifier(&["no", "yes"], 12);
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
        let several = with(&[("problem_type", "multi_label_classification".into())]).unwrap();
        let value = predict(&several, &LINES[1..2]).values.remove(0);
        let scores = value["scores"].as_object().unwrap();
        let above: Vec<&String> =
            scores.iter().filter(|(_, score)| score.as_f64().unwrap() > 0.5).map(|(name, _)| name).collect();
        assert_eq!(value["labels"], serde_json::json!(above));
        let twice = error(&[("id2label", serde_json::json!({"0": "a", "1": "a"}))]);
        assert!(
            twice.ends_with("has the name `a` for 0 and 1; give each its own name there, and in `label2id`"),
            "{twice}"
        );
        let two = error(&[("problem_type", "regression".into())]);
        assert!(two.ends_with("a regression of 2 numbers; expected one"), "{two}");
        let encoder = error(&[("architectures", vec!["BertModel"].into())]);
        assert!(encoder.contains("cannot determine the task from `architectures` (BertModel)"), "{encoder}");
        let t5 = error(&[("architectures", vec!["T5ForSequenceClassification"].into())]);
        assert!(t5.contains("T5ForSequenceClassification reads texts with an encoder and a decoder"), "{t5}");
        let words = with(&[("architectures", vec!["BertForTokenClassification"].into())]).unwrap();
        let tagged = predict(&words, &["\"a b\""]).values.remove(0);
        assert!(tagged["tags"].as_array().unwrap().iter().all(|tag| tag == "no" || tag == "yes"), "{tagged}");
        assert_eq!(tagged["entities"], serde_json::json!([]));
        let one = error(&[
            ("id2label", serde_json::json!({"0": "a"})),
            ("problem_type", "single_label_classification".into()),
        ]);
        assert!(one.contains("one class with `problem_type` = \"single_label_classification\""), "{one}");
        let three = error(&[("id2label", serde_json::json!({"0": "a", "1": "b", "2": "c"}))]);
        assert!(three.contains("classifier.weight` has shape [2, 16]"), "{three}");
    }

    #[test]
    fn a_model_without_a_head_is_none_to_ask() {
        let folder = classifier(&["no", "yes"], 12);
        let bert: Bert = encoder().init_encoder(&mut init());
        let save = SaveConfig::new(Architecture::SequenceClassification);
        save_pretrained(folder.path(), &bert, &encoder(), &save).unwrap();
        let message = load(&folder).unwrap_err().to_string();
        assert!(message.contains("has no trained head (`classifier.bias` is missing)"), "{message}");
    }

    #[test]
    fn a_split_is_measured_as_its_config_says() {
        let folder = classifier(&["no", "yes"], 12);
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
        let mut split = config("classification", 12);
        let evaluation = predictor.evaluate(&split, EvaluationData::Files(&files), &mut |_| {}).unwrap();
        let lines = texts.map(|text| Value::from(text).to_string());
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let values = predict(&predictor, &lines).values;
        let right = values.iter().filter(|value| value["label"] == "yes").count();
        assert_eq!(evaluation.figures.get("accuracy"), Some(right as f64 / 6.0));
        assert_eq!(evaluation.predictions.len(), 6);

        split.data.train = split.data.train.with_files(files.clone());
        let held = |config: &FineTuneConfig| predictor.evaluate(config, EvaluationData::HeldOut, &mut |_| {});
        let none = held(&split).err().unwrap().to_string();
        assert!(none.starts_with("`data.dev_fraction` is not there; expected the share"), "{none}");
        split.data.dev_fraction = Some(0.5);
        let places = held_out(6, 0.5, split.common.run.seed);
        let right =
            values.iter().zip(places).filter(|(value, held)| *held && value["label"] == "yes").count();
        let evaluation = held(&split).unwrap();
        assert_eq!(evaluation.figures.get("accuracy"), Some(right as f64 / 3.0));
        assert_eq!(evaluation.predictions.len(), 3);

        let error = |config: &FineTuneConfig| {
            predictor.evaluate(config, EvaluationData::Files(&files), &mut |_| {}).err().unwrap().to_string()
        };
        let other = error(&config("regression", 12));
        assert!(other.starts_with("`task.kind` is regression; expected classification, the task"), "{other}");
        let long = error(&config("classification", 21));
        assert_eq!(long, "`data.max_len` is 21; expected at most 20, the positions of the model");
        fs::write(&path, "text\tlabel\na\tmaybe\n").unwrap();
        assert!(error(&config("classification", 12)).contains("maybe"));
    }
}
