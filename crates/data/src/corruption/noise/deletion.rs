//! Token deletion.

use super::shares::drawn;
use crate::corruption::{Corrupted, Corruption, Edits, Original, ReplacementCounts};
use crate::random::Random;

/// Token deletion (Lewis et al. 2020, §2.2): random tokens are deleted without a trace. On words, this is the
/// word dropout of Lample et al. (2018, "Unsupervised machine translation using monolingual corpora only",
/// §2.3), where `p_wd` is 0.1.
///
/// Each token or word is drawn independently with the same probability. An encoder has nothing to predict at
/// a deletion, so for encoders this only adds noise to another objective.
#[derive(Debug, Clone)]
pub struct Deletion {
    share: f64,
    whole_words: bool,
}

impl Deletion {
    /// Deletes a share of the tokens, from 0 to 1.
    pub fn new(share: f64) -> Self {
        Self { share, whole_words: false }
    }

    /// Deletes all pieces of a word together, if `whole_words`.
    pub fn with_whole_words(mut self, whole_words: bool) -> Self {
        self.whole_words = whole_words;
        self
    }
}

impl Corruption for Deletion {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let (mut edits, mut counts) = (Edits::new(original.ids), ReplacementCounts::default());
        for unit in drawn(original, self.share, self.whole_words, random) {
            counts.deleted += unit.len() as u64;
            edits.replace(unit, &[]);
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

    proptest! {
        #[test]
        fn what_is_left_is_in_order_and_special_tokens_are(text in documents(), share in 0.0..=1.0f64, seed: u64) {
            let mut noisy = text.clone();
            let counts = Deletion::new(share).apply(&mut noisy, &mut Random::new(seed)).tokens;
            let mut before = text.ids().iter().zip(text.original().maskable);
            for id in noisy.ids() {
                let skipped = before.by_ref().take_while(|(other, _)| *other != id);
                prop_assert!(skipped.into_iter().all(|(_, maskable)| *maskable));
            }
            prop_assert!(before.all(|(_, maskable)| *maskable));
            let deleted = (text.ids().len() - noisy.ids().len()) as u64;
            prop_assert_eq!(counts, ReplacementCounts { deleted, ..Default::default() });
        }

        #[test]
        fn words_go_whole(text in documents(), seed: u64) {
            let mut noisy = text.clone();
            Deletion::new(0.5).with_whole_words(true).apply(&mut noisy, &mut Random::new(seed));
            let starts = text.original().word_starts;
            for (place, starts) in starts.iter().enumerate().skip(1) {
                if !starts {
                    let is_left = |place: usize| noisy.ids().contains(&text.ids()[place]);
                    prop_assert_eq!(is_left(place), is_left(place - 1));
                }
            }
        }
    }

    #[test]
    fn the_share_is_the_one_that_is_asked_for() {
        let (ids, flags) = (vec![9; 500], vec![true; 500]);
        let original = Original::new(&ids, &flags, &flags);
        let mut random = Random::derive(1, &[]);
        let mut deleted = |share| -> u64 {
            let noise = Deletion::new(share);
            (0..200).map(|_| noise.corrupt(&original, &mut random).counts().deleted).sum()
        };
        assert_share(deleted(0.1), 100_000, 0.1);
        assert_eq!((deleted(0.0), deleted(1.0)), (0, 100_000));
    }
}
