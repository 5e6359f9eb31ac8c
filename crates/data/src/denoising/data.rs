//! Noisy examples as source–target pairs.

use super::{DenoisingConfig, DenoisingStats};
use crate::corruption::Corruption;
use crate::corruption::noise::{Noise, NoiseCounts, NoisyText, Sentinels, SpanCorruption};
use crate::examples::CorpusExamples;
use crate::loader::{Assemble, Placed};
use crate::pairs::PairConfig;
use crate::parallel::PairBatch;
use crate::plan::Plan;
use crate::random::Random;
use crate::sampler::Example;
use crate::special::SpecialPieces;
use crate::split::Documents;
use crate::unigram::UnigramCounts;
use crate::{DataError, Result};
use cloze_tokenizer::Tokenizer;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const NOISE: u64 = 0xDE01;

/// Part of a prepared corpus as noisy texts and their targets; each is a function of the seed, the epoch and
/// its place in the epoch. [`Loader`](crate::Loader) makes the batches.
pub struct DenoisingData {
    examples: CorpusExamples,
    task: Task,
}

/// What is done to an example.
enum Task {
    /// The whole example is restored.
    Restore(Vec<Box<dyn Noise>>),
    /// The target is the spans that the sentinels stand for.
    Spans(SpanCorruption),
}

/// A noisy text and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DenoisedPair {
    /// The encoder's input, including special pieces.
    pub source: Vec<u32>,
    /// The decoder's target, including its end piece.
    pub target: Vec<u32>,
    /// What was done.
    pub stats: DenoisingStats,
}

impl std::fmt::Debug for DenoisingData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DenoisingData").field("examples", &self.examples).finish_non_exhaustive()
    }
}

impl DenoisingData {
    /// Examples of `documents` of at most `seq_len` tokens, as `pairs` packs them, with the noise of
    /// `config`. `unigram` holds the training documents' piece counts; plans go to unnamed files in `cache`.
    ///
    /// BART's examples have the tokenizer's begin and end pieces, and the end piece between documents; T5's
    /// have only a final end piece. A source longer than `seq_len` after noise is cut.
    ///
    /// Deviation: T5 cuts texts so that sources have `seq_len` tokens; here the texts have `seq_len` tokens,
    /// and sources are shorter.
    ///
    /// # Errors
    /// [`DataError::DenoisingSetting`]; [`DataError::NoSpecial`] for a tokenizer without an end piece, or without a mask
    /// that noises need; [`DataError::Sentinels`] for one without enough sentinels; those of [`CorpusExamples::new`].
    ///
    /// # Panics
    /// If `pairs` makes pairs.
    #[expect(clippy::too_many_arguments, reason = "all of them are needed, and none belongs to another")]
    pub fn new(
        documents: Documents,
        seq_len: usize,
        pairs: &PairConfig,
        config: &DenoisingConfig,
        tokenizer: &Tokenizer,
        unigram: &Arc<UnigramCounts>,
        seed: u64,
        cache: PathBuf,
    ) -> Result<Self> {
        assert!(!pairs.has_pairs(), "a text of one segment is denoised");
        config.check()?;
        let mut special = SpecialPieces::find(tokenizer);
        special.end.ok_or(DataError::NoSpecial { name: "piece that ends texts (</s> or [SEP])" })?;
        let task = match config {
            DenoisingConfig::Bart { noises } => {
                let needs_mask = noises.iter().any(|noise| noise.needs_mask());
                let mask = match special.mask {
                    None if needs_mask => {
                        return Err(DataError::NoSpecial { name: "mask ([MASK] or <mask>)" });
                    }
                    mask => mask.unwrap_or(0),
                };
                let all = special.all();
                Task::Restore(noises.iter().map(|noise| noise.noise(mask, &all, unigram)).collect())
            }
            &DenoisingConfig::T5 { density, mean_span } => {
                (special.begin, special.separator) = (None, None);
                let sentinels = Sentinels::find(tokenizer);
                let room = seq_len.saturating_sub(special.around(1));
                let (found, needed) = (sentinels.len(), SpanCorruption::needed(density, mean_span, room));
                if found < needed {
                    return Err(DataError::Sentinels { found, needed, seq_len });
                }
                Task::Spans(SpanCorruption::new(sentinels, density, mean_span))
            }
        };
        let examples = CorpusExamples::new(documents, pairs.sampler(), special, seq_len, seed, cache)?;
        Ok(Self { examples, task })
    }

    /// Examples and noises, including custom ones; the target is the whole example.
    pub fn from_parts(examples: CorpusExamples, noises: Vec<Box<dyn Noise>>) -> Self {
        Self { examples, task: Task::Restore(noises) }
    }

    /// The examples before their noise.
    pub fn examples(&self) -> &CorpusExamples {
        &self.examples
    }

    /// An example with the noise for its place in an epoch.
    pub fn pair(&self, epoch: u64, place: u64, example: &Example) -> DenoisedPair {
        let tokens = self.examples.tokens(example);
        let mut random = Random::derive(self.examples.seed(), &[NOISE, epoch, place]);
        let (mut text, mut noise) = (NoisyText::from(&tokens), NoiseCounts::default());
        let stretches = text.stretches();
        let mut stats = DenoisingStats {
            examples: 1,
            tokens: stretches.iter().map(|stretch| stretch.len() as u64).sum(),
            sentences: stretches.iter().map(|stretch| text.sentences(stretch).len() as u64).sum(),
            documents: stretches.len() as u64,
            ..DenoisingStats::default()
        };
        let target = match &self.task {
            Task::Restore(noises) => {
                noises.iter().for_each(|each| noise += each.apply(&mut text, &mut random));
                tokens.ids
            }
            Task::Spans(spans) => {
                let original = tokens.original();
                let corrupted = spans.corrupt(&original, &mut random);
                let mut target = spans.target(&original, &corrupted);
                target.extend(self.examples.special().end);
                noise.tokens = corrupted.counts();
                text.take(&corrupted);
                target
            }
        };
        stats.cut = text.cut(self.examples.seq_len());
        let source = text.into_ids();
        (stats.source_tokens, stats.target_tokens) = (source.len() as u64, target.len() as u64);
        stats.noise = noise;
        DenoisedPair { source, target, stats }
    }
}

impl DenoisingConfig {
    /// The longest source and the longest target of examples of at most `seq_len` tokens.
    pub fn longest(&self, seq_len: usize) -> [usize; 2] {
        match *self {
            Self::Bart { .. } => [seq_len; 2],
            // The end piece stands behind both.
            Self::T5 { density, mean_span } => {
                let room = seq_len.saturating_sub(1);
                [seq_len, SpanCorruption::longest_target(density, mean_span, room) + 1]
            }
        }
    }
}

impl Assemble for DenoisingData {
    type Plan = Plan;
    type Batch = PairBatch;

    fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<Plan> {
        self.examples.plan(epoch, stop)
    }

    fn n_examples(&self, plan: &Plan) -> u64 {
        plan.len()
    }

    fn assemble(&self, examples: &[Placed<'_, Plan>]) -> Result<PairBatch> {
        let mut batch = PairBatch::default();
        for Placed { plan, epoch, place } in examples {
            let DenoisedPair { source, target, stats } = self.pair(*epoch, *place, &plan.example(*place));
            batch.source.push(source);
            batch.target.push(target);
            batch.noise += &stats;
        }
        Ok(batch)
    }
}
