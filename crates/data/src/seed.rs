//! Seeds of independent random streams.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

/// A seed for one stream of random numbers, from a run's seed and what the stream is for.
///
/// Each part is mixed in by SplitMix64's finaliser (Steele et al. 2014); the result depends on every
/// part and on their order, and is the same on every platform and in every version.
pub fn derive_seed(seed: u64, parts: &[u64]) -> u64 {
    parts.iter().fold(mix(seed), |state, part| mix(state ^ mix(*part)))
}

/// A generator for the stream of [`derive_seed`].
pub fn derive_rng(seed: u64, parts: &[u64]) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(derive_seed(seed, parts))
}

pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The draws that the crate makes.
pub(crate) trait Draw: rand_pcg::rand_core::Rng {
    /// Uniform in `0..n`, without bias (Lemire 2019).
    fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "nothing to draw from");
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }

    /// Uniform in `0.0..1.0`.
    fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `true` with probability `p`.
    fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

impl<R: rand_pcg::rand_core::Rng + ?Sized> Draw for R {}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::rand_core::Rng;

    #[test]
    fn seeds_are_stable() {
        // From the definitions of SplitMix64, PCG's seeding and MCG XSL-RR 128/64, computed apart from this
        // code: runs are resumed by them.
        assert_eq!(derive_seed(0, &[]), 0xE220_A839_7B1D_CDAF);
        assert_eq!(derive_seed(42, &[1]), 0xDA9E_4B39_7E1A_2212);
        assert_eq!(derive_seed(u64::MAX, &[0, 7, u64::MAX]), 0x0DD9_82CB_B0C4_3E1D);
        let mut rng = derive_rng(42, &[1]);
        assert_eq!([rng.next_u64(), rng.next_u64()], [0x8239_E7B3_F61C_1138, 0x5E1F_8802_16CF_3B2D]);
        assert_eq!([rng.below(1_000), rng.below(7)], [794, 1]);
        assert_eq!(rng.unit(), 0.37524924590840036);
        assert_ne!(derive_seed(1, &[2, 3]), derive_seed(1, &[3, 2]));
        assert_ne!(derive_seed(1, &[2]), derive_seed(1, &[2, 0]));
    }

    #[test]
    fn draws_below_are_uniform() {
        let mut rng = derive_rng(5, &[]);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7) as usize] += 1;
        }
        // Five standard deviations of a binomial around 10,000.
        assert!(counts.iter().all(|n| n.abs_diff(10_000) < 470), "{counts:?}");
    }
}
