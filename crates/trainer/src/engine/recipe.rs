//! What a run trains: the seam between the engine and a kind of training.

use super::checkpoint::{CursorState, check_parameters};
use super::extension::Extensions;
use super::objective::Objective;
use crate::metrics::Record;
use crate::metrics::curve::{Panel, usual_panels};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::Device;
use cloze_data::{Assemble, DataError, Loader};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::Report;
use cloze_evaluation::table::grouped;
use cloze_model::huggingface::{read_tensors, write_tensors};
use cloze_model::weights;
use std::path::{Path, PathBuf};

/// A kind of training: everything that the engine asks of it. The losses are its [`Objective`].
///
/// A recipe holds its data and whatever else it needs; it changes nothing while it is trained. Models are handed to it
/// without autodiff. A custom recipe needs [`data`](Self::data), [`steps`](Self::steps) and an
/// [`Objective`]; all else has a default.
pub trait Recipe: Objective {
    /// What is trained on: a key or a hash that differs where the data differs. A checkpoint made with other data is
    /// not gone on from.
    fn data(&self) -> String;

    /// The error for such a checkpoint.
    fn data_changed(&self, checkpoint: PathBuf) -> TrainerError {
        TrainerError::ExamplesChanged { checkpoint }
    }

    /// The batches of one step after the other, from a position on. They end no sooner than the run, and are a function
    /// of the recipe and the position: what a resumed run trains on does not depend on when it was interrupted.
    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<Self::Batch>>> + '_>;

    /// What the data is called that the model is measured on during training, such as `dev`; none where there is none.
    fn split(&self) -> Option<&str> {
        None
    }

    /// Measures a model on that data. The main figure decides which model is the best; between equal ones a figure
    /// called `loss` does. Reports progress to `advanced`.
    ///
    /// # Errors
    /// Whatever the recipe's own are.
    fn evaluate(
        &self,
        _model: &Self::Model,
        _device: &Device,
        _advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        Ok(Figures::new(0, [("loss", f64::NAN)]))
    }

    /// [`evaluate`](Self::evaluate) after this many steps, for figures that are too costly to measure each time. The main
    /// figure has to be measured always.
    ///
    /// # Errors
    /// Whatever the recipe's own are.
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

    /// The panels of the learning curve, from above.
    fn panels(&self, records: &[Record]) -> Vec<Panel> {
        usual_panels(records, self.split())
    }

    /// What the run does besides its steps; by default nothing.
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

    /// The parameters that [`save`](Self::save) has put into a folder, in a model like this one; by default with
    /// [`load_parameters`].
    ///
    /// # Errors
    /// A file that cannot be read, or that is of another model.
    fn load(&self, model: Self::Model, folder: &Path) -> Result<Self::Model> {
        load_parameters(model, folder)
    }

    /// What the result is worth: its figures on each split, with whatever is to be written of it in a report. By
    /// default those of the evaluation that the result had in training, on a page with the learning curve.
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
        Ok(vec![SplitFigures { split: split.into(), figures: figures.clone(), seconds: 0.0 }])
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

/// The parameters that [`save_parameters`] has put into a folder, in a model of the same shapes.
///
/// # Errors
/// A file that cannot be read; [`TrainerError::BadWeights`] for one of another model.
pub fn load_parameters<M: Module>(model: M, folder: &Path) -> Result<M> {
    let path = folder.join(MODEL);
    let tensors = read_tensors(&path)?;
    check_parameters(&tensors, &weights::shapes(&model))
        .map_err(|reason| TrainerError::BadWeights { path, reason })?;
    Ok(weights::replace(model, tensors))
}

/// Where in its data a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// Steps made.
    pub step: u64,
    /// What the last of these steps said of where the next one begins.
    pub cursor: CursorState,
}

/// What one step is made of.
#[derive(Debug, Clone)]
pub struct StepBatches<B> {
    /// Its micro-batches, which count as one large batch; one at least.
    pub batches: Vec<B>,
    /// Their tokens without padding, or whatever else the speed is counted in.
    pub tokens: u64,
    /// Where the first example is, for the error of a loss that is not finite.
    pub first: CursorState,
    /// Where the next step begins.
    pub next: CursorState,
    /// Whether a pass over the data ends here, which a checkpoint follows.
    pub ends_epoch: bool,
}

impl<B> StepBatches<B> {
    /// The batches of a loader, `accumulate` of them a step; `tokens` says how many a batch has.
    pub fn from_loader<'a, A: Assemble<Batch = B>>(
        loader: &Loader<A>,
        from: Position,
        accumulate: usize,
        tokens: impl Fn(&B) -> u64 + 'a,
    ) -> Box<dyn Iterator<Item = Result<Self>> + 'a>
    where
        B: 'a,
    {
        let mut loaded = loader.batches(from.cursor.into());
        let mut first = from.cursor;
        Box::new(std::iter::from_fn(move || {
            let batches: std::result::Result<Vec<B>, DataError> =
                loaded.by_ref().take(accumulate.max(1)).collect();
            let batches = match batches {
                Ok(batches) if batches.is_empty() => return None,
                Ok(batches) => batches,
                Err(error) => return Some(Err(error.into())),
            };
            let next = loaded.cursor().into();
            let tokens = batches.iter().map(&tokens).sum();
            let step = Self { batches, tokens, first, next, ends_epoch: false };
            first = next;
            Some(Ok(step))
        }))
    }

    /// One batch, from data without epochs; step and position are one.
    pub fn one(batch: B, tokens: u64, step: u64) -> Self {
        let at = |example| CursorState { epoch: 0, example };
        Self { batches: vec![batch], tokens, first: at(step), next: at(step + 1), ends_epoch: false }
    }
}

/// How far a pass over examples is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advance {
    /// What it is done with: examples, or windows of long ones.
    pub done: usize,
    /// The share of all the work that these were, from 0 to 1.
    pub share: f64,
}

/// Figures on one split.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitFigures {
    /// Which data.
    pub split: String,
    /// What was measured.
    pub figures: Figures,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// A run's result, for its report.
#[derive(Debug)]
pub struct Exported<'a, M> {
    /// The model that was saved.
    pub model: &'a M,
    /// Where it was saved.
    pub folder: &'a Path,
    /// Its device, without autodiff.
    pub device: &'a Device,
    /// The run's name.
    pub name: &'a str,
    /// The run's folder.
    pub run: &'a Path,
    /// The step that the model was made at.
    pub step: u64,
    /// Its figures on the data that it was measured on during training, where there is any.
    pub figures: Option<&'a Figures>,
    /// The learning curve's file; none of a run without a step.
    pub curve: Option<&'a Path>,
}

impl<M> Exported<'_, M> {
    /// Writes the report of a split to `report/SPLIT` in the run's folder: figures, curve, and every prediction where
    /// there are any. Returns the page's path.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn page(
        &self,
        split: &str,
        figures: &Figures,
        predictions: Option<&dyn cloze_evaluation::report::Predictions>,
    ) -> Result<PathBuf> {
        let folder = self.run.join("report").join(split);
        let facts = [
            ("model", self.folder.display().to_string()),
            ("split", split.to_string()),
            ("step", self.step.to_string()),
        ];
        let title = format!("{}: {split}", self.name);
        Report { title: &title, facts: &facts, figures, predictions }
            .write_with_curve(&folder, self.curve)?;
        Ok(folder.join("report.html"))
    }
}
