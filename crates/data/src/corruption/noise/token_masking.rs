//! Token masking.

use super::shares::drawn;
use crate::corruption::{Corrupted, Corruption, Edits, Original, ReplacementCounts};
use crate::random::Random;

/// BART's token masking (Lewis et al. 2020, §2.2): each of some random tokens is replaced by the mask.
///
/// Each token or word is drawn independently with the same probability. For BERT's masking, which keeps some
/// tokens or replaces them at random, see [`MaskingConfig`](crate::MaskingConfig).
#[derive(Debug, Clone)]
pub struct TokenMasking {
    mask: u32,
    share: f64,
    whole_words: bool,
}

impl TokenMasking {
    /// Masks a share of the tokens, from 0 to 1.
    pub fn new(mask: u32, share: f64) -> Self {
        Self { mask, share, whole_words: false }
    }

    /// Masks all pieces of a word together, if `whole_words`.
    pub fn with_whole_words(mut self, whole_words: bool) -> Self {
        self.whole_words = whole_words;
        self
    }
}

impl Corruption for TokenMasking {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let (mut edits, mut counts) = (Edits::new(original.ids), ReplacementCounts::default());
        for unit in drawn(original, self.share, self.whole_words, random) {
            counts.masked += unit.len() as u64;
            let masks = vec![self.mask; unit.len()];
            edits.replace(unit, &masks);
        }
        edits.finish().with_counts(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MASK, documents};
    use super::*;
    use crate::corruption::noise::Noise;
    use crate::corruption::tests::assert_share;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn masks_stand_in_the_place_of_tokens(text in documents(), share in 0.0..=1.0f64, words: bool, seed: u64) {
            let mut noisy = text.clone();
            let noise = TokenMasking::new(MASK, share).with_whole_words(words);
            let counts = noise.apply(&mut noisy, &mut Random::new(seed)).tokens;
            let (before, after) = (text.original(), noisy.original());
            prop_assert_eq!(before.len(), after.len());
            prop_assert_eq!((before.word_starts, before.maskable), (after.word_starts, after.maskable));
            let mut masked = 0;
            for place in 0..before.len() {
                let is_masked = after.ids[place] == MASK;
                masked += u64::from(is_masked);
                prop_assert!(is_masked && before.maskable[place] || after.ids[place] == before.ids[place]);
                if words && before.maskable[place] && !before.word_starts[place] {
                    prop_assert_eq!(is_masked, after.ids[place - 1] == MASK);
                }
            }
            prop_assert_eq!(counts, ReplacementCounts { masked, ..Default::default() });
        }
    }

    #[test]
    fn thirty_percent_are_masked() {
        let (ids, flags) = (vec![9; 500], vec![true; 500]);
        let original = Original::new(&ids, &flags, &flags);
        let (noise, mut random, mut masked) = (TokenMasking::new(MASK, 0.3), Random::derive(1, &[]), 0);
        for _ in 0..200 {
            masked += noise.corrupt(&original, &mut random).counts().masked;
        }
        assert_share(masked, 100_000, 0.3);
    }
}
