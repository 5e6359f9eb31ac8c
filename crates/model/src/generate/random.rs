//! Random numbers that depend only on a text and a seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A generator for one sample.
#[derive(Debug, Clone)]
pub(super) struct Random(Pcg64Mcg);

impl Random {
    /// A generator for a seed and numbers such as a prompt's tokens; any difference gives another generator.
    pub fn new(seed: u64, parts: &[u64]) -> Self {
        // SplitMix64's finaliser after each part (Steele et al. 2014).
        let mix = |state: u64, part: u64| {
            let z = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let seed = parts.iter().fold(mix(seed, parts.len() as u64), |state, part| mix(state, *part));
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// 128 random bits.
    pub fn bits(&mut self) -> [u64; 2] {
        [self.0.next_u64(), self.0.next_u64()]
    }

    /// A uniform number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_makes_a_difference() {
        let draw = |seed, parts: &[u64]| Random::new(seed, parts).unit().to_bits();
        let all = [
            draw(1, &[]),
            draw(2, &[]),
            draw(1, &[0]),
            draw(1, &[1]),
            draw(1, &[0, 0]),
            draw(1, &[1, 0]),
            draw(1, &[0, 1]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one));
        }
        assert_eq!(draw(3, &[4, 5]), draw(3, &[4, 5]));
    }
}
