//! Eigenvectors of symmetric matrices.

/// A symmetric matrix's eigenvalues and eigenvectors.
#[derive(Debug, Clone, PartialEq)]
pub struct Eigen {
    /// `[n]`, descending.
    pub values: Vec<f64>,
    /// `[n · n]`: one unit eigenvector per row, in the order of the values. The entry with the greatest
    /// absolute value is positive.
    pub vectors: Vec<f64>,
}

/// The mean, `[width]`, of `vectors`, `[n · width]`.
///
/// # Panics
/// If there is no vector.
pub(super) fn mean(vectors: &[f32], width: usize) -> Vec<f64> {
    let n = vectors.len() / width;
    assert!(n > 0, "the mean of nothing");
    let mut mean = vec![0.0; width];
    for vector in vectors.chunks_exact(width) {
        mean.iter_mut().zip(vector).for_each(|(mean, x)| *mean += f64::from(*x));
    }
    mean.iter_mut().for_each(|mean| *mean /= n as f64);
    mean
}

/// The mean, `[width]`, and the covariance, `[width · width]`, of `vectors`, `[n · width]`: `1/n · Σ (x − μ)·(x − μ)ᵀ`.
///
/// # Panics
/// If there is no vector.
pub fn covariance(vectors: &[f32], width: usize) -> (Vec<f64>, Vec<f64>) {
    let n = vectors.len() / width;
    let mean = mean(vectors, width);
    let mut matrix = vec![0.0; width * width];
    let mut centred = vec![0.0; width];
    for vector in vectors.chunks_exact(width) {
        for ((centred, x), mean) in centred.iter_mut().zip(vector).zip(&mean) {
            *centred = f64::from(*x) - mean;
        }
        for (row, a) in centred.iter().enumerate() {
            let row = &mut matrix[row * width..][..=row];
            row.iter_mut().zip(&centred).for_each(|(sum, b)| *sum += a * b);
        }
    }
    for row in 0..width {
        for column in 0..=row {
            let value = matrix[row * width + column] / n as f64;
            matrix[row * width + column] = value;
            matrix[column * width + row] = value;
        }
    }
    (mean, matrix)
}

/// The eigenvalues and eigenvectors of a symmetric `matrix`, `[n · n]`: Householder's reduction to a tridiagonal matrix, then
/// implicit QL steps (Bowdler et al. 1968; EISPACK's `tred2` and `tql2`).
///
/// # Panics
/// If the matrix is not `n · n`.
pub fn symmetric_eigen(matrix: &[f64], n: usize) -> Eigen {
    assert_eq!(matrix.len(), n * n, "a matrix of another size");
    if n == 0 {
        return Eigen { values: Vec::new(), vectors: Vec::new() };
    }
    // Column `j` of the matrix is row `j` here, so that inner loops go along memory.
    let mut columns: Vec<Vec<f64>> = matrix.chunks_exact(n).map(<[f64]>::to_vec).collect();
    let (mut values, mut beside) = tridiagonal(&mut columns);
    diagonal(&mut columns, &mut values, &mut beside);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    let mut vectors = Vec::with_capacity(n * n);
    for at in &order {
        let vector = &columns[*at];
        let largest =
            vector.iter().copied().fold(0.0, |most: f64, x| if x.abs() > most.abs() { x } else { most });
        let sign = if largest < 0.0 { -1.0 } else { 1.0 };
        vectors.extend(vector.iter().map(|x| x * sign));
    }
    Eigen { values: order.iter().map(|at| values[*at]).collect(), vectors }
}

/// Reduces a symmetric matrix to a tridiagonal one. Returns its diagonal and, from 1 on, its off-diagonal;
/// `v` becomes the transformation.
fn tridiagonal(v: &mut [Vec<f64>]) -> (Vec<f64>, Vec<f64>) {
    let n = v.len();
    let mut d: Vec<f64> = (0..n).map(|j| v[j][n - 1]).collect();
    let mut e = vec![0.0; n];
    for i in (1..n).rev() {
        let scale: f64 = d[..i].iter().map(|x| x.abs()).sum();
        let mut h = 0.0;
        if scale == 0.0 {
            e[i] = d[i - 1];
            for j in 0..i {
                d[j] = v[j][i - 1];
                v[j][i] = 0.0;
                v[i][j] = 0.0;
            }
        } else {
            for x in &mut d[..i] {
                *x /= scale;
                h += *x * *x;
            }
            let f = d[i - 1];
            let g = if f > 0.0 { -h.sqrt() } else { h.sqrt() };
            e[i] = scale * g;
            h -= f * g;
            d[i - 1] = f - g;
            e[..i].fill(0.0);
            for j in 0..i {
                let f = d[j];
                v[i][j] = f;
                let mut g = e[j] + v[j][j] * f;
                for k in j + 1..i {
                    g += v[j][k] * d[k];
                    e[k] += v[j][k] * f;
                }
                e[j] = g;
            }
            let mut f = 0.0;
            for j in 0..i {
                e[j] /= h;
                f += e[j] * d[j];
            }
            let half = f / (h + h);
            for j in 0..i {
                e[j] -= half * d[j];
            }
            for j in 0..i {
                let (f, g) = (d[j], e[j]);
                for k in j..i {
                    v[j][k] -= f * e[k] + g * d[k];
                }
                d[j] = v[j][i - 1];
                v[j][i] = 0.0;
            }
        }
        d[i] = h;
    }
    // What was done, put together.
    for i in 0..n - 1 {
        v[i][n - 1] = v[i][i];
        v[i][i] = 1.0;
        let h = d[i + 1];
        let (before, after) = v.split_at_mut(i + 1);
        let next = &mut after[0];
        if h != 0.0 {
            for k in 0..=i {
                d[k] = next[k] / h;
            }
            for column in before {
                let g: f64 = next[..=i].iter().zip(&column[..=i]).map(|(a, b)| a * b).sum();
                column[..=i].iter_mut().zip(&d[..=i]).for_each(|(x, d)| *x -= g * d);
            }
        }
        next[..=i].fill(0.0);
    }
    for j in 0..n {
        d[j] = v[j][n - 1];
        v[j][n - 1] = 0.0;
    }
    v[n - 1][n - 1] = 1.0;
    e[0] = 0.0;
    (d, e)
}

/// Diagonalises a tridiagonal matrix: `d` becomes the eigenvalues, the columns `v` the eigenvectors.
fn diagonal(v: &mut [Vec<f64>], d: &mut [f64], e: &mut [f64]) {
    let n = v.len();
    e.rotate_left(1);
    e[n - 1] = 0.0;
    let (mut shift, mut size) = (0.0, 0.0_f64);
    for l in 0..n {
        size = size.max(d[l].abs() + e[l].abs());
        let small = f64::EPSILON * size;
        // The last one is 0, so there is one.
        let m = (l..n).find(|m| e[*m].abs() <= small).unwrap_or(n - 1);
        if m > l {
            loop {
                let g = d[l];
                let mut p = (d[l + 1] - g) / (2.0 * e[l]);
                let r = if p < 0.0 { -p.hypot(1.0) } else { p.hypot(1.0) };
                d[l] = e[l] / (p + r);
                d[l + 1] = e[l] * (p + r);
                let next = d[l + 1];
                let h = g - d[l];
                d[l + 2..].iter_mut().for_each(|x| *x -= h);
                shift += h;
                p = d[m];
                let (mut c, mut c2, mut c3) = (1.0, 1.0, 1.0);
                let beside = e[l + 1];
                let (mut s, mut s2) = (0.0, 0.0);
                for i in (l..m).rev() {
                    (c3, c2, s2) = (c2, c, s);
                    let g = c * e[i];
                    let h = c * p;
                    let r = p.hypot(e[i]);
                    e[i + 1] = s * r;
                    s = e[i] / r;
                    c = p / r;
                    p = c * d[i] - s * g;
                    d[i + 1] = h + s * (c * g + s * d[i]);
                    let (first, second) = v.split_at_mut(i + 1);
                    for (x, y) in first[i].iter_mut().zip(&mut second[0]) {
                        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                    }
                }
                p = -s * s2 * c3 * beside * e[l] / next;
                e[l] = s * p;
                d[l] = c * p;
                // Also ends where something is not a number.
                if e[l].abs().partial_cmp(&small) != Some(std::cmp::Ordering::Greater) {
                    break;
                }
            }
        }
        d[l] += shift;
        e[l] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix with unrelated entries.
    fn symmetric(n: usize) -> Vec<f64> {
        let entry =
            |i: usize, j: usize| ((i * j + 3 * (i + j)) as f64 * 0.73).sin() + if i == j { 1.5 } else { 0.0 };
        (0..n * n).map(|at| entry(at / n, at % n)).collect()
    }

    #[test]
    fn eigenvectors_make_the_matrix_again() {
        for n in [1, 2, 3, 8, 33] {
            let matrix = symmetric(n);
            let eigen = symmetric_eigen(&matrix, n);
            assert!(eigen.values.windows(2).all(|pair| pair[0] >= pair[1]));
            let vector = |k: usize| &eigen.vectors[k * n..][..n];
            for i in 0..n {
                for j in 0..n {
                    let made: f64 = (0..n).map(|k| eigen.values[k] * vector(k)[i] * vector(k)[j]).sum();
                    assert!((made - matrix[i * n + j]).abs() < 1e-9, "{n}: {i}, {j}");
                    let dot: f64 = vector(i).iter().zip(vector(j)).map(|(a, b)| a * b).sum();
                    assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-10, "{n}: {i}, {j}");
                }
            }
        }
    }

    #[test]
    fn matrices_with_zeros_and_equal_values_have_eigenvectors() {
        let identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        assert_eq!(symmetric_eigen(&identity, 3).values, [1.0; 3]);
        assert_eq!(symmetric_eigen(&[0.0; 9], 3).values, [0.0; 3]);
        let eigen = symmetric_eigen(&[2.0, 1.0, 1.0, 2.0], 2);
        assert!((eigen.values[0] - 3.0).abs() < 1e-12 && (eigen.values[1] - 1.0).abs() < 1e-12);
        assert!(eigen.vectors.iter().all(|x| (x.abs() - 0.5_f64.sqrt()).abs() < 1e-12));
    }

    #[test]
    fn what_is_no_number_ends() {
        assert!(symmetric_eigen(&[f64::NAN; 9], 3).values.iter().any(|value| value.is_nan()));
    }

    #[test]
    fn a_covariance_is_that_of_numpy() {
        // numpy.cov(x.T, bias=True)
        let (mean, matrix) = covariance(&[1.0, 2.0, 3.0, 6.0, 5.0, 4.0], 2);
        assert_eq!(mean, [3.0, 4.0]);
        let expected = [8.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0, 8.0 / 3.0];
        assert!(matrix.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12));
    }
}
