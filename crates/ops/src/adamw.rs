use burn::tensor::Tensor;

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "flex")]
use crate::flex;
use crate::{AdamStep, adam};

/// One update of AdamW (Loshchilov & Hutter 2019, algorithm 2) with Adam's bias correction.
///
/// Takes and returns the parameter's values and its two moments, without autodiff; the moments are
/// `None` before the first update.
///
/// # Shapes
/// - all: `[n]`
pub fn adamw(
    value: Tensor<1>,
    gradient: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    #[cfg(feature = "cube")]
    if cube::takes(&value) && cube::takes(&gradient) {
        return cube::adamw::adamw(value, gradient, None, moments, step);
    }
    adam::update!(adamw, value, gradient, moments, step)
}

/// [`adamw`] with the gradient multiplied by a number on the device, such as a clipping factor, without
/// synchronisation.
///
/// # Shapes
/// - `factor`: `[1]`; all others: `[n]`
pub fn adamw_by(
    value: Tensor<1>,
    gradient: Tensor<1>,
    factor: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    #[cfg(feature = "cube")]
    if cube::takes(&value) && cube::takes(&gradient) && cube::takes(&factor) {
        return cube::adamw::adamw(value, gradient, Some(factor), moments, step);
    }
    adamw(value, gradient * factor, moments, step)
}

fn composed(
    value: Tensor<1>,
    gradient: Tensor<1>,
    moments: [Tensor<1>; 2],
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    let (moments, direction) = step.composed(gradient, moments);
    let AdamStep { weight_decay, lr, .. } = step;
    let value = if weight_decay == 0.0 { value } else { value.mul_scalar(1.0 - lr * weight_decay) };
    (value - direction.mul_scalar(lr / step.corrections()[0]), moments)
}

/// `Σ x²`, on the device.
///
/// # Shapes
/// - any; returns `[1]`
pub fn squared_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    #[cfg(feature = "flex")]
    if flex::takes(&x) && !x.device().is_autodiff() {
        return flex::adamw::squared_sum(x);
    }
    #[cfg(feature = "cube")]
    if cube::takes(&x) && !x.device().is_autodiff() {
        return cube::squared_sum::squared_sum(x);
    }
    (x.clone() * x).sum()
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn fused_and_composed_agree() {
        adam::assert_forms_agree(adamw, composed, 1e-5);
    }

    #[test]
    fn sums_of_squares() {
        for n in [1, 17, 70_000] {
            let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37 + 1.0).sin()).collect();
            let x = Tensor::<1>::from_data(values.as_slice(), &Device::flex());
            let sum = squared_sum(x.clone()).into_scalar::<f32>();
            let expected = (x.clone() * x).sum().into_scalar::<f32>();
            assert!((sum - expected).abs() <= 1e-4 * expected, "{sum} is not {expected}");
        }
    }
}
