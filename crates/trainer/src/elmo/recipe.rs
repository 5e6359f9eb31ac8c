//! ELMo training as an engine recipe.

use super::BothDirections;
use crate::Result;
use crate::config::ElmoRunConfig;
use crate::engine::RunOptions;
use crate::metrics::progress::RunProgress;
use crate::running_text::{TextParts, TextRecipe, TextSource, TextSplits};
use cloze_data::TextBlocks;
use cloze_model::elmo::ElmoConfig;
use cloze_tokenizer::Tokenizer;

/// The training of an ELMo on running text.
pub type ElmoRecipe<'a> = TextRecipe<'a, BothDirections, TextBlocks, ElmoConfig>;

impl TextSplits<TextBlocks> {
    /// Prepares the config's corpus and cuts it into blocks that are read in both directions. Tokens are
    /// predicted twice, so a loss in bits of the text would be meaningless and is not reported.
    ///
    /// # Errors
    /// Corpus errors; an end piece that the tokenizer does not have.
    pub fn of_both_directions(
        config: &ElmoRunConfig,
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
        Ok(Self::new(TextBlocks::new(train, &config.blocks, seed)?, held_out, key))
    }
}
