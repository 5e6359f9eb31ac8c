//! The kinds of tasks that a config can name. Whatever depends on the kind is behind one trait, and chosen in one
//! place. Another crate adds a kind by its section, which is [`TaskSettings`].

use super::config::{TaskSection, Tuning};
use super::predict::PredictTask;
use super::predictor::{AnyTaskModel, TaskModel};
use super::run::TaskRun;
use super::tags::TaggingSection;
use super::task::PretrainedTask;
use crate::Result;
use crate::config::validate::Check;
use crate::engine::Outcome;
use crate::engine::optimizer::ParamGroup;
use crate::metrics::progress::RunProgress;
use burn::tensor::Device;
use cloze_model::bert::BertConfig;
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType};
use cloze_model::tasks::DropoutOverrides;
use cloze_model::{HasBackbone, ParamInit};
use cloze_tokenizer::Tokenizer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::path::Path;

/// The `[task]` of a config, and of a model's folder.
pub trait TaskSettings:
    Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Whether a section of this `kind` is one of these.
    fn is_of(kind: &str) -> bool;

    /// What is done for such a task.
    fn kind(&self) -> Box<dyn TaskKind + '_>;
}

/// A kind of task. Each is implemented where its [`Task`](super::Task) is.
pub trait TaskKind: Sync {
    /// Checks the task's keys, and how they go with the others.
    ///
    /// # Errors
    /// The first that is invalid.
    fn check(&self, _config: Tuning<'_>) -> Check {
        Ok(())
    }

    /// The most tokens of a sequence, if a config does not say.
    fn default_max_len(&self) -> usize {
        128
    }

    /// Whether a model has to be trained before it can predict anything.
    fn needs_training(&self) -> bool {
        true
    }

    /// Whether training begins with a checkpoint, or a recurrent model in its place.
    fn needs_checkpoint(&self) -> bool {
        true
    }

    /// Whether each example has one class.
    fn has_classes(&self) -> bool {
        false
    }

    /// Folders of other models that training reads.
    fn models(&self) -> Vec<&Path> {
        Vec::new()
    }

    /// The task of a recurrent model, if there are such models for it.
    fn recurrent(&self) -> Option<RecurrentTask<'_>> {
        None
    }

    /// Parameters of the head with settings of their own.
    fn parameter_groups(&self) -> Vec<ParamGroup> {
        Vec::new()
    }

    /// Reads the data, and fine-tunes.
    ///
    /// # Errors
    /// Those of reading the data and of the run.
    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome>;

    /// The class of transformers that models are saved as.
    fn saved_as(&self) -> (Architecture, Option<ProblemType>);

    /// The model of a saved folder.
    ///
    /// # Errors
    /// What does not fit in the folder's task; those of the checkpoint.
    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel>;
}

/// A task that recurrent models are trained for.
#[derive(Debug, Clone, Copy)]
pub enum RecurrentTask<'a> {
    /// Classes of texts, or numbers.
    Texts(&'a TaskSection),
    /// Tags of words.
    Tags(&'a TaggingSection),
}

impl TaskSettings for TaskSection {
    /// All: what is none of these is told with their names.
    fn is_of(_: &str) -> bool {
        true
    }

    /// The one place that tells them apart.
    fn kind(&self) -> Box<dyn TaskKind + '_> {
        match self {
            Self::Classification { .. } | Self::Regression { .. } | Self::MultiLabel { .. } => {
                Box::new(super::texts::TextKind(self))
            }
            Self::Answers { .. } => Box::new(super::answers::AnswerKind(self)),
            Self::MultipleChoice {} => Box::new(super::choices::ChoiceKind),
            Self::Tagging(section) => Box::new(super::tags::TagKind(section)),
            Self::Embedding(section) => Box::new(super::embedding::EmbeddingKind(section)),
            Self::Prompt(section) => Box::new(super::prompt::PromptKind(section)),
        }
    }
}

/// A folder that a model is loaded from.
pub struct SavedModel<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Its weights and what `config.json` says.
    pub pretrained: PretrainedFolder,
    /// Whether the task is of pairs of texts, where the folder says it.
    pub pairs: Option<bool>,
    /// Whether the encoder multiplies in 8 bits.
    pub int8: bool,
    /// Where the model is put.
    pub device: &'a Device,
}

/// A model that was loaded.
pub struct OpenedModel {
    pub(super) encoder: BertConfig,
    pub(super) model: Box<dyn AnyTaskModel>,
    pub(super) report: LoadReport,
}

impl SavedModel<'_> {
    /// The model as one for this task.
    ///
    /// # Errors
    /// Those of the checkpoint.
    pub fn open<T>(self, task: T) -> Result<OpenedModel>
    where
        T: PredictTask<Model: Sync> + PretrainedTask + Send + Sync + 'static,
    {
        let init = &mut ParamInit::new(self.device, 0);
        let (encoder, mut model, report) = task.model(self.pretrained, &DropoutOverrides::default(), init)?;
        let backbone = model.backbone_mut();
        if self.int8 {
            quantize_int8(backbone);
        } else {
            pack_weights(backbone);
        }
        Ok(OpenedModel { encoder, model: Box::new(TaskModel { task, model }), report })
    }
}
