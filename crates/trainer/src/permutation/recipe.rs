//! XLNet's training as a recipe of the engine.

use super::Permutation;
use crate::config::{PermutationConfig, TrainSection};
use crate::engine::{
    Advance, Cadence, Export, Exported, Objective, Position, Recipe, RunSettings, SplitFigures, StepBatches,
};
use crate::metrics::Record;
use crate::metrics::curve::{Line, Panel, Source};
use crate::metrics::progress::RunProgress;
use crate::running_text::{TextParts, TextSource};
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::{Loader, OrderedBatch, OrderedBlocks};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::table::{facts, grouped};
use cloze_model::huggingface::{FloatType, load_published_as, save_published};
use cloze_model::xlnet::{XlnetConfig, XlnetLanguageModel};
use cloze_model::{ParamInit, ops};
use cloze_tokenizer::Tokenizer;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the data is called that the model is measured on.
const HELD_OUT: &str = "heldout";

/// The names of the figures.
pub mod figure {
    /// Cross-entropy of a predicted token given those before it in the order, in nats: the main figure, and the only term
    /// of the loss.
    pub const LOSS: &str = "loss";
    /// Its exponential: among how many tokens the model wavers.
    pub const PERPLEXITY: &str = "perplexity";
}

/// The two parts of a corpus, as segments with orders.
#[derive(Debug)]
pub struct SegmentSplits {
    train: Arc<OrderedBlocks>,
    held_out: Vec<OrderedBatch>,
    /// Which texts, and which tokenizer.
    key: String,
}

impl SegmentSplits {
    /// Prepares the config's corpus, and cuts it into segments as the config says.
    ///
    /// # Errors
    /// Whatever is wrong with the corpus; an end piece that the tokenizer does not have; a part of the text that is
    /// shorter than a segment with what it remembers.
    pub fn prepare(
        config: &PermutationConfig,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let (seed, order) = (config.run.seed, config.segments.order());
        let end = ("segments.end", config.segments.end.as_deref());
        let source = TextSource { corpus: &config.corpus, end, eval: &config.eval, seed };
        let TextParts { train, held_out, key } = source.prepare(tokenizer, cache, progress)?;
        let held_out = OrderedBlocks::new(held_out, order.clone(), seed)?;
        let held_out = held_out.in_order(config.eval.batch_size, config.eval.max_blocks);
        Ok(Self { train: Arc::new(OrderedBlocks::new(train, order, seed)?), held_out, key })
    }

    /// Held-out segments in batches, from the text's beginning, in the same orders each time.
    pub fn held_out(&self) -> &[OrderedBatch] {
        &self.held_out
    }
}

impl PermutationConfig {
    /// What the engine is told of the run. With patience the best model is the result.
    pub fn run_settings(&self) -> RunSettings {
        let mut settings = RunSettings::new(&self.run.name, self.train.steps, self.optimizer.lr);
        settings.seed = self.run.seed;
        settings.non_finite = self.train.non_finite;
        settings.precision = self.train.precision;
        settings.evaluate = Cadence::Every(self.eval.every);
        settings.patience = self.eval.patience;
        settings.export = if self.eval.patience.is_some() { Export::Best } else { Export::Last };
        settings.optimizer = self.optimizer.clone();
        settings.schedule = self.schedule.clone();
        settings.average = self.average.clone();
        settings.checkpoint = self.checkpoint.clone();
        settings.log = self.log.clone();
        settings
    }
}

/// The training of an XLNet on running text.
#[derive(Debug)]
pub struct PermutationRecipe<'a> {
    splits: SegmentSplits,
    train: &'a TrainSection,
    config: XlnetConfig,
    tokenizer: &'a Tokenizer,
    /// Where the tokenizer lies.
    tokenizer_path: PathBuf,
}

impl<'a> PermutationRecipe<'a> {
    /// On these segments, in the batches that the run's config says. The model, of `config`, is saved with its tokenizer,
    /// which lies at `tokenizer_path`.
    pub fn new(
        run: &'a PermutationConfig,
        splits: SegmentSplits,
        config: XlnetConfig,
        tokenizer: &'a Tokenizer,
        tokenizer_path: PathBuf,
    ) -> Self {
        Self { splits, train: &run.train, config, tokenizer, tokenizer_path }
    }
}

impl Objective for PermutationRecipe<'_> {
    type Model = XlnetLanguageModel;
    type Batch = OrderedBatch;

    fn terms(&self) -> &'static [&'static str] {
        Permutation.terms()
    }

    fn counts(&self, batch: &OrderedBatch) -> Vec<f64> {
        Permutation.counts(batch)
    }

    fn sums(&self, model: &XlnetLanguageModel, batch: &OrderedBatch, device: &Device) -> Vec<Tensor<1>> {
        Permutation.sums(model, batch, device)
    }
}

impl Recipe for PermutationRecipe<'_> {
    fn data(&self) -> String {
        self.splits.key.clone()
    }

    fn data_changed(&self, checkpoint: PathBuf) -> TrainerError {
        TrainerError::CorpusChanged { checkpoint, tokenizer: self.tokenizer_path.clone() }
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<OrderedBatch>>> + '_> {
        let train = self.train;
        let loader = Loader::new(self.splits.train.clone(), train.batch_size)
            .with_workers(train.workers)
            .with_ahead(train.prefetch);
        StepBatches::from_loader(&loader, from, train.accumulate, |batch: &OrderedBatch| {
            batch.ids.len() as u64
        })
    }

    fn split(&self) -> Option<&str> {
        Some(HELD_OUT)
    }

    fn evaluate(
        &self,
        model: &XlnetLanguageModel,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let all: usize = self.splits.held_out.iter().map(OrderedBatch::n_predicted).sum();
        let (mut sum, mut done) = (0.0, 0);
        for batch in &self.splits.held_out {
            sum += ops::on_awake_cores(device, || {
                Permutation::losses(model, batch, device).into_data().iter::<f64>().sum::<f64>()
            });
            done += batch.n_predicted();
            advanced(Advance { done, share: done as f64 / all as f64 });
        }
        let loss = sum / all as f64;
        Ok(Figures::new(all, [(figure::LOSS, loss), (figure::PERPLEXITY, loss.exp())]))
    }

    fn evaluation_line(&self, step: u64, figures: &Figures) -> String {
        let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
        format!(
            "evaluation after step {}: loss {:.4}, perplexity {:.2}",
            grouped(step),
            value(figure::LOSS),
            value(figure::PERPLEXITY)
        )
    }

    fn panels(&self, _: &[Record]) -> Vec<Panel> {
        let line = |label: &str, source| Line { label: label.into(), source };
        let held_out = Source::Figure { split: HELD_OUT.into(), figure: figure::LOSS.into() };
        let lines = vec![line("training (smoothed)", Source::Loss), line("held out", held_out)];
        vec![Panel { axis: "loss (nats)".into(), lines }]
    }

    fn save(&self, model: &XlnetLanguageModel, folder: &Path) -> Result<()> {
        save_published(folder, model, &self.config, FloatType::F32)?;
        Ok(self.tokenizer.save(folder)?)
    }

    fn load(&self, model: XlnetLanguageModel, folder: &Path) -> Result<XlnetLanguageModel> {
        let device = model.bias.val().device();
        Ok(load_published_as(&self.config, folder, &mut ParamInit::new(&device, 0))?.0)
    }

    fn report(
        &self,
        exported: &Exported<'_, XlnetLanguageModel>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let Some(figures) = exported.figures else { return Ok(Vec::new()) };
        let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
        let rows = [
            ("loss (nats a prediction)", format!("{:.4}", value(figure::LOSS))),
            ("perplexity", format!("{:.2}", value(figure::PERPLEXITY))),
            ("predictions", grouped(figures.examples() as u64)),
        ];
        progress.note(&facts(&format!("held out, after step {}", grouped(exported.step)), rows));
        exported.page(HELD_OUT, figures, None)?;
        Ok(vec![SplitFigures { split: HELD_OUT.into(), figures: figures.clone(), seconds: 0.0 }])
    }
}
