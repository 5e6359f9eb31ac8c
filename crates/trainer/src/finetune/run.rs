//! A fine-tuning run from the config to the saved model.

use super::config::{self, FineTuneRun, Tuning};
use super::form::Form;
use super::kinds::TaskSettings;
use super::reading::{Reading, TaskData, inputs_of};
use super::recurrent;
use super::start::{Prepared, prepare, prepare_backbone, prepare_new};
use super::task::{PretrainedTask, Task};
use crate::Result;
use crate::config::{ConfigFile, Run};
use crate::engine::origin::Input;
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::metrics::progress::RunProgress;
use crate::runs::RunKind;
use cloze_model::HasBackbone;
use cloze_tokenizer::Tokenizer;
use std::path::PathBuf;

/// Fine-tunes a checkpoint as `config` says: data, steps, evaluations, the best model, its report.
///
/// # Errors
/// Whatever is wrong with the config's data, checkpoint, or run folder; a non-finite loss where the config says
/// to stop on one.
pub fn fine_tune<S: TaskSettings>(
    config: &Run<FineTuneRun<S>>,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    folder.check_inputs(inputs_of(config)?)?;
    let kind = config.task.kind();
    let run = TaskRun { config: config.tuning(&*kind), options, folder };
    match recurrent::Body::of(run.config) {
        Some(body) => recurrent::fine_tune(body, run, progress),
        None => kind.tune(run, progress),
    }
}

/// Fine-tunes for a task on data in memory, as `config` says: of its `[task]` and `[data]` only the longest sequence counts.
///
/// # Errors
/// Those of [`fine_tune`].
pub fn fine_tune_task<S: TaskSettings, T: PretrainedTask>(
    task: &T,
    data: TaskData<T>,
    tokenizer: &Tokenizer,
    config: &Run<FineTuneRun<S>>,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    let kind = config.task.kind();
    TaskRun { config: config.tuning(&*kind), options, folder }.train(task, data, tokenizer, progress)
}

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

impl<S: TaskSettings> RunKind for FineTuneRun<S> {
    const FREE_KEYS: &'static [&'static str] =
        &["run.name", "train.recompute", "eval.batch_tokens", "checkpoint.", "log.", "data.test"];

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("task").is_some_and(S::is_of)
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        config::read(file, sets)
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        self.model.recurrent.is_none().then_some(&mut self.model.path)
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        inputs_of(self)
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        fine_tune(run, options, progress)
    }
}
