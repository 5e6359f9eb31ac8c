//! What a config and a saved folder ask of a kind of task. Another crate adds a kind by its section, which is [`TaskSettings`].

use super::config::Tuning;
use super::saved_model::{OpenedModel, SavedModel};
use super::section::{TaggingSection, TaskSection};
use super::task_run::TaskRun;
use crate::Result;
use crate::config::validate::Check;
use crate::engine::Outcome;
use crate::metrics::progress::RunProgress;
use cloze_model::bert::Pooling;
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

    /// Reads the data, and fine-tunes.
    ///
    /// # Errors
    /// Those of reading the data and of the run.
    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome>;

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

impl RecurrentTask<'_> {
    /// The pooling that the section asks for.
    pub(super) fn pooling(self) -> Option<Pooling> {
        match self {
            Self::Texts(
                TaskSection::Classification { pooling, .. }
                | TaskSection::MultiLabel { pooling, .. }
                | TaskSection::Regression { pooling, .. },
            ) => *pooling,
            _ => None,
        }
    }
}
