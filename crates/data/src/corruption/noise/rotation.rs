//! Document rotation.

use super::{Noise, NoiseCounts, NoisyText};
use crate::random::Random;

/// Document rotation (Lewis et al. 2020, §2.2): the document is rotated to begin with a token drawn uniformly
/// at random. The model must find the original start.
#[derive(Debug, Clone)]
pub struct Rotation {
    probability: f64,
}

impl Rotation {
    /// Rotates each document with this probability; the paper rotates all.
    pub fn new(probability: f64) -> Self {
        Self { probability }
    }
}

impl Noise for Rotation {
    fn apply(&self, text: &mut NoisyText, random: &mut Random) -> NoiseCounts {
        let mut counts = NoiseCounts::default();
        for stretch in text.stretches() {
            if random.chance(self.probability) {
                let first = stretch.start + random.below(stretch.len() as u64) as usize;
                text.rearrange(&stretch, &[first..stretch.end, stretch.start..first]);
                counts.rotated += u64::from(first > stretch.start);
            }
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

    proptest! {
        #[test]
        fn documents_are_rotated_each_by_itself(text in documents(), seed: u64) {
            let mut noisy = text.clone();
            let counts = Rotation::new(1.0).apply(&mut noisy, &mut Random::new(seed));
            let ((before, special), (after, kept)) = (apart(&text), apart(&noisy));
            prop_assert_eq!(special, kept);
            let mut rotated = 0;
            for (before, after) in before.iter().zip(&after) {
                let by = before.iter().position(|id| *id == after[0]).unwrap();
                let mut back = after.clone();
                back.rotate_right(by);
                prop_assert_eq!(&back, before);
                rotated += u64::from(by > 0);
            }
            prop_assert_eq!(counts, NoiseCounts { rotated, ..Default::default() });
        }
    }

    #[test]
    fn every_token_is_as_likely_to_be_the_first() {
        let (mut firsts, mut random) = ([0u64; 5], Random::new(3));
        for _ in 0..20_000 {
            let mut text = plain(5, 2);
            Rotation::new(0.5).apply(&mut text, &mut random);
            firsts[text.ids()[0] as usize - 100] += 1;
        }
        assert_share(firsts[0], 20_000, 0.6);
        firsts[1..].iter().for_each(|count| assert_share(*count, 20_000, 0.1));
    }
}
