//! A run whose config is read and whose folder is open, as a kind of task gets it: the way on to a trained model.

use super::config::Tuning;
use super::form::Form;
use super::reading::{Reading, TaskData};
use super::start::{Prepared, prepare, prepare_backbone, prepare_new};
use super::task::{PretrainedTask, Task};
use crate::Result;
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::metrics::progress::RunProgress;
use cloze_model::HasBackbone;
use cloze_tokenizer::Tokenizer;

/// What a run has before its task and data.
pub struct TaskRun<'a> {
    /// What it is told.
    pub config: Tuning<'a>,
    /// How it is carried out.
    pub options: &'a RunOptions<'a>,
    pub(super) folder: RunFolder,
}

impl TaskRun<'_> {
    /// The checkpoint's tokenizer.
    ///
    /// # Errors
    /// Whatever is missing or damaged in its files.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        Tokenizer::load(&self.config.model.path).map_err(Into::into)
    }

    /// What reads the splits beside the training data.
    pub fn reading<'p>(&'p self, progress: &'p mut dyn RunProgress) -> Reading<'p> {
        Reading { config: self.config, held_out: self.folder.held_out(), progress }
    }

    /// Trains the checkpoint's encoder with a head for the task.
    ///
    /// # Errors
    /// Settings that do not fit the data or the checkpoint; those of the run.
    pub fn train<T: PretrainedTask>(
        self,
        task: &T,
        data: TaskData<T>,
        tokenizer: &Tokenizer,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let Self { config, options, folder } = self;
        let Prepared { recipe, model, settings } = prepare(config, options, tokenizer, task, data, progress)?;
        train_in(&folder, &recipe, model, &settings, options, progress)
    }

    /// Trains a model for the task that is not a checkpoint's, and is kept as `form` says.
    ///
    /// # Errors
    /// Settings that do not fit the data; those of the run.
    pub fn train_new<'t, T: Task>(
        self,
        task: &'t T,
        data: TaskData<T>,
        model: T::Model,
        form: Box<dyn Form<T::Model> + Send + Sync + 't>,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let Self { config, options, folder } = self;
        let Prepared { recipe, model, settings } = prepare_new(config, task, data, model, form, progress)?;
        train_in(&folder, &recipe, model, &settings, options, progress)
    }

    /// The same of a model that has a checkpoint's backbone; `origin` says what is new of it, and what of the checkpoint is
    /// not used.
    pub(super) fn train_backbone<'t, T: Task<Model: HasBackbone>>(
        self,
        task: &'t T,
        data: TaskData<T>,
        model: T::Model,
        form: Box<dyn Form<T::Model> + Send + Sync + 't>,
        origin: [String; 2],
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let Self { config, options, folder } = self;
        let Prepared { recipe, model, settings } =
            prepare_backbone(config, task, data, model, form, origin, progress)?;
        train_in(&folder, &recipe, model, &settings, options, progress)
    }
}
