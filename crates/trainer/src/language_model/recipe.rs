//! Left-to-right training as an engine recipe: blocks of running text, each token predicted from the previous
//! ones.

use super::sequences;
use crate::Result;
use crate::config::LanguageModelConfig;
use crate::engine::{Objective, RunOptions, Term};
use crate::metrics::progress::RunProgress;
use crate::running_text::{TextObjective, TextParts, TextRecipe, TextSize, TextSource, TextSplits, figure};
use burn::tensor::{Device, Tensor};
use cloze_data::{BlockBatch, TextBlocks};
use cloze_model::blocks::SampledSoftmax;
use cloze_model::gpt::{Gpt, GptConfig};
use cloze_tokenizer::Tokenizer;

/// The training of a left-to-right model on running text.
pub type LanguageModelRecipe<'a> = TextRecipe<'a, LeftToRight, TextBlocks, GptConfig>;

impl TextSplits<TextBlocks> {
    /// Prepares the config's corpus and cuts it into blocks as configured.
    ///
    /// # Errors
    /// Corpus errors; an end piece that the tokenizer does not have.
    pub fn of_blocks(
        config: &LanguageModelConfig,
        tokenizer: &Tokenizer,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let seed = config.common.run.seed;
        let end = ("blocks.end", config.blocks.end.as_deref());
        let source = TextSource { corpus: &config.corpus, end, eval: &config.eval, seed };
        let TextParts { train, held_out, key } = source.prepare(tokenizer, options, progress)?;
        let held_out = TextBlocks::new(held_out, &config.blocks, seed)?;
        let held_out = held_out.in_order(config.eval.batch_size, config.eval.max_blocks);
        let train = TextBlocks::new(train, &config.blocks, seed)?;
        if config.blocks.prefix_share > 0.0 {
            // Prefixes are not predicted, so a loss in bits would not be one of the text.
            return Ok(Self::new(train, held_out, key));
        }
        let mut size = TextSize::default();
        size.add(held_out.iter().flat_map(|batch| &batch.next).copied(), tokenizer)?;
        Ok(Self::new(train, held_out, key).with_size(size))
    }
}

/// The mean cross-entropy of each token given the previous ones, in nats; for a sequence with a prefix, only of
/// the tokens after the prefix, whose own tokens attend to one another (Raffel et al. 2020, §3.2.1).
#[derive(Debug, Clone, Copy, Default)]
pub struct LeftToRight {
    /// How pieces are drawn in training; none: the softmax is over the whole vocabulary, as it always is in evaluation. Batches
    /// then have no prefixes.
    pub sampled: Option<SampledSoftmax>,
}

impl Objective for LeftToRight {
    type Model = Gpt;
    type Batch = BlockBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new(figure::LOSS)]
    }

    fn counts(&self, batch: &BlockBatch) -> Vec<f64> {
        vec![batch.n_targets() as f64]
    }

    fn sums(&self, model: &Gpt, batch: &BlockBatch, device: &Device) -> Vec<Tensor<1>> {
        let losses = match self.sampled {
            Some(sampled) => model.sampled_losses(sampled, &sequences(batch), &batch.next, device),
            None => self.losses(model, batch, device),
        };
        vec![losses.sum()]
    }
}

impl TextObjective for LeftToRight {
    const PREDICTION: &str = "token";

    fn losses(&self, model: &Gpt, batch: &BlockBatch, device: &Device) -> Tensor<1> {
        match batch.prefixes.iter().all(|prefix| *prefix == 0) {
            true => model.losses(&sequences(batch), &batch.next, device),
            false => model.prefix_losses(&sequences(batch), &batch.prefixes, &batch.next, device),
        }
    }

    fn n_tokens(batch: &BlockBatch) -> u64 {
        batch.ids.len() as u64
    }
}
