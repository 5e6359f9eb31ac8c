//! Principal components.

use super::eigen::{covariance, mean, symmetric_eigen};
use crate::embeddings::Vectors;

/// Variances below this share of the largest are rounding errors.
const NO_VARIANCE: f64 = 1e-12;

/// Vectors projected on their first principal components.
#[derive(Debug, Clone, PartialEq)]
pub struct PrincipalComponents {
    /// `[n · count]`: each vector's coordinates, `u_k · (x − μ)`. Missing components are 0.
    pub positions: Vec<f64>,
    /// `[count]`: the mean's coordinates, `u_k · μ`; a vector's own are its position and these.
    pub centre: Vec<f64>,
    /// `[count]`: the share of the variance along each component, 0 if nothing varies.
    pub shares: Vec<f64>,
}

/// The first `count` principal components `u_k` of vectors and the vectors' coordinates along them (Pearson
/// 1901), from all eigenvectors of the covariance, or of `1/n · X·Xᵀ` with the centred vectors `X` if there
/// are fewer vectors than features: both have the same non-zero eigenvalues. A component's entry with the
/// greatest absolute value is positive.
///
/// # Panics
/// If there is no vector.
pub fn principal_components(vectors: Vectors<'_>, count: usize) -> PrincipalComponents {
    let (n, width) = (vectors.len(), vectors.width());
    assert!(n > 0, "the components of nothing");
    let (mean, values, directions) = match n < width {
        true => of_products(vectors, count),
        false => {
            let (mean, covariance) = covariance(vectors.values(), width);
            let mut eigen = symmetric_eigen(&covariance, width);
            eigen.vectors.truncate(count * width);
            (mean, eigen.values, eigen.vectors)
        }
    };
    let mut positions = vec![0.0; n * count];
    let mut centred = vec![0.0; width];
    for (vector, position) in vectors.iter().zip(positions.chunks_exact_mut(count.max(1))) {
        centre(vector, &mean, &mut centred);
        for (coordinate, direction) in position.iter_mut().zip(directions.chunks_exact(width)) {
            *coordinate = direction.iter().zip(&centred).map(|(a, b)| a * b).sum();
        }
    }
    let of_mean = |direction: &[f64]| direction.iter().zip(&mean).map(|(a, b)| a * b).sum();
    let mut of_centre: Vec<f64> = directions.chunks_exact(width).take(count).map(of_mean).collect();
    of_centre.resize(count, 0.0);
    let total: f64 = values.iter().map(|value| value.max(0.0)).sum();
    let share = |k: usize| match values.get(k) {
        Some(value) if total > 0.0 => value.max(0.0) / total,
        _ => 0.0,
    };
    PrincipalComponents { positions, centre: of_centre, shares: (0..count).map(share).collect() }
}

fn centre(vector: &[f32], mean: &[f64], centred: &mut [f64]) {
    centred.iter_mut().zip(vector.iter().zip(mean)).for_each(|(to, (x, mean))| *to = f64::from(*x) - mean);
}

/// The mean, the eigenvalues of `1/n · X·Xᵀ` and, `[up to count · width]`, the components `Xᵀ·v / |Xᵀ·v|` of its eigenvectors `v`.
fn of_products(vectors: Vectors<'_>, count: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (n, width) = (vectors.len(), vectors.width());
    let mean = mean(vectors.values(), width);
    let mut rows = vec![0.0; n * width];
    vectors.iter().zip(rows.chunks_exact_mut(width)).for_each(|(vector, row)| centre(vector, &mean, row));
    let row = |i: usize| &rows[i * width..][..width];
    let mut products = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let product = row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum::<f64>() / n as f64;
            (products[i * n + j], products[j * n + i]) = (product, product);
        }
    }
    let eigen = symmetric_eigen(&products, n);
    let mut directions = Vec::new();
    // Along an eigenvector whose value is rounding nothing varies, and `Xᵀ·v` is rounding too.
    let least = eigen.values[0] * NO_VARIANCE;
    for (weights, value) in eigen.vectors.chunks_exact(n).zip(&eigen.values).take(count) {
        let mut direction = vec![0.0; width];
        for (weight, row) in weights.iter().zip(rows.chunks_exact(width)) {
            direction.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x);
        }
        let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
        let largest =
            direction.iter().copied().fold(0.0, |most: f64, x| if x.abs() > most.abs() { x } else { most });
        let scale = if *value > least { largest.signum() / length } else { 0.0 };
        direction.iter_mut().for_each(|x| *x *= scale);
        directions.extend(direction);
    }
    (mean, eigen.values, directions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components(values: &[f32], width: usize, count: usize) -> PrincipalComponents {
        principal_components(Vectors::new(values, width).unwrap(), count)
    }

    #[track_caller]
    fn assert_close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        }
    }

    #[test]
    fn the_first_component_is_the_longest_way() {
        // On the line (2, 1)·t with t = −1, 0, 1, and a little off it.
        let found = components(&[-2.0, -1.0, 0.0, 0.0, 2.0, 1.0], 2, 2);
        let root = 5.0_f64.sqrt();
        assert_close(&found.positions, &[-root, 0.0, 0.0, 0.0, root, 0.0]);
        assert_close(&found.shares, &[1.0, 0.0]);
    }

    #[test]
    fn few_wide_vectors_have_the_same_components() {
        // The same three points, with features that do not vary: more features than vectors.
        let narrow = [1.0, 2.0, 3.0, 6.0, 6.0, 4.0];
        let wide: Vec<f32> = narrow.chunks(2).flat_map(|row| [row[0], 7.0, row[1], -1.0, 0.0]).collect();
        let (narrow, wide) = (components(&narrow, 2, 3), components(&wide, 5, 3));
        assert_close(&wide.positions, &narrow.positions);
        assert_close(&wide.shares, &narrow.shares);
        assert_eq!(narrow.shares[2], 0.0);
        assert!((narrow.shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn equal_vectors_are_one_point() {
        for n in [1, 2, 9] {
            let found = components(&[1.0, 2.0, 3.0].repeat(n), 3, 2);
            assert_eq!(found.positions, vec![0.0; 2 * n]);
            assert_eq!(found.shares, [0.0, 0.0]);
        }
    }
}
