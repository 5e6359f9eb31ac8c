//! Training on running text as an engine recipe.

use super::{TextObjective, TextSplits, figures};
use crate::config::TrainSection;
use crate::engine::share_out;
use crate::engine::{Advance, Exported, Objective, Position, Recipe, SplitFigures, StepBatches, Term};
use crate::metrics::Record;
use crate::metrics::curve::Panel;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cloze_data::{Assemble, Loader};
use cloze_evaluation::figures::Figures;
use cloze_model::huggingface::{FloatType, Published, load_published_as, save_published};
use cloze_model::{ParamInit, ops};
use cloze_tokenizer::Tokenizer;
use std::fmt;
use std::path::{Path, PathBuf};

/// The training of a model on running text: any [`TextObjective`], on batches of any data, for models that can
/// be saved as a Hugging Face folder.
pub struct TextRecipe<'a, O: TextObjective, D: Assemble<Batch = O::Batch>, C> {
    objective: O,
    splits: TextSplits<D>,
    train: &'a TrainSection,
    config: C,
    tokenizer: &'a Tokenizer,
    /// Path of the tokenizer.
    tokenizer_path: PathBuf,
}

impl<'a, O, D, C> TextRecipe<'a, O, D, C>
where
    O: TextObjective,
    D: Assemble<Batch = O::Batch>,
    C: Published<Model = O::Model>,
{
    /// An objective on these texts, in the batches of `train`. The model, of `config`, is saved with its
    /// tokenizer from `tokenizer_path`.
    pub fn new(
        objective: O,
        splits: TextSplits<D>,
        train: &'a TrainSection,
        config: C,
        tokenizer: &'a Tokenizer,
        tokenizer_path: PathBuf,
    ) -> Self {
        Self { objective, splits, train, config, tokenizer, tokenizer_path }
    }

    /// The number of predicted tokens of a batch.
    fn n_predicted(&self, batch: &O::Batch) -> usize {
        self.objective.counts(batch).iter().sum::<f64>() as usize
    }
}

impl<O: TextObjective, D: Assemble<Batch = O::Batch>, C> fmt::Debug for TextRecipe<'_, O, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextRecipe").field("splits", &self.splits).field("train", self.train).finish()
    }
}

impl<O, D, C> Objective for TextRecipe<'_, O, D, C>
where
    O: TextObjective,
    D: Assemble<Batch = O::Batch>,
    C: Published<Model = O::Model> + Sync,
{
    type Model = O::Model;
    type Batch = O::Batch;

    fn terms(&self, step: u64) -> Vec<Term> {
        self.objective.terms(step)
    }

    fn counts(&self, batch: &O::Batch) -> Vec<f64> {
        self.objective.counts(batch)
    }

    fn sums(&self, model: &O::Model, batch: &O::Batch, device: &Device) -> Vec<Tensor<1>> {
        self.objective.sums(model, batch, device)
    }
}

impl<O, D, C> Recipe for TextRecipe<'_, O, D, C>
where
    O: TextObjective,
    D: Assemble<Batch = O::Batch>,
    C: Published<Model = O::Model> + Sync,
{
    fn data(&self) -> String {
        self.splits.key.clone()
    }

    fn data_changed(&self, checkpoint: PathBuf) -> TrainerError {
        TrainerError::CorpusChanged { checkpoint, tokenizer: self.tokenizer_path.clone() }
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<O::Batch>>> + '_> {
        let train = self.train;
        let loader = Loader::new(self.splits.train.clone(), train.batch_size)
            .with_workers(train.workers)
            .with_ahead(train.prefetch);
        StepBatches::from_loader(&loader, from, train.accumulate, O::n_tokens)
    }

    fn split(&self) -> Option<&str> {
        Some(figures::HELD_OUT)
    }

    fn evaluate(
        &self,
        model: &O::Model,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let all: usize = self.splits.held_out.iter().map(|batch| self.n_predicted(batch)).sum();
        let batches = &self.splits.held_out;
        let sums = share_out(batches.len(), |own| {
            let of_own: usize = batches[own.clone()].iter().map(|batch| self.n_predicted(batch)).sum();
            let mut done = 0;
            let sums = batches[own].iter().map(|batch| {
                let losses = || self.objective.losses(model, batch, device).into_data().iter::<f64>().sum();
                let sum: f64 = ops::on_awake_cores(device, losses);
                done += self.n_predicted(batch);
                advanced(Advance { done, share: done as f64 / of_own as f64 });
                sum
            });
            Ok(sums.collect())
        })?;
        // Added from 0, which `sum` does not do.
        let sum = sums.into_iter().fold(0.0, |all, sum| all + sum);
        Ok(figures::figures(sum, all, self.splits.size))
    }

    fn evaluation_line(&self, step: u64, figures: &Figures) -> String {
        figures::evaluation_line(step, figures)
    }

    fn panels(&self, _: &[Record]) -> Vec<Panel> {
        figures::panels(self.splits.size.is_some())
    }

    fn save(&self, model: &O::Model, folder: &Path) -> Result<()> {
        save_published(folder, model, &self.config, FloatType::F32)?;
        Ok(self.tokenizer.save(folder)?)
    }

    fn load(&self, model: O::Model, folder: &Path) -> Result<O::Model> {
        let device = model.devices().into_iter().next().unwrap_or_default();
        Ok(load_published_as(&self.config, folder, &mut ParamInit::new(&device, 0))?.0)
    }

    fn report(
        &self,
        exported: &Exported<'_, O::Model>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        figures::report(exported, O::PREDICTION, self.tokenizer.vocab_size(), progress)
    }
}
