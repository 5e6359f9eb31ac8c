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
        self.masked += masked;
        self.random += random;
        self.kept += kept;
    }
}

impl std::ops::AddAssign<&MaskStats> for MaskStats {
    fn add_assign(&mut self, other: &MaskStats) {
        self.maskable += other.maskable;
        self.predicted += other.predicted;
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
/// all pieces are masked.
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
            let continues = self.config.unit == MaskUnit::WholeWord && !original.word_starts[position];
            match units.last_mut() {
                Some(unit) if continues && unit.end == position => unit.end += 1,
                _ => units.push(position..position + 1),
            }
        }
        units
    }

    /// What stands in the place of a token that is predicted.
    fn replacement(&self, id: u32, random: &mut Random, counts: &mut ReplacementCounts) -> u32 {
        let draw = random.unit();
        if draw < self.config.mask_share {
            counts.masked += 1;
            self.mask
        } else if draw < self.config.mask_share + self.config.random_share {
            counts.random += 1;
            self.random_piece(random)
        } else {
            counts.kept += 1;
            id
        }
    }
}

impl Corruption for BertMasking {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let config = &self.config;
        let mut units = self.units(original);
        // As the reference counts: of all tokens, the special ones too; at least one.
        let most = if config.max_predictions > 0 { config.max_predictions } else { usize::MAX };
        let wanted = ((original.len() as f64 * config.probability).round() as usize).max(1).min(most);
        let mut n_predicted = 0;
        // Each unit, and where its replacement begins in `drawn`.
        let (mut replaced, mut drawn) = (Vec::with_capacity(units.len().min(wanted)), Vec::new());
        let mut counts = ReplacementCounts::default();
        let mut replace = |unit: Range<usize>, random: &mut Random| {
            replaced.push((unit.clone(), drawn.len()));
            let tokens = original.ids[unit].iter();
            drawn.extend(tokens.map(|id| self.replacement(*id, random, &mut counts)));
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
            replace(unit.start..unit.end.min(unit.start.saturating_add(most)), random);
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
