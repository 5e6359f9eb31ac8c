//! Local reordering of tokens.

use super::text::runs;
use crate::corruption::{Corrupted, Corruption, Edits, Original, ReplacementCounts};
use crate::random::Random;

/// A local shuffle: no token moves by more than `k` places (Lample et al. 2018, "Unsupervised machine translation using
/// monolingual corpora only", §2.3, where `k` is 3).
///
/// ```text
/// σ sorts i + uᵢ,  uᵢ ~ Uniform[0, k + 1);  then |σ(i) − i| ≤ k
/// ```
///
/// Deviation: tokens are shuffled; the paper shuffles words. An encoder predicts the original tokens at the
/// changed positions.
#[derive(Debug, Clone)]
pub struct Reordering {
    k: usize,
}

impl Reordering {
    /// Moves tokens by at most `k` places.
    pub fn new(k: usize) -> Self {
        Self { k }
    }

    /// The token at each of `n` positions.
    fn order(&self, n: usize, random: &mut Random) -> Vec<usize> {
        let mut keys: Vec<(f64, usize)> =
            (0..n).map(|at| (at as f64 + (self.k + 1) as f64 * random.unit(), at)).collect();
        keys.sort_by(|a, b| a.0.total_cmp(&b.0));
        keys.into_iter().map(|(_, at)| at).collect()
    }
}

impl Corruption for Reordering {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let (mut edits, mut counts) = (Edits::new(original.ids), ReplacementCounts::default());
        for stretch in runs(original.maskable) {
            let order = self.order(stretch.len(), random);
            // A span of tokens that change places among themselves ends where all before are from before.
            let (mut start, mut furthest) = (0, 0);
            for (place, from) in order.iter().enumerate() {
                furthest = furthest.max(*from);
                counts.moved += u64::from(place != *from);
                if furthest > place {
                    continue;
                }
                if place > start {
                    let ids: Vec<u32> =
                        order[start..=place].iter().map(|from| original.ids[stretch.start + from]).collect();
                    edits.replace(stretch.start + start..stretch.start + place + 1, &ids);
                }
                start = place + 1;
            }
        }
        edits.finish().with_counts(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{apart, documents, plain};
    use super::*;
    use crate::corruption::ReplacedSpan;
    use crate::corruption::noise::Noise;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_token_moves_further_or_into_another_document(text in documents(), k in 0..6usize, seed: u64) {
            let mut noisy = text.clone();
            let counts = Reordering::new(k).apply(&mut noisy, &mut Random::new(seed)).tokens;
            let ((before, special), (after, kept)) = (apart(&text), apart(&noisy));
            prop_assert_eq!(special, kept);
            let mut moved = 0;
            for (before, after) in before.iter().zip(&after) {
                for (place, id) in before.iter().enumerate() {
                    let now = after.iter().position(|other| other == id).unwrap();
                    moved += u64::from(now != place);
                    prop_assert!(now.abs_diff(place) <= k);
                }
            }
            prop_assert_eq!(counts, ReplacementCounts { moved, ..Default::default() });
            prop_assert!(k > 0 || moved == 0);
        }

        #[test]
        fn all_that_moved_is_to_be_predicted(text in documents(), seed: u64) {
            let original = text.original();
            let corrupted = Reordering::new(3).corrupt(&original, &mut Random::new(seed));
            prop_assert!(corrupted.spans().iter().all(ReplacedSpan::keeps_length));
            for (place, (before, after)) in original.ids.iter().zip(corrupted.ids()).enumerate() {
                let inside = corrupted.spans().iter().any(|span| span.original.contains(&place));
                prop_assert!(before == after || inside);
            }
        }
    }

    #[test]
    fn the_order_is_that_of_noisy_places() {
        // Of two tokens, the first goes behind with the chance of u₀ > 1 + u₁ for u in [0, 2): 1 / 8.
        let (noise, mut random, mut swapped) = (Reordering::new(1), Random::derive(2, &[]), 0);
        for _ in 0..40_000 {
            let mut text = plain(2, 1);
            noise.apply(&mut text, &mut random);
            swapped += u64::from(text.ids() == [101, 100]);
        }
        crate::corruption::tests::assert_share(swapped, 40_000, 0.125);
    }
}
