//! Fine-tuning as an engine recipe: a task's examples in batches, and a model's evaluation on them.

use super::config::Tuning;
use super::distillation::Distillation;
use super::evaluate::{figures, predict};
use super::reading::TaskData;
use super::task::{ByRowsOf, Encoded, Features, Task};
use crate::Result;
use crate::config::validate::shown;
use crate::engine::checkpoint::CursorState;
use crate::engine::{
    Advance, ByRows, Epochs, Exported, Extension, Extensions, Measured, ModelFormat, Objective, Position,
    Recipe, Rounds, SplitFigures, StepBatches, Term,
};
use crate::metrics::progress::RunProgress;
use crate::pruning::{PruningSection, Target, ids, share_of_zeros};
use crate::quantization::{InputRounding, QuantizationSection, Rounding, SeenInputs};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use cloze_data::labelled::Buckets;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::Predictions;
use cloze_evaluation::table::percent;
use cloze_model::blocks::{RoundedInputs, with_rounded_inputs};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// The fine-tuning of one model. A batch is a list of example indices.
pub(super) struct TaskRecipe<'a, T: Task> {
    pub config: Tuning<'a>,
    pub task: &'a T,
    pub data: TaskData<T>,
    /// A hash of the training examples' tokens.
    pub fingerprint: String,
    pub buckets: Buckets,
    pub epochs: Epochs,
    pub format: Box<dyn ModelFormat<T::Model> + Send + 'a>,
    pub distillation: Option<Distillation<'a>>,
    pub masks: Option<Masks<'a>>,
    pub rounding: Option<Rounded<'a>>,
}

/// What a run rounds.
pub(super) struct Rounded<'a> {
    pub section: &'a QuantizationSection,
    pub targets: Vec<Target>,
    /// What the maps see in a step.
    pub seen: Arc<SeenInputs>,
}

impl<'a> Rounded<'a> {
    pub fn new(section: &'a QuantizationSection, targets: Vec<Target>) -> Self {
        Self { section, targets, seen: Arc::default() }
    }

    /// Runs with inputs rounded, if they are.
    fn run<M: Module, R>(&self, model: &M, run: impl FnOnce() -> R) -> R {
        match self.section.inputs {
            InputRounding::Exact => run(),
            _ => self.rounded(model, false, run).0,
        }
    }

    /// The same in training, where running ranges note what they see.
    fn train<M: Module, R>(&self, model: &M, run: impl FnOnce() -> R) -> R {
        match self.section.inputs {
            InputRounding::Running => {
                let (result, seen) = self.rounded(model, true, run);
                self.seen.add(seen);
                result
            }
            _ => self.run(model, run),
        }
    }

    /// Runs with inputs rounded. Returns also the ranges of inputs by their targets' places, if they are noted.
    pub fn rounded<M: Module, R>(
        &self,
        model: &M,
        notes: bool,
        run: impl FnOnce() -> R,
    ) -> (R, BTreeMap<usize, [f32; 2]>) {
        // A model's parameters keep their ids, but not in every copy of a model.
        let ids = ids(model, &self.targets);
        let inputs = RoundedInputs::new(ids.keys().copied().collect());
        let inputs = Rc::new(if notes { inputs.noting_ranges() } else { inputs });
        let result = with_rounded_inputs(inputs.clone(), run);
        (result, inputs.ranges().into_iter().map(|(id, range)| (ids[&id], range)).collect())
    }
}

/// What a run masks.
pub(super) struct Masks<'a> {
    pub section: &'a PruningSection,
    pub targets: Vec<Target>,
    pub rounds: Option<Rounds>,
    pub steps: u64,
}

impl Masks<'_> {
    /// What became of the masked parts of a model.
    fn result<M: Module>(&self, model: &M) -> String {
        let zeros = percent(share_of_zeros(model, &self.targets));
        match self.targets.first().and_then(|target| target.rows) {
            None => format!(
                "{zeros} of the layers' weights are 0; single zeros make no product faster and no file shorter"
            ),
            Some(_) => format!("{zeros} of the masked heads or neurons are 0; `cloze prune` takes these out"),
        }
    }
}

type Split<T> = Encoded<<T as Task>::Example, <T as Task>::Features>;

impl<T: Task> TaskRecipe<'_, T> {
    fn features(&self, batch: &[usize]) -> Vec<&T::Features> {
        batch.iter().map(|place| &self.data.train.features[*place]).collect()
    }

    fn n_tokens(&self, batch: &[usize]) -> u64 {
        self.features(batch).into_iter().map(|features| features.cost() as u64).sum()
    }

    /// Runs with the inputs of a model's layers rounded, if the run rounds them.
    fn rounding<R>(&self, model: &T::Model, run: impl FnOnce() -> R) -> R {
        match &self.rounding {
            Some(rounded) => rounded.run(model, run),
            None => run(),
        }
    }

    /// The same in training.
    fn training<R>(&self, model: &T::Model, run: impl FnOnce() -> R) -> R {
        match &self.rounding {
            Some(rounded) => rounded.train(model, run),
            None => run(),
        }
    }

    /// What is wrong with the course of the run's training loss, if it is the loss of one and the same task all the time.
    fn loss_warning(&self, exported: &Exported<'_, T::Model>) -> Result<Option<String>> {
        if self.distillation.is_some() || self.masks.is_some() {
            return Ok(None);
        }
        Ok(exported.loss_warning()?.map(|warning| {
            let lr = shown(self.config.common.optimizer.lr);
            let warmup = self.config.common.schedule.longer_warmup();
            format!("warning: {warning}; lower `optimizer.lr`, which is {lr}, or {warmup}")
        }))
    }

    /// A model's predictions for a split, and their metrics.
    fn measure(
        &self,
        model: &T::Model,
        data: &Split<T>,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<(Box<dyn Predictions>, Figures)> {
        let eval = &self.config.eval;
        let predict = || predict(self.task, model, data, eval.batch_tokens, device, advanced);
        let predictions = self.rounding(model, predict)?;
        let figures = figures(&*predictions, eval.metric.as_deref())?;
        Ok((predictions, figures))
    }
}

impl<T: Task> Objective for TaskRecipe<'_, T> {
    type Model = T::Model;
    type Batch = Vec<usize>;

    fn terms(&self, _: u64) -> Vec<Term> {
        match &self.distillation {
            None => vec![Term::new("loss")],
            Some(distillation) => distillation.terms(),
        }
    }

    fn counts(&self, batch: &Vec<usize>) -> Vec<f64> {
        let features = self.features(batch);
        let more = self.distillation.iter().flat_map(|distillation| {
            distillation.counts(batch, self.task.n_rows(&features), self.n_tokens(batch))
        });
        std::iter::once(self.task.weight(&features)).chain(more).collect()
    }

    fn sums(&self, model: &T::Model, batch: &Vec<usize>, device: &Device) -> Vec<Tensor<1>> {
        let features = self.features(batch);
        let scores = || self.training(model, || self.task.scores(model, &features, device));
        let (scores, more) = match &self.distillation {
            None => (scores(), Vec::new()),
            Some(distillation) => distillation.sums(batch, device, scores),
        };
        std::iter::once(self.task.loss(scores, &features)).chain(more).collect()
    }

    fn by_rows(&self) -> Option<&dyn ByRows<T::Model, Vec<usize>>> {
        self.task.by_rows()?;
        Some(self)
    }

    fn gradients(
        &self,
        model: &T::Model,
        batch: &Vec<usize>,
        factors: &[f64],
        seed: u64,
        device: &Device,
    ) -> Option<(Vec<f64>, GradientsParams)> {
        if self.distillation.is_some() {
            return None;
        }
        let features = self.features(batch);
        let gradients = || self.task.gradients(model, &features, factors[0], seed, device);
        let (sum, gradients) = self.training(model, gradients)?;
        Some((vec![sum], gradients))
    }
}

impl<T: Task> TaskRecipe<'_, T> {
    fn task_by_rows(&self) -> &ByRowsOf<'_, T> {
        self.task.by_rows().expect("only a task that has it is asked for it")
    }
}

/// That of the task.
impl<T: Task> ByRows<T::Model, Vec<usize>> for TaskRecipe<'_, T> {
    fn parts(&self, batch: &Vec<usize>) -> Vec<Range<usize>> {
        self.task_by_rows().parts(&self.features(batch))
    }

    fn rows(&self, model: &T::Model, batch: &Vec<usize>, items: Range<usize>, device: &Device) -> Tensor<2> {
        let features = self.features(batch);
        self.training(model, || self.task_by_rows().rows(model, &features, items, device))
    }

    fn sums(&self, model: &T::Model, batch: &Vec<usize>, rows: Tensor<2>) -> Vec<Tensor<1>> {
        self.task_by_rows().sums(model, &self.features(batch), rows)
    }
}

impl<T: Task> Recipe for TaskRecipe<'_, T> {
    fn data(&self) -> String {
        self.fingerprint.clone()
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<Vec<usize>>>> + '_> {
        let (first_epoch, before, _) = self.epochs.of(from.step);
        let mut skipped = (from.step - before) as usize;
        Box::new((first_epoch..).flat_map(move |epoch| {
            let batches = self.buckets.epoch(epoch);
            let steps: Vec<&[Vec<usize>]> = batches.chunks(self.config.train.accumulate).collect();
            let mut used = 0;
            let made = steps.iter().enumerate().map(|(place, batches)| {
                let ends_epoch = place + 1 == steps.len();
                let example = batches.iter().flatten().next().map_or(0, |example| *example as u64);
                used += batches.iter().map(Vec::len).sum::<usize>() as u64;
                let next = CursorState { epoch, example: used };
                let next = if ends_epoch { CursorState { epoch: epoch + 1, example: 0 } } else { next };
                let own = from.share.range(batches.len());
                let before = Some(own.start);
                let batches = &batches[own];
                Ok(StepBatches {
                    tokens: batches.iter().map(|batch| self.n_tokens(batch)).sum(),
                    batches: batches.to_vec(),
                    before,
                    first: CursorState { epoch, example },
                    next,
                    ends_epoch,
                })
            });
            let made: Vec<_> = made.skip(std::mem::take(&mut skipped)).collect();
            made
        }))
    }

    fn extensions(&self) -> Extensions<T::Model> {
        let seed = self.config.common.run.seed;
        let masks = self.masks.iter();
        let masks = masks
            .map(|masks| masks.section.extension(masks.targets.clone(), masks.rounds, masks.steps, seed));
        let rounding = self.rounding.iter().map(|rounded| {
            let rounding = Rounding::new(rounded.section.weights, rounded.targets.clone());
            let rounding = match rounded.section.inputs {
                InputRounding::Running => rounding.with_running_ranges(rounded.seen.clone()),
                _ => rounding,
            };
            Box::new(rounding) as Box<dyn Extension<T::Model>>
        });
        masks.chain(rounding).collect()
    }

    fn split(&self) -> Option<&str> {
        self.data.dev.as_ref().map(|_| "dev")
    }

    fn evaluate(
        &self,
        model: &T::Model,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let dev = self.data.dev.as_ref().expect("only what `split` names is measured");
        Ok(self.measure(model, dev, device, advanced)?.1)
    }

    fn save(&self, model: &T::Model, folder: &Path) -> Result<()> {
        self.format.save(model, folder)
    }

    fn load(&self, model: T::Model, folder: &Path) -> Result<T::Model> {
        self.format.load(model, folder)
    }

    /// The result's metrics on each split, with every prediction in a report.
    fn report(
        &self,
        exported: &Exported<'_, T::Model>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let pruned = self.masks.as_ref().map(|masks| masks.result(exported.model));
        if let Some(pruned) = &pruned {
            progress.note(&format!("pruning: {pruned}"));
        }
        let facts: Vec<(&'static str, String)> =
            pruned.into_iter().map(|pruned| ("pruning", pruned)).collect();
        let splits = [("dev", &self.data.dev), ("test", &self.data.test)];
        let targets = self.task.targets(&self.data.train.examples);
        let reported = exported.report_splits(splits, progress, |split, data, advanced| {
            let (mut predictions, figures) = self.measure(exported.model, data, exported.device, advanced)?;
            predictions.set_names(match split {
                "dev" => &self.data.dev_names,
                _ => &self.data.test_names,
            });
            let baseline = targets.as_ref().and_then(|targets| predictions.baseline_of(targets));
            Ok(Measured { facts: facts.clone(), baseline, ..Measured::new(figures, predictions) })
        })?;
        self.loss_warning(exported)?.iter().for_each(|warning| progress.note(warning));
        Ok(reported)
    }
}
