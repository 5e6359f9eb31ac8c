//! Singular values of square matrices.

use super::eigen::symmetric_eigen;

/// A matrix's singular value decomposition, `U·diag(values)·V`.
#[derive(Debug, Clone, PartialEq)]
pub struct Svd {
    /// `[n · n]`: one left singular vector per row, in the order of the values; these rows are the columns of `U`.
    pub left: Vec<f64>,
    /// `[n]`, descending.
    pub values: Vec<f64>,
    /// `[n · n]`: one right singular vector per row.
    pub right: Vec<f64>,
}

/// Sweeps over all pairs of columns at most; two or three are usual.
const SWEEPS: usize = 40;

/// Columns with a cosine below this are orthogonal.
const ORTHOGONAL: f64 = 1e-14;

/// The singular value decomposition of a square `matrix`, `[n · n]`: the columns of the matrix times the eigenvectors of
/// `Mᵀ·M` are nearly orthogonal, and rotations make them so (one-sided Jacobi; Hestenes 1958), so that small singular
/// values are as exact as large ones. Left vectors of singular values that are rounding errors complete the others to an
/// orthonormal basis.
///
/// # Panics
/// If the matrix is not `n · n`.
pub fn svd(matrix: &[f64], n: usize) -> Svd {
    assert_eq!(matrix.len(), n * n, "a matrix of another size");
    let mut right = symmetric_eigen(&gram(matrix, n), n).vectors;
    // Row k: the matrix times right vector k.
    let mut columns = vec![0.0; n * n];
    for (column, vector) in columns.chunks_exact_mut(n.max(1)).zip(right.chunks_exact(n.max(1))) {
        for (value, row) in column.iter_mut().zip(matrix.chunks_exact(n)) {
            *value = dot(row, vector);
        }
    }
    for _ in 0..SWEEPS {
        if !rotate_all(&mut columns, &mut right, n) {
            break;
        }
    }
    let norms: Vec<f64> = columns.chunks_exact(n.max(1)).map(|column| dot(column, column).sqrt()).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| norms[*b].total_cmp(&norms[*a]));
    let values: Vec<f64> = order.iter().map(|at| norms[*at]).collect();
    let rows = |all: &[f64]| order.iter().flat_map(|at| all[at * n..][..n].to_vec()).collect::<Vec<f64>>();
    let (mut left, right) = (rows(&columns), rows(&right));
    let least = values.first().copied().unwrap_or(0.0) * f64::EPSILON * n as f64;
    let rank = values.iter().take_while(|value| **value > least).count();
    for (row, value) in left.chunks_exact_mut(n.max(1)).zip(&values).take(rank) {
        row.iter_mut().for_each(|x| *x /= value);
    }
    complete(&mut left, n, rank);
    Svd { left, values, right }
}

/// `Mᵀ·M`.
fn gram(matrix: &[f64], n: usize) -> Vec<f64> {
    let mut gram = vec![0.0; n * n];
    for row in matrix.chunks_exact(n.max(1)) {
        for (i, a) in row.iter().enumerate() {
            gram[i * n..][..=i].iter_mut().zip(row).for_each(|(sum, b)| *sum += a * b);
        }
    }
    for i in 0..n {
        for j in 0..i {
            gram[j * n + i] = gram[i * n + j];
        }
    }
    gram
}

/// Rotates all pairs of columns to be orthogonal, and the right vectors with them; returns whether any was not.
fn rotate_all(columns: &mut [f64], right: &mut [f64], n: usize) -> bool {
    let mut is_changed = false;
    for i in 0..n {
        for j in i + 1..n {
            let (first, second) = columns.split_at_mut(j * n);
            let (a, b) = (&mut first[i * n..][..n], &mut second[..n]);
            let (aa, bb, ab) = (dot(a, a), dot(b, b), dot(a, b));
            // Also false where something is not a number.
            let is_oblique = ab.abs() > ORTHOGONAL * (aa * bb).sqrt();
            if !is_oblique {
                continue;
            }
            is_changed = true;
            let zeta = (bb - aa) / (2.0 * ab);
            let tangent = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
            let cosine = 1.0 / tangent.hypot(1.0);
            let sine = cosine * tangent;
            rotate(a, b, cosine, sine);
            let (first, second) = right.split_at_mut(j * n);
            rotate(&mut first[i * n..][..n], &mut second[..n], cosine, sine);
        }
    }
    is_changed
}

fn rotate(a: &mut [f64], b: &mut [f64], cosine: f64, sine: f64) {
    for (a, b) in a.iter_mut().zip(b) {
        (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
    }
}

/// Replaces the rows from `rank` on by unit vectors orthogonal to all before them: of the axes, each time the one that is
/// farthest from what the rows span.
fn complete(rows: &mut [f64], n: usize, rank: usize) {
    for at in rank..n {
        let (before, rest) = rows.split_at_mut(at * n);
        // What the rows before leave of each axis.
        let rest_of =
            |axis: usize| 1.0 - before.chunks_exact(n).map(|row| row[axis] * row[axis]).sum::<f64>();
        let farthest = (0..n).map(|axis| (rest_of(axis), axis));
        let (_, axis) =
            farthest.fold((f64::NEG_INFINITY, 0), |best, new| if new.0 > best.0 { new } else { best });
        let row = &mut rest[..n];
        row.fill(0.0);
        row[axis] = 1.0;
        // Twice, as once leaves rounding errors.
        for _ in 0..2 {
            for other in before.chunks_exact(n) {
                let length = dot(row, other);
                row.iter_mut().zip(other).for_each(|(x, other)| *x -= length * other);
            }
        }
        let norm = dot(row, row).sqrt();
        row.iter_mut().for_each(|x| *x /= norm);
    }
}

/// The dot product, with partial sums that the processor can vectorise.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    const LANES: usize = 8;
    let (chunks_a, chunks_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = chunks_a.remainder().iter().zip(chunks_b.remainder()).map(|(a, b)| a * b).sum();
    let mut lanes = [0.0; LANES];
    for (a, b) in chunks_a.zip(chunks_b) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += a * b);
    }
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(matrix: &[f64], n: usize) -> Svd {
        let found = svd(matrix, n);
        assert!(found.values.windows(2).all(|pair| pair[0] >= pair[1]));
        let largest = found.values.first().copied().unwrap_or(0.0).max(1.0);
        let row = |rows: &[f64], k: usize| rows[k * n..][..n].to_vec();
        for i in 0..n {
            for j in 0..n {
                let of = |k: usize| found.left[k * n + i] * found.values[k] * found.right[k * n + j];
                let made: f64 = (0..n).map(of).sum();
                assert!((made - matrix[i * n + j]).abs() < 1e-11 * largest, "{n}: {i}, {j}");
                for rows in [&found.left, &found.right] {
                    let cosine = dot(&row(rows, i), &row(rows, j));
                    assert!((cosine - f64::from(u8::from(i == j))).abs() < 1e-11, "{n}: {i}, {j}: {cosine}");
                }
            }
        }
        found
    }

    #[test]
    fn vectors_make_the_matrix_again() {
        for n in [0, 1, 2, 3, 8, 33] {
            let matrix: Vec<f64> = (0..n * n).map(|at| ((at * at) as f64 * 0.73).sin()).collect();
            check(&matrix, n);
        }
    }

    #[test]
    fn matrices_of_lower_rank_have_whole_bases() {
        assert_eq!(check(&[0.0; 9], 3).values, [0.0; 3]);
        assert_eq!(check(&[0.0, 2.0, 0.0, 0.0], 2).values, [2.0, 0.0]);
        let n = 12;
        // Three products of vectors.
        let entry = |i: usize, j: usize| {
            (0..3).map(|k| ((i * 7 + k) as f64).sin() * ((j * 3 + k * 5) as f64).cos()).sum()
        };
        let matrix: Vec<f64> = (0..n * n).map(|at| entry(at / n, at % n)).collect();
        assert!(check(&matrix, n).values[3] < 1e-12);
    }

    #[test]
    fn small_singular_values_are_exact() {
        // A rotation of diag(1, 1e-12), whose squares differ by more than the digits of a number.
        let (c, s) = (0.6, 0.8);
        let found = check(&[c, -s * 1e-12, s, c * 1e-12], 2);
        assert!((found.values[1] / 1e-12 - 1.0).abs() < 1e-6, "{:?}", found.values);
    }

    #[test]
    fn what_is_no_number_ends() {
        assert!(svd(&[f64::NAN; 9], 3).values.iter().any(|value| value.is_nan()));
    }
}
