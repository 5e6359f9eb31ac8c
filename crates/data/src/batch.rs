//! Batches: examples with special tokens, masks and padding, as plain vectors.

use crate::masking::{MaskStats, Masked, MaskingConfig, MaskingStrategy};
use crate::pairs::{Example, PairConfig, PairSampler};
use crate::plan::Plan;
use crate::prepared::PreparedCorpus;
use crate::seed::derive_rng;
use crate::split::Documents;
use crate::unigram::UnigramCounts;
use crate::{DataError, Result};
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const MASKS: u64 = 0x3A5C;
/// Padded lengths are multiples of this, so that few different shapes occur.
const LENGTH_STEP: usize = 8;

/// From a prepared corpus to examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExampleConfig {
    /// The longest example, in tokens, special ones among them.
    pub seq_len: usize,
    /// Sentence pairs or packed segments.
    #[serde(default)]
    pub pairs: PairConfig,
    /// Masking.
    #[serde(default)]
    pub masking: MaskingConfig,
}

impl ExampleConfig {
    /// Whether the examples are pairs with a label.
    pub fn has_pairs(&self) -> bool {
        self.pairs.has_pairs()
    }
}

/// The data position: all the state there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Cursor {
    /// Passes over the corpus already made.
    pub epoch: u64,
    /// Examples of this pass already used.
    pub example: u64,
}

/// A batch for pretraining.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PretrainingBatch {
    /// Sequences.
    pub batch_size: usize,
    /// Tokens a sequence, padding among them.
    pub seq_len: usize,
    /// `[batch_size · seq_len]`
    pub input_ids: Vec<i32>,
    /// `[batch_size · seq_len]`: 0 in the first segment, 1 in the second.
    pub token_type_ids: Vec<i32>,
    /// `[batch_size · seq_len]`, `true` = ignored.
    pub pad_mask: Vec<bool>,
    /// `[n_masked]`: `row · seq_len + column`, ascending.
    pub masked_positions: Vec<i32>,
    /// `[n_masked]`: the pieces that stood there.
    pub masked_labels: Vec<i32>,
    /// `[batch_size]`: 0 in order, 1 random or swapped; empty for packed segments.
    pub pair_labels: Vec<i32>,
    /// Where the next batch starts.
    pub next: Cursor,
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
    /// Padding.
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
/// its place in it.
pub struct PretrainingData {
    pub(crate) documents: Documents,
    config: ExampleConfig,
    pub(crate) sampler: Box<dyn PairSampler>,
    pub(crate) masking: Box<dyn MaskingStrategy>,
    special: Special,
    seed: u64,
    cache: PathBuf,
}

impl fmt::Debug for PretrainingData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PretrainingData")
            .field("documents", &self.documents)
            .field("config", &self.config)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// The special pieces of a vocabulary.
#[derive(Debug, Clone)]
struct Special {
    pad: u32,
    cls: u32,
    sep: u32,
    is_special: Vec<bool>,
}

impl PretrainingData {
    /// The examples of `documents`; `unigram` counts the training documents' pieces, plans go to
    /// unnamed files in `cache`.
    ///
    /// # Errors
    /// [`DataError::NoSpecial`] for a tokenizer without `[CLS]`, `[SEP]`, `[PAD]` or `[MASK]`;
    /// [`DataError::OneDocument`] for random second segments from a single document;
    /// [`DataError::SeqLen`] for a length that special tokens fill.
    pub fn new(
        documents: Documents,
        config: ExampleConfig,
        tokenizer: &Tokenizer,
        unigram: Arc<UnigramCounts>,
        seed: u64,
        cache: PathBuf,
    ) -> Result<Self> {
        let ids = tokenizer.special_ids();
        let need = |id: Option<u32>, name: &'static str| id.ok_or(DataError::NoSpecial { name });
        let vocab_size = tokenizer.vocab_size() as u32;
        let special = Special {
            pad: need(ids.pad, "padding ([PAD] or <pad>)")?,
            cls: need(ids.cls, "start ([CLS] or <s>)")?,
            sep: need(ids.sep, "separator ([SEP] or </s>)")?,
            is_special: (0..vocab_size).map(|id| tokenizer.is_special(id)).collect(),
        };
        let mask = need(ids.mask, "mask ([MASK] or <mask>)")?;
        // A token at least in each segment.
        let least = if config.has_pairs() { 5 } else { 3 };
        if config.seq_len < least {
            return Err(DataError::SeqLen { seq_len: config.seq_len, least });
        }
        if matches!(config.pairs, PairConfig::NextSentence { .. }) && documents.count() < 2 {
            return Err(DataError::OneDocument);
        }
        let specials = (0..vocab_size).filter(|id| special.is_special[*id as usize]).collect();
        let masking = config.masking.strategy(mask, specials, unigram);
        Ok(Self { documents, sampler: config.pairs.sampler(), masking, special, config, seed, cache })
    }

    /// The epoch that pairs and masks are those of.
    fn source_epoch(&self, epoch: u64) -> u64 {
        match self.config.masking.static_copies {
            0 => epoch,
            copies => epoch % copies,
        }
    }

    /// The plan of an epoch, unless `stop` is set before it is made.
    pub(crate) fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<Plan> {
        let (epoch, seq_len) = (self.source_epoch(epoch), self.config.seq_len);
        Plan::new(&self.documents, self.sampler.as_ref(), seq_len, self.seed, epoch, &self.cache, stop)
    }

    /// Assembles the examples at these places of their epochs' plans.
    pub(crate) fn assemble(&self, examples: &[(u64, u64, Example)], next: Cursor) -> PretrainingBatch {
        let mut batch = PretrainingBatch { batch_size: examples.len(), next, ..PretrainingBatch::default() };
        let rows: Vec<Row> = examples
            .iter()
            .map(|(epoch, place, example)| self.row(*epoch, *place, example, &mut batch.stats))
            .collect();
        let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
        // A sampler of the user's own may go beyond.
        let len = longest.next_multiple_of(LENGTH_STEP).min(self.config.seq_len).max(longest);
        batch.seq_len = len;
        for (number, row) in rows.into_iter().enumerate() {
            let padding = len - row.ids.len();
            batch.stats.padding += padding as u64;
            batch.input_ids.extend(row.ids.iter().map(|id| *id as i32));
            batch.input_ids.extend(std::iter::repeat_n(self.special.pad as i32, padding));
            let second = row.ids.len() - row.first_len;
            batch.token_type_ids.extend(std::iter::repeat_n(0, row.first_len));
            batch.token_type_ids.extend(std::iter::repeat_n(1, second));
            batch.token_type_ids.extend(std::iter::repeat_n(0, padding));
            batch.pad_mask.extend((0..len).map(|column| column >= row.ids.len()));
            for prediction in row.predictions {
                batch.masked_positions.push((number * len + prediction.position) as i32);
                batch.masked_labels.push(prediction.label as i32);
            }
        }
        if self.config.has_pairs() {
            batch.pair_labels = examples.iter().map(|(_, _, example)| i32::from(example.label)).collect();
        }
        batch
    }

    fn row(&self, epoch: u64, place: u64, example: &Example, stats: &mut BatchStats) -> Row {
        let special = &self.special;
        let (mut ids, mut word_starts) = (vec![special.cls], vec![true]);
        self.append(example.first.clone(), &mut ids, &mut word_starts);
        ids.push(special.sep);
        let first_len = ids.len();
        if !example.second.is_empty() {
            word_starts.push(true);
            self.append(example.second.clone(), &mut ids, &mut word_starts);
            ids.push(special.sep);
        }
        word_starts.push(true);
        let maskable: Vec<bool> = ids.iter().map(|id| !special.is_special[*id as usize]).collect();
        let mut rng = derive_rng(self.seed, &[MASKS, self.source_epoch(epoch), place]);
        let sequence = Masked { ids: &mut ids, word_starts: &word_starts, maskable: &maskable };
        let predictions = self.masking.mask(sequence, &mut rng, &mut stats.masking);
        stats.examples += 1;
        stats.tokens += ids.len() as u64;
        stats.random_pairs += u64::from(example.label);
        stats.short += u64::from(example.short);
        stats.truncated += u64::from(example.truncated);
        Row { ids, first_len, predictions }
    }

    /// The tokens of a range, without those of documents of the other part, and with a separator
    /// where one document ends and another begins.
    fn append(&self, range: std::ops::Range<u64>, ids: &mut Vec<u32>, word_starts: &mut Vec<bool>) {
        let corpus: &PreparedCorpus = self.documents.corpus();
        let mut first = true;
        for (document, tokens) in corpus.documents_of(range) {
            if !self.documents.contains(document) {
                continue;
            }
            if !first {
                ids.push(self.special.sep);
                word_starts.push(true);
            }
            first = false;
            for (id, start) in corpus.tokens(tokens) {
                ids.push(id);
                word_starts.push(start);
            }
        }
    }
}

struct Row {
    ids: Vec<u32>,
    first_len: usize,
    predictions: Vec<crate::masking::Prediction>,
}
