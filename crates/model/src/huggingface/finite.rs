//! Weights must be finite: a single NaN makes every output NaN, without an error anywhere.

use burn::tensor::TensorData;
use rayon::prelude::*;

/// How many numbers a thread checks at a time.
const BLOCK: usize = 1 << 16;

/// The index, one component an axis, and the value of the first number in FP32 `data` that is NaN or infinite.
pub(super) fn first_non_finite(data: &TensorData) -> Option<(Vec<usize>, f32)> {
    let values = data.as_slice::<f32>().expect("weights are FP32");
    let block = values.par_chunks(BLOCK).position_first(has_non_finite)?;
    let at = block * BLOCK + values[block * BLOCK..].iter().position(|value| !value.is_finite())?;
    Some((place(at, data.shape()), values[at]))
}

/// Without a branch for each number, so that the compiler vectorises it.
fn has_non_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    values.iter().fold(0, |any, value| any | u32::from(value.to_bits() & EXPONENT == EXPONENT)) != 0
}

/// The indices of the element `at` of a tensor in row-major order.
fn place(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut indices = vec![0; shape.len()];
    for (index, size) in indices.iter_mut().zip(shape).rev() {
        (*index, at) = (at % size, at / size);
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_found_wherever_it_is() {
        let shape = [3, BLOCK / 2 + 5, 2];
        let n: usize = shape.iter().product();
        let found = |bad: &[(usize, f32)]| {
            let mut values = vec![f32::MAX; n];
            (values[0], values[1]) = (f32::MIN_POSITIVE / 2.0, -0.0);
            bad.iter().for_each(|(at, value)| values[*at] = *value);
            first_non_finite(&TensorData::new(values, shape))
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(0, f32::INFINITY)]), Some((vec![0, 0, 0], f32::INFINITY)));
        let last = n - 1;
        assert_eq!(found(&[(last, f32::NEG_INFINITY)]), Some((vec![2, BLOCK / 2 + 4, 1], f32::NEG_INFINITY)));
        let (index, value) = found(&[(last, 1.0 / 0.0), (BLOCK + 17, f32::NAN), (n - 9, f32::NAN)]).unwrap();
        assert_eq!(index, [1, (BLOCK + 17 - BLOCK - 10) / 2, 1]);
        assert!(value.is_nan());
        assert_eq!(first_non_finite(&TensorData::new(Vec::<f32>::new(), [0, 3])), None);
    }
}
