//! Scores by the distance between tokens, put beside scores by content.

use burn::tensor::{Device, Int, Tensor, TensorData};

/// Takes from each query's scores of all distances those of its keys, for queries at all of a segment's positions: the
/// relative shift (Dai et al. 2019, appendix B). Row `i` begins one distance further than row `i − 1`, so that the rows
/// of a matrix with a column less lie in memory as they are wanted, and nothing is gathered.
///
/// # Shapes
/// - `scores`: `[rows, len, k_len + len]`; returns `[rows, len, k_len]`
pub(super) fn shift(scores: Tensor<3>, k_len: usize) -> Tensor<3> {
    let [rows, len, n_distances] = scores.dims();
    debug_assert_eq!(n_distances, k_len + len);
    scores
        .reshape([rows, len * n_distances])
        .narrow(1, len - 1, len * (n_distances - 1))
        .reshape([rows, len, n_distances - 1])
        .narrow(2, 0, k_len)
}

/// The columns that [`shift`] takes, for queries at any positions: those of a query at position `place` begin with
/// `len − 1 − place`.
///
/// # Shapes
/// - `places`: `n` of each of the `batch` rows; returns `[1, batch, n, k_len]`
pub(super) fn columns(
    places: &[i32],
    batch: usize,
    len: usize,
    k_len: usize,
    device: &Device,
) -> Tensor<4, Int> {
    let of_place = |place: &i32| {
        let first = len as i32 - 1 - place;
        first..first + k_len as i32
    };
    let values: Vec<i32> = places.iter().flat_map(of_place).collect();
    Tensor::from_data(TensorData::new(values, [1, batch, places.len() / batch, k_len]), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
        x.into_data().iter::<f32>().collect()
    }

    #[test]
    fn a_shifted_score_is_that_of_the_distance() {
        let device = Device::flex();
        for (len, k_len) in [(1, 1), (1, 4), (3, 3), (3, 5), (4, 9)] {
            // A score is its distance, and its query's number in the hundreds.
            let scores: Vec<f32> = (0..2 * len)
                .flat_map(|row| {
                    (0..k_len + len).map(move |p| (k_len as f32 - 1.0 - p as f32) + 100.0 * row as f32)
                })
                .collect();
            let scores = Tensor::<3>::from_data(TensorData::new(scores, [2, len, k_len + len]), &device);
            let shifted = shift(scores.clone(), k_len);
            assert_eq!(shifted.dims(), [2, len, k_len]);
            let expected: Vec<f32> = (0..2 * len)
                .flat_map(|row| {
                    let at = k_len - len + row % len;
                    (0..k_len).map(move |key| at as f32 - key as f32 + 100.0 * row as f32)
                })
                .collect();
            assert_eq!(values(shifted), expected, "{len} of {k_len}");
            let places: Vec<i32> = (0..2 * len).map(|row| (row % len) as i32).collect();
            let columns = columns(&places, 2, len, k_len, &device).squeeze_dim::<3>(0);
            assert_eq!(values(scores.gather(2, columns)), expected, "{len} of {k_len}");
        }
    }
}
