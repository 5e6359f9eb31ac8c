//! Sentence permutation.

use super::shares::{choose, rounded};
use super::{Noise, NoiseCounts, NoisyText};
use crate::random::Random;

/// Sentence permutation (Lewis et al. 2020, §2.2): the sentences of a document are shuffled.
///
/// Deviation: sentences are those of the prepared corpus; the paper divides documents at full stops.
#[derive(Debug, Clone)]
pub struct SentencePermutation {
    share: f64,
}

impl SentencePermutation {
    /// Shuffles a share of a document's sentences among their places, from 0 to 1; the paper shuffles all.
    pub fn new(share: f64) -> Self {
        Self { share }
    }
}

impl Noise for SentencePermutation {
    fn apply(&self, text: &mut NoisyText, random: &mut Random) -> NoiseCounts {
        let mut counts = NoiseCounts::default();
        for stretch in text.stretches() {
            let sentences = text.sentences(&stretch);
            let chosen = choose(rounded(sentences.len(), self.share, random), sentences.len(), random);
            let places: Vec<usize> = (0..sentences.len()).filter(|place| chosen[*place]).collect();
            let mut order: Vec<usize> = (0..sentences.len()).collect();
            for last in (1..places.len()).rev() {
                let other = random.below(last as u64 + 1) as usize;
                order.swap(places[last], places[other]);
            }
            let moved = order.iter().enumerate().filter(|(place, from)| place != *from).count();
            counts.moved_sentences += moved as u64;
            let parts: Vec<_> = order.into_iter().map(|from| sentences[from].clone()).collect();
            text.rearrange(&stretch, &parts);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{apart, documents, plain};
    use super::*;
    use crate::corruption::tests::assert_share;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn sentences_stay_whole_and_in_their_document(text in documents(), share in 0.0..=1.0f64, seed: u64) {
            let mut noisy = text.clone();
            let counts = SentencePermutation::new(share).apply(&mut noisy, &mut Random::new(seed));
            prop_assert_eq!(apart(&noisy).1, apart(&text).1);
            prop_assert_eq!(noisy.stretches(), text.stretches());
            let mut moved = 0;
            for stretch in text.stretches() {
                let of = |text: &NoisyText| -> Vec<Vec<u32>> {
                    text.sentences(&stretch).into_iter().map(|range| text.ids()[range].to_vec()).collect()
                };
                let (before, mut after) = (of(&text), of(&noisy));
                let n = before.iter().zip(&after).filter(|(a, b)| a != b).count();
                prop_assert!(n as f64 <= share * before.len() as f64 + 1.0);
                moved += n as u64;
                after.sort_unstable();
                prop_assert_eq!(before, after);
            }
            prop_assert_eq!(counts, NoiseCounts { moved_sentences: moved, ..Default::default() });
        }
    }

    #[test]
    fn every_order_is_as_likely() {
        let (mut orders, mut random) = (BTreeMap::<Vec<u32>, u64>::new(), Random::new(7));
        for _ in 0..24_000 {
            let mut text = plain(8, 2);
            SentencePermutation::new(1.0).apply(&mut text, &mut random);
            *orders.entry(text.ids().iter().copied().step_by(2).collect()).or_default() += 1;
        }
        assert_eq!(orders.len(), 24);
        orders.values().for_each(|count| assert_share(*count, 24_000, 1.0 / 24.0));
    }
}
