//! A training recipe: the interface between the engine and a kind of training.

use super::checkpoint::{CursorState, check_parameters};
use super::extension::Extensions;
use super::objective::Objective;
use super::replicas::Share;
use super::run::watched;
use super::run_folder::INDEX;
use super::step::MicroBatches;
use crate::metrics::curve::{Panel, usual_panels};
use crate::metrics::progress::RunProgress;
use crate::metrics::{METRICS_FILE, Record, held_out, jsonl, loss_course};
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::Device;
use cloze_data::{Assemble, Loader};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{Baseline, InRun, IndexSplit, Predictions, Report};
use cloze_evaluation::table::grouped;
use cloze_model::huggingface::{read_tensors, write_tensors};
use cloze_model::weights;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A kind of training: everything the engine needs to know. The losses are its [`Objective`].
///
/// A recipe holds its data and settings and is not modified by training. It receives models without autodiff. A
/// custom recipe needs [`data`](Self::data), [`steps`](Self::steps) and an [`Objective`]; everything else has a
/// default.
pub trait Recipe: Objective {
    /// Identifies the training data: a key or hash that changes with the data. Checkpoints made with other data
    /// are not resumed.
    fn data(&self) -> String;

    /// The error for such a checkpoint.
    fn data_changed(&self, checkpoint: PathBuf) -> TrainerError {
        TrainerError::ExamplesChanged { checkpoint }
    }

    /// The batches of each step, from a position on. They must not run out before the run ends, and must be a
    /// function of the recipe and the position: a resumed run's data does not depend on when it was
    /// interrupted.
    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<Self::Batch>>> + '_>;

    /// The name of the evaluation data during training, such as `dev`; none if there is none.
    fn split(&self) -> Option<&str> {
        None
    }

    /// Evaluates a model on that data. The main metric decides which model is best; ties are broken by a metric
    /// named `loss`. Reports progress to `advanced`. All replicas evaluate: [`share_out`](super::share_out) divides the work.
    ///
    /// # Errors
    /// The recipe's own.
    fn evaluate(
        &self,
        _model: &Self::Model,
        _device: &Device,
        _advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        Ok(Figures::new(0, [("loss", f64::NAN)]))
    }

    /// [`evaluate`](Self::evaluate) after this many steps, for metrics too costly to compute each time. The
    /// main metric must always be computed.
    ///
    /// # Errors
    /// The recipe's own.
    fn evaluate_after(
        &self,
        step: u64,
        model: &Self::Model,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let _ = step;
        self.evaluate(model, device, advanced)
    }

    /// An evaluation on one line.
    fn evaluation_line(&self, step: u64, figures: &Figures) -> String {
        format!("evaluation after step {}: {}", grouped(step), figures.line())
    }

    /// The panels of the learning curve, from top to bottom.
    fn panels(&self, records: &[Record]) -> Vec<Panel> {
        usual_panels(records, self.split())
    }

    /// The run's extensions; none by default.
    fn extensions(&self) -> Extensions<Self::Model> {
        Vec::new()
    }

    /// Saves a model into an existing empty folder; by default with [`save_parameters`].
    ///
    /// # Errors
    /// A file that cannot be written.
    fn save(&self, model: &Self::Model, folder: &Path) -> Result<()> {
        save_parameters(model, folder)
    }

    /// Loads the parameters that [`save`](Self::save) wrote to a folder into a model like this one; by default
    /// with [`load_parameters`].
    ///
    /// # Errors
    /// An unreadable file, or one of another model.
    fn load(&self, model: Self::Model, folder: &Path) -> Result<Self::Model> {
        load_parameters(model, folder)
    }

    /// Reports the result: its metrics on each split, and any report files. By default the metrics of the
    /// result's evaluation during training, on a page with the learning curve.
    ///
    /// # Errors
    /// A file that cannot be written; those of [`evaluate`](Self::evaluate).
    fn report(
        &self,
        exported: &Exported<'_, Self::Model>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let _ = progress;
        let (Some(split), Some(figures)) = (self.split(), exported.figures) else {
            return Ok(Vec::new());
        };
        exported.page(split, figures, None)?;
        Ok(vec![SplitFigures { split: split.into(), figures: figures.clone(), seconds: 0.0, baseline: None }])
    }
}

/// The file of a model's parameters.
const MODEL: &str = "model.safetensors";

/// Saves a model's parameters as `model.safetensors` in a folder, named by their paths in the model.
///
/// # Errors
/// A file that cannot be written.
pub fn save_parameters<M: Module>(model: &M, folder: &Path) -> Result<()> {
    Ok(write_tensors(&folder.join(MODEL), &weights::collect(model), &[])?)
}

/// Loads the parameters that [`save_parameters`] wrote to a folder into a model of the same shapes.
///
/// # Errors
/// An unreadable file; [`TrainerError::BadWeights`] for one of another model.
pub fn load_parameters<M: Module>(model: M, folder: &Path) -> Result<M> {
    let path = folder.join(MODEL);
    let tensors = read_tensors(&path)?;
    check_parameters(&tensors, &weights::shapes(&model))
        .map_err(|reason| TrainerError::BadWeights { path, reason })?;
    Ok(weights::replace(model, tensors))
}

/// A run's position in its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// Steps so far.
    pub step: u64,
    /// `next` of the last step's [`StepBatches`].
    pub cursor: CursorState,
    /// The part of each step's micro-batches that is used. A recipe may give all of them.
    pub share: Share,
}

/// The data of one step.
#[derive(Debug, Clone)]
pub struct StepBatches<B> {
    /// Its micro-batches, at least one, which count as one large batch: all of them, or this replica's share.
    pub batches: Vec<B>,
    /// How many micro-batches of the step come before this replica's; none if `batches` are all of the step's.
    pub before: Option<usize>,
    /// The tokens of `batches` without padding, or another unit of speed.
    pub tokens: u64,
    /// Position of the first example, for the error of a non-finite loss.
    pub first: CursorState,
    /// Start of the next step.
    pub next: CursorState,
    /// Whether a pass over the data ends here; a checkpoint is then saved.
    pub ends_epoch: bool,
}

impl<B> StepBatches<B> {
    /// The batches of a loader, `accumulate` per step, of which only this replica's share is made; `tokens` gives the
    /// tokens of a batch.
    pub fn from_loader<'a, A: Assemble<Batch = B>>(
        loader: &Loader<A>,
        from: Position,
        accumulate: usize,
        tokens: impl Fn(&B) -> u64 + 'a,
    ) -> Box<dyn Iterator<Item = Result<Self>> + 'a>
    where
        B: 'a,
    {
        let accumulate = accumulate.max(1);
        let own = from.share.range(accumulate);
        let before = Some(own.start);
        let mut loaded = loader.groups(from.cursor.into(), accumulate, own);
        let mut first = from.cursor;
        Box::new(std::iter::from_fn(move || {
            let batches = match loaded.next()? {
                Ok(batches) => batches,
                Err(error) => return Some(Err(error.into())),
            };
            let next = loaded.cursor().into();
            let tokens = batches.iter().map(&tokens).sum();
            let step = Self { batches, before, tokens, first, next, ends_epoch: false };
            first = next;
            Some(Ok(step))
        }))
    }

    /// The part of the micro-batches for a replica with this share, and whether there are no others in it.
    pub(super) fn of(&self, share: Share) -> (MicroBatches<'_, B>, bool) {
        if let Some(before) = self.before {
            return (MicroBatches { first: before as u64, batches: &self.batches }, true);
        }
        let own = share.range(self.batches.len());
        (MicroBatches { first: own.start as u64, batches: &self.batches[own] }, false)
    }

    /// One batch, from data without epochs; the position is the step.
    pub fn one(batch: B, tokens: u64, step: u64) -> Self {
        let at = |example| CursorState { epoch: 0, example };
        Self {
            batches: vec![batch],
            before: None,
            tokens,
            first: at(step),
            next: at(step + 1),
            ends_epoch: false,
        }
    }
}

/// Progress of a pass over examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advance {
    /// Items done: examples, or windows of long ones.
    pub done: usize,
    /// The fraction of all the work done, from 0 to 1.
    pub share: f64,
}

/// Metrics on one split.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitFigures {
    /// The split.
    pub split: String,
    /// The metrics.
    pub figures: Figures,
    /// Duration in seconds.
    pub seconds: f64,
    /// What a rule without a model scores, if there is one to compare with.
    pub baseline: Option<Baseline>,
}

/// What was measured on a split, for its page.
pub struct Measured<'a> {
    /// The metrics.
    pub figures: Figures,
    /// What the model said about each example, if it is shown.
    pub predictions: Option<Box<dyn Predictions + 'a>>,
    /// More facts for the page, such as how texts were decoded.
    pub facts: Vec<(&'static str, String)>,
    /// What a rule without a model scores, by default that of the predictions.
    pub baseline: Option<Baseline>,
}

impl<'a> Measured<'a> {
    /// Metrics with the predictions that they are of.
    pub fn new(figures: Figures, predictions: Box<dyn Predictions + 'a>) -> Self {
        Self { figures, predictions: Some(predictions), facts: Vec::new(), baseline: None }
    }
}

/// A run's result, for its report.
#[derive(Debug)]
pub struct Exported<'a, M> {
    /// The saved model.
    pub model: &'a M,
    /// The folder it was saved in.
    pub folder: &'a Path,
    /// Its device, without autodiff.
    pub device: &'a Device,
    /// The run's name.
    pub name: &'a str,
    /// The run's folder.
    pub run: &'a Path,
    /// The step of the model.
    pub step: u64,
    /// Its metrics on the evaluation data during training, if any.
    pub figures: Option<&'a Figures>,
    /// The learning curve's file; none for a run without steps.
    pub curve: Option<&'a Path>,
    /// The pages written so far, for the run's page.
    pub(super) pages: RefCell<Vec<IndexSplit>>,
}

impl<M> Exported<'_, M> {
    /// What is wrong with the course of the logged training losses, which must be the loss of one and the same task all the
    /// time.
    ///
    /// # Errors
    /// A log that cannot be read.
    pub(crate) fn loss_warning(&self) -> Result<Option<String>> {
        let records = jsonl::read(&self.run.join(METRICS_FILE))?;
        let losses = records.iter().filter_map(|record| match record {
            Record::Train(record) => Some(record.loss),
            Record::Evaluation(_) => None,
        });
        Ok(loss_course::warning(&losses.collect::<Vec<_>>()))
    }

    /// Says what is wrong with a language model's loss on held-out text, whose name among the figures is `name`: it is above
    /// that of a baseline, or above the loss before training. Else says what is wrong with the training losses. Nothing is
    /// said of an untrained model.
    ///
    /// # Errors
    /// A log that cannot be read.
    pub(crate) fn tell_loss(
        &self,
        figures: &Figures,
        name: &str,
        baseline: Option<&Baseline>,
        progress: &mut dyn RunProgress,
    ) -> Result<()> {
        let Some(loss) = figures.get(name).filter(|_| self.step > 0) else { return Ok(()) };
        let records = jsonl::read(&self.run.join(METRICS_FILE))?;
        let untrained = records.iter().find_map(|record| match record {
            Record::Evaluation(record) if record.step == 0 => record.figures.get(name),
            _ => None,
        });
        let rule = baseline.and_then(|rule| Some((rule.figures.get(name)?, &*rule.rule)));
        let warning = match held_out::warning(loss, untrained, rule) {
            Some(warning) => Some(warning),
            None => self.loss_warning()?.map(|course| format!("{course}; {}", held_out::CALMER)),
        };
        if let Some(warning) = warning {
            progress.note(&format!("warning: {warning}"));
        }
        Ok(())
    }

    /// Writes the report of a split to `report/SPLIT` in the run folder: metrics, curve, and all predictions if
    /// there are any. Returns the page's path.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn page(
        &self,
        split: &str,
        figures: &Figures,
        predictions: Option<&dyn Predictions>,
    ) -> Result<PathBuf> {
        self.page_with(split, figures, predictions, None, &[])
    }

    /// The same with a baseline, and with more facts, such as how texts were decoded.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn page_with(
        &self,
        split: &str,
        figures: &Figures,
        predictions: Option<&dyn Predictions>,
        baseline: Option<&Baseline>,
        facts: &[(&str, String)],
    ) -> Result<PathBuf> {
        let folder = self.run.join("report").join(split);
        let own = [
            ("model", self.folder.display().to_string()),
            ("split", split.to_string()),
            ("step", grouped(self.step)),
        ];
        let facts = [&own, facts].concat();
        let title = format!("{}: {split}", self.name);
        let report = Report { title: &title, facts: &facts, figures, predictions };
        let page = PathBuf::from("report").join(split).join("report.html");
        // Back out of the folders of the page.
        let index = "../".repeat(page.components().count() - 1) + INDEX;
        report.write_in_run(&folder, &InRun { curve: self.curve, index: Some(&index), baseline })?;
        self.pages.borrow_mut().push(IndexSplit {
            split: split.into(),
            figures: figures.clone(),
            summary: report.summary(baseline),
            page: page.to_string_lossy().replace('\\', "/"),
        });
        Ok(folder.join("report.html"))
    }

    /// Measures each split that there is, writes its page, and notes its metrics and what is wrong with the predictions.
    ///
    /// # Errors
    /// Those of `measure`; a file that cannot be written.
    pub fn report_splits<'d, D>(
        &self,
        splits: [(&str, &'d Option<D>); 2],
        progress: &mut dyn RunProgress,
        mut measure: impl FnMut(&str, &'d D, &mut dyn FnMut(Advance)) -> Result<Measured<'d>>,
    ) -> Result<Vec<SplitFigures>> {
        let mut reported = Vec::new();
        for (split, data) in splits {
            let Some(data) = data else { continue };
            let start = Instant::now();
            let work = format!("measuring {split}");
            let Measured { figures, predictions, facts, baseline } =
                measure(split, data, &mut watched(&work, progress))?;
            let baseline = baseline.or_else(|| predictions.as_deref()?.baseline());
            let page = self.page_with(split, &figures, predictions.as_deref(), baseline.as_ref(), &facts)?;
            let step = self.step;
            let shown = baseline.as_ref().map_or_else(|| figures.to_string(), |rule| rule.beside(&figures));
            progress.note(&format!("{split}, the model after step {step}\n{shown}\n{}", page.display()));
            if let Some(warning) = predictions.and_then(|predictions| predictions.warning()) {
                progress.note(&format!("warning: {split}: {warning}"));
            }
            let seconds = start.elapsed().as_secs_f64();
            reported.push(SplitFigures { split: split.into(), figures, seconds, baseline });
        }
        Ok(reported)
    }
}
