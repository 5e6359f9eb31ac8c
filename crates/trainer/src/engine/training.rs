//! A model in training: its parameters, its optimiser, and how far it is, as checkpoints keep them.

use crate::engine::average::{Average, Averaging};
use crate::engine::checkpoint::{Checkpoints, CursorState, RunState, Snapshot};
use crate::engine::kernels;
use crate::engine::objective::Objective;
use crate::engine::optimizer::{Optimizer, OptimizerConfig};
use crate::engine::replicas::Alone;
use crate::engine::run_folder::RunFolder;
use crate::engine::settings::{NonFinite, Precision};
use crate::engine::step::{StepConfig, StepReport, step};
use crate::metrics::MetricsLog;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::Device;
use cloze_model::weights;
use cloze_ops::{on_awake_cores, unfused};
use std::path::PathBuf;

const IN_PLACE: &str = "the model is in its place between steps";

/// What a run's training begins with.
pub(crate) struct Start<'a> {
    pub folder: &'a RunFolder,
    /// With autodiff.
    pub device: Device,
    pub optimizer: OptimizerConfig,
    /// What is trained on: a hash of it.
    pub data: String,
    /// Of the steps' matrix products.
    pub precision: Precision,
    /// Of the weights, if the result is a mean.
    pub average: Option<Averaging>,
    /// Whether to go on from the newest whole checkpoint.
    pub resume: bool,
}

/// A model between two steps.
pub(crate) struct Training<M> {
    /// Out of its place during a step, which so finds its parameters held once and moves them where they are.
    model: Option<M>,
    optimizer: Optimizer,
    average: Option<Average<M>>,
    checkpoints: Checkpoints,
    pub state: RunState,
    pub log: MetricsLog,
    /// With autodiff.
    pub device: Device,
}

impl<M: Module> Training<M> {
    /// Before the first step, or after the last one that a checkpoint has.
    ///
    /// # Errors
    /// `changed`, given the checkpoint, where that was trained on other data; optimiser settings that fit no
    /// parameter; a folder that cannot be read or written.
    pub fn begin(
        start: Start<'_>,
        model: M,
        changed: impl FnOnce(PathBuf) -> TrainerError,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let Start { folder, device, optimizer: constants, data, precision, average, resume } = start;
        if let Some(reason) = unfused(&device) {
            progress.note(&format!("warning: {reason}"));
        }
        kernels::introduction(&device, precision.into()).iter().for_each(|line| progress.note(line));
        let kernel = kernels::kernel(&device, precision.into());
        let checkpoints = Checkpoints::open(folder.checkpoints())?;
        let checkpoint = if resume { newest(&checkpoints, &model, &data, progress)? } else { None };
        let (model, optimizer, average, mut state, log) = match checkpoint {
            Some(mut checkpoint) => {
                if checkpoint.state.data != data {
                    return Err(changed(checkpoints.path(checkpoint.state.step)));
                }
                let model = weights::replace(model, std::mem::take(&mut checkpoint.model));
                let inner = device.clone().inner();
                let moments = std::mem::take(&mut checkpoint.optimizer);
                let updates = checkpoint.state.updates;
                let optimizer = Optimizer::restore(constants, updates, moments, &model, &inner)?;
                let average = average.map(|settings| Average::restore(settings, &mut checkpoint, &model));
                let state = checkpoint.state;
                progress.note(&format!("resuming after step {}", state.step));
                if let Some(line) = kernels::change(&state.kernel, kernel) {
                    progress.note(&line);
                }
                let log = MetricsLog::resume(folder.path(), state.step)?;
                (model, optimizer, average, state, log)
            }
            None => {
                let optimizer = Optimizer::new(constants, &model)?;
                let average = average.map(Average::new);
                (model, optimizer, average, RunState::new(data), MetricsLog::create(folder.path())?)
            }
        };
        state.kernel = kernel.to_owned();
        Ok(Self { model: Some(model), optimizer, average, checkpoints, state, log, device })
    }

    pub fn model(&self) -> &M {
        self.model.as_ref().expect(IN_PLACE)
    }

    /// The model that evaluations measure, without autodiff: the mean of the weights, if the run has one that grows with
    /// its steps, else the weights.
    pub fn measured(&self) -> M {
        self.average.as_ref().and_then(Average::measured).unwrap_or_else(|| self.model().valid())
    }

    /// The mean of the weights that evaluations found best, if the run is to have it.
    pub fn mean_of_best(&self) -> Option<M> {
        self.average.as_ref().and_then(Average::unmeasured_result)
    }

    /// Tells the mean of an evaluation of the model, `name` its main figure.
    pub fn evaluated(&mut self, name: &str, figure: f64) {
        let model = self.model.as_ref().expect(IN_PLACE);
        if let Some(average) = &mut self.average {
            average.after_evaluation(model, self.state.step, name, figure);
        }
    }

    /// One step on `batches`, the first example of which is at `first`; `is_last` is of the run.
    ///
    /// # Errors
    /// Those of [`step`]; [`TrainerError::NonFinite`] where the loss or a gradient is not finite and the run is to stop on it.
    pub fn step<O: Objective<Model = M>>(
        &mut self,
        objective: &O,
        batches: &[O::Batch],
        constants: StepConfig,
        first: CursorState,
        non_finite: NonFinite,
        is_last: bool,
    ) -> Result<StepReport> {
        let model = self.model.take().expect(IN_PLACE);
        let Self { optimizer, device, .. } = self;
        let (model, report) =
            on_awake_cores(device, || step(objective, model, optimizer, batches, device, constants, &Alone));
        self.model = Some(model);
        let report = report?;
        if !report.updated && non_finite == NonFinite::Stop {
            let losses = objective.terms().iter().zip(&report.losses);
            return Err(TrainerError::NonFinite {
                step: constants.step,
                losses: losses.map(|(name, loss)| format!("{name} {loss}")).collect::<Vec<_>>().join(", "),
                grad_norm: report.grad_norm,
                epoch: first.epoch,
                example: first.example,
                checkpoint: self.checkpoints.steps()?.last().map(|step| self.checkpoints.path(*step)),
            });
        }
        self.state.step = constants.step;
        self.state.updates += u64::from(report.updated);
        self.state.window.add(&report);
        if let (Some(average), Some(model)) = (&mut self.average, &self.model) {
            let _average = tracing::trace_span!("average").entered();
            average.after_step(model, self.state.step, self.state.updates, report.updated, is_last);
        }
        Ok(report)
    }

    /// The last step that a checkpoint has.
    pub fn newest_checkpoint(&self) -> Result<Option<u64>> {
        Ok(self.checkpoints.steps()?.last().copied())
    }

    /// Saves all of it; of the checkpoints before, the last ones and that of step `best` stay.
    pub fn checkpoint(&mut self, keep_last: usize, best: Option<u64>) -> Result<()> {
        let _checkpoint = tracing::trace_span!("checkpoint").entered();
        self.state.average = self.average.as_ref().map_or_else(Vec::new, Average::state);
        self.checkpoints.save_snapshot(&Snapshot {
            state: &self.state,
            model: weights::on_device(self.model()),
            optimizer: self.optimizer.on_device(self.model()),
            average: self.average.as_ref().map_or_else(Default::default, Average::on_device),
        })?;
        self.checkpoints.prune(keep_last, best)
    }
}

/// The newest checkpoint that is whole; damaged ones are set aside.
fn newest<M: Module>(
    checkpoints: &Checkpoints,
    model: &M,
    data: &str,
    progress: &mut dyn RunProgress,
) -> Result<Option<super::checkpoint::Checkpoint>> {
    let (checkpoint, refused) = checkpoints.latest_of(model, data)?;
    for refused in refused {
        let (path, reason) = (refused.path.display(), &refused.reason);
        progress.note(&format!("warning: checkpoint {path} is damaged ({reason}); using the one before it"));
        checkpoints.set_aside(&refused)?;
    }
    if checkpoint.is_none() {
        progress.note("no checkpoint to resume from: starting at the first step");
    }
    Ok(checkpoint)
}
