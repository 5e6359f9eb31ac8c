//! Integrated gradients (Sundararajan et al. 2017).

use super::explained::{Explained, Words, summed};
use crate::Result;
use burn::tensor::Tensor;
use cloze_evaluation::inspection::Completeness;

/// The points of the integral at first, and at most.
const POINTS: [usize; 2] = [50, 800];

/// The largest gap, as a share of F(x) − F(x′).
const GAP: f64 = 0.01;

/// `Σ_d (x_id − x′_id) ∫ ∂F(x′ + α (x − x′)) / ∂x_id dα` of each token `i`, from the baseline `x′` to the word embeddings `x`.
/// The points of the integral are doubled while the sum over all tokens is not F(x) − F(x′).
///
/// # Errors
/// A model whose weights have no gradient.
pub(super) fn integrated_gradients(explained: &Explained<'_>) -> Result<([Vec<f64>; 2], Completeness)> {
    let (words, baseline) = (explained.words(), explained.baseline());
    let (score, of_baseline) = (explained.score.value, explained.scores(&baseline)[0]);
    let steps: Words =
        words.iter().zip(&baseline).map(|(words, base)| words.clone() - base.clone()).collect();
    let whole = score - of_baseline;
    let mut points = POINTS[0];
    loop {
        let means = mean_gradients(explained, &baseline, &steps, points)?;
        let values: Vec<Vec<f64>> =
            means.into_iter().zip(&steps).map(|(mean, step)| summed(mean, step.clone())).collect();
        let sum: f64 = values.iter().flatten().sum();
        let converged = (sum - whole).abs() <= GAP * whole.abs();
        if converged || points >= POINTS[1] {
            let completeness = Completeness { score, baseline: of_baseline, sum, points, converged };
            return Ok((explained.split(values), completeness));
        }
        points *= 2;
    }
}

/// The means of the gradients on the way from the baseline, `[1, len, d]` for each side.
fn mean_gradients(
    explained: &Explained<'_>,
    baseline: &Words,
    steps: &Words,
    points: usize,
) -> Result<Words> {
    let mut means: Option<Words> = None;
    for points in gauss_legendre(points).chunks(explained.most_copies) {
        let column = |of: fn(&(f64, f64)) -> f64| {
            let numbers: Vec<f32> = points.iter().map(|point| of(point) as f32).collect();
            Tensor::<1>::from_data(numbers.as_slice(), &steps[0].device()).reshape([points.len(), 1, 1])
        };
        let (places, weights) = (column(|point| point.0), column(|point| point.1));
        let words: Words = baseline
            .iter()
            .zip(steps)
            .map(|(base, step)| base.clone() + step.clone() * places.clone())
            .collect();
        let gradients = explained.gradients(&words)?;
        let gradients = gradients.into_iter().map(|gradient| (gradient * weights.clone()).sum_dim(0));
        means = Some(match means {
            Some(means) => means.into_iter().zip(gradients).map(|(sum, more)| sum + more).collect(),
            None => gradients.collect(),
        });
    }
    Ok(means.expect("there are points"))
}

/// The points and weights of Gauss–Legendre quadrature from 0 to 1: the roots of the Legendre polynomial of degree `n`, by
/// Newton's method from Tricomi's estimates, and `1 / ((1 − x²) P′(x)²)`.
fn gauss_legendre(n: usize) -> Vec<(f64, f64)> {
    let point = |k: usize| {
        let estimate = std::f64::consts::PI * (k as f64 + 0.75) / (n as f64 + 0.5);
        let mut x = estimate.cos();
        let mut slope = 1.0;
        for _ in 0..100 {
            let (mut before, mut value) = (1.0, x);
            for degree in 2..=n {
                let degree = degree as f64;
                let next = ((2.0 * degree - 1.0) * x * value - (degree - 1.0) * before) / degree;
                (before, value) = (value, next);
            }
            slope = n as f64 * (x * value - before) / (x * x - 1.0);
            let change = value / slope;
            x -= change;
            if change.abs() < 1e-15 {
                break;
            }
        }
        ((1.0 - x) / 2.0, 1.0 / ((1.0 - x * x) * slope * slope))
    };
    (0..n).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polynomials of degree 2n − 1 are integrated exactly.
    #[test]
    fn points_integrate_polynomials() {
        for n in [2, 5, 50, 800] {
            let points = gauss_legendre(n);
            for power in [0, 1, 3, 2 * n as i32 - 1] {
                let sum: f64 = points.iter().map(|(x, weight)| weight * x.powi(power)).sum();
                let expected = 1.0 / f64::from(power + 1);
                assert!((sum - expected).abs() < 1e-12, "{n} points, power {power}: {sum}, {expected}");
            }
        }
    }
}
