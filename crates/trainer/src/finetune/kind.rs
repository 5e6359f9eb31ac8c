//! What a kind of task provides to configs and saved folders. Other crates add kinds by a section that
//! implements [`TaskSettings`].

use super::config::Tuning;
use super::saved_model::{OpenedModel, SavedModel};
use super::section::{TaggingSection, TaskSection};
use super::task_run::TaskRun;
use crate::Result;
use crate::config::validate::Check;
use crate::engine::Outcome;
use crate::metrics::progress::RunProgress;
use cloze_data::labelled::LabelledSource;
use cloze_model::bert::Pooling;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::path::Path;

/// The `[task]` of a config, and of a model's folder.
pub trait TaskSettings:
    Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Whether this section type covers the `kind`.
    fn is_of(kind: &str) -> bool;

    /// The implementation of the task.
    fn kind(&self) -> Box<dyn TaskKind + '_>;
}

/// A kind of task. Each is implemented where its [`Task`](super::Task) is.
pub trait TaskKind: Sync {
    /// Checks the task's keys and their consistency with the others.
    ///
    /// # Errors
    /// The first invalid one.
    fn check(&self, _config: Tuning<'_>) -> Check {
        Ok(())
    }

    /// The default maximum tokens of a sequence.
    fn default_max_len(&self) -> usize {
        128
    }

    /// Whether a model must be trained before it can predict anything.
    fn needs_training(&self) -> bool {
        true
    }

    /// Whether training starts from a checkpoint (or a recurrent model in its place).
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

    /// The size of training data, by which absent settings are [chosen](super::by_size); none if the task chooses none.
    ///
    /// # Errors
    /// Those of reading the data.
    fn size(&self, _data: &LabelledSource) -> Result<Option<DataSize>> {
        Ok(None)
    }

    /// The task of a recurrent model, if there are such models for it.
    fn recurrent(&self) -> Option<RecurrentTask<'_>> {
        None
    }

    /// Reads the data and fine-tunes.
    ///
    /// # Errors
    /// Those of reading the data and of the run.
    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome>;

    /// Loads the model of a saved folder.
    ///
    /// # Errors
    /// A mismatch in the folder's task; checkpoint errors.
    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel>;
}

/// The size of training data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DataSize {
    /// Usable examples.
    pub rows: usize,
    /// Classes, if each example has one.
    pub classes: Option<usize>,
    /// Whether the loss compares the examples of a batch.
    pub compares: bool,
}

impl DataSize {
    /// Of examples without classes.
    pub fn of_rows(rows: usize) -> Self {
        Self { rows, ..Self::default() }
    }
}

/// A task that recurrent models support.
#[derive(Debug, Clone, Copy)]
pub enum RecurrentTask<'a> {
    /// Classes of texts, or numbers.
    Texts(&'a TaskSection),
    /// Tags of words.
    Tags(&'a TaggingSection),
}

impl RecurrentTask<'_> {
    /// The section's pooling.
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
