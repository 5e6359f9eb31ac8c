//! XLNet training as an engine recipe: segments of running text, with orders of their tokens.

use super::Permutation;
use crate::Result;
use crate::config::PermutationConfig;
use crate::engine::RunOptions;
use crate::metrics::progress::RunProgress;
use crate::running_text::{TextParts, TextRecipe, TextSource, TextSplits};
use cloze_data::OrderedBlocks;
use cloze_model::xlnet::XlnetConfig;
use cloze_tokenizer::Tokenizer;

/// The training of an XLNet on running text.
pub type PermutationRecipe<'a> = TextRecipe<'a, Permutation, OrderedBlocks, XlnetConfig>;

impl TextSplits<OrderedBlocks> {
    /// Prepares the config's corpus and cuts it into segments as configured. Held-out segments have fixed
    /// orders.
    ///
    /// # Errors
    /// Corpus errors; an end piece that the tokenizer does not have; a part of the text shorter than a segment
    /// with its memory.
    pub fn of_segments(
        config: &PermutationConfig,
        tokenizer: &Tokenizer,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let (seed, order) = (config.common.run.seed, config.segments.order());
        let end = ("segments.end", config.segments.end.as_deref());
        let source = TextSource { corpus: &config.corpus, end, eval: &config.eval, seed };
        let TextParts { train, held_out, key } = source.prepare(tokenizer, options, progress)?;
        let held_out = OrderedBlocks::new(held_out, order.clone(), seed)?;
        let held_out = held_out.in_order(config.eval.batch_size, config.eval.max_blocks);
        Ok(Self::new(OrderedBlocks::new(train, order, seed)?, held_out, key))
    }
}
