//! Chooses the development examples if the config holds out a fraction of the training data.

use cloze_data::derive_seed;

/// Separates this random stream from all others of a seed.
const HELD_OUT_STREAM: u64 = 0x4E1D;

/// For each of `n` examples, whether it is held out. Their number is `share · n`, rounded, and at least 1. The
/// choice depends only on the seed and `n`.
pub(super) fn held_out(n: usize, share: f64, seed: u64) -> Vec<bool> {
    let count = ((share * n as f64).round() as usize).clamp(1, n.max(1));
    let mut places: Vec<usize> = (0..n).collect();
    places.sort_by_key(|place| (derive_seed(seed, &[HELD_OUT_STREAM, *place as u64]), *place));
    let mut held = vec![false; n];
    places.into_iter().take(count).for_each(|place| held[place] = true);
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_held_out_whatever_the_size() {
        let count = |n, share, seed| held_out(n, share, seed).into_iter().filter(|held| *held).count();
        assert_eq!((count(60, 0.1, 1), count(44, 0.1, 2), count(3, 0.1, 3), count(0, 0.5, 4)), (6, 4, 1, 0));
        assert_eq!(count(10, 0.99, 5), 10);
        assert_eq!(held_out(50, 0.2, 7), held_out(50, 0.2, 7));
        assert_ne!(held_out(50, 0.2, 7), held_out(50, 0.2, 8));
    }
}
