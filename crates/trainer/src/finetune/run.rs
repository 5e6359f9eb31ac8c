//! A fine-tuning run from the config to the saved model.

use super::config::{self, FineTuneConfig, FineTuneRun};
use super::reading::{Reading, TaskData, inputs_of};
use super::recurrent;
use super::start::{Prepared, prepare};
use super::task::PretrainedTask;
use crate::Result;
use crate::config::{ConfigFile, Run};
use crate::engine::origin::Input;
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::metrics::progress::RunProgress;
use crate::runs::RunKind;
use cloze_tokenizer::Tokenizer;
use std::path::PathBuf;

/// Fine-tunes a checkpoint as `config` says: data, steps, evaluations, the best model, its report.
///
/// # Errors
/// Whatever is wrong with the config's data, checkpoint, or run folder; a non-finite loss where the config says
/// to stop on one.
pub fn fine_tune(
    config: &FineTuneConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    folder.check_inputs(inputs_of(config)?)?;
    if let Some(section) = &config.model.recurrent {
        return recurrent::fine_tune(config, section, options, folder, progress);
    }
    if recurrent::is_awd_lstm(&config.model.path) {
        return recurrent::fine_tune_awd_lstm(config, options, folder, progress);
    }
    if recurrent::is_elmo(&config.model.path) {
        return recurrent::fine_tune_elmo(config, options, folder, progress);
    }
    let tokenizer = Tokenizer::load(&config.model.path)?;
    let run = TaskRun { config, options, folder, tokenizer: &tokenizer };
    config.task.kind().tune(run, progress)
}

/// Fine-tunes for a custom task on data in memory, as `config` says: of its `[task]` and `[data]` only the
/// longest sequence counts.
///
/// # Errors
/// Those of [`fine_tune`].
pub fn fine_tune_task<T: PretrainedTask>(
    task: &T,
    data: TaskData<T>,
    tokenizer: &Tokenizer,
    config: &FineTuneConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    TaskRun { config, options, folder, tokenizer }.train(task, data, progress)
}

/// What a run has before its task and data.
pub(super) struct TaskRun<'a> {
    pub config: &'a FineTuneConfig,
    pub options: &'a RunOptions<'a>,
    pub folder: RunFolder,
    pub tokenizer: &'a Tokenizer,
}

impl TaskRun<'_> {
    /// What reads the splits beside the training data.
    pub fn reading<'p>(&'p self, progress: &'p mut dyn RunProgress) -> Reading<'p> {
        Reading { config: self.config, held_out: self.folder.held_out(), progress }
    }

    /// Trains a model for the task.
    ///
    /// # Errors
    /// Settings that do not fit the data or the checkpoint; those of the run.
    pub fn train<T: PretrainedTask>(
        self,
        task: &T,
        data: TaskData<T>,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let Self { config, options, folder, tokenizer } = self;
        let Prepared { recipe, model, settings } = prepare(config, options, tokenizer, task, data, progress)?;
        train_in(&folder, &recipe, model, &settings, options, progress)
    }
}

impl RunKind for FineTuneRun {
    const FREE_KEYS: &'static [&'static str] =
        &["run.name", "train.recompute", "eval.batch_tokens", "checkpoint.", "log.", "data.test"];

    fn is_of(file: &ConfigFile) -> bool {
        file.has("task")
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
