//! A shuffled order as a function, with constant-time access and no array.

use crate::seed::mix;

/// A pseudo-random permutation of `0..n`.
///
/// A four-round Feistel network permutes the smallest even number of bits that holds `n`; an image
/// outside `0..n` is permuted again until it falls inside (cycle walking, Black & Rogaway 2002), fewer
/// than four times on average.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    key: u64,
}

impl Permutation {
    const ROUNDS: u64 = 4;

    /// The permutation of `0..n` selected by `key`.
    pub fn new(n: u64, key: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, half_bits: bits.div_ceil(2).max(1), key }
    }

    /// The image of `index`.
    ///
    /// # Panics
    /// If `index` is not below `n`.
    pub fn get(&self, index: u64) -> u64 {
        assert!(index < self.n, "index {index} of a permutation of {}", self.n);
        let mut value = index;
        loop {
            value = self.permute(value);
            if value < self.n {
                return value;
            }
        }
    }

    fn permute(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..Self::ROUNDS {
            let mixed = mix(self.key ^ mix(right ^ (round << 60))) & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_index_is_hit_once(n in 1u64..3_000, key: u64) {
            let permutation = Permutation::new(n, key);
            let mut hit = vec![false; n as usize];
            for index in 0..n {
                hit[permutation.get(index) as usize] = true;
            }
            prop_assert!(hit.iter().all(|hit| *hit));
        }
    }

    #[test]
    fn it_shuffles_and_the_key_matters() {
        let order = |key| (0..1_000).map(|i| Permutation::new(1_000, key).get(i)).collect::<Vec<_>>();
        assert_ne!(order(1), order(2));
        let in_place = order(1).iter().enumerate().filter(|(i, v)| *i as u64 == **v).count();
        assert!(in_place < 8, "{in_place} of 1000 stay in place, expected about 1");
        let ascents = order(1).windows(2).filter(|w| w[0] < w[1]).count();
        assert!((450..550).contains(&ascents), "{ascents} ascents");
    }
}
