//! Masked examples with the labels of pairs, as BERT is pretrained on them.

use crate::corruption::{Corrupted, Corruption, MaskStats, MaskingConfig, Original, ReplacedSpan};
use crate::examples::CorpusExamples;
use crate::loader::{Assemble, Placed};
use crate::pairs::PairConfig;
use crate::plan::Plan;
use crate::random::Random;
use crate::sampler::Example;
use crate::special::SpecialPieces;
use crate::split::Documents;
use crate::tokens::{TokenBatch, signed};
use crate::unigram::UnigramCounts;
use crate::{DataError, Result};
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const MASKS: u64 = 0x3A5C;

/// From a prepared corpus to examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ExampleConfig {
    /// The longest example, in tokens, special ones among them.
    pub seq_len: usize,
    /// The piece that begins an example. `None`: the one that [`SpecialPieces::find`] finds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<String>,
    /// The piece that ends each segment and document. `None`: the one that [`SpecialPieces::find`] finds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Sentence pairs or packed segments.
    #[serde(default)]
    pub pairs: PairConfig,
    /// Masking.
    #[serde(default)]
    pub masking: MaskingConfig,
}

impl ExampleConfig {
    /// BERT's examples of at most so many tokens: next-sentence pairs with 15 % of the pieces masked.
    pub fn new(seq_len: usize) -> Self {
        let (pairs, masking) = (PairConfig::default(), MaskingConfig::default());
        Self { seq_len, begin: None, end: None, pairs, masking }
    }

    /// Other sentence pairs, or packed segments.
    pub fn with_pairs(mut self, pairs: PairConfig) -> Self {
        self.pairs = pairs;
        self
    }

    /// Another masking.
    pub fn with_masking(mut self, masking: MaskingConfig) -> Self {
        self.masking = masking;
        self
    }

    /// Whether the examples are pairs with a label.
    pub fn has_pairs(&self) -> bool {
        self.pairs.has_pairs()
    }

    /// The special pieces, found in the tokenizer or named here.
    ///
    /// # Errors
    /// [`DataError::NoPiece`] for a named piece that the tokenizer does not have.
    pub fn special(&self, tokenizer: &Tokenizer) -> Result<SpecialPieces> {
        let mut special = SpecialPieces::find(tokenizer);
        if let Some(name) = &self.begin {
            special = special.with_begin(tokenizer, name)?;
        }
        if let Some(name) = &self.end {
            special = special.with_end(tokenizer, name)?;
        }
        Ok(special)
    }
}

/// A batch for pretraining.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PretrainingBatch {
    /// The corrupted sequences.
    pub tokens: TokenBatch,
    /// `[masked]`: the numbers of the tokens to predict, ascending. See [`TokenBatch`] for how tokens are numbered.
    pub masked_positions: Vec<i32>,
    /// `[masked]`: the pieces that stood there.
    pub masked_labels: Vec<i32>,
    /// `[masked]`: for each of them a number, uniform from 0 to below 1: what a generator's sample is drawn by (ELECTRA).
    pub uniform: Vec<f32>,
    /// The spans that the masked positions come in, as ranges of tokens' numbers, ascending: what a boundary objective
    /// needs (SpanBERT). Spans whose replacement is longer or shorter are not among them, as no token of it stands for
    /// one of theirs.
    pub masked_spans: Vec<Range<i32>>,
    /// `[sequences]`: the pairs' labels, see [`Example::label`]; empty where examples are no pairs.
    pub pair_labels: Vec<i32>,
    /// Which of the [sources](crate::MultilingualData::sources) it was drawn from, where there are several.
    pub source: Option<usize>,
    /// What was counted in making it.
    pub stats: BatchStats,
}

/// Counts over batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchStats {
    /// Examples.
    pub examples: u64,
    /// Tokens without padding.
    pub tokens: u64,
    /// Tokens of padding, where batches are padded.
    pub padding: u64,
    /// Examples with a random or swapped second segment.
    pub random_pairs: u64,
    /// Examples of documents with a short target length.
    pub short: u64,
    /// Examples with tokens cut off.
    pub truncated: u64,
    /// The masking.
    pub masking: MaskStats,
}

impl BatchStats {
    /// Counts an example with so many tokens.
    fn add(&mut self, example: &Example, tokens: usize) {
        self.examples += 1;
        self.tokens += tokens as u64;
        self.random_pairs += u64::from(example.label != 0);
        self.short += u64::from(example.short);
        self.truncated += u64::from(example.truncated);
    }
}

impl std::ops::AddAssign<&BatchStats> for BatchStats {
    fn add_assign(&mut self, other: &BatchStats) {
        self.examples += other.examples;
        self.tokens += other.tokens;
        self.padding += other.padding;
        self.random_pairs += other.random_pairs;
        self.short += other.short;
        self.truncated += other.truncated;
        self.masking += &other.masking;
    }
}

/// A part of a prepared corpus as pretraining examples, each a function of the seed, the epoch and
/// its place in it. [`Loader`](crate::Loader) makes the batches.
pub struct PretrainingData {
    examples: CorpusExamples,
    corruption: Box<dyn Corruption>,
    /// The type of all tokens, in place of the segments' numbers.
    language: Option<i32>,
}

impl std::fmt::Debug for PretrainingData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PretrainingData").field("examples", &self.examples).finish_non_exhaustive()
    }
}

impl PretrainingData {
    /// The examples of `documents`, as `config` says; `unigram` counts the training documents' pieces, plans go to
    /// unnamed files in `cache`.
    ///
    /// # Errors
    /// [`DataError::NoSpecial`] for a tokenizer without a mask, or without the pieces that pairs need;
    /// [`DataError::NoPiece`]; [`DataError::OneDocument`] for random second segments from a single document;
    /// [`DataError::SeqLen`] for a length that special tokens fill.
    pub fn new(
        documents: Documents,
        config: ExampleConfig,
        tokenizer: &Tokenizer,
        unigram: Arc<UnigramCounts>,
        seed: u64,
        cache: PathBuf,
    ) -> Result<Self> {
        let special = config.special(tokenizer)?;
        let mask = special.mask.ok_or(DataError::NoSpecial { name: "mask ([MASK] or <mask>)" })?;
        let corruption = config.masking.corruption(mask, special.all(), unigram);
        let (sampler, seq_len) = (config.pairs.sampler(), config.seq_len);
        let examples = CorpusExamples::new(documents, sampler, special, seq_len, seed, cache)?;
        Ok(Self::from_parts(examples.with_static_copies(config.masking.static_copies), corruption))
    }

    /// Examples and a corruption, each of which may be your own.
    pub fn from_parts(examples: CorpusExamples, corruption: Box<dyn Corruption>) -> Self {
        Self { examples, corruption, language: None }
    }

    /// Gives all tokens the type `language`, for a model whose types are languages (XLM's `langs`; Conneau & Lample 2019,
    /// §3), in place of the segments' numbers.
    pub fn with_language(mut self, language: i32) -> Self {
        self.language = Some(language);
        self
    }

    /// The examples before their corruption.
    pub fn examples(&self) -> &CorpusExamples {
        &self.examples
    }

    /// Adds an example to a batch.
    pub(crate) fn add(&self, epoch: u64, place: u64, example: &Example, batch: &mut PretrainingBatch) {
        let examples = &self.examples;
        let mut tokens = examples.tokens(example);
        if let Some(language) = self.language {
            tokens.token_type_ids.fill(language);
        }
        let original = tokens.original();
        let mut random = Random::derive(examples.seed(), &[MASKS, examples.source_epoch(epoch), place]);
        let corrupted = self.corruption.corrupt(&original, &mut random);
        batch.stats.add(example, corrupted.ids().len());
        batch.push(&original, &tokens.token_type_ids, None, &corrupted, &mut random);
        if examples.has_pairs() {
            batch.pair_labels.push(i32::from(example.label));
        }
    }

    /// A batch without examples.
    pub(crate) fn empty_batch(&self) -> PretrainingBatch {
        let pad_id = self.examples.special().pad.unwrap_or(0) as i32;
        let tokens = TokenBatch::new().with_pad_id(pad_id).with_max_len(self.examples.seq_len());
        PretrainingBatch { tokens, ..PretrainingBatch::default() }
    }
}

impl PretrainingBatch {
    /// Adds a corrupted sequence, with the types of its original tokens and their positions where they are not the places
    /// in the sequence. `random` is the generator that it was corrupted with.
    pub(crate) fn push(
        &mut self,
        original: &Original<'_>,
        token_types: &[i32],
        positions: Option<&[i32]>,
        corrupted: &Corrupted,
        random: &mut Random,
    ) {
        self.stats.masking.add(original, corrupted);
        self.predict(original.ids, corrupted);
        // After everything else that the example's generator draws.
        let drawn = self.masked_positions.len() - self.uniform.len();
        self.uniform.extend((0..drawn).map(|_| random.unit_f32()));
        let origins = corrupted.origins();
        let of = |values: &[i32]| -> Vec<i32> { origins.iter().map(|origin| values[*origin]).collect() };
        let (ids, types) = (signed(corrupted.ids()), of(token_types));
        match positions {
            Some(positions) => self.tokens.push_at(&ids, &types, &of(positions)),
            None => self.tokens.push(&ids, &types),
        }
    }

    /// Adds the tokens to predict of the sequence that comes next.
    fn predict(&mut self, original: &[u32], corrupted: &Corrupted) {
        let before = self.tokens.n_tokens();
        let number = |at: usize| (before + at) as i32;
        for span in corrupted.spans().iter().filter(|span| span.keeps_length() && !span.original.is_empty()) {
            let ReplacedSpan { original: labels, corrupted: places } = span;
            self.masked_positions.extend(places.clone().map(number));
            self.masked_labels.extend(signed(&original[labels.clone()]));
            self.masked_spans.push(number(places.start)..number(places.end));
        }
    }
}

impl Assemble for PretrainingData {
    type Plan = Plan;
    type Batch = PretrainingBatch;

    fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<Plan> {
        self.examples.plan(epoch, stop)
    }

    fn n_examples(&self, plan: &Plan) -> u64 {
        plan.len()
    }

    fn assemble(&self, examples: &[Placed<'_, Plan>]) -> Result<PretrainingBatch> {
        let mut batch = self.empty_batch();
        for Placed { plan, epoch, place } in examples {
            self.add(*epoch, *place, &plan.example(*place), &mut batch);
        }
        batch.stats.padding = batch.tokens.n_padding() as u64;
        Ok(batch)
    }
}
