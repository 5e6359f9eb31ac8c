//! A fine-tuning run's configuration, read as strictly as a [pretraining run's](crate::config).

use super::embedding::EmbeddingSection;
use super::kinds::{TaskKind, TaskSettings};
use super::prompt::PromptSection;
use super::recurrent::RecurrentSection;
use super::tags::TaggingSection;
use super::validate::validate;
use crate::config::{Common, ConfigFile, NonFinite, Precision, Run, layered};
use crate::error::Result;
use cloze_data::labelled::{AnswerConfig, LabelledSource, Windows};
use cloze_model::bert::Pooling;
use cloze_model::blocks::LoraConfig;
use cloze_model::tasks::DropoutOverrides;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Everything a fine-tuning run is told.
///
/// [`FineTuneConfig::load`] resolves one from a file, whose `[task]` tells it from a pretraining run's.
pub type FineTuneConfig = Run<FineTuneRun>;

/// The sections of a [`FineTuneConfig`] beside those that all runs have. Another crate's task has a section `S` of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FineTuneRun<S = TaskSection> {
    /// `[task]`: what is to be predicted.
    pub task: S,
    /// `[model]`: the checkpoint, and what of it is trained.
    pub model: FineTuneModel,
    /// `[data]`: examples to train on and to measure with.
    pub data: DataSection,
    /// `[train]`: epochs and batches.
    pub train: FineTuneTrain,
    /// `[eval]`: when to measure, by what, and when to stop.
    #[serde(default)]
    pub eval: FineTuneEval,
}

/// What a fine-tuning is told, whatever its task.
#[derive(Clone, Copy)]
pub struct Tuning<'a> {
    /// What all runs are told.
    pub common: &'a Common,
    /// The kind of task.
    pub task: &'a dyn TaskKind,
    /// `[model]`
    pub model: &'a FineTuneModel,
    /// `[data]`
    pub data: &'a DataSection,
    /// `[train]`
    pub train: &'a FineTuneTrain,
    /// `[eval]`
    pub eval: &'a FineTuneEval,
}

impl<S> Run<FineTuneRun<S>> {
    /// The run with this kind of task.
    pub(super) fn tuning<'a>(&'a self, task: &'a dyn TaskKind) -> Tuning<'a> {
        let FineTuneRun { model, data, train, eval, .. } = &self.kind;
        Tuning { common: &self.common, task, model, data, train, eval }
    }
}

/// `[task]`: what is to be predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum TaskSection {
    /// A class of each text or pair of texts.
    Classification {
        /// The classes, in the order of the head's outputs. Default: the classes of the training data.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        /// The weight of each class in the loss, in the order of the labels.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        class_weights: Vec<f32>,
        /// The share of each target that is spread over all classes. Default 0.
        #[serde(default)]
        label_smoothing: f64,
        /// If there are two classes, the one that precision, recall and F1 refer to. Default: the second.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        positive: Option<String>,
        /// How the encoder's states are pooled for the head. Default: as the family's own class in transformers does
        /// it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pooling: Option<Pooling>,
    },
    /// A number for each text or pair of texts.
    Regression {
        /// As for classification.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pooling: Option<Pooling>,
        /// What the numbers are trained by, and so what they are. Default `"squared-error"`.
        #[serde(default, skip_serializing_if = "is_default")]
        loss: ValueLoss,
    },
    /// Any number of labels of each text or pair of texts.
    MultiLabel {
        /// The labels, in the order of the head's outputs. Default: those of the training data.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        /// A label is predicted if its probability is above this. Default 0.5.
        #[serde(default = "half")]
        threshold: f64,
        /// As for classification.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pooling: Option<Pooling>,
    },
    /// The piece of a text that answers a question.
    Answers {
        /// Tokens that a window over a long text shares with the one before. Default 128.
        #[serde(default = "stride")]
        stride: usize,
        /// The most tokens of a question. A longer one is cut at its end. Default 64.
        #[serde(default = "max_question")]
        max_question: usize,
        /// The most tokens of an answer. Default 30.
        #[serde(default = "max_answer")]
        max_answer: usize,
        /// How many first and how many last tokens of a window are tried with each other. Default 20.
        #[serde(default = "n_best")]
        n_best: usize,
        /// No answer is given if the score for none exceeds that of the best answer by more than this (SQuAD 2.0).
        /// Default: 0 if the training data has questions without an answer; otherwise every question is answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        null_threshold: Option<f64>,
    },
    /// The right one of several choices.
    MultipleChoice {},
    /// A tag of each word, by which entities are found.
    Tagging(TaggingSection),
    /// An embedding of each sentence.
    Embedding(EmbeddingSection),
    /// A class of each text or pair of texts, by the word that the masked-LM head puts in a template's mask.
    Prompt(PromptSection),
}

/// What a number for each text or pair of texts is trained by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueLoss {
    /// The square of the number's distance from the label.
    #[default]
    SquaredError,
    /// The binary cross-entropy by a label from 0 to 1; the number is the sigmoid of the head's output. So a cross-encoder
    /// learns to rank texts for a query.
    BinaryCrossEntropy,
}

fn is_default(loss: &ValueLoss) -> bool {
    *loss == ValueLoss::default()
}

fn half() -> f64 {
    0.5
}

fn one() -> usize {
    1
}

fn stride() -> usize {
    Windows::default().stride
}

fn max_question() -> usize {
    Windows::default().max_question
}

fn max_answer() -> usize {
    AnswerConfig::default().max_answer
}

fn n_best() -> usize {
    AnswerConfig::default().n_best
}

/// `[model]`: the checkpoint, and what of it is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FineTuneModel {
    /// The Hugging Face folder, relative to the current directory; programs may take a hub's name too. Empty where
    /// there is a [recurrent](Self::recurrent) model.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub path: PathBuf,
    /// A recurrent model that is trained from scratch, in place of a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrent: Option<RecurrentSection>,
    /// Whether the checkpoint's weights are ignored. The seed then initialises new ones for its network, and its
    /// tokenizer stays, which shows what pretraining is worth. Default false.
    #[serde(default)]
    pub untrained: bool,
    /// Dropout probabilities that replace the checkpoint's.
    #[serde(default)]
    pub dropout: DropoutOverrides,
    /// Patterns for the paths of parameters that stay as they are, such as `bert.*` for the whole encoder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// How many of the first layers are frozen, together with the embeddings. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze_layers: Option<usize>,
    /// Each layer's learning rate is this times that of the layer above it. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_decay: Option<f64>,
    /// Whether layers begin to learn one after another: the head alone in the first epoch, with each epoch one more layer
    /// from the last on, the embeddings at the end (Howard & Ruder 2018, §3.3). Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gradual_unfreezing: bool,
    /// Low-rank adapters, which are trained instead of the encoder and merged into it at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// `[data]`: examples to train on and to measure with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DataSection {
    /// The training data, and how all files are read.
    pub train: LabelledSource,
    /// Files to measure with during training, read as the training data. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev: Vec<String>,
    /// The share of the training data that is held out to measure with during training, instead of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev_fraction: Option<f64>,
    /// Files to measure the result with, read as the training data. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<String>,
    /// The most tokens of a sequence. Default 128, and 384 for answers.
    #[serde(default = "unset")]
    pub max_len: usize,
    /// The language that all texts are in, where the model has language embeddings (XLM): a name in the checkpoint's
    /// `lang2id`, or its number. Default: the checkpoint's `lang_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// How many examples of each class are trained on. The seed draws them from what is not held out. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shots: Option<usize>,
}

/// A value that no file can have. The task's default replaces it.
fn unset() -> usize {
    usize::MAX
}

/// `[train]`: how much is trained, and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FineTuneTrain {
    /// Passes over the training data. 0 measures a prompt without training.
    pub epochs: u64,
    /// Examples in one micro-batch, which are in memory at once.
    pub batch_size: usize,
    /// The most tokens of a micro-batch, counted with padding to its longest example. If examples are long, a
    /// micro-batch has fewer than `batch_size`. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_tokens: Option<usize>,
    /// Micro-batches averaged into one step. Default 1.
    #[serde(default = "one")]
    pub accumulate: usize,
    /// What happens on a loss or gradient that is not finite. Default `"stop"`.
    #[serde(default)]
    pub non_finite: NonFinite,
    /// In what precision matrices are multiplied: `"f32"`, `"bf16"`, or on a graphics processor `"f16"`. Default `"f32"`.
    #[serde(default)]
    pub precision: Precision,
    /// Whether a layer's activations are computed again in the backward pass, see
    /// [`TrainSection::recompute`](crate::config::TrainSection::recompute). Default false.
    #[serde(default)]
    pub recompute: bool,
}

/// `[eval]`: when to measure, by what, and when to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct FineTuneEval {
    /// Evaluations in an epoch, the last one at its end. Default 1.
    pub per_epoch: u64,
    /// The figure that decides which model is the best. Default: the task's usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Training ends after this many evaluations in a row without a better figure, or an equal figure and a lower loss.
    /// Without this key it never ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Tokens in a batch of an evaluation. Only the last digits of results depend on it. Default 2,048.
    pub batch_tokens: usize,
}

impl Default for FineTuneEval {
    fn default() -> Self {
        Self { per_epoch: 1, metric: None, patience: None, batch_tokens: 2_048 }
    }
}

/// See [`RunKind::read`](crate::runs::RunKind::read).
pub(crate) fn read<S: TaskSettings>(file: &ConfigFile, sets: &[String]) -> Result<Run<FineTuneRun<S>>> {
    layered::read(file, sets, |config: &mut Run<FineTuneRun<S>>| {
        if config.data.max_len == unset() {
            let max_len = config.task.kind().default_max_len();
            config.data.max_len = max_len;
        }
        validate(config.tuning(&*config.task.kind()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::config::FolderConfig;
    use crate::runs::RunKind;
    use std::path::Path;

    const FILE: &str = r#"[task]
kind = "classification"

[model]
path = "model"

[data]
train = { files = ["train.tsv"] }
dev = ["dev.tsv"]

[train]
epochs = 3
batch_size = 32

[optimizer]
lr = 5e-5

[schedule]
kind = "linear"
"#;

    fn load(text: &str, sets: &[&str]) -> Result<FineTuneConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sst2.toml");
        std::fs::write(&path, text).unwrap();
        assert!(<FineTuneRun>::is_of(&ConfigFile::open(&path).unwrap()));
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let loaded = FineTuneConfig::load(&path, &sets);
        if let Ok(loaded) = &loaded {
            let parsed = FineTuneConfig::parse(text, "sst2", &Place::file(Path::new("memory")), &sets);
            assert_eq!(&parsed.unwrap(), loaded);
        }
        loaded
    }

    #[test]
    fn a_file_is_completed_and_reads_back() {
        let config = load(FILE, &["train.epochs=2", "model.dropout.hidden=0.2"]).unwrap();
        assert_eq!(
            (config.common.run.name.as_str(), config.train.epochs, config.data.max_len),
            ("sst2", 2, 128)
        );
        assert_eq!(config.model.dropout.hidden, Some(0.2));
        assert_eq!(load(&config.to_toml(), &[]).unwrap(), config);
        let other = load(FILE, &["train.epochs=2", "optimizer.lr=1e-4", "log.every=3"]).unwrap();
        let differences: Vec<String> = config.differences(&other).iter().map(ToString::to_string).collect();
        assert_eq!(
            differences,
            ["model.dropout.hidden: 0.2 became absent", "optimizer.lr: 0.00005 became 0.0001"]
        );
    }

    #[test]
    fn mistakes_have_a_place() {
        let error = |text: &str, sets: &[&str]| load(text, sets).unwrap_err().to_string();
        let typo = error(&FILE.replace("epochs", "epoch"), &[]);
        assert!(typo.ends_with(":12: unknown key `train.epoch`; did you mean `train.epochs`?"), "{typo}");
        let zero = error(&FILE.replace("batch_size = 32", "batch_size = 0"), &[]);
        assert!(
            zero.ends_with(":13: `train.batch_size` is 0; expected a whole number of 1 or more"),
            "{zero}"
        );
        assert_eq!(
            error(FILE, &["model.layer_decay=1.5"]),
            "--set model.layer_decay=1.5: `model.layer_decay` is 1.5; expected a number above 0, at most 1"
        );
        let answers = FILE.replace("classification", "answers");
        assert_eq!(load(&answers, &[]).unwrap().data.max_len, 384);
        assert_eq!(
            error(&answers, &["task.n_best=0"]),
            "--set task.n_best=0: `task.n_best` is 0; expected a whole number of 1 or more"
        );
        assert_eq!(
            error(&answers, &["task.null_threshold=nan"]),
            "--set task.null_threshold=nan: `task.null_threshold` is NaN; expected a number"
        );
    }
}
