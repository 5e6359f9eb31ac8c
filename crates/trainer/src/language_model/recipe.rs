//! Left-to-right training as a recipe of the engine: blocks of running text, each token predicted from those before it.

use super::sequences;
use crate::config::{LanguageModelConfig, TrainSection};
use crate::engine::{
    Advance, Cadence, Export, Exported, Objective, Position, Recipe, RunSettings, SplitFigures, StepBatches,
};
use crate::metrics::Record;
use crate::metrics::curve::{Line, Panel, Source};
use crate::metrics::progress::RunProgress;
use crate::running_text::{TextParts, TextSource};
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::{BlockBatch, Loader, TextBlocks};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::table::{facts, grouped};
use cloze_model::gpt::{Gpt, GptConfig};
use cloze_model::huggingface::{FloatType, load_published_as, save_published};
use cloze_model::{ParamInit, ops};
use cloze_tokenizer::Tokenizer;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the data is called that the model is measured on.
const HELD_OUT: &str = "heldout";

/// The names of the figures.
pub mod figure {
    /// Cross-entropy of a token given those before it, in nats: the main figure, and the only term of the loss.
    pub const LOSS: &str = "loss";
    /// Its exponential: among how many tokens the model wavers.
    pub const PERPLEXITY: &str = "perplexity";
    /// Cross-entropy in bits, of a byte of the text: comparable between vocabularies.
    pub const BITS_PER_BYTE: &str = "bits_per_byte";
    /// The same of a character.
    pub const BITS_PER_CHARACTER: &str = "bits_per_character";
}

/// The two parts of a corpus, as blocks of running text.
#[derive(Debug)]
pub struct TextSplits {
    train: Arc<TextBlocks>,
    held_out: Vec<BlockBatch>,
    /// Bytes and characters of the held-out text that is predicted.
    size: [u64; 2],
    /// Which texts, and which tokenizer.
    key: String,
}

impl TextSplits {
    /// Prepares the config's corpus, and cuts it into blocks as the config says.
    ///
    /// # Errors
    /// Whatever is wrong with the corpus; an end piece that the tokenizer does not have.
    pub fn prepare(
        config: &LanguageModelConfig,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let seed = config.run.seed;
        let end = ("blocks.end", config.blocks.end.as_deref());
        let source = TextSource { corpus: &config.corpus, end, eval: &config.eval, seed };
        let TextParts { train, held_out, key } = source.prepare(tokenizer, cache, progress)?;
        let held_out = TextBlocks::new(held_out, &config.blocks, seed)?;
        let held_out = held_out.in_order(config.eval.batch_size, config.eval.max_blocks);
        let predicted: Vec<u32> =
            held_out.iter().flat_map(|batch| &batch.next).map(|id| *id as u32).collect();
        let text = tokenizer.decode(&predicted, true)?;
        Ok(Self {
            train: Arc::new(TextBlocks::new(train, &config.blocks, seed)?),
            held_out,
            size: [text.len() as u64, text.chars().count() as u64],
            key,
        })
    }

    /// Held-out blocks in batches, from the text's beginning.
    pub fn held_out(&self) -> &[BlockBatch] {
        &self.held_out
    }
}

impl LanguageModelConfig {
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

/// The mean cross-entropy of each token given those before it, in nats.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeftToRight;

impl Objective for LeftToRight {
    type Model = Gpt;
    type Batch = BlockBatch;

    fn terms(&self) -> &'static [&'static str] {
        &[figure::LOSS]
    }

    fn counts(&self, batch: &BlockBatch) -> Vec<f64> {
        vec![batch.next.len() as f64]
    }

    fn sums(&self, model: &Gpt, batch: &BlockBatch, device: &Device) -> Vec<Tensor<1>> {
        vec![model.losses(&sequences(batch), &batch.next, device).sum()]
    }
}

/// The training of a left-to-right model on running text.
#[derive(Debug)]
pub struct LanguageModelRecipe<'a> {
    splits: TextSplits,
    train: &'a TrainSection,
    config: GptConfig,
    tokenizer: &'a Tokenizer,
    /// Where the tokenizer lies.
    tokenizer_path: PathBuf,
}

impl<'a> LanguageModelRecipe<'a> {
    /// On these blocks, in the batches that the run's config says. The model, of `config`, is saved with its tokenizer,
    /// which lies at `tokenizer_path`.
    pub fn new(
        run: &'a LanguageModelConfig,
        splits: TextSplits,
        config: GptConfig,
        tokenizer: &'a Tokenizer,
        tokenizer_path: PathBuf,
    ) -> Self {
        Self { splits, train: &run.train, config, tokenizer, tokenizer_path }
    }
}

impl Objective for LanguageModelRecipe<'_> {
    type Model = Gpt;
    type Batch = BlockBatch;

    fn terms(&self) -> &'static [&'static str] {
        LeftToRight.terms()
    }

    fn counts(&self, batch: &BlockBatch) -> Vec<f64> {
        LeftToRight.counts(batch)
    }

    fn sums(&self, model: &Gpt, batch: &BlockBatch, device: &Device) -> Vec<Tensor<1>> {
        LeftToRight.sums(model, batch, device)
    }
}

impl Recipe for LanguageModelRecipe<'_> {
    fn data(&self) -> String {
        self.splits.key.clone()
    }

    fn data_changed(&self, checkpoint: PathBuf) -> TrainerError {
        TrainerError::CorpusChanged { checkpoint, tokenizer: self.tokenizer_path.clone() }
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<BlockBatch>>> + '_> {
        let train = self.train;
        let loader = Loader::new(self.splits.train.clone(), train.batch_size)
            .with_workers(train.workers)
            .with_ahead(train.prefetch);
        StepBatches::from_loader(&loader, from, train.accumulate, |batch: &BlockBatch| batch.ids.len() as u64)
    }

    fn split(&self) -> Option<&str> {
        Some(HELD_OUT)
    }

    fn evaluate(&self, model: &Gpt, device: &Device, advanced: &mut dyn FnMut(Advance)) -> Result<Figures> {
        let all: usize = self.splits.held_out.iter().map(|batch| batch.ids.len()).sum();
        let (mut sum, mut done) = (0.0, 0);
        for batch in &self.splits.held_out {
            sum += ops::on_awake_cores(device, || {
                let losses = model.losses(&sequences(batch), &batch.next, device);
                losses.into_data().iter::<f64>().sum::<f64>()
            });
            done += batch.ids.len();
            advanced(Advance { done, share: done as f64 / all as f64 });
        }
        let loss = sum / all as f64;
        let bits = |of: u64| if of == 0 { f64::NAN } else { sum / std::f64::consts::LN_2 / of as f64 };
        let [bytes, characters] = self.splits.size;
        let figures = [
            (figure::LOSS, loss),
            (figure::PERPLEXITY, loss.exp()),
            (figure::BITS_PER_BYTE, bits(bytes)),
            (figure::BITS_PER_CHARACTER, bits(characters)),
        ];
        Ok(Figures::new(all, figures))
    }

    fn evaluation_line(&self, step: u64, figures: &Figures) -> String {
        let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
        format!(
            "evaluation after step {}: loss {:.4}, perplexity {:.2}, {:.3} bits a byte",
            grouped(step),
            value(figure::LOSS),
            value(figure::PERPLEXITY),
            value(figure::BITS_PER_BYTE)
        )
    }

    fn panels(&self, _: &[Record]) -> Vec<Panel> {
        let line = |label: &str, source| Line { label: label.into(), source };
        let held_out = |figure: &str| Source::Figure { split: HELD_OUT.into(), figure: figure.into() };
        let losses =
            vec![line("training (smoothed)", Source::Loss), line("held out", held_out(figure::LOSS))];
        let bits = vec![
            line("a byte, held out", held_out(figure::BITS_PER_BYTE)),
            line("a character, held out", held_out(figure::BITS_PER_CHARACTER)),
        ];
        vec![Panel { axis: "loss (nats)".into(), lines: losses }, Panel { axis: "bits".into(), lines: bits }]
    }

    fn save(&self, model: &Gpt, folder: &Path) -> Result<()> {
        save_published(folder, model, &self.config, FloatType::F32)?;
        Ok(self.tokenizer.save(folder)?)
    }

    fn load(&self, model: Gpt, folder: &Path) -> Result<Gpt> {
        let device = model.table().val().device();
        Ok(load_published_as(&self.config, folder, &mut ParamInit::new(&device, 0))?.0)
    }

    fn report(
        &self,
        exported: &Exported<'_, Gpt>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let Some(figures) = exported.figures else { return Ok(Vec::new()) };
        let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
        let rows = [
            ("loss (nats a token)", format!("{:.4}", value(figure::LOSS))),
            ("perplexity", format!("{:.2}", value(figure::PERPLEXITY))),
            ("bits a byte", format!("{:.4}", value(figure::BITS_PER_BYTE))),
            ("bits a character", format!("{:.4}", value(figure::BITS_PER_CHARACTER))),
            ("tokens", grouped(figures.examples() as u64)),
        ];
        progress.note(&facts(&format!("held out, after step {}", grouped(exported.step)), rows));
        exported.page(HELD_OUT, figures, None)?;
        Ok(vec![SplitFigures { split: HELD_OUT.into(), figures: figures.clone(), seconds: 0.0 }])
    }
}
