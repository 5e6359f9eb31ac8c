//! What a pretraining objective provides besides its losses.

use crate::Result;
use crate::engine::{Objective, load_parameters, save_parameters};
use crate::metrics::curve::{Line, Panel, Source, TRAINING};
use burn::tensor::Device;
use cloze_data::{PretrainingBatch, UnigramCounts};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::table::grouped;
use cloze_tokenizer::Tokenizer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::AddAssign;
use std::path::Path;

/// An objective over masked examples for training an encoder with
/// [`PretrainingRecipe`](super::PretrainingRecipe): its losses, as an [`Objective`], with its evaluation,
/// display and saving.
pub trait EncoderObjective: Objective<Batch = PretrainingBatch> {
    /// Sums over a held-out batch, which are added up over all of them.
    type Sums: Default + AddAssign + Serialize + DeserializeOwned;

    /// The sums over one batch; `model` is on an inference device. `unigram` has the pieces' training
    /// frequencies, for a baseline.
    fn measure(
        &self,
        model: &Self::Model,
        batch: &PretrainingBatch,
        unigram: &UnigramCounts,
        device: &Device,
    ) -> Self::Sums;

    /// The metrics from the sums, the main one first.
    fn figures(&self, sums: &Self::Sums) -> Figures;

    /// Whether sentence-pair labels are predicted.
    fn has_pairs(&self) -> bool {
        false
    }

    /// An evaluation on one line.
    fn line(&self, step: u64, figures: &Figures) -> String {
        format!("evaluation after step {}: {}", grouped(step), figures.line())
    }

    /// The panels of the learning curve, from top to bottom; held-out metrics are those of `split`. By default
    /// the training loss.
    fn panels(&self, split: &str) -> Vec<Panel> {
        let _ = split;
        let lines = vec![Line { label: TRAINING.into(), source: Source::Loss }];
        vec![Panel { axis: "loss (nats)".into(), lines }]
    }

    /// The result's metrics, as a table for a terminal.
    fn results(&self, step: u64, figures: &Figures) -> String {
        let _ = step;
        figures.to_string()
    }

    /// Saves a model into an existing empty folder, with its `tokenizer` if the folder is in a published
    /// format; by default with [`save_parameters`].
    ///
    /// # Errors
    /// A file that cannot be written.
    fn save(&self, model: &Self::Model, folder: &Path, tokenizer: Option<&Tokenizer>) -> Result<()> {
        let _ = tokenizer;
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
}
