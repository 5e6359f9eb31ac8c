//! A model in training: its parameters, optimiser and progress, as kept in checkpoints.

use crate::engine::average::{Average, Averaging};
use crate::engine::best_model::BestModel;
use crate::engine::checkpoint::{Checkpoints, CursorState, RunState, Snapshot};
use crate::engine::extension::{self, Extensions};
use crate::engine::failure::guarded;
use crate::engine::kernels;
use crate::engine::loss_scale::LossScale;
use crate::engine::objective::Objective;
use crate::engine::optimizer::{Algorithm, Optimizer, OptimizerConfig};
use crate::engine::origin::PROGRAM;
use crate::engine::replicas::{Replicas, Share};
use crate::engine::run_folder::RunFolder;
use crate::engine::settings::{NonFinite, Precision, RankKernels, RanksSection, RunSettings};
use crate::engine::shared_state::{self, Fact};
use crate::engine::slices::{Cut, Slices};
use crate::engine::step::{
    Ahead, Hooks, MicroBatches, StepConfig, StepReport, extended_step, extended_step_ahead,
};
use crate::engine::team::Team;
use crate::metrics::MetricsLog;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::Device;
use cloze_data::file_checksum;
use cloze_model::weights;
use cloze_ops::{SquaredSums, is_queued, on_awake_cores, unfused};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const IN_PLACE: &str = "the model is in its place between steps";

/// What a run's training starts from.
pub(crate) struct Start<'a, M> {
    pub folder: &'a RunFolder,
    /// With autodiff.
    pub device: Device,
    pub optimizer: OptimizerConfig,
    /// A hash of the training data.
    pub data: String,
    /// Precision of the steps' matrix products.
    pub precision: Precision,
    /// The replicas that make the steps.
    pub replicas: Arc<dyn Replicas>,
    /// The run's extensions.
    pub extensions: Extensions<M>,
    /// Weight averaging, if the result is an average.
    pub average: Option<Averaging>,
    /// The location of the best model, if that is the result.
    pub best: Option<BestModel>,
    /// Whether to resume from the newest complete checkpoint.
    pub resume: bool,
    /// What the replicas may differ in.
    pub ranks: RanksSection,
}

/// A model between two steps.
pub(crate) struct Training<M> {
    /// Taken out during a step, so that its parameters have a single owner and can be updated in place.
    model: Option<M>,
    optimizer: Optimizer,
    average: Option<Average<M>>,
    checkpoints: Checkpoints,
    pub state: RunState,
    pub log: MetricsLog,
    /// With autodiff.
    pub device: Device,
    /// Precision of the steps' matrix products.
    precision: Precision,
    replicas: Arc<dyn Replicas>,
    /// Who sums and updates what, if there are several replicas.
    slices: Option<Slices>,
    extensions: Extensions<M>,
    /// Steps whose results have not been read yet.
    unread: VecDeque<Unread>,
    /// The last step with known results.
    pub last: Option<StepReport>,
}

/// How a step is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The CPU continues with the next step while the device works on this one.
    Ahead,
    /// The results are read, and decide whether the weights are updated.
    Waiting(NonFinite),
}

/// A step in a device's queue.
struct Unread {
    constants: StepConfig,
    /// The position of its first example.
    first: CursorState,
    figures: Ahead,
}

impl<M: Module> Training<M> {
    /// The state before the first step, or after the last one in a checkpoint.
    ///
    /// # Errors
    /// `changed`, given the checkpoint, if that was trained on other data; a precision that the device lacks;
    /// optimiser settings that match no parameter; a folder that cannot be read or written.
    pub fn begin(
        start: Start<'_, M>,
        model: M,
        changed: impl FnOnce(PathBuf) -> TrainerError,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let Start { folder, device, optimizer: constants, data, precision, replicas, .. } = start;
        let Start { mut extensions, average, best, resume, ranks, .. } = start;
        extension::check(&extensions, replicas.size())?;
        kernels::check(&device, precision)?;
        if let Some(reason) = unfused(&device) {
            progress.note(&format!("warning: {reason}"));
        }
        kernels::introduction(&device, precision.into()).iter().for_each(|line| progress.note(line));
        let kernel = kernels::kernel(&device, precision.into());
        if replicas.size() > 1 {
            shared_state::check_same(&*replicas, &facts(folder, &data, kernel, ranks.kernels)?)?;
        }
        let checkpoints = Checkpoints::open(folder.checkpoints())?;
        let found = |progress: &mut dyn RunProgress| match resume {
            true => newest(&checkpoints, &model, &data, best.as_ref(), progress),
            false => Ok(None),
        };
        let checkpoint = shared_state::checkpoint(&*replicas, || found(progress))?;
        let (model, mut optimizer, average, mut state, log) = match checkpoint {
            Some(mut checkpoint) => {
                if checkpoint.state.data != data {
                    return Err(changed(checkpoints.path(checkpoint.state.step)));
                }
                let model = weights::replace(model, std::mem::take(&mut checkpoint.model));
                let inner = device.clone().inner();
                let moments = std::mem::take(&mut checkpoint.optimizer);
                let updates = checkpoint.state.updates - checkpoint.state.forgotten_updates;
                let optimizer = Optimizer::restore(constants, updates, moments, &model, &inner)?;
                let average = average.map(|settings| Average::restore(settings, &mut checkpoint, &model));
                let mut state = checkpoint.state;
                let kept = std::mem::take(&mut state.extensions);
                extension::restore(&mut extensions, &model, checkpoint.extensions, kept)?;
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
        let model = extensions.iter_mut().try_fold(model, |model, extension| extension.prepare(model))?;
        let slices = (replicas.size() > 1).then(|| slices(&model, &optimizer, replicas.size(), &device));
        if let Some(slices) = slices.as_ref().filter(|_| extensions.is_empty()) {
            let own = slices.of(replicas.rank()).map(|(parameter, range)| (parameter.id, range.clone()));
            optimizer.keep_slices(&own.collect());
        }
        state.kernel = kernel.to_owned();
        state.loss_scale = (precision == Precision::F16).then(|| state.loss_scale.unwrap_or_default());
        Ok(Self {
            model: Some(model),
            optimizer,
            average,
            checkpoints,
            state,
            log,
            device,
            precision,
            replicas,
            slices,
            extensions,
            unread: VecDeque::new(),
            last: None,
        })
    }

    pub fn model(&self) -> &M {
        self.model.as_ref().expect(IN_PLACE)
    }

    /// The model to evaluate, without autodiff: the running average of the weights, if the run has one, else
    /// the weights.
    pub fn measured(&self) -> M {
        self.average.as_ref().and_then(Average::measured).unwrap_or_else(|| self.model().valid())
    }

    /// The mean of the weights with the best evaluations, if the run uses it.
    pub fn mean_of_best(&self) -> Option<M> {
        self.average.as_ref().and_then(Average::unmeasured_result)
    }

    /// Adds an evaluation of the model to the average; `name` is its main metric.
    pub fn evaluated(&mut self, name: &str, figure: f64) {
        let model = self.model.as_ref().expect(IN_PLACE);
        if let Some(average) = &mut self.average {
            average.after_evaluation(model, self.state.step, name, figure);
        }
    }

    /// The settings of the next step.
    pub fn constants(&self, settings: &RunSettings) -> StepConfig {
        let step = self.state.step + 1;
        StepConfig {
            seed: settings.seed,
            step,
            lr: settings.learning_rate(step),
            clip_norm: settings.optimizer.clip_norm,
            precision: self.precision.into(),
            loss_scale: self.state.loss_scale.map_or(1.0, |scale| scale.scale),
            exchange: settings.ranks.exchange,
        }
    }

    /// How steps are made on this device. If an update depends on finiteness or on other replicas, results must
    /// be read before it.
    pub fn way(&self, non_finite: NonFinite) -> Way {
        let depends =
            non_finite != NonFinite::Stop || self.state.loss_scale.is_some() || self.replicas.size() > 1;
        if is_queued(&self.device) && !depends { Way::Ahead } else { Way::Waiting(non_finite) }
    }

    /// This replica's share of the work.
    pub fn share(&self) -> Share {
        Share::of(&*self.replicas)
    }

    /// The replicas that make the steps.
    pub fn replicas(&self) -> &Arc<dyn Replicas> {
        &self.replicas
    }

    /// Whether this replica saves and reports.
    pub fn is_first(&self) -> bool {
        self.replicas.rank() == 0
    }

    /// What the first replica computes, on all of them.
    ///
    /// # Errors
    /// Those of `compute`, on the first replica.
    pub fn by_first<T: Serialize + DeserializeOwned>(
        &self,
        compute: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        shared_state::computed_by_first(&*self.replicas, compute)
    }

    /// One step on `batches`, this replica's share of the step's, whose first example is at `first`; `is_last` marks the run's last step. A step in
    /// FP16 with non-finite gradients leaves the weights unchanged and reduces the loss scale.
    ///
    /// With [`Ahead`](Way::Ahead), the results are known after [`settle`](Self::settle).
    ///
    /// # Errors
    /// Those of [`step`]; [`TrainerError::NonFinite`] if the loss or a gradient is not finite and the run must
    /// stop on it.
    pub fn step<O: Objective<Model = M>>(
        &mut self,
        objective: &O,
        batches: MicroBatches<'_, O::Batch>,
        constants: StepConfig,
        first: CursorState,
        way: Way,
        is_last: bool,
    ) -> Result<()> {
        let model = self.model.take().expect(IN_PLACE);
        let model = self.rewound(model, constants.step);
        let Self { optimizer, device, .. } = self;
        let divides_update = self.extensions.is_empty();
        let team = self.slices.as_ref().map(|slices| Team {
            replicas: &*self.replicas,
            slices,
            divides_update,
            exchange: constants.exchange,
        });
        let hooks = &mut Hooks { team, extensions: &mut self.extensions };
        let updated = match way {
            Way::Ahead => {
                let (model, figures) =
                    extended_step_ahead(objective, model, optimizer, batches, device, constants, hooks);
                self.model = Some(model);
                self.unread.push_back(Unread { constants, first, figures: figures? });
                true
            }
            Way::Waiting(non_finite) => {
                let is_alone = hooks.team.is_none();
                let step = || extended_step(objective, model, optimizer, batches, device, constants, hooks);
                // A thread of the pool must not wait for another replica, whose work it may have taken over.
                let (model, report) = if is_alone { on_awake_cores(device, step) } else { step() };
                self.model = Some(model);
                let report = report?;
                let updated = report.updated;
                self.take_in(objective, report, constants, first, non_finite)?;
                updated
            }
        };
        self.state.step = constants.step;
        self.state.updates += u64::from(updated);
        if let (Some(average), Some(model)) = (&mut self.average, &self.model) {
            let _average = tracing::trace_span!("average").entered();
            average.after_step(model, self.state.step, self.state.updates, updated, is_last);
        }
        Ok(())
    }

    /// The model before step `step`: an earlier one if an extension returns to it, with the optimiser of then.
    fn rewound(&mut self, mut model: M, step: u64) -> M {
        let Self { optimizer, extensions, state, device, .. } = self;
        for extension in extensions {
            let Some(rewind) = extension.rewind(&model, optimizer, step) else { continue };
            model = weights::replace(model, rewind.parameters);
            let inner = device.clone().inner();
            optimizer.rewind(rewind.updates, rewind.moments, &model, &inner);
            state.forgotten_updates = state.updates - rewind.updates;
        }
        model
    }

    /// Waits for the results of all steps.
    ///
    /// # Errors
    /// [`TrainerError::DeviceFailed`] if the device fails to compute them; [`TrainerError::NonFinite`], naming
    /// the first step with non-finite results.
    pub fn settle<O: Objective<Model = M>>(&mut self, objective: &O) -> Result<()> {
        while let Some(Unread { constants, first, figures }) = self.unread.pop_front() {
            let report = guarded(constants.step, || Ok(figures.read()))?;
            self.take_in(objective, report, constants, first, NonFinite::Stop)?;
        }
        Ok(())
    }

    /// Processes a step's results.
    fn take_in<O: Objective<Model = M>>(
        &mut self,
        objective: &O,
        report: StepReport,
        constants: StepConfig,
        first: CursorState,
        non_finite: NonFinite,
    ) -> Result<()> {
        let overflows = !report.updated && self.state.loss_scale.is_some_and(LossScale::can_shrink);
        self.state.loss_scale = self.state.loss_scale.map(|scale| scale.after(report.updated));
        if !report.updated && !overflows && non_finite == NonFinite::Stop {
            let losses = objective.terms(constants.step).into_iter().zip(&report.losses);
            return Err(TrainerError::NonFinite {
                step: constants.step,
                losses: losses
                    .map(|(term, loss)| format!("{} {loss}", term.name))
                    .collect::<Vec<_>>()
                    .join(", "),
                grad_norm: report.grad_norm,
                epoch: first.epoch,
                example: first.example,
                checkpoint: self.checkpoints.steps()?.last().map(|step| self.checkpoints.path(*step)),
            });
        }
        self.state.window.add(&report);
        self.last = Some(report);
        Ok(())
    }

    /// The last step with a checkpoint.
    pub fn newest_checkpoint(&self) -> Result<Option<u64>> {
        Ok(self.checkpoints.steps()?.last().copied())
    }

    /// Saves a checkpoint; of the earlier ones, keeps the last ones and that of step `best`. The first replica writes
    /// it, whole: it does not depend on the number of replicas.
    pub fn checkpoint(&mut self, keep_last: usize, best: Option<u64>) -> Result<()> {
        let _checkpoint = tracing::trace_span!("checkpoint").entered();
        if self.replicas.size() > 1 {
            let hash = ("set of weights", hash(self.model()));
            shared_state::check_same(&*self.replicas, &[hash])?;
        }
        self.state.average = self.average.as_ref().map_or_else(Vec::new, Average::state);
        self.state.extensions = extension::states(&self.extensions);
        let optimizer = match &self.slices {
            Some(slices) if self.extensions.is_empty() => {
                shared_state::moments(&*self.replicas, slices, &self.optimizer, self.model(), &self.device)?
            }
            _ => self.optimizer.on_device(self.model()),
        };
        if self.replicas.rank() > 0 {
            return Ok(());
        }
        self.checkpoints.save_snapshot(&Snapshot {
            state: &self.state,
            model: weights::on_device(self.model()),
            optimizer,
            average: self.average.as_ref().map_or_else(Default::default, Average::on_device),
            extensions: extension::tensors(&self.extensions),
        })?;
        self.checkpoints.prune(keep_last, best)
    }
}

/// What replicas must have in common before the first step.
fn facts(folder: &RunFolder, data: &str, kernel: &str, kernels: RankKernels) -> Result<Vec<Fact>> {
    let checksum = |path: &Path| match path.exists() {
        true => Ok(file_checksum(path)?),
        false => Ok::<_, TrainerError>(String::new()),
    };
    // Where the program's file cannot be found, its version has to do.
    let program = std::env::current_exe().ok().map_or(Ok(PROGRAM.to_owned()), |path| checksum(&path))?;
    let kernel = match kernels {
        RankKernels::Same => kernel.to_owned(),
        RankKernels::Any => String::new(),
    };
    Ok(vec![
        ("program", program),
        ("configuration", checksum(&folder.config())?),
        ("tokenizer", checksum(&folder.tokenizer())?),
        ("set of training data", data.to_owned()),
        ("matrix kernel (see `ranks.kernels`)", kernel),
    ])
}

/// A hash of a model's parameters.
fn hash<M: Module>(model: &M) -> String {
    let mut hasher = blake3::Hasher::new();
    for tensor in weights::on_device(model).values() {
        hasher.update(tensor.to_data().bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Who sums and updates which of a model's parameters.
fn slices<M: Module>(model: &M, optimizer: &Optimizer, size: usize, device: &Device) -> Slices {
    let is_cut = optimizer.config().algorithm == Algorithm::Adamw
        && SquaredSums::are_of_pieces(&device.clone().inner());
    let cut = if is_cut { Cut::Anywhere } else { Cut::Nowhere };
    Slices::new(model, size, cut, |id, is_trained| is_trained || optimizer.will_thaw(id))
}

/// The newest complete checkpoint; damaged ones are set aside.
fn newest<M: Module>(
    checkpoints: &Checkpoints,
    model: &M,
    data: &str,
    best: Option<&BestModel>,
    progress: &mut dyn RunProgress,
) -> Result<Option<super::checkpoint::Checkpoint>> {
    let (checkpoint, refused) = checkpoints.latest_with_best(model, data, best)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Term;
    use crate::engine::replicas::Alone;
    use crate::metrics::progress::Silent;
    use burn::tensor::{Tensor, TensorData};
    use cloze_model::ParamInit;
    use cloze_model::blocks::Linear;

    /// `Σ (x·W + b)²`, the batches its inputs.
    struct Squares;

    impl Objective for Squares {
        type Model = Linear;
        type Batch = [f32; 2];

        fn terms(&self, _: u64) -> Vec<Term> {
            vec![Term::new("squares")]
        }

        fn counts(&self, _: &Self::Batch) -> Vec<f64> {
            vec![1.0]
        }

        fn sums(&self, model: &Linear, batch: &Self::Batch, device: &Device) -> Vec<Tensor<1>> {
            let x = Tensor::<2>::from_data(TensorData::new(batch.to_vec(), [1, 2]), device);
            vec![model.forward(x).powi_scalar(2).sum()]
        }
    }

    /// A run of the model before its first step, with what it needs to go on.
    fn begin(folder: &Path) -> (Training<Linear>, RunSettings) {
        let mut settings = RunSettings::new("test", 100, 0.1);
        settings.optimizer.clip_norm = 1.5;
        let device = Device::flex().autodiff();
        let model = Linear::new(2, 1, &mut ParamInit::new(&device, 0));
        let values =
            [("weight", TensorData::from([[0.5f32], [-1.0]])), ("bias", TensorData::from([0.25f32]))];
        let model = weights::replace(model, values.map(|(path, data)| (path.to_owned(), data)).into());
        let run_folder = RunFolder::create(folder, &settings).unwrap();
        let start = Start {
            folder: &run_folder,
            device,
            optimizer: settings.optimizer.constants(),
            data: "data".into(),
            precision: Precision::F32,
            replicas: Arc::new(Alone),
            extensions: Vec::new(),
            average: None,
            best: None,
            resume: false,
            ranks: RanksSection::default(),
        };
        let changed = |path| TrainerError::ExamplesChanged { checkpoint: path };
        (Training::begin(start, model, changed, &mut Silent).unwrap(), settings)
    }

    fn values(training: &Training<Linear>) -> Vec<f32> {
        weights::collect(training.model())
            .into_values()
            .flat_map(|data| data.iter::<f32>().collect::<Vec<_>>())
            .collect()
    }

    const WAITING: Way = Way::Waiting(NonFinite::Stop);
    const TEXTS: [[f32; 2]; 3] = [[1.0, 2.0], [0.5, -1.0], [-2.0, 0.25]];

    /// A step on micro-batches.
    fn step(
        training: &mut Training<Linear>,
        settings: &RunSettings,
        way: Way,
        batches: &[[f32; 2]],
    ) -> Result<()> {
        let constants = training.constants(settings);
        let batches = MicroBatches { first: 0, batches };
        training.step(&Squares, batches, constants, CursorState::default(), way, false)
    }

    #[test]
    fn steps_that_go_ahead_are_those_that_are_waited_for() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut waited, settings) = begin(one.path());
        let (mut ahead, _) = begin(other.path());
        assert_eq!(waited.way(NonFinite::Stop), WAITING, "the processor has no queue");
        for number in 0..5 {
            let batches = [TEXTS[number % 3], TEXTS[(number + 1) % 3]];
            step(&mut waited, &settings, WAITING, &batches).unwrap();
            step(&mut ahead, &settings, Way::Ahead, &batches).unwrap();
        }
        assert_eq!((ahead.state.step, ahead.state.updates, ahead.last.is_none()), (5, 5, true));
        assert_eq!(ahead.state.window.updates, 0);
        ahead.settle(&Squares).unwrap();
        // But for the clipping factor's last digit.
        for (ahead, waited) in values(&ahead).iter().zip(values(&waited)) {
            assert!((ahead - waited).abs() < 1e-5, "{ahead} is not {waited}");
        }
        let (ahead, waited) = (&ahead.state.window, &waited.state.window);
        assert_eq!(ahead.updates, waited.updates);
        for (ahead, waited) in [(ahead.losses[0], waited.losses[0]), (ahead.grad_norm, waited.grad_norm)] {
            assert!((ahead - waited).abs() < 1e-4 * waited, "{ahead} is not {waited}");
        }
    }

    #[test]
    fn the_first_bad_step_of_those_ahead_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (mut training, settings) = begin(folder.path());
        for batch in [TEXTS[0], [f32::NAN, 1.0], TEXTS[1]] {
            step(&mut training, &settings, Way::Ahead, &[batch]).unwrap();
        }
        let error = training.settle(&Squares).unwrap_err();
        assert!(matches!(error, TrainerError::NonFinite { step: 2, .. }), "{error}");
        // The run ends there: a checkpoint of what came after would be no better.
        assert!(training.settle(&Squares).is_err());
    }

    #[test]
    fn a_step_beyond_the_scale_changes_nothing_and_the_next_has_half_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let (mut training, settings) = begin(folder.path());
        // More than FP32 has room for, as a gradient: so an overflow of FP16 is told from here on.
        training.state.loss_scale = Some(LossScale { scale: 2f64.powi(127), steps: 7 });
        let before = values(&training);
        step(&mut training, &settings, WAITING, &TEXTS[..1]).unwrap();
        assert_eq!(values(&training), before);
        assert_eq!((training.state.step, training.state.updates, training.state.window.updates), (1, 0, 0));
        assert_eq!(training.state.loss_scale, Some(LossScale { scale: 2f64.powi(126), steps: 0 }));
        while training.state.updates == 0 {
            step(&mut training, &settings, WAITING, &TEXTS[..1]).unwrap();
        }
        assert_ne!(values(&training), before);
        let LossScale { scale, steps } = training.state.loss_scale.unwrap();
        assert_eq!((scale, steps), (2f64.powi(127 - (training.state.step as i32 - 1)), 1));

        // Of the smallest scale no smaller one helps.
        training.state.loss_scale = Some(LossScale { scale: 1.0, steps: 0 });
        let error = step(&mut training, &settings, WAITING, &[[f32::NAN, 1.0]]).unwrap_err();
        assert!(matches!(error, TrainerError::NonFinite { .. }), "{error}");
    }

    #[test]
    fn a_scale_of_the_loss_changes_no_step() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut plain, settings) = begin(one.path());
        let (mut scaled, _) = begin(other.path());
        scaled.state.loss_scale = Some(LossScale::default());
        for batch in TEXTS {
            step(&mut plain, &settings, WAITING, &[batch]).unwrap();
            step(&mut scaled, &settings, WAITING, &[batch]).unwrap();
        }
        // A power of two moves no digit.
        assert_eq!(values(&scaled), values(&plain));
        assert_eq!(scaled.state.window.losses, plain.state.window.losses);
        assert_eq!(scaled.state.loss_scale, Some(LossScale { steps: 3, ..LossScale::default() }));
    }
}
