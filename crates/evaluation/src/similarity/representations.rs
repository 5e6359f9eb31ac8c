//! Encoders described by the dissimilarities of their vectors.

use rayon::prelude::*;

use crate::correlation::spearman;
use crate::{EvaluationError, Result};

/// The dissimilarity of each two vectors, `1 − r` with Pearson's `r` (Kriegeskorte et al. 2008), as rsatoolbox's
/// `calc_rdm(method="correlation")`: from 0 for vectors of one shape to 2 for opposite ones. The pairs are those above the
/// diagonal, row by row: (0, 1), (0, 2), …, (1, 2), ….
///
/// # Shapes
/// - `vectors`: `[n · width]`
/// - returns `[n · (n − 1) / 2]`
///
/// # Errors
/// [`EvaluationError::NotFinite`]; [`EvaluationError::ConstantVector`], whose correlation is not defined;
/// [`EvaluationError::FewVectors`] for fewer than three.
///
/// # Panics
/// If `width` is 0 or does not divide the number of values.
pub fn dissimilarities(vectors: &[f32], width: usize) -> Result<Vec<f64>> {
    assert!(width > 0 && vectors.len().is_multiple_of(width), "{} values of width {width}", vectors.len());
    let n = vectors.len() / width;
    if n < 3 {
        return Err(EvaluationError::FewVectors { expected: 3, found: n });
    }
    let scaled = |(vector, values): (usize, &[f32])| {
        if !values.iter().all(|value| value.is_finite()) {
            return Err(EvaluationError::NotFinite { vector });
        }
        if values.iter().all(|value| *value == values[0]) {
            return Err(EvaluationError::ConstantVector { vector });
        }
        let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / width as f64;
        let deviations: Vec<f64> = values.iter().map(|value| f64::from(*value) - mean).collect();
        let length = deviations.iter().map(|value| value * value).sum::<f64>().sqrt();
        Ok(deviations.into_iter().map(|value| value / length).collect::<Vec<f64>>())
    };
    let scaled: Vec<Vec<f64>> = vectors.chunks(width).enumerate().map(scaled).collect::<Result<_>>()?;
    let of_row = |first: usize| -> Vec<f64> {
        let dissimilarity =
            |second: &Vec<f64>| 1.0 - scaled[first].iter().zip(second).map(|(a, b)| a * b).sum::<f64>();
        scaled[first + 1..].iter().map(dissimilarity).collect()
    };
    let rows: Vec<Vec<f64>> = (0..n).into_par_iter().map(of_row).collect();
    Ok(rows.concat())
}

/// How alike encoders are: Spearman's correlation of their [`dissimilarities`] of the same texts, as rsatoolbox's
/// `compare(method="spearman")`. NaN for an encoder whose dissimilarities are all equal.
///
/// # Shapes
/// - `encoders`: `[n]` of `[pairs]`
/// - returns `[n][n]`
///
/// # Panics
/// If encoders differ in their number of pairs.
pub fn similarities(encoders: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = encoders.len();
    let pairs: Vec<(usize, usize)> =
        (0..n).flat_map(|first| (first..n).map(move |second| (first, second))).collect();
    let values: Vec<f64> =
        pairs.par_iter().map(|(first, second)| spearman(&encoders[*first], &encoders[*second])).collect();
    let mut similar = vec![vec![f64::NAN; n]; n];
    for ((first, second), value) in pairs.into_iter().zip(values) {
        similar[first][second] = value;
        similar[second][first] = value;
    }
    similar
}

#[cfg(test)]
mod tests {
    use super::super::golden::{assert_close, golden};
    use super::*;

    #[test]
    fn as_rsatoolbox_has_them() {
        for case in golden().cases {
            let ours: Vec<Vec<f64>> =
                case.vectors.iter().map(|vectors| dissimilarities(vectors, case.width).unwrap()).collect();
            for (ours, theirs) in ours.iter().zip(&case.dissimilarities) {
                assert_eq!(ours.len(), theirs.len());
                ours.iter().zip(theirs).for_each(|(ours, theirs)| assert_close(*ours, *theirs));
            }
            for (ours, theirs) in similarities(&ours).iter().zip(&case.similarity) {
                ours.iter().zip(theirs).for_each(|(ours, theirs)| assert_close(*ours, *theirs));
            }
        }
    }

    #[test]
    fn vectors_without_a_correlation_are_told() {
        let of = |vectors: &[f32]| dissimilarities(vectors, 2).unwrap_err().to_string();
        assert!(of(&[1.0, 2.0, 3.0, 3.0, 0.0, 1.0]).contains("vector 1 (counted from 0)"));
        assert!(of(&[1.0, 2.0, f32::NAN, 3.0, 0.0, 1.0]).contains("vector 1 (counted from 0) has a NaN"));
        assert!(of(&[1.0, 2.0, 3.0, 4.0]).contains("expected 3 or more"));
        // Vectors of one shape.
        let same = dissimilarities(&[1.0, 2.0, 2.0, 4.0, 4.0, 2.0], 2).unwrap();
        assert_eq!(same.iter().map(|value| value.round()).collect::<Vec<_>>(), [0.0, 2.0, 2.0]);
    }
}
