//! How far two devices' values are apart.

use crate::Values;
use serde::{Deserialize, Serialize};

/// The largest difference that is rounding, of a tensor's largest number.
pub const TOLERANCE: f32 = 1e-4;

/// Numbers below this are taken for it: gradients that are zero but for rounding, such as those of the keys' biases.
const SMALL: f32 = 1e-3;

/// The largest difference of a case, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Of the tensor's largest number; not finite if a value is not.
    pub relative: f32,
    /// The tensor's name.
    pub tensor: String,
}

/// The largest difference of the values from those expected.
///
/// # Panics
/// If other tensors are there, or they have other shapes.
pub fn compare(found: &Values, expected: &Values) -> Difference {
    assert!(found.keys().eq(expected.keys()), "{:?} is not {:?}", found.keys(), expected.keys());
    let mut worst = Difference { relative: 0.0, tensor: String::new() };
    for ((name, found), expected) in found.iter().zip(expected.values()) {
        assert_eq!(found.shape(), expected.shape(), "{name}");
        let scale = expected.iter::<f32>().fold(SMALL, |scale, value| scale.max(value.abs()));
        for (found, expected) in found.iter::<f32>().zip(expected.iter::<f32>()) {
            let relative = (found - expected).abs() / scale;
            // What is no number is the worst.
            let is_worse = relative.is_nan() || relative > worst.relative;
            if is_worse && !worst.relative.is_nan() {
                worst = Difference { relative, tensor: name.clone() };
            }
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    fn values(logits: [f32; 3]) -> Values {
        [("logits".to_owned(), TensorData::from(logits))].into_iter().collect()
    }

    #[test]
    fn the_largest_difference_is_told_with_its_tensor() {
        let expected = values([1.0, -4.0, 2.0]);
        assert_eq!(compare(&expected, &expected).relative, 0.0);
        let found = compare(&values([1.0, -4.0, 2.5]), &expected);
        assert_eq!(found, Difference { relative: 0.125, tensor: "logits".into() });
        assert!(compare(&values([f32::NAN, -4.0, 9.0]), &expected).relative.is_nan());
    }
}
