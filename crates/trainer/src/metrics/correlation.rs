//! How two series of numbers go together.

/// Pearson's coefficient of linear correlation; NaN where a series is constant or has less than two numbers.
///
/// # Panics
/// If the series are not equally long.
pub fn pearson(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len(), "series of different lengths");
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let product =
        |f: fn(f64, f64) -> f64| -> f64 { x.iter().zip(y).map(|(x, y)| f(x - mean_x, y - mean_y)).sum() };
    product(|x, y| x * y) / (product(|x, _| x * x) * product(|_, y| y * y)).sqrt()
}

/// Spearman's coefficient: [`pearson`] of the ranks, equal numbers sharing the mean of theirs.
///
/// # Panics
/// If the series are not equally long.
pub fn spearman(x: &[f64], y: &[f64]) -> f64 {
    pearson(&ranks(x), &ranks(y))
}

fn ranks(values: &[f64]) -> Vec<f64> {
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
        assert!(pearson(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
        assert!(spearman(&[], &[]).is_nan());
    }
}
