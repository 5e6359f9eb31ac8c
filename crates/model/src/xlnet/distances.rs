//! The rows of a query's distances.

/// The row of the [sinusoids](crate::blocks::sinusoids) for the distance from a query at position `place` to
/// the first key; each further key uses the next row.
pub(super) fn first_row(place: usize, len: usize) -> usize {
    len - 1 - place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::sinusoids;
    use burn::tensor::{Device, Tensor};

    fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
        x.into_data().iter::<f32>().collect()
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
