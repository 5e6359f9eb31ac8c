//! Which tokens, and how many, a noise changes.

use crate::corruption::Original;
use crate::corruption::words::units;
use crate::random::Random;
use std::ops::Range;

/// A random selection of changeable tokens or whole words, each drawn with probability `share`.
pub(super) fn drawn(
    original: &Original<'_>,
    share: f64,
    whole_words: bool,
    random: &mut Random,
) -> Vec<Range<usize>> {
    let mut units = tokens_or_words(original, whole_words);
    units.retain(|_| random.chance(share));
    units
}

/// The tokens that may be changed, one by one or as words.
pub(super) fn tokens_or_words(original: &Original<'_>, whole_words: bool) -> Vec<Range<usize>> {
    units(original, |place| !whole_words || original.word_starts[place])
}

/// `share · n` rounded up or down at random, so that its mean is `share · n`.
pub(super) fn rounded(n: usize, share: f64, random: &mut Random) -> usize {
    ((n as f64 * share + random.unit()) as usize).min(n)
}

/// `[n]`: a uniformly random choice of `k` of `n` things (Knuth, The Art of Computer Programming, vol. 2,
/// §3.4.2, algorithm S).
///
/// # Panics
/// If `k` is greater than `n`.
pub(super) fn choose(k: usize, n: usize, random: &mut Random) -> Vec<bool> {
    assert!(k <= n, "no more than there are");
    let mut wanted = k as u64;
    let chosen = (0..n as u64).map(|place| {
        let chosen = wanted > 0 && random.below(n as u64 - place) < wanted;
        wanted -= u64::from(chosen);
        chosen
    });
    chosen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corruption::tests::assert_share;
    use std::collections::BTreeMap;

    #[test]
    fn every_choice_is_as_likely() {
        let (mut counts, mut random) = (BTreeMap::<Vec<bool>, u64>::new(), Random::derive(3, &[]));
        for _ in 0..20_000 {
            *counts.entry(choose(2, 5, &mut random)).or_default() += 1;
        }
        assert_eq!(counts.len(), 10, "pairs of five");
        counts.values().for_each(|count| assert_share(*count, 20_000, 0.1));
        assert_eq!(choose(3, 3, &mut random), [true; 3]);
        assert_eq!(choose(0, 2, &mut random), [false; 2]);
    }

    #[test]
    fn shares_are_kept_on_average() {
        let mut random = Random::derive(4, &[]);
        let sum: usize = (0..10_000).map(|_| rounded(7, 0.3, &mut random)).sum();
        assert_share(sum as u64 - 20_000, 10_000, 0.1);
        assert_eq!((rounded(7, 1.0, &mut random), rounded(7, 0.0, &mut random)), (7, 0));
    }

    #[test]
    fn words_are_drawn_whole() {
        let starts = [true, false, true, true, false];
        let original = Original::new(&[9; 5], &starts, &[true, true, false, true, true]);
        let mut random = Random::derive(5, &[]);
        assert_eq!(drawn(&original, 1.0, true, &mut random), [0..2, 3..5]);
        assert_eq!(drawn(&original, 1.0, false, &mut random), [0..1, 1..2, 3..4, 4..5]);
        let hits = (0..20_000).map(|_| drawn(&original, 0.25, true, &mut random).len() as u64).sum();
        assert_share(hits, 40_000, 0.25);
    }
}
