//! BERT's masking: which tokens are predicted, and what replaces them.

use super::ngrams::NGramMasking;
use super::replacement::{Budget, Replacement};
use super::spans::SpanMasking;
use super::words::units;
use super::{Corrupted, Corruption, Edits, Original, RandomPieces, ReplacementCounts};
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
    /// What is masked together. Default `"token"`.
    pub unit: MaskUnit,
    /// With [`MaskUnit::Span`]: `p` of the geometric distribution of span lengths, above 0 and up to 1: a
    /// span has ℓ words with probability proportional to `p·(1 − p)^(ℓ−1)`. Default 0.2, as in the paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_p: Option<f64>,
    /// With [`MaskUnit::Span`]: the maximum words per span, 1 or more. Default 10, as in the paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_span: Option<usize>,
    /// With [`MaskUnit::NGram`]: the maximum words per n-gram, 1 or more. Default 3, as in the paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ngram: Option<usize>,
    /// Share of an example's tokens to predict. Default 0.15.
    pub probability: f64,
    /// Maximum predictions per sequence; 0 means no limit. Default 0.
    pub max_predictions: usize,
    /// Share of the predicted tokens replaced by the mask. Default 0.8.
    pub mask_share: f64,
    /// Share of the predicted tokens replaced by a random piece; the rest stay unchanged. Default 0.1.
    pub random_share: f64,
    /// Where random pieces come from. Default `"uniform"`.
    pub random_from: RandomFrom,
    /// 0: each epoch draws new masks and pairs (RoBERTa). N: epoch `e` has the masks and pairs of epoch
    /// `e mod N`, like data prepared with BERT's `dupe_factor = N`. Default 0.
    pub static_copies: u64,
}

impl Default for MaskingConfig {
    fn default() -> Self {
        Self {
            unit: MaskUnit::Token,
            span_p: None,
            max_span: None,
            max_ngram: None,
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
    /// Spans of whole words; each span as a whole is masked, replaced at random, or kept (Joshi et al. 2020,
    /// "SpanBERT", §3.1): 1 to [`max_span`](MaskingConfig::max_span) words, geometrically distributed with
    /// [`span_p`](MaskingConfig::span_p). They neither overlap nor contain special tokens; a boundary
    /// objective reads adjacent spans separately.
    Span,
    /// N-grams of whole words, `p(n) ∝ 1/n` for `n` of 1 to [`max_ngram`](MaskingConfig::max_ngram) (Lan et
    /// al. 2020, "ALBERT", §4.1). Each token is independently masked, replaced at random, or kept.
    NGram,
}

/// Where random replacements come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RandomFrom {
    /// Every piece is equally likely, except the special ones, which are never drawn.
    #[default]
    Uniform,
    /// In proportion to frequency in the training documents.
    Unigram,
}

/// Replacement counts over all sequences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaskStats {
    /// Non-special tokens, which could have been replaced.
    pub maskable: u64,
    /// Tokens of the originals that were replaced.
    pub predicted: u64,
    /// Their spans: tokens, words, or spans of words.
    pub spans: u64,
    /// Predicted tokens replaced by the mask.
    pub masked: u64,
    /// Predicted tokens replaced by a random piece.
    pub random: u64,
    /// Predicted tokens left unchanged.
    pub kept: u64,
}

impl MaskStats {
    /// Counts a sequence.
    pub fn add(&mut self, original: &Original<'_>, corrupted: &Corrupted) {
        let ReplacementCounts { masked, random, kept, .. } = corrupted.counts();
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
    /// The corruption for a vocabulary of `unigram`'s size with this mask and these special pieces.
    ///
    /// # Panics
    /// If `span_p`, `max_span` or `max_ngram` is out of range. Corrupting panics if the vocabulary is empty.
    pub fn corruption(
        &self,
        mask: u32,
        special: Vec<u32>,
        unigram: Arc<UnigramCounts>,
    ) -> Box<dyn Corruption> {
        let pieces = RandomPieces::new(self.random_from, unigram, special);
        let (budget, replacement) = (Budget::new(self), Replacement::new(self, mask, pieces));
        match self.unit {
            MaskUnit::Token => Box::new(BertMasking { whole_words: false, budget, replacement }),
            MaskUnit::WholeWord => Box::new(BertMasking { whole_words: true, budget, replacement }),
            MaskUnit::Span => {
                let (p, most) = (self.span_p.unwrap_or(SPAN_P), self.max_span.unwrap_or(MAX_SPAN));
                Box::new(SpanMasking::new(budget, p, most, replacement))
            }
            MaskUnit::NGram => {
                Box::new(NGramMasking::new(budget, self.max_ngram.unwrap_or(MAX_NGRAM), replacement))
            }
        }
    }
}

/// SpanBERT's `p`.
const SPAN_P: f64 = 0.2;
/// SpanBERT's `ℓ_max`.
const MAX_SPAN: usize = 10;
/// ALBERT's `N`.
const MAX_NGRAM: usize = 3;

/// BERT's masking (Devlin et al. 2019, §3.1; `create_masked_lm_predictions`). A span is a token, or a word
/// whose pieces are all masked.
///
/// Deviations:
/// - A sequence whose words all exceed the number of pieces to predict still gets predictions: one word,
///   as far as `max_predictions` allows.
/// - No special token, including `[UNK]`, is predicted or drawn as a replacement; the reference exempts only
///   `[CLS]` and `[SEP]` and draws from the whole vocabulary.
/// - Word pieces at the start of the second segment never join the first segment's last word.
struct BertMasking {
    /// Whether all pieces of a word are masked together.
    whole_words: bool,
    budget: Budget,
    replacement: Replacement,
}

impl Corruption for BertMasking {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let mut units = units(original, |place| !self.whole_words || original.word_starts[place]);
        let wanted = self.budget.wanted(original);
        let mut n_predicted = 0;
        // Each unit, and where its replacement begins in `drawn`.
        let (mut replaced, mut drawn) = (Vec::with_capacity(units.len().min(wanted)), Vec::new());
        let mut counts = ReplacementCounts::default();
        let mut replace = |unit: Range<usize>, random: &mut Random| {
            replaced.push((unit.clone(), drawn.len()));
            drawn.extend(original.ids[unit].iter().map(|id| {
                let fate = self.replacement.fate(random);
                self.replacement.piece(*id, fate, random, &mut counts)
            }));
        };
        for place in 0..units.len() {
            if n_predicted >= wanted {
                break;
            }
            let other = place + random.below((units.len() - place) as u64) as usize;
            units.swap(place, other);
            let unit = units[place].clone();
            // A word that does not fit any more is passed over for a shorter one.
            if n_predicted + unit.len() <= wanted {
                n_predicted += unit.len();
                replace(unit, random);
            }
        }
        if n_predicted == 0
            && let Some(unit) = units.first()
        {
            replace(self.budget.cut(unit), random);
        }
        replaced.sort_unstable_by_key(|(unit, _)| unit.start);
        let mut edits = Edits::new(original.ids);
        for (unit, start) in replaced {
            let with = &drawn[start..start + unit.len()];
            edits.replace(unit, with);
        }
        edits.finish().with_counts(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corruption::tests::{MASK, SPECIAL, assert_share, corruption, corruption_of, sequence};
    use proptest::prelude::*;

    /// The position and piece of each token to predict, and the counts.
    fn predictions(original: &Original<'_>, corrupted: &Corrupted) -> (Vec<(usize, u32)>, MaskStats) {
        let mut stats = MaskStats::default();
        stats.add(original, corrupted);
        let spans = corrupted.spans().iter().inspect(|span| assert_eq!(span.original, span.corrupted));
        let positions = spans.flat_map(|span| span.original.clone());
        (positions.map(|position| (position, original.ids[position])).collect(), stats)
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
            let corruption = corruption(&config);
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

    #[test]
    fn every_position_is_as_likely_and_the_shares_are_those_configured() {
        let config = MaskingConfig { mask_share: 0.5, random_share: 0.3, ..Default::default() };
        let corruption = corruption(&config);
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

    #[test]
    fn a_sequence_of_long_words_has_a_prediction() {
        let count = |max_predictions| {
            let config = MaskingConfig { unit: MaskUnit::WholeWord, max_predictions, ..Default::default() };
            // Two words of four pieces, where one piece is wanted.
            let word_starts = [true, false, false, false, true, false, false, false];
            let original = Original::new(&[SPECIAL; 8], &word_starts, &[true; 8]);
            let corruption = corruption(&config);
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
        let corruption = corruption_of(&config, &[1; SPECIAL as usize]);
        let original = Original::new(&[2; 9], &[true; 9], &[true; 9]);
        assert_eq!(corruption.corrupt(&original, &mut Random::derive(0, &[])).spans().len(), 1);
    }

    #[test]
    fn configs_of_before_read_and_write_as_before() {
        let json = serde_json::to_value(MaskingConfig::default()).unwrap();
        let mut keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "mask_share",
                "max_predictions",
                "probability",
                "random_from",
                "random_share",
                "static_copies",
                "unit"
            ]
        );
        let read = |text: &str| serde_json::from_str::<MaskingConfig>(text);
        assert_eq!(read("{}").unwrap(), MaskingConfig::default());
        let spans = read(r#"{"unit": "span", "span_p": 0.3, "max_span": 5}"#).unwrap();
        assert_eq!((spans.unit, spans.span_p, spans.max_span), (MaskUnit::Span, Some(0.3), Some(5)));
        let ngrams = read(r#"{"unit": "n-gram", "max_ngram": 2}"#).unwrap();
        assert_eq!((ngrams.unit, ngrams.max_ngram), (MaskUnit::NGram, Some(2)));
        assert_eq!(read(&serde_json::to_string(&ngrams).unwrap()).unwrap(), ngrams);
        assert!(read(r#"{"max_spans": 5}"#).is_err());
    }
}
