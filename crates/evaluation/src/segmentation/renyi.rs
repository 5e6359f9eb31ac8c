//! Rényi efficiency.

/// The Rényi efficiency of order `alpha` of how often each piece occurs, from 0 to 1 (Zouhar et al. 2023, "Tokenization
/// and the Noiseless Channel", equation 11): the Rényi entropy `H_α = log₂(Σ p_i^α) / (1 − α)` of the shares `p_i`,
/// over `log₂` of the number of pieces that occur. For `alpha` = 1 it is Shannon's entropy over the same.
///
/// Equals `tokenization_scorer.score(text, metric="renyi", power=alpha)` of the package `tokenization-scorer` 1.1.8, and
/// its `metric="shannon_efficiency"` for `alpha` = 1, where the former fails.
/// Counts of 0 are ignored. NaN if fewer than two pieces occur.
///
/// ```
/// # use cloze_evaluation::segmentation::renyi_efficiency;
/// assert_eq!(renyi_efficiency([5, 5, 0, 5, 5], 2.5), 1.0);
/// assert!(renyi_efficiency([97, 1, 1, 1], 2.5) < 0.1);
/// // The limit is the entropy of the most frequent piece.
/// assert_eq!(renyi_efficiency([2, 1, 1], 1e300), 1.0 / 3_f64.log2());
/// ```
///
/// # Panics
/// If `alpha` is negative or not finite.
pub fn renyi_efficiency(counts: impl IntoIterator<Item = u64>, alpha: f64) -> f64 {
    assert!(alpha.is_finite() && alpha >= 0.0, "alpha is {alpha}");
    let counts: Vec<f64> = counts.into_iter().filter(|count| *count > 0).map(|count| count as f64).collect();
    if counts.len() < 2 {
        return f64::NAN;
    }
    let total: f64 = counts.iter().sum();
    let shares = counts.iter().map(|count| count / total);
    let entropy = if alpha == 1.0 {
        -shares.map(|share| share * share.log2()).sum::<f64>()
    } else {
        // Over the largest share, so that no power of all shares underflows.
        let largest = counts.iter().copied().fold(0.0, f64::max) / total;
        let sum: f64 = shares.map(|share| (share / largest).powf(alpha)).sum();
        (alpha * largest.log2() + sum.log2()) / (1.0 - alpha)
    };
    entropy / (counts.len() as f64).log2()
}
