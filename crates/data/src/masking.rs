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
    pub fn strategy(
        &self,
        mask: u32,
        special: Vec<u32>,
        unigram: Arc<UnigramCounts>,
    ) -> Box<dyn MaskingStrategy> {
        Box::new(BertMasking { config: self.clone(), mask, special, unigram })
    }
}

/// BERT's masking (Devlin et al. 2019, §3.1; `create_masked_lm_predictions`).
struct BertMasking {
    config: MaskingConfig,
    mask: u32,
    special: Vec<u32>,
    unigram: Arc<UnigramCounts>,
}

impl BertMasking {
    fn random_piece(&self, rng: &mut Pcg64Mcg) -> u32 {
        loop {
            let id = match self.config.random_from {
                RandomFrom::Uniform => rng.below(self.unigram.vocab_size() as u64) as u32,
                RandomFrom::Unigram => self.unigram.sample(rng),
            };
            if !self.special.contains(&id) {
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
        let mut wanted = ((ids.len() as f64 * config.probability).round() as usize).max(1);
        if config.max_predictions > 0 {
            wanted = wanted.min(config.max_predictions);
        }
        let mut predictions = Vec::with_capacity(wanted);
        for place in 0..groups.len() {
            if predictions.len() >= wanted {
                break;
            }
            let other = place + rng.below((groups.len() - place) as u64) as usize;
            groups.swap(place, other);
            let (start, end) = groups[place];
            // A word that does not fit any more is passed over for a shorter one.
            if predictions.len() + (end - start) > wanted {
                continue;
            }
            for position in &candidates[start..end] {
                let label = ids[*position];
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
                predictions.push(Prediction { position: *position, label });
            }
        }
        stats.predicted += predictions.len() as u64;
        predictions.sort_unstable_by_key(|prediction| prediction.position);
        predictions
    }
}
