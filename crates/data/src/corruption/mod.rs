//! Corruptions: changes to a sequence that a model learns to undo.

mod corrupted;
mod lengths;
mod masking;
mod ngrams;
pub(crate) mod noise;
mod pieces;
mod replacement;
mod spans;
mod words;

pub use corrupted::{Corrupted, Edits, ReplacedSpan, ReplacementCounts};
pub use masking::{MaskStats, MaskUnit, MaskingConfig, RandomFrom};
use pieces::RandomPieces;

use crate::random::Random;

/// Replaces tokens of a sequence, so that a model can learn to restore them.
///
/// [`MaskingConfig::corruption`] makes encoders' maskings; [`Deletion`](crate::Deletion),
/// [`Infilling`](crate::Infilling) and others are noises. Implement the trait for your own corruption, which
/// may change the sequence's length.
///
/// ```
/// use cloze_data::{Corrupted, Corruption, Edits, Original, Random};
///
/// /// Puts one mask in the place of two neighbouring tokens, as text infilling does (Lewis et al. 2020, §2.2).
/// struct Infilling {
///     mask: u32,
/// }
///
/// impl Corruption for Infilling {
///     fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
///         let starts: Vec<usize> =
///             (1..original.len()).filter(|i| original.maskable[i - 1] && original.maskable[*i]).collect();
///         let mut edits = Edits::new(original.ids);
///         if !starts.is_empty() {
///             let second = starts[random.below(starts.len() as u64) as usize];
///             edits.replace(second - 1..second + 1, &[self.mask]);
///         }
///         edits.finish()
///     }
/// }
///
/// let (ids, maskable) = ([2, 11, 12, 3], [false, true, true, false]);
/// let original = Original::new(&ids, &[true; 4], &maskable);
/// let corrupted = Infilling { mask: 4 }.corrupt(&original, &mut Random::new(1));
/// assert_eq!(corrupted.ids(), [2, 4, 3]);
/// assert_eq!((corrupted.spans()[0].original.clone(), corrupted.spans()[0].corrupted.clone()), (1..3, 1..2));
/// ```
pub trait Corruption: Send + Sync {
    /// The corrupted sequence, with the replaced spans.
    ///
    /// The result depends on `original` and `random` alone, so batches can be made in any order and remade
    /// when a run resumes.
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted;
}

impl<C: Corruption + ?Sized> Corruption for Box<C> {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        (**self).corrupt(original, random)
    }
}

/// A sequence before corruption.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Original<'a> {
    /// `[len]`: the pieces, including special ones.
    pub ids: &'a [u32],
    /// `[len]`: whether a token is the first of its word.
    pub word_starts: &'a [bool],
    /// `[len]`: whether a token may be replaced; `false` for special ones.
    pub maskable: &'a [bool],
}

impl<'a> Original<'a> {
    /// A sequence.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn new(ids: &'a [u32], word_starts: &'a [bool], maskable: &'a [bool]) -> Self {
        assert!(ids.len() == word_starts.len() && ids.len() == maskable.len(), "one value per token");
        Self { ids, word_starts, maskable }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether the sequence is empty.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unigram::UnigramCounts;
    use proptest::prelude::*;
    use std::sync::Arc;

    pub const MASK: u32 = 4;
    /// The first piece that is not special.
    pub const SPECIAL: u32 = 5;
    pub const VOCAB: usize = 60;

    /// A masking of a vocabulary of 60 pieces, of which five are special.
    pub fn corruption(config: &MaskingConfig) -> Box<dyn Corruption> {
        corruption_of(config, &[1; VOCAB])
    }

    pub fn corruption_of(config: &MaskingConfig, counts: &[u64]) -> Box<dyn Corruption> {
        config.corruption(MASK, (0..SPECIAL).collect(), Arc::new(UnigramCounts::from_counts(counts)))
    }

    /// Ids, word starts and what may be masked.
    pub fn sequence() -> impl Strategy<Value = (Vec<u32>, Vec<bool>, Vec<bool>)> {
        prop::collection::vec((0..VOCAB as u32, any::<bool>()), 1..80).prop_map(|tokens| {
            let (ids, starts): (Vec<u32>, Vec<bool>) = tokens.into_iter().unzip();
            let maskable = ids.iter().map(|id| *id >= SPECIAL).collect();
            (ids, starts, maskable)
        })
    }

    /// Five standard deviations of a binomial.
    #[track_caller]
    pub fn assert_share(hits: u64, n: u64, p: f64) {
        let (mean, deviation) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
        // One hit where hardly any is expected.
        assert!(
            (hits as f64 - mean).abs() <= (5.0 * deviation).max(if p > 0.0 { 1.0 } else { 0.0 }),
            "{hits} of {n}, expected {mean} ± {deviation}"
        );
    }
}
