//! Masked examples with pair labels, as in BERT's pretraining.

use crate::corruption::{Corrupted, Corruption, MaskStats, MaskingConfig, Original, ReplacedSpan};
use crate::examples::CorpusExamples;
use crate::loader::{Assemble, Placed};
use crate::pairs::PairConfig;
use crate::plan::Plan;
use crate::random::Random;
use crate::sampler::Example;
use crate::sight::{AttentionConfig, AttentionStats, Mask, Sight};
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
const ATTENTION: u64 = 0xA77E;

/// How a prepared corpus becomes examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ExampleConfig {
    /// The longest example, in tokens, including special ones.
    pub seq_len: usize,
    /// The piece that begins an example. Pairs need it. Default `[CLS]` or `<s>`, else `<|endoftext|>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<String>,
    /// The piece that ends each segment and document. Pairs need it. Default `[SEP]` or `</s>`, else
    /// `<|endoftext|>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Sentence pairs or packed segments.
    #[serde(default)]
    pub pairs: PairConfig,
    /// Which tokens are predicted, and what replaces them.
    #[serde(default)]
    pub masking: MaskingConfig,
    /// Which tokens a token sees, for `objective.kind = "masked"`. Default: all of its example.
    #[serde(default, skip_serializing_if = "AttentionConfig::is_default")]
    pub attention: AttentionConfig,
}

impl ExampleConfig {
    /// BERT's examples of at most `seq_len` tokens: next-sentence pairs with 15 % of the pieces masked.
    pub fn new(seq_len: usize) -> Self {
        let (pairs, masking) = (PairConfig::default(), MaskingConfig::default());
        Self { seq_len, begin: None, end: None, pairs, masking, attention: AttentionConfig::default() }
    }

    /// Sets the sentence pairs or packed segments.
    pub fn with_pairs(mut self, pairs: PairConfig) -> Self {
        self.pairs = pairs;
        self
    }

    /// Sets the masking.
    pub fn with_masking(mut self, masking: MaskingConfig) -> Self {
        self.masking = masking;
        self
    }

    /// Sets the attention masks.
    pub fn with_attention(mut self, attention: AttentionConfig) -> Self {
        self.attention = attention;
        self
    }

    /// Whether the examples are pairs with a label.
    pub fn has_pairs(&self) -> bool {
        self.pairs.has_pairs()
    }

    /// The special pieces, named here or found in the tokenizer.
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
    /// `[masked]`: the original pieces.
    pub masked_labels: Vec<i32>,
    /// `[masked]`: a uniform number in `[0, 1)` for each, to sample from a generator (ELECTRA).
    pub uniform: Vec<f32>,
    /// The masked spans as ranges of token numbers, ascending, for a boundary objective (SpanBERT). Spans
    /// whose replacement has another length are omitted, since their tokens do not correspond.
    pub masked_spans: Vec<Range<i32>>,
    /// `[pairs]`: the pairs' labels, see [`Example::label`], for the sequences in which every token
    /// [sees all](Sight::All); empty if examples are not pairs.
    pub pair_labels: Vec<i32>,
    /// Which of several [sources](crate::MultilingualData::sources) it was drawn from.
    pub source: Option<usize>,
    /// Counts from making it.
    pub stats: BatchStats,
}

/// Counts over batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchStats {
    /// Examples.
    pub examples: u64,
    /// Tokens without padding.
    pub tokens: u64,
    /// Padding tokens, if batches are padded.
    pub padding: u64,
    /// Examples with a random or swapped second segment.
    pub random_pairs: u64,
    /// Examples from documents with a short target length.
    pub short: u64,
    /// Examples with tokens cut off.
    pub truncated: u64,
    /// The masking.
    pub masking: MaskStats,
    /// The attention masks.
    pub attention: AttentionStats,
}

impl BatchStats {
    /// Counts an example with `tokens` tokens.
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
        self.attention += &other.attention;
    }
}

/// Part of a prepared corpus as pretraining examples; each is a function of the seed, the epoch and
/// its place in the epoch. [`Loader`](crate::Loader) makes the batches.
pub struct PretrainingData {
    examples: CorpusExamples,
    corruption: Box<dyn Corruption>,
    /// The type of all tokens, instead of segment numbers.
    language: Option<i32>,
    attention: AttentionConfig,
}

impl std::fmt::Debug for PretrainingData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PretrainingData").field("examples", &self.examples).finish_non_exhaustive()
    }
}

impl PretrainingData {
    /// The examples of `documents`, as set by `config`. `unigram` holds the training documents' piece counts;
    /// plans go to unnamed files in `cache`.
    ///
    /// # Errors
    /// [`DataError::NoSpecial`] for a tokenizer without a mask, or without the pieces that pairs need;
    /// [`DataError::NoPiece`]; [`DataError::OneDocument`] for random second segments from a single document;
    /// [`DataError::SeqLen`] for a length with no room besides special tokens.
    ///
    /// # Panics
    /// If the config's [shares](AttentionConfig::shares) of attention masks are invalid, or its masking
    /// is [invalid](MaskingConfig::corruption).
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
        let examples = examples.with_static_copies(config.masking.static_copies);
        Ok(Self::from_parts(examples, corruption).with_attention(config.attention))
    }

    /// Examples and a corruption, either of which may be custom.
    pub fn from_parts(examples: CorpusExamples, corruption: Box<dyn Corruption>) -> Self {
        Self { examples, corruption, language: None, attention: AttentionConfig::default() }
    }

    /// Gives all tokens the type `language`, for a model whose types are languages (XLM's `langs`; Conneau &
    /// Lample 2019, §3), instead of segment numbers.
    pub fn with_language(mut self, language: i32) -> Self {
        self.language = Some(language);
        self
    }

    /// Sets the attention masks. Default: bidirectional.
    ///
    /// # Panics
    /// If the [shares](AttentionConfig::shares) are invalid.
    pub fn with_attention(mut self, attention: AttentionConfig) -> Self {
        attention.shares();
        self.attention = attention;
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
        let first_segment = tokens.token_type_ids.iter().take_while(|segment| **segment == 0).count();
        if let Some(language) = self.language {
            tokens.token_type_ids.fill(language);
        }
        let original = tokens.original();
        let mut random = Random::derive(examples.seed(), &[MASKS, examples.source_epoch(epoch), place]);
        let corrupted = self.corruption.corrupt(&original, &mut random);
        batch.stats.add(example, corrupted.ids().len());
        let mask = self.mask(epoch, place, example);
        batch.stats.attention.add(mask);
        let of_first = corrupted.origins().into_iter().filter(|origin| *origin < first_segment);
        let sight = mask.sight(of_first.count());
        batch.push(&original, &tokens.token_type_ids, None, &corrupted, &mut random, sight);
        if examples.has_pairs() && sight == Sight::All {
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

impl PretrainingData {
    /// The attention mask of an example, drawn from its own random stream.
    fn mask(&self, epoch: u64, place: u64, example: &Example) -> Mask {
        if example.label != 0 {
            return Mask::Bidirectional;
        }
        let examples = &self.examples;
        let epoch = examples.source_epoch(epoch);
        self.attention.draw(&mut Random::derive(examples.seed(), &[ATTENTION, epoch, place]))
    }
}

impl PretrainingBatch {
    /// `[pairs]`: the indices of the sequences labelled by [`pair_labels`](Self::pair_labels).
    pub fn paired(&self) -> Vec<i32> {
        let sights = self.tokens.sights().iter().enumerate();
        let paired = sights.filter(|(_, sight)| **sight == Sight::All).map(|(number, _)| number as i32);
        paired.take(self.pair_labels.len()).collect()
    }

    /// Adds a corrupted sequence, with its original tokens' types and, unless they are consecutive,
    /// positions. `random` is the generator used for the corruption; `sight` is what its tokens see, which
    /// must be all if there are positions.
    pub(crate) fn push(
        &mut self,
        original: &Original<'_>,
        token_types: &[i32],
        positions: Option<&[i32]>,
        corrupted: &Corrupted,
        random: &mut Random,
        sight: Sight,
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
            None => self.tokens.push_seen(&ids, &types, sight),
        }
    }

    /// Adds the tokens to predict in the next sequence.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorpusConfig, Cursor, Loader, PreparedCorpus, Silent, Split};
    use cloze_tokenizer::train::WordPieceTrainer;
    use std::path::Path;

    /// Pairs, of which a sixth is random where it can be.
    const PAIRS: PairConfig = PairConfig::NextSentence { short_seq_prob: 0.1, random_next_prob: 1.0 / 6.0 };

    fn data(
        folder: &Path,
        pairs: PairConfig,
        attention: AttentionConfig,
        copies: u64,
    ) -> Arc<PretrainingData> {
        let document = |i: usize| {
            (0..4 + i % 5).map(|n| format!("Text {i} begins. It goes on, no. {n}. ")).collect::<String>()
        };
        let text: String = (0..200).map(|i| document(i) + "\n\n").collect();
        std::fs::write(folder.join("a.txt"), &text).unwrap();
        let tokenizer = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([text]).unwrap();
        let config = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        let cache = folder.join("cache");
        let (corpus, _) = PreparedCorpus::prepare(&config, folder, &tokenizer, &cache, &Silent).unwrap();
        let documents = Documents::new(Arc::new(corpus), Split::Train, 0.0, 1).unwrap();
        let unigram = Arc::new(UnigramCounts::new(&documents, tokenizer.vocab_size()));
        let masking = MaskingConfig { static_copies: copies, ..MaskingConfig::default() };
        let config = ExampleConfig::new(32).with_pairs(pairs).with_masking(masking).with_attention(attention);
        let plans = folder.join("plans");
        Arc::new(PretrainingData::new(documents, config, &tokenizer, unigram, 7, plans).unwrap())
    }

    /// UniLM's shares, where a sixth of the pairs is random.
    const UNILM: AttentionConfig = AttentionConfig {
        bidirectional: 1.0,
        left_to_right: 1.0,
        right_to_left: 1.0,
        sequence_to_sequence: 2.0,
    };

    /// Five standard deviations of a binomial.
    #[track_caller]
    fn assert_share(hits: u64, n: u64, p: f64) {
        let (mean, deviation) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
        assert!(
            (hits as f64 - mean).abs() <= 5.0 * deviation,
            "{hits} of {n}, expected {mean} ± {deviation}"
        );
    }

    #[test]
    fn each_mask_has_its_share_and_pairs_are_labelled_where_both_segments_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let data = data(folder.path(), PAIRS, UNILM, 0);
        let batches = Loader::new(data.clone(), 64).batches(Cursor::default()).take(100);
        let mut stats = BatchStats::default();
        let mut labels = [0u64; 2];
        for batch in batches.map(Result::unwrap) {
            stats += &batch.stats;
            let tokens = &batch.tokens;
            let sequences = tokens.starts().zip(tokens.lengths()).zip(tokens.sights());
            for ((start, len), sight) in sequences {
                let types = &tokens.token_type_ids()[start..start + len];
                let first = types.iter().filter(|segment| **segment == 0).count();
                assert!(
                    *len > first && matches!(sight, Sight::All | Sight::RightToLeft | Sight::Prefix(0))
                        || *sight == Sight::Prefix(first)
                );
            }
            let of_all = tokens.sights().iter().filter(|sight| **sight == Sight::All).count();
            assert_eq!(batch.pair_labels.len(), of_all);
            let paired = batch.paired();
            assert_eq!(paired.len(), of_all);
            assert!(paired.iter().all(|sequence| tokens.sights()[*sequence as usize] == Sight::All));
            batch.pair_labels.iter().for_each(|label| labels[*label as usize] += 1);
        }
        let AttentionStats { bidirectional, left_to_right, right_to_left, sequence_to_sequence } =
            stats.attention;
        assert_eq!(stats.examples, 6_400);
        let others = stats.examples - stats.random_pairs;
        assert_eq!(bidirectional + left_to_right + right_to_left + sequence_to_sequence, stats.examples);
        assert_share(bidirectional - stats.random_pairs, others, 0.2);
        assert_share(left_to_right, others, 0.2);
        assert_share(right_to_left, others, 0.2);
        assert_share(sequence_to_sequence, others, 0.4);
        assert_eq!(labels, [bidirectional - stats.random_pairs, stats.random_pairs]);
        assert!(stats.random_pairs > 900, "{} random pairs", stats.random_pairs);
    }

    #[test]
    fn a_mask_is_a_function_of_the_example_and_changes_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let batch = |attention, copies, epoch| {
            let data = data(folder.path(), PairConfig::DocSentences, attention, copies);
            let plan = data.plan(epoch, &AtomicBool::new(false)).unwrap();
            let placed: Vec<_> = (0..60).map(|place| Placed { plan: &plan, epoch, place }).collect();
            (data.assemble(&placed).unwrap(), data.assemble(&placed[17..18]).unwrap())
        };
        let directions = AttentionConfig {
            bidirectional: 0.0,
            left_to_right: 1.0,
            right_to_left: 1.0,
            sequence_to_sequence: 0.0,
        };
        let (mixed, alone) = batch(directions, 0, 0);
        assert_eq!(mixed.tokens.sights()[17], alone.tokens.sights()[0]);
        assert!(mixed.tokens.sights().iter().all(|sight| *sight != Sight::All));
        let (plain, _) = batch(AttentionConfig::default(), 0, 0);
        assert!(plain.tokens.sights().iter().all(|sight| *sight == Sight::All));
        assert_eq!(mixed.tokens.input_ids(), plain.tokens.input_ids());
        assert_eq!(mixed.masked_positions, plain.masked_positions);
        assert_eq!(mixed.uniform, plain.uniform);
        // Another epoch has other masks, unless it repeats the first.
        assert_ne!(mixed.tokens.sights(), batch(directions, 0, 2).0.tokens.sights());
        assert_eq!(batch(directions, 2, 0), batch(directions, 2, 2));
    }
}
