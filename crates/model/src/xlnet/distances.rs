//! Distances between tokens, and the vectors that stand for them.

use burn::tensor::{Device, Tensor, TensorData};

/// The sinusoids of all distances between `len` queries and `k_len` keys, the queries' own positions being the keys'
/// last: row `p` is that of the distance `k_len − 1 − p`, which is negative where a key is behind its query.
///
/// Sines fill the first half of a row and cosines the second, as in the reference code; Vaswani et al. (2017, §3.5)
/// alternate them. Distances beyond `clamp` count as `clamp`.
///
/// # Shapes
/// - returns `[k_len + len, d_model]`
pub(super) fn sinusoids(
    len: usize,
    k_len: usize,
    clamp: Option<usize>,
    d_model: usize,
    device: &Device,
) -> Tensor<2> {
    let frequencies: Vec<f32> =
        (0..d_model / 2).map(|i| 1.0 / 10_000f32.powf((2 * i) as f32 / d_model as f32)).collect();
    let mut values = Vec::with_capacity((k_len + len) * d_model);
    for p in 0..k_len + len {
        let mut distance = k_len as i64 - 1 - p as i64;
        if let Some(clamp) = clamp {
            distance = distance.clamp(-(clamp as i64), clamp as i64);
        }
        values.extend(frequencies.iter().map(|frequency| (distance as f32 * frequency).sin()));
        values.extend(frequencies.iter().map(|frequency| (distance as f32 * frequency).cos()));
    }
    Tensor::from_data(TensorData::new(values, [k_len + len, d_model]), device)
}

/// The row of the [sinusoids] that stands for the distance from a query at position `place` to the first key. The next
/// key's is the next row.
pub(super) fn first_row(place: usize, len: usize) -> usize {
    len - 1 - place
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;

    fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
        x.into_data().iter::<f32>().collect()
    }

    #[test]
    fn a_row_is_that_of_its_distance() {
        let device = Device::flex();
        let table = sinusoids(2, 3, None, 4, &device);
        assert_eq!(table.dims(), [5, 4]);
        // Distances 2, 1, 0, −1, −2; frequencies 1 and 0.01.
        for (row, distance) in [2f32, 1.0, 0.0, -1.0, -2.0].into_iter().enumerate() {
            let expected = [distance.sin(), (distance * 0.01).sin(), distance.cos(), (distance * 0.01).cos()];
            table
                .clone()
                .narrow(0, row, 1)
                .into_data()
                .assert_approx_eq::<f32>(&TensorData::from([expected]), Tolerance::absolute(1e-6));
        }
        let clamped = values(sinusoids(2, 3, Some(1), 4, &device));
        assert_eq!(clamped[..4], clamped[4..8]);
        assert_eq!(clamped[12..16], clamped[16..]);
    }

    #[test]
    fn keys_have_the_rows_of_their_distances() {
        let device = Device::flex();
        for (len, k_len) in [(1, 1), (1, 4), (3, 3), (3, 5), (4, 9)] {
            // The distances themselves, by a frequency of 1.
            let sines = values(sinusoids(len, k_len, None, 2, &device).narrow(1, 0, 1));
            for place in 0..len {
                let of_keys = &sines[first_row(place, len)..][..k_len];
                let at = k_len - len + place;
                for (key, sine) in of_keys.iter().enumerate() {
                    assert_eq!(
                        *sine,
                        (at as f32 - key as f32).sin(),
                        "{place} of {len}, key {key} of {k_len}"
                    );
                }
            }
        }
    }
}
