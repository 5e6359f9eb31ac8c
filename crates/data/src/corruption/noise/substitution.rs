//! Token substitution.

use super::shares::drawn;
use crate::corruption::{
    Corrupted, Corruption, Edits, Original, RandomFrom, RandomPieces, ReplacementCounts,
};
use crate::random::Random;
use crate::unigram::UnigramCounts;
use std::sync::Arc;

/// Random tokens are replaced by random non-special pieces, as BERT does with a tenth of the tokens it masks
/// (Devlin et al. 2019, §3.1).
///
/// Each token or word is drawn independently with the same probability. An encoder predicts the original
/// tokens.
#[derive(Debug, Clone)]
pub struct Substitution {
    pieces: RandomPieces,
    share: f64,
    whole_words: bool,
}

impl Substitution {
    /// Replaces a share of the tokens, from 0 to 1. The pieces come from `unigram`'s vocabulary, without the
    /// `special` ones.
    pub fn new(share: f64, from: RandomFrom, unigram: Arc<UnigramCounts>, special: Vec<u32>) -> Self {
        let pieces = RandomPieces::new(from, unigram, special);
        Self { pieces, share, whole_words: false }
    }

    /// Replaces all pieces of a word together, if `whole_words`.
    pub fn with_whole_words(mut self, whole_words: bool) -> Self {
        self.whole_words = whole_words;
        self
    }
}

impl Corruption for Substitution {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let (mut edits, mut counts) = (Edits::new(original.ids), ReplacementCounts::default());
        for unit in drawn(original, self.share, self.whole_words, random) {
            counts.random += unit.len() as u64;
            let pieces: Vec<u32> = unit.clone().map(|_| self.pieces.draw(random)).collect();
            edits.replace(unit, &pieces);
        }
        edits.finish().with_counts(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::documents;
    use super::*;
    use crate::corruption::noise::Noise;
    use crate::corruption::tests::assert_share;
    use proptest::prelude::*;

    /// Of 60 pieces, of which 50 are special.
    fn noise(share: f64) -> Substitution {
        let unigram = Arc::new(UnigramCounts::from_counts(&[1; 60]));
        Substitution::new(share, RandomFrom::Uniform, unigram, (0..50).collect())
    }

    proptest! {
        #[test]
        fn only_ordinary_tokens_become_ordinary_pieces(text in documents(), share in 0.0..=1.0f64, seed: u64) {
            let mut noisy = text.clone();
            let counts = noise(share).apply(&mut noisy, &mut Random::new(seed)).tokens;
            prop_assert_eq!(text.ids().len(), noisy.ids().len());
            let mut random = 0;
            for ((before, after), maskable) in text.ids().iter().zip(noisy.ids()).zip(text.original().maskable) {
                random += u64::from(before != after);
                prop_assert!(before == after || *maskable && (50..60).contains(after));
            }
            prop_assert_eq!(counts, ReplacementCounts { random, ..Default::default() });
        }
    }

    #[test]
    fn shares_and_pieces_are_even() {
        let (ids, flags) = (vec![9; 500], vec![true; 500]);
        let original = Original::new(&ids, &flags, &flags);
        let noise = noise(0.1);
        let (mut random, mut replaced, mut first) = (Random::derive(1, &[]), 0, 0);
        for _ in 0..400 {
            let corrupted = noise.corrupt(&original, &mut random);
            replaced += corrupted.counts().random;
            first += corrupted.ids().iter().filter(|id| **id == 50).count() as u64;
        }
        assert_share(replaced, 200_000, 0.1);
        assert_share(first, replaced, 0.1);
    }
}
