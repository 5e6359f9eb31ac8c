//! The random number generator.

use crate::seed::derive_seed;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A generator of random numbers: PCG's MCG XSL-RR 128/64 (O'Neill 2014).
///
/// A seed gives the same numbers on every platform and in every version, independent of any library.
///
/// ```
/// # use cloze_data::Random;
/// let mut random = Random::derive(42, &[1]);
/// assert_eq!(random.next_u64(), 0x8239_E7B3_F61C_1138);
/// assert!(random.below(6) < 6);
/// ```
#[derive(Debug, Clone)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// The generator for one stream of a run, see [`derive_seed`].
    pub fn derive(seed: u64, parts: &[u64]) -> Self {
        Self::new(derive_seed(seed, parts))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform integer in `0..n` (Lemire 2019).
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "nothing to draw from");
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }

    /// A uniform number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The same in single precision, from 24 random bits: rounding the 64-bit number could give 1.
    pub fn unit_f32(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// `true` with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable() {
        // From the definitions of SplitMix64, PCG's seeding and MCG XSL-RR 128/64, computed apart from this
        // code: runs are resumed by them.
        let mut random = Random::derive(42, &[1]);
        assert_eq!([random.next_u64(), random.next_u64()], [0x8239_E7B3_F61C_1138, 0x5E1F_8802_16CF_3B2D]);
        assert_eq!([random.below(1_000), random.below(7)], [794, 1]);
        assert_eq!(random.unit(), 0.37524924590840036);
        assert_eq!(Random::derive(42, &[1]).unit_f32(), 8_534_503.0 / 16_777_216.0);
    }

    #[test]
    fn draws_below_are_uniform() {
        let mut random = Random::derive(5, &[]);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        // Five standard deviations of a binomial around 10,000.
        assert!(counts.iter().all(|n| n.abs_diff(10_000) < 470), "{counts:?}");
    }
}
