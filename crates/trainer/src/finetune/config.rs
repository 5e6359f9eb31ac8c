//! A fine-tuning run's configuration, read as strictly as a [pretraining run's](crate::config).

use super::recurrent::section::RecurrentSection;
use super::section::TaskSection;
use crate::config::{Common, NonFinite, Precision, Run};
use cloze_data::labelled::LabelledSource;
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
    /// All but the task.
    pub(super) fn tuning(&self) -> Tuning<'_> {
        let FineTuneRun { model, data, train, eval, .. } = &self.kind;
        Tuning { common: &self.common, model, data, train, eval }
    }
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
pub(super) fn unset() -> usize {
    usize::MAX
}

fn one() -> usize {
    1
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
