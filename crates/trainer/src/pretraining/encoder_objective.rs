//! What a kind of encoder's pretraining has to say beside its losses.

use crate::Result;
use crate::engine::{Objective, load_parameters, save_parameters};
use crate::metrics::curve::{Line, Panel, Source};
use burn::tensor::Device;
use cloze_data::{PretrainingBatch, UnigramCounts};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::table::grouped;
use cloze_tokenizer::Tokenizer;
use std::path::Path;

/// An objective over masked examples that [`PretrainingRecipe`](super::PretrainingRecipe) trains an encoder with: its
/// losses, as an [`Objective`], and what they are measured by, shown by and saved as.
pub trait EncoderObjective: Objective<Batch = PretrainingBatch> {
    /// Sums over held-out batches.
    type Sums: Default;

    /// Takes one batch into the sums; `model` is on an inference device. `unigram` has the pieces' frequencies in
    /// training, for a baseline.
    fn measure(
        &self,
        sums: &mut Self::Sums,
        model: &Self::Model,
        batch: &PretrainingBatch,
        unigram: &UnigramCounts,
        device: &Device,
    );

    /// The figures that the sums make, the main one first.
    fn figures(&self, sums: &Self::Sums) -> Figures;

    /// Whether the labels of sentence pairs are predicted.
    fn has_pairs(&self) -> bool {
        false
    }

    /// An evaluation on one line.
    fn line(&self, step: u64, figures: &Figures) -> String {
        format!("evaluation after step {}: {}", grouped(step), figures.line())
    }

    /// The panels of the learning curve, from above; held-out figures are those of `split`. By default the loss in
    /// training.
    fn panels(&self, split: &str) -> Vec<Panel> {
        let _ = split;
        let lines = vec![Line { label: "training (smoothed)".into(), source: Source::Loss }];
        vec![Panel { axis: "loss (nats)".into(), lines }]
    }

    /// The result's figures, as a table for a terminal.
    fn results(&self, step: u64, figures: &Figures) -> String {
        let _ = step;
        figures.to_string()
    }

    /// Saves a model into an existing empty folder, with its `tokenizer` if the folder is to be a published one;
    /// by default with [`save_parameters`].
    ///
    /// # Errors
    /// A file that cannot be written.
    fn save(&self, model: &Self::Model, folder: &Path, tokenizer: Option<&Tokenizer>) -> Result<()> {
        let _ = tokenizer;
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
}
