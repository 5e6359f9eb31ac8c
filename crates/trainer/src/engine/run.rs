//! A run: the steps of a recipe, with metrics, evaluations, checkpoints and the exported model.

use super::balance;
use super::best_model::BestModel;
use super::by_rows::Leaves;
use super::checkpoint::Best;
use super::crew::DataCrew;
use super::disk;
use super::failure::{Kept, guarded};
use super::messages::sum_numbers;
use super::optimizer::OptimizerConfig;
use super::recipe::{Advance, Exported, Position, Recipe, SplitFigures, StepBatches};
use super::replicas::{Alone, Replicas, Share};
use super::run_folder::{RunFolder, forget, write_folder_atomic};
use super::settings::{Export, RunSettings};
use super::shared_work::together;
use super::term::weighted;
use super::training::{Start, Training};
use crate::metrics::progress::{Meter, Pass, RunProgress, Status};
use crate::metrics::{EvaluationRecord, METRICS_FILE, Record, Timing, TrainRecord, curve, jsonl};
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_evaluation::figures::{Better, Figures};
use cloze_evaluation::report::{Baseline, IndexReport, IndexSplit};
use cloze_evaluation::table::grouped;
use cloze_files::write_atomic;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::trace_span;

/// A split's metrics in the file of the result.
#[derive(Serialize)]
struct SplitResult<'a> {
    #[serde(flatten)]
    figures: &'a Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<&'a Baseline>,
}

/// Default stop flag; never set.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Where and how to run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunOptions<'a> {
    /// The device to train on, without autodiff.
    pub device: Device,
    /// The run's folder.
    pub folder: PathBuf,
    /// Where prepared data is kept between runs.
    pub cache: PathBuf,
    /// Whether to resume from the newest complete checkpoint in the folder.
    pub resume: bool,
    /// Bytes of device memory, if known: a run that certainly needs more is rejected before it allocates.
    pub memory: Option<u64>,
    /// Set this to stop after the current step, with a checkpoint.
    pub stop: &'a AtomicBool,
    /// The replicas that make the steps. Each has its own folder; that of the first is the run's.
    pub replicas: Arc<dyn Replicas>,
}

impl<'a> RunOptions<'a> {
    /// A new run on a device, without autodiff, in a folder. Prepared data is cached in `cache`, in the current
    /// folder.
    pub fn new(device: Device, folder: impl Into<PathBuf>) -> Self {
        let (folder, cache) = (folder.into(), "cache".into());
        Self { device, folder, cache, resume: false, memory: None, stop: &NEVER, replicas: Arc::new(Alone) }
    }

    /// The replicas, as those that prepare the data.
    pub(crate) fn crew(&self) -> DataCrew<'_> {
        DataCrew(&*self.replicas)
    }

    /// Sets the cache of prepared data.
    pub fn cache(self, cache: impl Into<PathBuf>) -> Self {
        Self { cache: cache.into(), ..self }
    }

    /// Whether to resume from the newest complete checkpoint in the folder, or start a new run.
    pub fn resume(self, resume: bool) -> Self {
        Self { resume, ..self }
    }

    /// Sets the bytes of device memory, if known.
    pub fn memory(self, memory: Option<u64>) -> Self {
        Self { memory, ..self }
    }

    /// Sets a flag that stops the run after the current step, with a checkpoint.
    pub fn stop(self, stop: &'a AtomicBool) -> Self {
        Self { stop, ..self }
    }

    /// Trains with other replicas, which share the micro-batches of a step, of which there are
    /// `train.accumulate`. All end with the weights of a single process, bit for bit. The first one evaluates, saves
    /// and reports; the folders of the others hold nothing that is needed later.
    pub fn replicas(self, replicas: Arc<dyn Replicas>) -> Self {
        Self { replicas, ..self }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// All steps are done, or patience is exhausted, and the model is saved.
    Done {
        /// The model's folder.
        model: PathBuf,
        /// Its metrics on each evaluated split.
        figures: Vec<(String, Figures)>,
    },
    /// The run was stopped after this step, which has a checkpoint.
    Stopped {
        /// The last step.
        step: u64,
    },
}

impl Outcome {
    /// The result's metrics on a split, such as `dev`, if the run is done and evaluated it.
    pub fn figures(&self, split: &str) -> Option<&Figures> {
        match self {
            Self::Done { figures, .. } => {
                figures.iter().find(|(known, _)| known == split).map(|(_, figures)| figures)
            }
            Self::Stopped { .. } => None,
        }
    }
}

/// Trains `model`, whose parameters are on the options' device with autodiff, with these `settings`, which
/// serve as the folder's config: a resumed run must have the same ones.
///
/// # Errors
/// A folder with other contents; a checkpoint of other settings or data; a non-finite loss, if the settings say
/// to stop on one; a file that cannot be written; a device failure, after a checkpoint if its memory can still
/// be read; the recipe's own.
pub fn train<R: Recipe>(
    recipe: &R,
    model: R::Model,
    settings: &RunSettings,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, settings, options.resume)?;
    train_in(&folder, recipe, model, settings, options, progress)
}

/// [Trains](train) in an already claimed folder, with a custom config that the settings come from.
///
/// # Errors
/// Those of [`train`].
pub fn train_in<R: Recipe>(
    folder: &RunFolder,
    recipe: &R,
    model: R::Model,
    settings: &RunSettings,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    settings.check_warmup()?;
    forget(&folder.result())?;
    forget(&folder.index())?;
    let start = Start {
        folder,
        device: options.device.clone().autodiff(),
        optimizer: OptimizerConfig { added: settings.added_groups.clone(), ..settings.optimizer.constants() },
        data: recipe.data(),
        precision: settings.precision,
        replicas: options.replicas.clone(),
        extensions: recipe.extensions(),
        average: settings.average.clone(),
        best: settings.ends_with_best().then(|| BestModel::of(folder)),
        resume: options.resume,
        ranks: settings.ranks.clone(),
    };
    options.replicas.wait_at_most(Duration::from_secs(settings.ranks.timeout));
    let training = Training::begin(start, model, |checkpoint| recipe.data_changed(checkpoint), progress)?;
    if training.is_first() {
        disk::check(folder.path(), training.model(), settings, training.state.step > 0)?;
    }
    let mut run = Run { recipe, settings, folder, training };
    run.restore_best()?;
    let all_made = run.steps(options, progress).map_err(|error| run.after_failure(error));
    progress.finish();
    match all_made? {
        true => {
            let last = run.training.state.step;
            guarded(last, move || run.finish(progress)).map_err(|error| match error {
                // The last step has a checkpoint.
                TrainerError::DeviceFailed { step, reason, .. } => {
                    TrainerError::DeviceFailed { step, reason, kept: Kept::All { step: last } }
                }
                error => error,
            })
        }
        false => Ok(Outcome::Stopped { step: run.training.state.step }),
    }
}

/// Whether to stop after this step: all replicas stop if one is asked to.
fn is_stopped(options: &RunOptions<'_>) -> Result<bool> {
    let vote = f64::from(u8::from(options.stop.load(Ordering::Relaxed)));
    Ok(sum_numbers(&*options.replicas, &[vote])?[0] > 0.0)
}

/// A run in progress.
struct Run<'a, R: Recipe> {
    recipe: &'a R,
    settings: &'a RunSettings,
    folder: &'a RunFolder,
    training: Training<R::Model>,
}

impl<R: Recipe> Run<'_, R> {
    /// Makes the remaining steps. Returns whether the run completed, by steps or by patience.
    fn steps(&mut self, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<bool> {
        let Self { settings, .. } = *self;
        let steps = settings.steps;
        let first = self.training.state.step;
        let unmeasured = match first {
            0 => settings.evaluate_untrained,
            // A device failed in it, after the step.
            _ => settings.is_evaluated_after(first) && self.is_unmeasured(first)?,
        };
        if unmeasured {
            self.evaluate(progress)?;
        }
        // Of a loss by rows, every replica has all batches.
        let is_by_rows = self.recipe.by_rows().is_some();
        let share = if is_by_rows { Share::default() } else { self.training.share() };
        let state = &self.training.state;
        let position = Position { step: state.step, cursor: state.cursor, share };
        let mut data = self.recipe.steps(position);
        let (replicas, mut computed) = (&*options.replicas, Duration::ZERO);
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let mut since_log = Since::new(start);
        while self.training.state.step < steps && !self.has_stalled() {
            let span = trace_span!("step").entered();
            let wait = Instant::now();
            let waiting = trace_span!("wait for data").entered();
            let Some(batches) = data.next() else { break };
            let batches = batches?;
            drop(waiting);
            if replicas.size() > 1 && self.training.state.step == first {
                let own = Leaves::new(self.recipe, batches.of(share).0, self.training.share()).n_own();
                balance::of_shards(replicas, own)?.iter().for_each(|line| progress.note(line));
            }
            let waited = wait.elapsed();
            let is_own = self.step(&batches, share)? && !is_by_rows;
            drop(span);

            let tokens = match is_own {
                true => sum_numbers(&*options.replicas, &[batches.tokens as f64])?[0] as u64,
                false => batches.tokens,
            };
            self.training.state.tokens += tokens;
            let step = self.training.state.step;
            let last = step == steps;
            let is_logged = last || step.is_multiple_of(settings.log.every.max(1));
            // So that there is a loss to show.
            if is_logged || self.training.last.is_none() {
                self.training.settle(self.recipe)?;
            }
            let now = Instant::now();
            since_log.step(now, tokens, waited);
            let pace = meter.step(now, tokens, waited, steps - step);
            let loss = self
                .training
                .last
                .as_ref()
                .map_or(f64::NAN, |last| weighted(&self.recipe.terms(step), &last.losses));
            let learning_rate = settings.learning_rate(step);
            progress.step(&Status { step, steps, loss, learning_rate, pace, unit: settings.unit });

            let stopping = is_stopped(options)?;
            computed += self.training.last.as_ref().map_or(Duration::ZERO, |last| last.computed);
            if is_logged {
                self.log_training(since_log.take())?;
                if replicas.size() > 1 {
                    let took = std::mem::take(&mut computed);
                    balance::of_speed(replicas, took)?.iter().for_each(|line| progress.note(line));
                }
            }
            let is_best = settings.is_evaluated_after(step) && self.evaluate(progress)?;
            let keep = &settings.checkpoint;
            if last
                || stopping
                || batches.ends_epoch
                || step.is_multiple_of(keep.every.max(1))
                || (is_best && keep.keep_best)
            {
                self.checkpoint()?;
            }
            if stopping && !last {
                return Ok(false);
            }
            let now = Instant::now();
            since_log.skip_to(now);
            meter.skip_to(now);
        }
        let step = self.training.state.step;
        if let Some(patience) = settings.patience.filter(|_| step < steps) {
            let evaluations = if patience == 1 { "evaluation" } else { "evaluations" };
            progress.note(&format!(
                "step {step}: ended early, after {patience} {evaluations} without improvement"
            ));
            // What ended early is not to be ended early again by whoever resumes it.
            self.checkpoint()?;
        }
        Ok(true)
    }

    /// One optimisation step on a share of `data`, and the state after it. Returns whether `data` is that share alone.
    fn step(&mut self, data: &StepBatches<R::Batch>, share: Share) -> Result<bool> {
        let constants = self.training.constants(self.settings);
        let non_finite = self.settings.non_finite;
        let (batches, is_own) = data.of(share);
        self.training.step(
            self.recipe,
            batches,
            constants,
            data.first,
            self.training.way(non_finite),
            constants.step == self.settings.steps,
        )?;
        self.training.state.cursor = data.next;
        Ok(is_own)
    }

    /// Whether patience is exhausted.
    fn has_stalled(&self) -> bool {
        let Some(patience) = self.settings.patience else { return false };
        let first = self.settings.best_from.unwrap_or(1).saturating_sub(1);
        let best = self.training.state.best.map_or(first, |best| best.step);
        let now = self.training.state.step;
        now > first && self.settings.evaluations(now) - self.settings.evaluations(best) >= patience
    }

    fn log_training(&mut self, timing: Timing) -> Result<()> {
        let window = std::mem::take(&mut self.training.state.window);
        // Where every step was skipped there is no mean: 0/0 is NaN, as it is logged.
        let mean = |sum: f64| sum / window.updates as f64;
        let term = |place: usize| mean(window.losses.get(place).copied().unwrap_or(0.0));
        let state = &self.training.state;
        // A record has its last step's weights.
        let terms = self.recipe.terms(state.step);
        self.training.log.write(&Record::Train(TrainRecord {
            step: state.step,
            loss: mean(weighted(&terms, &window.losses)),
            losses: terms.iter().enumerate().map(|(place, of)| (of.name.to_string(), term(place))).collect(),
            learning_rate: self.settings.learning_rate(state.step),
            grad_norm: mean(window.grad_norm),
            tokens: state.tokens,
            skipped_steps: state.step - state.updates,
            timing,
        }))
    }

    /// On a device error, saves what can be saved; the error then says what was kept, as does that of lost replicas.
    fn after_failure(&mut self, error: TrainerError) -> TrainerError {
        let made = self.training.state.step;
        let (step, reason) = match error {
            TrainerError::DeviceFailed { step, reason, .. } => (step, reason),
            TrainerError::Replicas { problem } => {
                let kept = match self.training.newest_checkpoint().ok().flatten() {
                    Some(step) => format!("the last checkpoint is that of step {step}: go on with --resume"),
                    None => "there is no checkpoint yet: start again".into(),
                };
                return TrainerError::Replicas { problem: format!("{problem} in step {}; {kept}", made + 1) };
            }
            error => return error,
        };
        let newest = self.training.newest_checkpoint().ok().flatten();
        let has_all = newest == Some(made) || made > 0 && guarded(step, || self.checkpoint()).is_ok();
        let kept = match newest {
            _ if has_all => Kept::All { step: made },
            Some(step) => Kept::Checkpoint { step },
            None => Kept::Nothing,
        };
        TrainerError::DeviceFailed { step, reason, kept }
    }

    /// [Evaluates](Self::measure) the model. A device failure leaves the model unchanged.
    fn evaluate(&mut self, progress: &mut dyn RunProgress) -> Result<bool> {
        guarded(self.training.state.step, || self.measure(progress))
    }

    /// Evaluates the model, if there is evaluation data. Returns whether it is the best so far; it is then
    /// saved, if the best model is the result.
    fn measure(&mut self, progress: &mut dyn RunProgress) -> Result<bool> {
        let Some(split) = self.recipe.split() else { return Ok(false) };
        self.training.settle(self.recipe)?;
        let _evaluation = trace_span!("evaluate").entered();
        let start = Instant::now();
        let (model, device) = (self.training.measured(), self.inner());
        let work = format!("measuring {split}");
        let step = self.training.state.step;
        let figures = self.evaluated(step, &model, &device, &mut watched(&work, progress))?;
        progress.note(&self.recipe.evaluation_line(step, &figures));
        let (name, figure) = figures.main();
        let tie = figures.get("loss").filter(|loss| name != "loss" && loss.is_finite());
        // A checkpoint cannot hold a figure that is not finite. Between equals the loss decides: it still falls when
        // every example is right. Step 0 never counts as best.
        let may_be_best = step >= self.settings.best_from.unwrap_or(1).max(1);
        let is_best = may_be_best
            && figure.is_finite()
            && self.training.state.best.is_none_or(|best| {
                let falls = || tie.zip(best.tie).is_some_and(|(loss, least)| loss < least);
                Better::of(name).improves(figure, best.figure) || figure == best.figure && falls()
            });
        if is_best {
            self.training.state.best = Some(Best { step, figure, tie });
        }
        if step > 0 {
            self.training.evaluated(name, figure);
        }
        self.log_figures(SplitFigures {
            split: split.into(),
            figures,
            seconds: start.elapsed().as_secs_f64(),
            baseline: None,
        })?;
        if is_best && self.settings.export == Export::Best {
            self.export_best(step, &model)?;
        }
        Ok(is_best)
    }

    fn log_figures(&mut self, of: SplitFigures) -> Result<()> {
        let SplitFigures { split, figures, seconds, .. } = of;
        let step = self.training.state.step;
        self.training.log.write(&Record::Evaluation(EvaluationRecord { step, split, figures, seconds }))
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.training.settle(self.recipe)?;
        let keep = &self.settings.checkpoint;
        let best = self.training.state.best.filter(|_| keep.keep_best);
        self.training.checkpoint(keep.keep_last, best.map(|best| best.step))
    }

    fn export(&self, model: &R::Model) -> Result<()> {
        write_folder_atomic(&self.folder.model(), |folder| self.recipe.save(model, folder))
    }

    /// Exports the best model and records its checksums in the state.
    fn export_best(&mut self, step: u64, model: &R::Model) -> Result<()> {
        if !self.training.is_first() {
            return Ok(());
        }
        let recipe = self.recipe;
        let place = BestModel::of(self.folder);
        self.training.state.best_model = place.write(step, |folder| recipe.save(model, folder))?;
        Ok(())
    }

    /// Restores the best model, if it is that of the resumed checkpoint.
    fn restore_best(&mut self) -> Result<()> {
        let state = &self.training.state;
        let (step, place) = (state.step, BestModel::of(self.folder));
        let is_here = state.best.is_some_and(|best| best.step == step);
        if !self.training.is_first() {
            return Ok(());
        }
        if self.settings.ends_with_best() && is_here && !place.is(&state.best_model) {
            self.export_best(step, &self.training.measured())?;
        }
        Ok(())
    }

    /// The device without autodiff.
    fn inner(&self) -> Device {
        self.training.device.clone().inner()
    }

    /// Saves, evaluates and reports the result.
    fn finish(mut self, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let last = self.training.state.step;
        // A run killed between its last checkpoint and its end has its last evaluation in the log.
        if last > 0 && last == self.settings.steps && self.is_unmeasured(last)? {
            self.evaluate(progress)?;
        }
        if !self.training.is_first() {
            if let Some(mean) = self.training.mean_of_best() {
                self.measure_mean(&mean, progress)?;
            }
            let figures = self.by_first(|| unreachable!("this is not the first replica"))?;
            return Ok(Outcome::Done { model: self.folder.model(), figures });
        }
        let path = self.folder.model();
        let mut best = match self.settings.export {
            Export::Best => self.training.state.best,
            Export::Last => None,
        };
        let mut of_mean = None;
        let model = if let Some(mean) = self.training.mean_of_best() {
            best = None;
            of_mean = self.measure_mean(&mean, progress)?;
            self.export(&mean)?;
            mean
        } else {
            let model = self.training.measured();
            match best {
                None => self.export(&model)?,
                Some(best) if !BestModel::of(self.folder).is(&self.training.state.best_model) => {
                    return Err(TrainerError::BestModelLost { path, step: best.step });
                }
                Some(_) => {}
            }
            match self.settings.export {
                Export::Best => self.recipe.load(model, &path)?,
                Export::Last => model,
            }
        };
        let step = best.map_or(last, |best| best.step);
        let records = self.records()?;
        curve::draw(&self.folder.curve(), &self.settings.name, &records, &self.recipe.panels(&records))?;
        let figures = match of_mean {
            Some(figures) => Some(figures),
            None => self.measured(step)?,
        };
        let curve = self.folder.curve();
        let exported = Exported {
            model: &model,
            folder: &path,
            device: &self.inner(),
            name: &self.settings.name,
            run: self.folder.path(),
            step,
            figures: figures.as_ref(),
            curve: (last > 0).then_some(curve.as_path()),
            pages: RefCell::default(),
        };
        let reported = self.recipe.report(&exported, progress)?;
        let figures: Vec<_> = reported.iter().map(|of| (of.split.clone(), of.figures.clone())).collect();
        let result: BTreeMap<&str, SplitResult<'_>> = reported
            .iter()
            .map(|of| (&*of.split, SplitResult { figures: &of.figures, baseline: of.baseline.as_ref() }))
            .collect();
        let result = serde_json::to_string_pretty(&result).expect("figures are strings and numbers");
        let in_log = |split: &str| {
            let of = |record: &Record| matches!(record, Record::Evaluation(record) if record.split == split && record.step == last);
            records.iter().any(of)
        };
        for of in reported {
            // What was measured during training is in the log, and so is what a resumed run has measured before.
            if Some(&*of.split) != self.recipe.split() && !in_log(&of.split) {
                self.log_figures(of)?;
            }
        }
        write_atomic(&self.folder.result(), (result + "\n").as_bytes())?;
        self.write_index(step, exported.curve, &exported.pages.take())?;
        let figures = self.by_first(|| Ok(figures))?;
        Ok(Outcome::Done { model: path, figures })
    }

    /// The run's page, after everything it leads to.
    fn write_index(&self, step: u64, curve: Option<&Path>, splits: &[IndexSplit]) -> Result<()> {
        let facts = [
            ("steps", grouped(self.training.state.step)),
            ("step of the result", grouped(step)),
            ("seed", self.settings.seed.to_string()),
        ];
        let links = self.folder.links();
        let title = &self.settings.name;
        IndexReport { title, facts: &facts, splits, curve, links: &links }.write(&self.folder.index())?;
        Ok(())
    }

    /// Evaluates the mean of the best models, logged as a separate split.
    fn measure_mean(&mut self, mean: &R::Model, progress: &mut dyn RunProgress) -> Result<Option<Figures>> {
        let Some(split) = self.recipe.split() else { return Ok(None) };
        let start = Instant::now();
        let work = format!("measuring {split}");
        let device = self.inner();
        let step = self.training.state.step;
        let figures = self.evaluated(step, mean, &device, &mut watched(&work, progress))?;
        progress.note(&format!("the mean of the best models: {}", figures.line()));
        let split = format!("{split}, mean of the best");
        let is_logged =
            |record: &Record| matches!(record, Record::Evaluation(record) if record.split == split);
        if !self.records()?.iter().any(is_logged) {
            let seconds = start.elapsed().as_secs_f64();
            self.log_figures(SplitFigures { split, figures: figures.clone(), seconds, baseline: None })?;
        }
        Ok(Some(figures))
    }

    /// The metrics of an evaluation, which all replicas make. The first one's are those of all.
    fn evaluated(
        &self,
        step: u64,
        model: &R::Model,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let evaluate = || self.recipe.evaluate_after(step, model, device, advanced);
        let figures = together(self.training.replicas(), evaluate)?;
        self.by_first(|| Ok(figures))
    }

    /// What the first replica computes for all.
    fn by_first<T: Serialize + DeserializeOwned>(&self, compute: impl FnOnce() -> Result<T>) -> Result<T> {
        self.training.by_first(compute)
    }

    /// Whether there is no evaluation after a step in the run's log.
    fn is_unmeasured(&self, step: u64) -> Result<bool> {
        self.by_first(|| Ok(self.measured(step)?.is_none()))
    }

    fn records(&self) -> Result<Vec<Record>> {
        jsonl::read(&self.folder.path().join(METRICS_FILE))
    }

    /// The metrics of the evaluation after a step, if there was one.
    fn measured(&self, step: u64) -> Result<Option<Figures>> {
        let split = self.recipe.split();
        Ok(self.records()?.into_iter().rev().find_map(|record| match record {
            Record::Evaluation(record) if record.step == step && Some(&*record.split) == split => {
                Some(record.figures)
            }
            _ => None,
        }))
    }
}

/// Reports the start of a pass.
pub(crate) fn watched<'p>(work: &'p str, progress: &'p mut dyn RunProgress) -> impl FnMut(Advance) + 'p {
    let start = Instant::now();
    move |Advance { done, share }| progress.pass(&Pass { work, done, share, elapsed: start.elapsed() })
}

/// Timings since the last log record, excluding evaluations and checkpoints.
struct Since {
    mark: Instant,
    trained: Duration,
    waited: Duration,
    tokens: u64,
    total: Duration,
}

impl Since {
    fn new(now: Instant) -> Self {
        Self { mark: now, trained: Duration::ZERO, waited: Duration::ZERO, tokens: 0, total: Duration::ZERO }
    }

    /// Adds a step of `tokens` tokens that ended `now`, with `waited` spent waiting for data.
    fn step(&mut self, now: Instant, tokens: u64, waited: Duration) {
        let took = now - self.mark;
        self.mark = now;
        self.trained += took;
        self.total += took;
        self.waited += waited;
        self.tokens += tokens;
    }

    /// Excludes the time until `now`.
    fn skip_to(&mut self, now: Instant) {
        self.mark = now;
    }

    /// The record's timing; starts the next record.
    fn take(&mut self) -> Timing {
        let seconds = self.trained.as_secs_f64().max(f64::MIN_POSITIVE);
        let timing = Timing {
            seconds: self.total.as_secs_f64(),
            tokens_per_second: self.tokens as f64 / seconds,
            waiting: self.waited.as_secs_f64() / seconds,
        };
        (self.trained, self.waited, self.tokens) = (Duration::ZERO, Duration::ZERO, 0);
        timing
    }
}
