//! Token insertion.

use super::shares::drawn;
use crate::corruption::{
    Corrupted, Corruption, Edits, Original, RandomFrom, RandomPieces, ReplacementCounts,
};
use crate::random::Random;
use crate::unigram::UnigramCounts;
use std::sync::Arc;

/// Random non-special pieces are inserted before tokens: the counterpart of deletion.
///
/// Each token gets one before it with the same probability. An encoder has nothing to predict at an
/// insertion, so for encoders this only adds noise to another objective.
#[derive(Debug, Clone)]
pub struct Insertion {
    pieces: RandomPieces,
    share: f64,
}

impl Insertion {
    /// Inserts a number of pieces that is a share of the tokens, from 0 to 1. The pieces come from
    /// `unigram`'s vocabulary, without the `special` ones.
    pub fn new(share: f64, from: RandomFrom, unigram: Arc<UnigramCounts>, special: Vec<u32>) -> Self {
        let pieces = RandomPieces::new(from, unigram, special);
        Self { pieces, share }
    }
}

impl Corruption for Insertion {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let (mut edits, mut counts) = (Edits::new(original.ids), ReplacementCounts::default());
        for token in drawn(original, self.share, false, random) {
            counts.inserted += 1;
            edits.replace(token.start..token.start, &[self.pieces.draw(random)]);
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
    fn noise(share: f64) -> Insertion {
        let unigram = Arc::new(UnigramCounts::from_counts(&[1; 60]));
        Insertion::new(share, RandomFrom::Uniform, unigram, (0..50).collect())
    }

    proptest! {
        #[test]
        fn without_what_is_inserted_the_text_is_as_before(text in documents(), share in 0.0..=1.0f64, seed: u64) {
            let mut noisy = text.clone();
            let counts = noise(share).apply(&mut noisy, &mut Random::new(seed)).tokens;
            let is_inserted = |id: &u32| (50..60).contains(id);
            let kept: Vec<u32> = noisy.ids().iter().copied().filter(|id| !is_inserted(id)).collect();
            prop_assert_eq!(&kept[..], text.ids());
            let inserted = (noisy.ids().len() - kept.len()) as u64;
            prop_assert_eq!(counts, ReplacementCounts { inserted, ..Default::default() });
            // Never two in a row, and never outside of a document.
            prop_assert!(noisy.ids().windows(2).all(|pair| !is_inserted(&pair[0]) || pair[1] >= 100));
        }
    }

    #[test]
    fn the_share_is_the_one_that_is_asked_for() {
        let (ids, flags) = (vec![9; 500], vec![true; 500]);
        let original = Original::new(&ids, &flags, &flags);
        let (noise, mut random) = (noise(0.1), Random::derive(1, &[]));
        let inserted = (0..200).map(|_| noise.corrupt(&original, &mut random).counts().inserted).sum();
        assert_share(inserted, 100_000, 0.1);
    }
}
