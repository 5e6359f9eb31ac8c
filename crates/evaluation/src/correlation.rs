//! Correlation of two series.

/// Pearson's coefficient of linear correlation, as `scipy.stats.pearsonr`; NaN if a series is constant,
/// contains a NaN or has fewer than two numbers.
///
/// # Panics
/// If the series differ in length.
pub fn pearson(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len(), "series of different lengths");
    let (x, y) = (deviations(x), deviations(y));
    let product = |x: &[f64], y: &[f64]| -> f64 { x.iter().zip(y).map(|(x, y)| x * y).sum() };
    (product(&x, &y) / (product(&x, &x).sqrt() * product(&y, &y).sqrt())).clamp(-1.0, 1.0)
}

/// Spearman's coefficient: [`pearson`] of the ranks, with mean ranks for ties, as
/// `scipy.stats.spearmanr`; NaN where [`pearson`] is.
///
/// # Panics
/// If the series differ in length.
pub fn spearman(x: &[f64], y: &[f64]) -> f64 {
    if x.iter().chain(y).any(|value| value.is_nan()) {
        return f64::NAN;
    }
    pearson(&ranks(x), &ranks(y))
}

/// The series minus its mean, scaled so that squares neither overflow nor underflow; NaN for a constant
/// series, whose deviations may be rounding errors.
fn deviations(values: &[f64]) -> Vec<f64> {
    let constant = values.windows(2).all(|pair| pair[0] == pair[1]);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let largest = values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max);
    let deviation = |value: &f64| if constant { f64::NAN } else { (value - mean) / largest };
    values.iter().map(deviation).collect()
}

/// The rank of each value, from 1 for the smallest, with mean ranks for ties, as `scipy.stats.rankdata`.
pub(crate) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = first as f64 + (equal.len() + 1) as f64 / 2.0;
        equal.iter().for_each(|i| ranks[*i] = rank);
        first += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy.stats.pearsonr and spearmanr, SciPy 1.17.
    #[test]
    fn as_scipy_has_them() {
        let x = [1.0, 2.5, 2.5, -3.0, 7.0, 2.5, 0.0];
        let y = [2.0, 2.0, 1.0, -1.0, 3.0, 9.0, 0.5];
        assert!((pearson(&x, &y) - 0.455_020_931_894_357_33).abs() < 1e-12, "{}", pearson(&x, &y));
        assert!((spearman(&x, &y) - 0.785_355_471_607_104_1).abs() < 1e-12, "{}", spearman(&x, &y));
    }

    #[test]
    fn what_does_not_vary_does_not_correlate() {
        assert!(pearson(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
        assert!(pearson(&[1.0], &[1.0]).is_nan());
        assert!(pearson(&[], &[]).is_nan() && spearman(&[], &[]).is_nan());
        assert!(spearman(&[1.0, f64::NAN, 2.0], &[1.0, 2.0, 3.0]).is_nan());
        assert!(pearson(&[1.0, f64::INFINITY, 2.0], &[1.0, 2.0, 3.0]).is_nan());
    }
}
