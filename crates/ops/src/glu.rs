use burn::tensor::{Tensor, activation};

#[cfg(feature = "flex")]
use crate::flex;

/// The gated linear unit over the last axis, `[a; b] ↦ a · σ(b)` (Dauphin et al. 2017, "Language Modeling
/// with Gated Convolutional Networks", eq. 1): the second half gates the first.
///
/// # Shapes
/// - `x`: `[..., 2 · d]`; returns `[..., d]`
///
/// # Panics
/// If the last axis has an odd width.
pub fn glu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let width = x.dims()[D - 1];
    assert!(width.is_multiple_of(2), "{width} features do not make two halves");
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::glu::glu(x);
    }
    composed(x)
}

fn composed<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    activation::glu(x, D - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn by_hand() {
        let x = Tensor::<2>::from_data(
            [[1.0, -2.0, 0.0, 1.0], [3.0, 4.0, 2.0, -1e4], [5.0, 6.0, 1e4, -1.0]],
            &Device::flex(),
        );
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let expected = TensorData::from([
            [0.5f32, -2.0 * sigmoid(1.0)],
            [3.0 * sigmoid(2.0), 0.0],
            [5.0, 6.0 * sigmoid(-1.0)],
        ]);
        for form in [glu::<2>, composed::<2>] {
            form(x.clone()).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        }
    }
}
