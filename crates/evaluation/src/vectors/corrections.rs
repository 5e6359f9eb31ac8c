//! Corrections of anisotropic vectors.

use super::eigen::{covariance, mean, symmetric_eigen};

/// Variances below this share of the largest are rounding errors: whitening and z-scores set them to
/// zero.
const NO_VARIANCE: f64 = 1e-10;

/// An affine map fitted to unlabelled vectors: `(x − μ)·Wᵀ`.
#[derive(Debug, Clone, PartialEq)]
pub struct Correction {
    mean: Vec<f64>,
    map: Map,
}

#[derive(Debug, Clone, PartialEq)]
enum Map {
    /// `[width]`: the factor of each feature.
    Scales(Vec<f64>),
    /// `[width · width]`: one row per output feature.
    Matrix(Vec<f64>),
    /// `[components · width]`: directions to remove.
    Without(Vec<f64>),
}

impl Correction {
    /// Z-scores: `(x_i − μ_i) / σ_i` for each feature, as in scikit-learn's `StandardScaler`. A constant
    /// feature becomes 0.
    ///
    /// # Panics
    /// If there is no vector.
    pub fn z_scores(vectors: &[f32], width: usize) -> Self {
        let mean = mean(vectors, width);
        let mut variances = vec![0.0; width];
        for vector in vectors.chunks_exact(width) {
            let squares = vector.iter().zip(&mean).map(|(x, mean)| (f64::from(*x) - mean).powi(2));
            variances.iter_mut().zip(squares).for_each(|(sum, square)| *sum += square);
        }
        variances.iter_mut().for_each(|sum| *sum /= (vectors.len() / width) as f64);
        Self { mean, map: Map::Scales(scales(&variances)) }
    }

    /// Whitening: `Λ^(−1/2)·Uᵀ·(x − μ)` with the covariance `U·Λ·Uᵀ`, so that features are uncorrelated with
    /// variance 1 (Su et al. 2021, §3.2). Directions without variance become 0. All others are kept; the
    /// paper also has variants that keep only the first ones.
    ///
    /// # Panics
    /// If there is no vector.
    pub fn whitening(vectors: &[f32], width: usize) -> Self {
        let (mean, covariance) = covariance(vectors, width);
        let mut eigen = symmetric_eigen(&covariance, width);
        let scales = scales(&eigen.values);
        for (row, scale) in eigen.vectors.chunks_exact_mut(width).zip(scales) {
            row.iter_mut().for_each(|x| *x *= scale);
        }
        Self { mean, map: Map::Matrix(eigen.vectors) }
    }

    /// All but the top: `x − μ − Σ_(i ≤ D) (u_i · (x − μ))·u_i`, without the mean and the first `components`
    /// principal components `u_i` (Mu & Viswanath 2018, algorithm 1, who take `D` = width / 100). Deviation:
    /// the projections are of `x − μ`, as in the authors' code; the printed algorithm has `u_i · x`.
    ///
    /// # Panics
    /// If there is no vector, or fewer features than `components`.
    pub fn all_but_the_top(vectors: &[f32], width: usize, components: usize) -> Self {
        assert!(components <= width, "{components} components of {width} features");
        let (mean, covariance) = covariance(vectors, width);
        let mut top = symmetric_eigen(&covariance, width).vectors;
        top.truncate(components * width);
        Self { mean, map: Map::Without(top) }
    }

    /// The corrected vectors, `[n · width]`.
    ///
    /// # Panics
    /// If `vectors` differ in width from those the correction was fitted to.
    pub fn apply(&self, vectors: &[f32]) -> Vec<f32> {
        let width = self.mean.len();
        assert!(vectors.len().is_multiple_of(width), "vectors of another width");
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut corrected = Vec::with_capacity(vectors.len());
        for vector in vectors.chunks_exact(width) {
            let mut x: Vec<f64> =
                vector.iter().zip(&self.mean).map(|(x, mean)| f64::from(*x) - mean).collect();
            match &self.map {
                Map::Scales(scales) => x.iter_mut().zip(scales).for_each(|(x, scale)| *x *= scale),
                Map::Matrix(rows) => x = rows.chunks_exact(width).map(|row| dot(row, &x)).collect(),
                Map::Without(directions) => {
                    for direction in directions.chunks_exact(width) {
                        let length = dot(direction, &x);
                        x.iter_mut().zip(direction).for_each(|(x, u)| *x -= length * u);
                    }
                }
            }
            corrected.extend(x.into_iter().map(|x| x as f32));
        }
        corrected
    }
}

/// `1 / √variance`, or 0 where there is none.
fn scales(variances: &[f64]) -> Vec<f64> {
    let largest = variances.iter().copied().fold(0.0, f64::max);
    let scale = |variance: &f64| if *variance > NO_VARIANCE * largest { 1.0 / variance.sqrt() } else { 0.0 };
    variances.iter().map(scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values of NumPy and scikit-learn from `tests/fixtures/vectors/export.py`, up to the signs of
    /// components.
    const CASE: &str = include_str!("../../../../tests/fixtures/vectors/corrections.json");

    fn numbers(case: &serde_json::Value, key: &str) -> Vec<f64> {
        case[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    }

    #[test]
    fn as_numpy_and_scikit_learn_have_them() {
        let case: serde_json::Value = serde_json::from_str(CASE).unwrap();
        let width = case["width"].as_u64().unwrap() as usize;
        let vectors: Vec<f32> = numbers(&case, "vectors").iter().map(|x| *x as f32).collect();
        let close = |found: Vec<f32>, key: &str, signless: bool| {
            let expected = numbers(&case, key);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                let found = f64::from(*found);
                let (found, expected) =
                    if signless { (found.abs(), expected.abs()) } else { (found, expected) };
                assert!((found - expected).abs() < 1e-4, "{key}: {found}, expected {expected}");
            }
        };
        close(Correction::z_scores(&vectors, width).apply(&vectors), "z_scores", false);
        close(Correction::whitening(&vectors, width).apply(&vectors), "whitening", true);
        close(Correction::all_but_the_top(&vectors, width, 2).apply(&vectors), "all_but_the_top", false);
    }

    #[test]
    fn features_that_do_not_vary_become_zero() {
        let vectors = [1.0, 5.0, 2.0, 5.0, 4.0, 5.0];
        for correction in [Correction::z_scores(&vectors, 2), Correction::whitening(&vectors, 2)] {
            let corrected = correction.apply(&vectors);
            assert!(corrected.iter().skip(1).step_by(2).all(|x| *x == 0.0), "{corrected:?}");
            let squares: f32 = corrected.iter().map(|x| x * x).sum();
            assert!((squares - 3.0).abs() < 1e-5);
        }
        assert_eq!(Correction::whitening(&[2.0, 3.0], 2).apply(&[2.0, 3.0]), [0.0, 0.0]);
    }
}
