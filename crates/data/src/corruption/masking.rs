//! BERT's masking: which tokens are predicted, and what stands in their place.

use super::{Corrupted, Corruption, Edits, Original, ReplacementCounts};
use crate::random::Random;
use crate::unigram::UnigramCounts;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// How examples are masked.
///
/// ```
/// # use cloze_data::{MaskUnit, MaskingConfig};
/// let mut masking = MaskingConfig::default();
/// masking.unit = MaskUnit::WholeWord;
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct MaskingConfig {
    /// What is masked together.
    pub unit: MaskUnit,
    /// Of spans: the chance that a span ends with a word, `p` of the geometric distribution of their lengths.
    pub span_p: f64,
    /// Of spans: the most words of one.
    pub max_span: usize,
    /// Share of an example's tokens that is predicted.
    pub probability: f64,
    /// At most this many a sequence; 0 sets no limit.
    pub max_predictions: usize,
    /// Share of the predicted tokens that the mask replaces.
    pub mask_share: f64,
    /// Share of the predicted tokens that a random piece replaces; the rest stays as it is.
    pub random_share: f64,
    /// Where random pieces come from.
    pub random_from: RandomFrom,
    /// 0: each epoch draws new masks and pairs (RoBERTa). N: epoch `e` has the masks and pairs of epoch `e mod N`, like
    /// data that BERT's `dupe_factor` prepared N times.
    pub static_copies: u64,
}

impl Default for MaskingConfig {
    fn default() -> Self {
        Self {
            unit: MaskUnit::Token,
            span_p: 0.2,
            max_span: 10,
            probability: 0.15,
            max_predictions: 0,
            mask_share: 0.8,
            random_share: 0.1,
            random_from: RandomFrom::Uniform,
            static_copies: 0,
        }
    }
}

/// What is masked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MaskUnit {
    /// Each token on its own (Devlin et al. 2019).
    #[default]
    Token,
    /// All pieces of a word (google-research/bert, `do_whole_word_mask`).
    WholeWord,
    /// Spans of whole words, which the mask or random pieces replace as a whole or not at all (Joshi et al. 2020,
    /// "SpanBERT", §3.1). A span begins at any word with the same chance; it has `ℓ` words with a chance in proportion to
    /// `p·(1 − p)^(ℓ−1)`, up to `max_span`: 3.8 words on average with the paper's 0.2 and 10.
    ///
    /// Deviations: a span ends early where the next word would be too much in all, where the reference cuts the word,
    /// and at another span.
    Span,
}

/// Where random replacements come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RandomFrom {
    /// Every piece is equally likely, except the special ones, which are never drawn.
    #[default]
    Uniform,
    /// By frequency in the training documents.
    Unigram,
}

/// What was replaced over all sequences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaskStats {
    /// Tokens that are not special: those that could have been replaced.
    pub maskable: u64,
    /// Tokens of the originals that were replaced.
    pub predicted: u64,
    /// Spans that they came in: tokens, words, or spans of words.
    pub spans: u64,
    /// Of these, replaced by the mask.
    pub masked: u64,
    /// Of these, replaced by a random piece.
    pub random: u64,
    /// Of these, left as they are.
    pub kept: u64,
}

impl MaskStats {
    /// Counts a sequence.
    pub fn add(&mut self, original: &Original<'_>, corrupted: &Corrupted) {
        let ReplacementCounts { masked, random, kept } = corrupted.counts();
        self.maskable += original.maskable.iter().filter(|may| **may).count() as u64;
        self.predicted += corrupted.spans().iter().map(|span| span.original.len() as u64).sum::<u64>();
        self.spans += corrupted.spans().len() as u64;
        self.masked += masked;
        self.random += random;
        self.kept += kept;
    }
}

impl std::ops::AddAssign<&MaskStats> for MaskStats {
    fn add_assign(&mut self, other: &MaskStats) {
        self.maskable += other.maskable;
        self.predicted += other.predicted;
        self.spans += other.spans;
        self.masked += other.masked;
        self.random += other.random;
        self.kept += other.kept;
    }
}

impl MaskingConfig {
    /// The corruption, for a vocabulary of `unigram`'s size with this mask and these special pieces.
    ///
    /// # Panics
    /// Corrupting does if the vocabulary is empty.
    pub fn corruption(
        &self,
        mask: u32,
        special: Vec<u32>,
        unigram: Arc<UnigramCounts>,
    ) -> Box<dyn Corruption> {
        let has_ordinary = (0..unigram.vocab_size() as u32).any(|id| !special.contains(&id));
        Box::new(BertMasking { config: self.clone(), mask, special, unigram, has_ordinary })
    }
}

/// BERT's masking (Devlin et al. 2019, §3.1; `create_masked_lm_predictions`). A span is a token, or a word of which
/// all pieces are masked; or as [`MaskUnit::Span`] says.
///
/// Deviations:
/// - A sequence whose words all have more pieces than are to be predicted is not left without predictions:
///   one word is predicted, as far as `max_predictions` lets it.
/// - No special token is predicted or drawn as a replacement, `[UNK]` among them, where the reference spares
///   `[CLS]` and `[SEP]` only and draws from the whole vocabulary.
/// - Pieces of a word that the second segment begins with never join the first segment's last word.
struct BertMasking {
    config: MaskingConfig,
    mask: u32,
    special: Vec<u32>,
    unigram: Arc<UnigramCounts>,
    /// Whether there is any piece that is not special.
    has_ordinary: bool,
}

impl BertMasking {
    fn random_piece(&self, random: &mut Random) -> u32 {
        loop {
            let id = match self.config.random_from {
                RandomFrom::Uniform => random.below(self.unigram.vocab_size() as u64) as u32,
                RandomFrom::Unigram => self.unigram.sample(random),
            };
            if !self.has_ordinary || !self.special.contains(&id) {
                return id;
            }
        }
    }

    /// The ranges of positions that are masked together.
    fn units(&self, original: &Original<'_>) -> Vec<Range<usize>> {
        let mut units: Vec<Range<usize>> = Vec::new();
        for position in (0..original.len()).filter(|position| original.maskable[*position]) {
            let continues = self.config.unit != MaskUnit::Token && !original.word_starts[position];
            match units.last_mut() {
                Some(unit) if continues && unit.end == position => unit.end += 1,
                _ => units.push(position..position + 1),
            }
        }
        units
    }

    /// What happens to a token that is predicted, or to a span.
    fn fate(&self, random: &mut Random) -> Fate {
        let draw = random.unit();
        if draw < self.config.mask_share {
            Fate::Masked
        } else if draw < self.config.mask_share + self.config.random_share {
            Fate::Random
        } else {
            Fate::Kept
        }
    }

    /// What stands in the place of a token that is predicted.
    fn replacement(&self, id: u32, fate: Fate, random: &mut Random, counts: &mut ReplacementCounts) -> u32 {
        match fate {
            Fate::Masked => {
                counts.masked += 1;
                self.mask
            }
            Fate::Random => {
                counts.random += 1;
                self.random_piece(random)
            }
            Fate::Kept => {
                counts.kept += 1;
                id
            }
        }
    }

    /// The words of a new span, from 1 to `max_span`.
    fn span_len(&self, random: &mut Random) -> usize {
        let MaskingConfig { span_p, max_span, .. } = self.config;
        let goes_on = 1.0 - span_p;
        let all = 1.0 - goes_on.powi(max_span as i32);
        let (draw, mut left, mut words) = (1.0 - random.unit() * all, goes_on, 1);
        // Longer than `words` with the chance `left`, before the lengths beyond the greatest are left out.
        while words < max_span && draw < left {
            left *= goes_on;
            words += 1;
        }
        words
    }

    /// The units of a span that begins with one of them: those that follow without a gap, are not `taken`, and have
    /// `room` tokens at most.
    fn span(
        &self,
        units: &[Range<usize>],
        first: usize,
        taken: &[bool],
        room: usize,
        random: &mut Random,
    ) -> Range<usize> {
        let words = self.span_len(random);
        let start = units[first].start;
        let fits = |unit: &usize| {
            let follows = *unit == first || units[*unit].start == units[*unit - 1].end;
            follows && !taken[*unit] && units[*unit].end - start <= room
        };
        let last = (first..units.len().min(first + words)).take_while(fits).count();
        first..first + last
    }
}

/// What happens to tokens that are predicted.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Masked,
    Random,
    Kept,
}

impl Corruption for BertMasking {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let config = &self.config;
        let units = self.units(original);
        // As the reference counts: of all tokens, the special ones too; at least one.
        let most = if config.max_predictions > 0 { config.max_predictions } else { usize::MAX };
        let wanted = ((original.len() as f64 * config.probability).round() as usize).max(1).min(most);
        let mut n_predicted = 0;
        // Each span, and where its replacement begins in `drawn`.
        let (mut replaced, mut drawn) = (Vec::with_capacity(units.len().min(wanted)), Vec::new());
        let mut counts = ReplacementCounts::default();
        let mut replace = |span: Range<usize>, random: &mut Random| {
            replaced.push((span.clone(), drawn.len()));
            let together = (config.unit == MaskUnit::Span).then(|| self.fate(random));
            for id in &original.ids[span] {
                let fate = together.unwrap_or_else(|| self.fate(random));
                drawn.push(self.replacement(*id, fate, random, &mut counts));
            }
        };
        let mut order: Vec<usize> = (0..units.len()).collect();
        let mut taken = vec![false; units.len()];
        for place in 0..units.len() {
            if n_predicted >= wanted {
                break;
            }
            let other = place + random.below((units.len() - place) as u64) as usize;
            order.swap(place, other);
            let (first, room) = (order[place], wanted - n_predicted);
            let chosen = match config.unit {
                _ if taken[first] => continue,
                MaskUnit::Span => self.span(&units, first, &taken, room, random),
                // A word that does not fit any more is passed over for a shorter one.
                MaskUnit::Token | MaskUnit::WholeWord if units[first].len() > room => continue,
                MaskUnit::Token | MaskUnit::WholeWord => first..first + 1,
            };
            if let (Some(first), Some(last)) = (units[chosen.clone()].first(), units[chosen.clone()].last()) {
                let span = first.start..last.end;
                taken[chosen].fill(true);
                n_predicted += span.len();
                replace(span, random);
            }
        }
        if n_predicted == 0
            && let Some(unit) = units.first()
        {
            replace(unit.start..unit.end.min(unit.start.saturating_add(most)), random);
        }
        replaced.sort_unstable_by_key(|(span, _)| span.start);
        let mut edits = Edits::new(original.ids);
        for (span, start) in replaced {
            let with = &drawn[start..start + span.len()];
            edits.replace(span, with);
        }
        edits.finish().with_counts(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MASK: u32 = 4;
    const SPECIAL: u32 = 5;
    const VOCAB: u64 = 60;

    fn corruption(config: &MaskingConfig, counts: &[u64]) -> Box<dyn Corruption> {
        config.corruption(MASK, (0..SPECIAL).collect(), Arc::new(UnigramCounts::from_counts(counts)))
    }

    /// The place and the piece of each token to predict, and the counts.
    fn predictions(original: &Original<'_>, corrupted: &Corrupted) -> (Vec<(usize, u32)>, MaskStats) {
        let mut stats = MaskStats::default();
        stats.add(original, corrupted);
        let spans = corrupted.spans().iter().inspect(|span| assert_eq!(span.original, span.corrupted));
        let positions = spans.flat_map(|span| span.original.clone());
        (positions.map(|position| (position, original.ids[position])).collect(), stats)
    }

    /// Ids, word starts and what may be masked.
    fn sequence() -> impl Strategy<Value = (Vec<u32>, Vec<bool>, Vec<bool>)> {
        prop::collection::vec((0..VOCAB as u32, any::<bool>()), 1..80).prop_map(|tokens| {
            let (ids, starts): (Vec<u32>, Vec<bool>) = tokens.into_iter().unzip();
            let maskable = ids.iter().map(|id| *id >= SPECIAL).collect();
            (ids, starts, maskable)
        })
    }

    proptest! {
        #[test]
        fn labels_are_right_and_all_else_stays(
            (ids, starts, maskable) in sequence(),
            whole_word: bool,
            probability in 0.0..=1.0f64,
            max_predictions in 0..12usize,
            seed: u64,
        ) {
            let unit = if whole_word { MaskUnit::WholeWord } else { MaskUnit::Token };
            let config = MaskingConfig { unit, probability, max_predictions, ..Default::default() };
            let original = Original::new(&ids, &starts, &maskable);
            let corruption = corruption(&config, &[1; VOCAB as usize]);
            let corrupted = corruption.corrupt(&original, &mut Random::derive(seed, &[]));
            let (predictions, stats) = predictions(&original, &corrupted);
            let masked = corrupted.ids();
            let mut wanted = ((ids.len() as f64 * probability).round() as usize).max(1);
            if max_predictions > 0 {
                wanted = wanted.min(max_predictions);
            }
            let n_maskable = maskable.iter().filter(|may| **may).count();
            if whole_word {
                // One word alone may be more than wanted, but no more than the limit.
                let limit = if max_predictions > 0 { max_predictions } else { usize::MAX };
                let words = predictions.iter().filter(|(position, _)| starts[*position]).count();
                prop_assert!(predictions.len() <= wanted || words <= 1 && predictions.len() <= limit);
                prop_assert_eq!(predictions.is_empty(), n_maskable == 0);
            } else {
                prop_assert_eq!(predictions.len(), wanted.min(n_maskable));
            }
            prop_assert!(predictions.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let mut restored = masked.to_vec();
            for (position, label) in &predictions {
                prop_assert!(maskable[*position]);
                prop_assert!(masked[*position] == MASK || masked[*position] >= SPECIAL);
                restored[*position] = *label;
            }
            prop_assert_eq!(restored, ids);
            prop_assert_eq!(stats.maskable, n_maskable as u64);
            prop_assert_eq!(stats.predicted, predictions.len() as u64);
            prop_assert_eq!(stats.masked + stats.random + stats.kept, stats.predicted);
            if whole_word && predictions.len() <= wanted && max_predictions == 0 {
                // Neighbours of one word share their fate.
                let predicted = |i: usize| predictions.iter().any(|(position, _)| *position == i);
                for i in 1..starts.len() {
                    if maskable[i] && maskable[i - 1] && !starts[i] {
                        prop_assert_eq!(predicted(i), predicted(i - 1));
                    }
                }
            }
        }
    }

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
    fn every_position_is_as_likely_and_the_shares_are_those_configured() {
        let config = MaskingConfig { mask_share: 0.5, random_share: 0.3, ..Default::default() };
        let corruption = corruption(&config, &[1; VOCAB as usize]);
        let (mut stats, mut random) = (MaskStats::default(), Random::derive(3, &[]));
        let mut at = [0u64; 40];
        let original = Original::new(&[SPECIAL + 1; 40], &[true; 40], &[true; 40]);
        for _ in 0..10_000 {
            let corrupted = corruption.corrupt(&original, &mut random);
            for (position, _) in predictions(&original, &corrupted).0 {
                at[position] += 1;
            }
            stats.add(&original, &corrupted);
        }
        assert_eq!(stats.predicted, 60_000, "15 % of 40, each time");
        for count in at {
            assert_share(count, 10_000, 0.15);
        }
        assert_share(stats.masked, 60_000, 0.5);
        assert_share(stats.random, 60_000, 0.3);
        assert_share(stats.kept, 60_000, 0.2);
    }

    proptest! {
        #[test]
        fn spans_are_whole_words_with_one_fate(
            (ids, starts, maskable) in sequence(),
            probability in 0.0..=1.0f64,
            max_span in 1..6usize,
            seed: u64,
        ) {
            let config = MaskingConfig { unit: MaskUnit::Span, probability, max_span, ..Default::default() };
            let original = Original::new(&ids, &starts, &maskable);
            let corrupted = corruption(&config, &[1; VOCAB as usize]).corrupt(&original, &mut Random::derive(seed, &[]));
            let wanted = ((ids.len() as f64 * probability).round() as usize).max(1);
            let (predictions, stats) = predictions(&original, &corrupted);
            prop_assert!(predictions.len() <= wanted || corrupted.spans().len() == 1);
            prop_assert_eq!(predictions.is_empty(), !maskable.contains(&true));
            prop_assert_eq!(stats.spans, corrupted.spans().len() as u64);
            // A word begins at its start, at the first token, and behind what is not masked.
            let begins = |at: usize| at == ids.len() || !maskable[at] || starts[at] || at == 0 || !maskable[at - 1];
            for span in corrupted.spans() {
                let span = span.original.clone();
                prop_assert!(span.clone().all(|at| maskable[at]));
                prop_assert!(begins(span.start) && begins(span.end));
                prop_assert!(span.clone().filter(|at| begins(*at)).count() <= max_span);
                let masked = &corrupted.ids()[span.clone()];
                prop_assert!(masked.iter().all(|id| *id == MASK) || !masked.contains(&MASK));
            }
        }
    }

    #[test]
    fn spans_have_the_papers_lengths_and_begin_anywhere() {
        let config = MaskingConfig { unit: MaskUnit::Span, ..Default::default() };
        let (special, unigram) = ((0..SPECIAL).collect(), Arc::new(UnigramCounts::from_counts(&[1; 60])));
        let masking = BertMasking { config, mask: MASK, special, unigram, has_ordinary: true };
        let mut random = Random::derive(4, &[]);
        let mut lengths = [0u64; 11];
        (0..100_000).for_each(|_| lengths[masking.span_len(&mut random)] += 1);
        // SpanBERT's `len_distrib`: p·(1 − p)^(ℓ − 1) for ℓ of 1 to 10, as shares of their sum; a mean of 3.8.
        let shares: Vec<f64> = (0..10).map(|longer| 0.2 * 0.8f64.powi(longer)).collect();
        let all: f64 = shares.iter().sum();
        assert_eq!(lengths[0], 0);
        for (length, share) in lengths[1..].iter().zip(&shares) {
            assert_share(*length, 100_000, share / all);
        }
        let mean = (1..=10).map(|length| length as f64 * lengths[length] as f64).sum::<f64>() / 100_000.0;
        assert!((mean - 3.797).abs() < 0.04, "{mean}");

        // In a long text 15 % of the tokens are masked, 80 % of the spans by the mask.
        let (ids, starts) = ([SPECIAL + 1; 512], [true; 512]);
        let (mut stats, mut masked, mut at) = (MaskStats::default(), 0, [0u64; 4]);
        for _ in 0..2_000 {
            let original = Original::new(&ids, &starts, &starts);
            let corrupted = masking.corrupt(&original, &mut random);
            stats.add(&original, &corrupted);
            for span in corrupted.spans() {
                masked += u64::from(corrupted.ids()[span.corrupted.start] == MASK);
                at[span.original.start / 128] += 1;
            }
        }
        assert_eq!(stats.predicted, 2_000 * 77);
        assert_share(masked, stats.spans, 0.8);
        at.iter().for_each(|quarter| assert_share(*quarter, stats.spans, 0.25));
        // Some end early, at another span or with what is to be masked in all.
        let mean = stats.predicted as f64 / stats.spans as f64;
        assert!((3.2..3.8).contains(&mean), "{mean}");
    }

    #[test]
    fn random_pieces_are_never_special_and_follow_their_distribution() {
        let counts: Vec<u64> = (0..VOCAB).map(|id| 1 + id * id).collect();
        let ordinary = |id: u64| id >= u64::from(SPECIAL);
        for (random_from, weight) in
            [(RandomFrom::Uniform, vec![1; VOCAB as usize]), (RandomFrom::Unigram, counts.clone())]
        {
            let config = MaskingConfig { random_from, ..Default::default() };
            let (special, unigram) = ((0..SPECIAL).collect(), Arc::new(UnigramCounts::from_counts(&counts)));
            let masking = BertMasking { config, mask: MASK, special, unigram, has_ordinary: true };
            let mut random = Random::derive(8, &[]);
            let mut drawn = vec![0u64; VOCAB as usize];
            for _ in 0..100_000 {
                drawn[masking.random_piece(&mut random) as usize] += 1;
            }
            let total: u64 = (0..VOCAB).filter(|id| ordinary(*id)).map(|id| weight[id as usize]).sum();
            for id in 0..VOCAB {
                let share = if ordinary(id) { weight[id as usize] as f64 / total as f64 } else { 0.0 };
                assert_share(drawn[id as usize], 100_000, share);
            }
        }
    }

    #[test]
    fn a_sequence_of_long_words_has_a_prediction() {
        let count = |max_predictions| {
            let config = MaskingConfig { unit: MaskUnit::WholeWord, max_predictions, ..Default::default() };
            // Two words of four pieces, where one piece is wanted.
            let word_starts = [true, false, false, false, true, false, false, false];
            let original = Original::new(&[SPECIAL; 8], &word_starts, &[true; 8]);
            let corruption = corruption(&config, &[1; VOCAB as usize]);
            let corrupted = corruption.corrupt(&original, &mut Random::derive(2, &[]));
            let (predictions, stats) = predictions(&original, &corrupted);
            assert_eq!(stats.predicted, predictions.len() as u64);
            assert_eq!((predictions[0].0 % 4, corrupted.spans().len()), (0, 1), "from the word's start");
            predictions.len()
        };
        assert_eq!((count(0), count(3), count(20)), (4, 3, 4));
    }

    #[test]
    fn a_vocabulary_of_special_pieces_ends() {
        let config = MaskingConfig { mask_share: 0.0, random_share: 1.0, ..Default::default() };
        let corruption = corruption(&config, &[1; SPECIAL as usize]);
        let original = Original::new(&[2; 9], &[true; 9], &[true; 9]);
        assert_eq!(corruption.corrupt(&original, &mut Random::derive(0, &[])).spans().len(), 1);
    }
}
