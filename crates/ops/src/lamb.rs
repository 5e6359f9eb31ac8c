use burn::tensor::Tensor;

use crate::{AdamStep, adam};

/// One update of LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76
/// minutes", algorithm 2), with φ the identity.
///
/// The direction is Adam's, including the decay: `r = m̂ / (√v̂ + ε) + λ·x`. It is scaled to the
/// parameter's norm: `x ← x − lr · ‖x‖/‖r‖ · r`, where the ratio is 1 if a norm is 0.
///
/// Takes and returns the parameter's values and its two moments, without autodiff; the moments are
/// `None` before the first update.
///
/// # Shapes
/// - all: `[n]`, one whole parameter
pub fn lamb(
    value: Tensor<1>,
    gradient: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    adam::update!(lamb, value, gradient, moments, step)
}

/// `‖x‖/‖r‖`, 1 where it is undefined.
pub(crate) fn trust_ratio(value: f64, direction: f64) -> f64 {
    if value > 0.0 && direction > 0.0 { value / direction } else { 1.0 }
}

fn composed(
    value: Tensor<1>,
    gradient: Tensor<1>,
    moments: [Tensor<1>; 2],
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    let (moments, direction) = step.composed(gradient, moments);
    let decay = value.clone().mul_scalar(step.weight_decay);
    let direction = direction.mul_scalar(1.0 / step.corrections()[0]) + decay;
    let norms =
        Tensor::cat(vec![crate::squared_sum(value.clone()), crate::squared_sum(direction.clone())], 0);
    let norms: Vec<f64> = norms.into_data().iter::<f64>().map(f64::sqrt).collect();
    let rate = step.lr * trust_ratio(norms[0], norms[1]);
    (value - direction.mul_scalar(rate), moments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_parameter_moves_by_adams_step() {
        assert_eq!(trust_ratio(0.0, 2.0), 1.0);
        assert_eq!(trust_ratio(2.0, 0.0), 1.0);
        assert_eq!(trust_ratio(3.0, 2.0), 1.5);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        adam::assert_forms_agree(lamb, composed, 1e-4);
    }
}
