//! Masking: which tokens are predicted, and what stands in their place.

use crate::seed::Draw;
use crate::unigram::UnigramCounts;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How examples are masked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
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
    /// 0: fresh masks and pairs each epoch (RoBERTa). N: those of epoch `e` are those of `e mod N`, as
    /// data prepared N times over with BERT's `dupe_factor`.
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
pub enum RandomFrom {
    /// All pieces alike, but for the special ones.
    #[default]
    Uniform,
    /// By frequency in the training documents.
    Unigram,
}

/// A sequence being masked.
#[derive(Debug)]
pub struct Masked<'a> {
    /// The sequence's ids, special tokens among them; masked in place.
    pub ids: &'a mut [u32],
    /// Whether a token is the first of its word.
    pub word_starts: &'a [bool],
    /// Whether a token may be predicted: never a special one.
    pub maskable: &'a [bool],
}

/// A position to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// The position in the sequence.
    pub position: usize,
    /// The token that stood there.
    pub label: u32,
}

/// Chooses the tokens to predict and replaces them.
///
/// Implement it for a corruption of your own; all randomness comes from `rng`.
pub trait MaskingStrategy: Send + Sync {
    /// Masks a sequence in place and returns what to predict, by ascending position.
    fn mask(&self, sequence: Masked<'_>, rng: &mut Pcg64Mcg, stats: &mut MaskStats) -> Vec<Prediction>;
}

/// Counted masking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaskStats {
    /// Tokens that are not special: those that could have been masked.
    pub maskable: u64,
    /// Tokens predicted.
    pub predicted: u64,
    /// Of these, replaced by the mask.
    pub masked: u64,
    /// Of these, replaced by a random piece.
    pub random: u64,
    /// Of these, left as they are.
    pub kept: u64,
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
    /// The strategy, for a vocabulary of `unigram`'s size with this mask and these special pieces.
    ///
    /// # Panics
    /// Masking does if the vocabulary is empty.
    pub fn strategy(
        &self,
        mask: u32,
        special: Vec<u32>,
        unigram: Arc<UnigramCounts>,
    ) -> Box<dyn MaskingStrategy> {
        let has_ordinary = (0..unigram.vocab_size() as u32).any(|id| !special.contains(&id));
        Box::new(BertMasking { config: self.clone(), mask, special, unigram, has_ordinary })
    }
}

/// BERT's masking (Devlin et al. 2019, §3.1; `create_masked_lm_predictions`).
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
    fn random_piece(&self, rng: &mut Pcg64Mcg) -> u32 {
        loop {
            let id = match self.config.random_from {
                RandomFrom::Uniform => rng.below(self.unigram.vocab_size() as u64) as u32,
                RandomFrom::Unigram => self.unigram.sample(rng),
            };
            if !self.has_ordinary || !self.special.contains(&id) {
                return id;
            }
        }
    }
}

impl MaskingStrategy for BertMasking {
    fn mask(&self, sequence: Masked<'_>, rng: &mut Pcg64Mcg, stats: &mut MaskStats) -> Vec<Prediction> {
        let Masked { ids, word_starts, maskable } = sequence;
        let config = &self.config;
        // Groups of positions that are masked together, as ranges of `candidates`.
        let candidates: Vec<usize> = (0..ids.len()).filter(|i| maskable[*i]).collect();
        stats.maskable += candidates.len() as u64;
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for (i, position) in candidates.iter().enumerate() {
            let joins = config.unit == MaskUnit::WholeWord
                && !word_starts[*position]
                && i > 0
                && candidates[i - 1] + 1 == *position;
            match groups.last_mut() {
                Some(group) if joins => group.1 = i + 1,
                _ => groups.push((i, i + 1)),
            }
        }
        // As the reference counts: of all tokens, the special ones too; at least one.
        let most = if config.max_predictions > 0 { config.max_predictions } else { usize::MAX };
        let wanted = ((ids.len() as f64 * config.probability).round() as usize).max(1).min(most);
        let mut predictions = Vec::with_capacity(wanted);
        let mut predict = |positions: &[usize], predictions: &mut Vec<Prediction>, rng: &mut Pcg64Mcg| {
            for position in positions {
                predictions.push(Prediction { position: *position, label: ids[*position] });
                let draw = rng.unit();
                if draw < config.mask_share {
                    ids[*position] = self.mask;
                    stats.masked += 1;
                } else if draw < config.mask_share + config.random_share {
                    ids[*position] = self.random_piece(rng);
                    stats.random += 1;
                } else {
                    stats.kept += 1;
                }
            }
        };
        for place in 0..groups.len() {
            if predictions.len() >= wanted {
                break;
            }
            let other = place + rng.below((groups.len() - place) as u64) as usize;
            groups.swap(place, other);
            let (start, end) = groups[place];
            // A word that does not fit any more is passed over for a shorter one.
            if predictions.len() + (end - start) <= wanted {
                predict(&candidates[start..end], &mut predictions, rng);
            }
        }
        if predictions.is_empty()
            && let Some(&(start, end)) = groups.first()
        {
            predict(&candidates[start..end.min(start.saturating_add(most))], &mut predictions, rng);
        }
        stats.predicted += predictions.len() as u64;
        predictions.sort_unstable_by_key(|prediction| prediction.position);
        predictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::derive_rng;
    use proptest::prelude::*;

    const MASK: u32 = 4;
    const SPECIAL: u32 = 5;
    const VOCAB: u64 = 60;

    fn strategy(config: &MaskingConfig, counts: &[u64]) -> Box<dyn MaskingStrategy> {
        config.strategy(MASK, (0..SPECIAL).collect(), Arc::new(UnigramCounts::from_counts(counts)))
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
            let (mut masked, mut stats) = (ids.clone(), MaskStats::default());
            let sequence = Masked { ids: &mut masked, word_starts: &starts, maskable: &maskable };
            let predictions =
                strategy(&config, &[1; VOCAB as usize]).mask(sequence, &mut derive_rng(seed, &[]), &mut stats);
            let mut wanted = ((ids.len() as f64 * probability).round() as usize).max(1);
            if max_predictions > 0 {
                wanted = wanted.min(max_predictions);
            }
            let n_maskable = maskable.iter().filter(|may| **may).count();
            if whole_word {
                // One word alone may be more than wanted, but no more than the limit.
                let limit = if max_predictions > 0 { max_predictions } else { usize::MAX };
                let words = predictions.iter().filter(|p| starts[p.position]).count();
                prop_assert!(predictions.len() <= wanted || words <= 1 && predictions.len() <= limit);
                prop_assert_eq!(predictions.is_empty(), n_maskable == 0);
            } else {
                prop_assert_eq!(predictions.len(), wanted.min(n_maskable));
            }
            prop_assert!(predictions.windows(2).all(|pair| pair[0].position < pair[1].position));
            let mut restored = masked.clone();
            for Prediction { position, label } in &predictions {
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
                let predicted = |i: usize| predictions.iter().any(|prediction| prediction.position == i);
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
        let strategy = strategy(&config, &[1; VOCAB as usize]);
        let (mut stats, mut rng) = (MaskStats::default(), derive_rng(3, &[]));
        let mut at = [0u64; 40];
        for _ in 0..10_000 {
            let mut ids = [SPECIAL + 1; 40];
            let sequence = Masked { ids: &mut ids, word_starts: &[true; 40], maskable: &[true; 40] };
            for prediction in strategy.mask(sequence, &mut rng, &mut stats) {
                at[prediction.position] += 1;
            }
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
            let mut rng = derive_rng(8, &[]);
            let mut drawn = vec![0u64; VOCAB as usize];
            for _ in 0..100_000 {
                drawn[masking.random_piece(&mut rng) as usize] += 1;
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
            let (mut ids, mut stats) = ([SPECIAL; 8], MaskStats::default());
            let word_starts = [true, false, false, false, true, false, false, false];
            let sequence = Masked { ids: &mut ids, word_starts: &word_starts, maskable: &[true; 8] };
            let predictions =
                strategy(&config, &[1; VOCAB as usize]).mask(sequence, &mut derive_rng(2, &[]), &mut stats);
            assert_eq!(stats.predicted, predictions.len() as u64);
            assert_eq!(predictions[0].position % 4, 0, "from the word's start");
            predictions.len()
        };
        assert_eq!((count(0), count(3), count(20)), (4, 3, 4));
    }

    #[test]
    fn a_vocabulary_of_special_pieces_ends() {
        let config = MaskingConfig { mask_share: 0.0, random_share: 1.0, ..Default::default() };
        let strategy = strategy(&config, &[1; SPECIAL as usize]);
        let (mut ids, mut stats) = ([2; 9], MaskStats::default());
        let sequence = Masked { ids: &mut ids, word_starts: &[true; 9], maskable: &[true; 9] };
        assert_eq!(strategy.mask(sequence, &mut derive_rng(0, &[]), &mut stats).len(), 1);
    }
}
