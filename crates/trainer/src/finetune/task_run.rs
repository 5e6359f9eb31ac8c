//! A run with its config read and its folder open, as passed to a kind of task for training.

use super::config::Tuning;
use super::distillation::Distillation;
use super::pruning::Job;
use super::reading::{Reading, TaskData};
use super::start::{Prepared, prepare, prepare_backbone, prepare_new};
use super::task::{PretrainedTask, Task, bad_setting};
use crate::Result;
use crate::engine::run_folder::RunFolder;
use crate::engine::{ModelFormat, Outcome, RunOptions, train_in};
use crate::metrics::progress::RunProgress;
use cloze_model::HasBackbone;
use cloze_tokenizer::Tokenizer;

/// A run before its task and data are known.
pub struct TaskRun<'a> {
    /// Its config.
    pub config: Tuning<'a>,
    /// Its options.
    pub options: &'a RunOptions<'a>,
    pub(super) folder: RunFolder,
    /// What to remove from the checkpoint, in place of training it.
    pub(super) pruning: Option<&'a Job<'a>>,
}

impl<'a> TaskRun<'a> {
    /// The checkpoint's tokenizer.
    ///
    /// # Errors
    /// A missing or damaged tokenizer file.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        Tokenizer::load(&self.config.model.path).map_err(Into::into)
    }

    /// Reads the splits besides the training data.
    pub fn reading<'p>(&'p self, progress: &'p mut dyn RunProgress) -> Reading<'p> {
        Reading { config: self.config, held_out: self.folder.held_out(), progress }
    }

    /// Trains the checkpoint's encoder with a head for the task.
    ///
    /// # Errors
    /// Settings inconsistent with the data or the checkpoint; those of the run.
    pub fn train<T: PretrainedTask>(
        self,
        task: &T,
        data: TaskData<T>,
        tokenizer: &Tokenizer,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let Self { config, options, folder, pruning } = self;
        if let Some(job) = pruning {
            return job.run(config, options, tokenizer, task, data, progress);
        }
        let Prepared { recipe, model, settings } = prepare(config, options, tokenizer, task, data, progress)?;
        train_in(&folder, &recipe, model, &settings, options, progress)
    }

    /// Trains a new model for the task, without a checkpoint, and saves it in `format`.
    ///
    /// # Errors
    /// Settings inconsistent with the data; those of the run.
    pub fn train_new<'t, T: Task>(
        self,
        task: &'t T,
        data: TaskData<T>,
        model: T::Model,
        format: Box<dyn ModelFormat<T::Model> + Send + 't>,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        self.train_student(task, data, model, format, None, progress)
    }

    /// The same with a [`teacher`](Self::teacher), if there is one.
    pub(super) fn train_student<'t, T: Task>(
        self,
        task: &'t T,
        data: TaskData<T>,
        model: T::Model,
        format: Box<dyn ModelFormat<T::Model> + Send + 't>,
        distillation: Option<Distillation<'t>>,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let Self { config, options, folder, pruning } = self;
        refuse_pruning(pruning)?;
        let Prepared { recipe, model, settings } =
            prepare_new(config, task, data, model, format, distillation, progress)?;
        train_in(&folder, &recipe, model, &settings, options, progress)
    }

    /// The configured teacher of a student with the task `S`: a model with a checkpoint's encoder for the task `T`.
    ///
    /// # Errors
    /// A teacher that does not fit the student.
    pub(super) fn teacher<S, T>(
        &self,
        student: &S,
        data: &TaskData<S>,
        progress: &mut dyn RunProgress,
    ) -> Result<Option<Distillation<'a>>>
    where
        S: Task,
        T: PretrainedTask<Example = S::Example, Features = S::Features> + 'a,
    {
        Distillation::open::<S, T>(student, data, None, self.config, self.options, progress)
    }

    /// The same for a model with a checkpoint's backbone; `origin` lists its new parameters and the
    /// checkpoint's unused ones.
    #[expect(clippy::too_many_arguments, reason = "a run, a model, and what each of them has")]
    pub(super) fn train_backbone<'t, T: Task<Model: HasBackbone>>(
        self,
        task: &'t T,
        data: TaskData<T>,
        model: T::Model,
        format: Box<dyn ModelFormat<T::Model> + Send + 't>,
        origin: [String; 2],
        distillation: Option<Distillation<'t>>,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let Self { config, options, folder, pruning } = self;
        refuse_pruning(pruning)?;
        let Prepared { recipe, model, settings } =
            prepare_backbone(config, task, data, model, format, origin, distillation, progress)?;
        train_in(&folder, &recipe, model, &settings, options, progress)
    }
}

/// Only an encoder of a published family has heads to remove.
fn refuse_pruning(job: Option<&Job<'_>>) -> Result<()> {
    match job {
        None => Ok(()),
        Some(_) => Err(bad_setting("--model", "a recurrent model", "a model with an encoder".into())),
    }
}
