//! A fine-tuning run's configuration, read as strictly as a [pretraining run's](crate::config).

use super::recurrent::section::RecurrentSection;
use super::section::TaskSection;
use crate::config::{Common, NonFinite, Precision, Run};
use crate::distillation::DistillationSection;
use crate::pruning::PruningSection;
use crate::quantization::QuantizationSection;
use cloze_data::labelled::LabelledSource;
use cloze_model::blocks::LoraConfig;
use cloze_model::tasks::DropoutOverrides;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Configures a run that fine-tunes a checkpoint, or trains a recurrent model, on labelled data: any file
/// with `[task]`.
///
/// [`FineTuneConfig::load`] resolves one from a file; its `[task]` section distinguishes it from a
/// pretraining run's.
pub type FineTuneConfig = Run<FineTuneRun>;

/// The sections of a [`FineTuneConfig`] besides those common to all runs. Tasks of other crates have their own
/// section type `S`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FineTuneRun<S = TaskSection> {
    /// `[task]`: what is predicted.
    pub task: S,
    /// `[model]`: the checkpoint, and which parts are trained.
    pub model: FineTuneModel,
    /// `[data]`: examples for training and evaluation.
    pub data: DataSection,
    /// `[train]`: epochs and batches.
    pub train: FineTuneTrain,
    /// `[distillation]`: a teacher. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distillation: Option<DistillationSection>,
    /// `[pruning]`: masks on the encoder's weights. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pruning: Option<PruningSection>,
    /// `[quantization]`: rounded weights and inputs in the encoder's layers. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<QuantizationSection>,
    /// `[eval]`: when to evaluate, by which metric, and when to stop.
    #[serde(default)]
    pub eval: FineTuneEval,
}

/// A fine-tuning config independent of the task.
#[derive(Clone, Copy)]
pub struct Tuning<'a> {
    /// The sections common to all runs.
    pub common: &'a Common,
    /// `[model]`
    pub model: &'a FineTuneModel,
    /// `[data]`
    pub data: &'a DataSection,
    /// `[train]`
    pub train: &'a FineTuneTrain,
    /// `[distillation]`
    pub distillation: Option<&'a DistillationSection>,
    /// `[pruning]`
    pub pruning: Option<&'a PruningSection>,
    /// `[quantization]`
    pub quantization: Option<&'a QuantizationSection>,
    /// `[eval]`
    pub eval: &'a FineTuneEval,
}

impl<S> Run<FineTuneRun<S>> {
    /// All sections except the task.
    pub(super) fn tuning(&self) -> Tuning<'_> {
        let FineTuneRun { model, data, train, distillation, pruning, quantization, eval, .. } = &self.kind;
        let (distillation, pruning) = (distillation.as_ref(), pruning.as_ref());
        let quantization = quantization.as_ref();
        Tuning { common: &self.common, model, data, train, distillation, pruning, quantization, eval }
    }
}

/// `[model]`: the checkpoint, and which parts are trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FineTuneModel {
    /// The checkpoint: a Hugging Face folder, relative to the current directory; `cloze` also takes a name on
    /// the hub. Or the folder of an AWD-LSTM, for classification and regression: it supports only
    /// `dropout.head`, and no `lora`. Or that of an ELMo, also for tagging: a bidirectional LSTM reads a mix
    /// of its layers, `dropout.hidden` applies to the encoder, `dropout.head` (0.5) to the mix and the LSTM's
    /// states, and `lora` is not supported. Default none; required without `recurrent`.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub path: PathBuf,
    /// A recurrent model to train from scratch, in place of a checkpoint, for classification, regression and
    /// tagging. It excludes the other keys of this table. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrent: Option<RecurrentSection>,
    /// Whether the checkpoint's weights are ignored: the seed initialises new ones for the same network, with
    /// the same tokenizer, which shows the effect of pretraining. Default false.
    #[serde(default)]
    pub untrained: bool,
    /// The layers to keep of the checkpoint, counted from 0, in order: `[0, 2, 4]` starts a student of three
    /// layers from every other layer of six. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
    /// Dropout probabilities that replace the checkpoint's.
    #[serde(default)]
    pub dropout: DropoutOverrides,
    /// Patterns for the paths of frozen parameters: `["bert.*"]` freezes the whole encoder, which then
    /// encodes texts and pairs once instead of in every epoch, if its dropout is 0. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// Number of first layers to freeze, together with the embeddings. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze_layers: Option<usize>,
    /// Each layer's learning rate is this times that of the layer above it. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_decay: Option<f64>,
    /// Whether layers are unfrozen one by one: in the first epoch only the head is trained, each further epoch
    /// adds one layer from the last on, the embeddings at the end (Howard & Ruder 2018, §3.3). Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gradual_unfreezing: bool,
    /// Low-rank adapters, which are trained instead of the encoder and merged into it at the end. Default
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
}

pub(super) fn is_false(value: &bool) -> bool {
    !*value
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// `[data]`: examples for training and evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DataSection {
    /// The training data, and how all files are read.
    pub train: LabelledSource,
    /// Files for evaluation during training, which select the best model, read like the training data.
    /// Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev: Vec<String>,
    /// The fraction of the training data held out for evaluation during training, instead of files. Default
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev_fraction: Option<f64>,
    /// Files for evaluating the result, read like the training data. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<String>,
    /// Maximum tokens of a sequence. Default 128, and 384 for answers.
    #[serde(default = "unset")]
    pub max_len: usize,
    /// The language of all texts, if the model has language embeddings (XLM): a name in the checkpoint's
    /// `lang2id`, or its number, such as `"1"`. Default: the checkpoint's `lang_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Number of training examples per class, drawn by the seed from those not held out. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shots: Option<usize>,
    /// Number of training examples of any class, drawn by the seed from those not held out. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<usize>,
}

/// A value that no file can have; replaced by the task's default.
pub(super) fn unset() -> usize {
    usize::MAX
}

fn one() -> usize {
    1
}

/// `[train]`: epochs, batches and precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FineTuneTrain {
    /// Passes over the training data. 0 evaluates a prompt without training. For a checkpoint, `cloze train` chooses it by
    /// the number of training examples if it is absent.
    pub epochs: u64,
    /// Examples per micro-batch, the unit held in memory. For a checkpoint, `cloze train` chooses it by the number of
    /// training examples if it is absent.
    pub batch_size: usize,
    /// Maximum tokens of a micro-batch, counted with padding to its longest example. With long examples a
    /// micro-batch has fewer than `batch_size`. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_tokens: Option<usize>,
    /// Micro-batches averaged into one step. Default 1.
    #[serde(default = "one")]
    pub accumulate: usize,
    /// What to do on a non-finite loss or gradient. Default `"stop"`.
    #[serde(default)]
    pub non_finite: NonFinite,
    /// Precision of matrix products. Default `"f32"`.
    #[serde(default)]
    pub precision: Precision,
    /// Whether to recompute a layer's activations in the backward pass instead of keeping them: the same
    /// weights in less memory, for about one more forward pass. Only on flex. Default false.
    #[serde(default)]
    pub recompute: bool,
}

/// `[eval]`: when to evaluate, by which metric, and when to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct FineTuneEval {
    /// Evaluations per epoch, the last one at its end. Default 1.
    pub per_epoch: u64,
    /// The metric that decides which model is best. Default: the task's usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Number of evaluations in a row without a better metric, or an equal metric and a lower loss, after
    /// which training stops. Default none: training never stops early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Tokens per evaluation batch; only affects the last digits of results. Default 2,048.
    pub batch_tokens: usize,
}

impl Default for FineTuneEval {
    fn default() -> Self {
        Self { per_epoch: 1, metric: None, patience: None, batch_tokens: 2_048 }
    }
}
