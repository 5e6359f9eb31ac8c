use burn::tensor::Tensor;

use crate::AdamStep;
#[cfg(feature = "flex")]
use crate::flex;

/// One update of LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76
/// minutes", algorithm 2), with φ the identity.
///
/// The direction is Adam's, with the decay in it: `r = m̂ / (√v̂ + ε) + λ·x`. Its length is that of the
/// parameter: `x ← x − lr · ‖x‖/‖r‖ · r`, the ratio being 1 where a norm is 0.
///
/// Takes and returns the parameter's values and its two moments, without autodiff; the moments are none
/// before the first update.
///
/// # Shapes
/// - all: `[n]`, one whole parameter
pub fn lamb(
    value: Tensor<1>,
    gradient: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    let moments = moments.unwrap_or_else(|| [gradient.zeros_like(), gradient.zeros_like()]);
    #[cfg(feature = "flex")]
    if flex::takes(&value) && flex::takes(&gradient) {
        return flex::lamb::lamb(value, gradient, moments, step);
    }
    composed(value, gradient, moments, step)
}

/// `‖x‖/‖r‖`, 1 where it is undefined.
pub(crate) fn trust_ratio(value: f64, direction: f64) -> f64 {
    if value > 0.0 && direction > 0.0 { value / direction } else { 1.0 }
}

fn composed(
    value: Tensor<1>,
    gradient: Tensor<1>,
    [first, second]: [Tensor<1>; 2],
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    let AdamStep { beta1, beta2, eps, weight_decay, lr, scale, step } = step;
    let correction1 = 1.0 - beta1.powi(step as i32);
    let correction2 = 1.0 - beta2.powi(step as i32);
    let gradient = gradient.mul_scalar(scale);
    let first = first.mul_scalar(beta1) + gradient.clone().mul_scalar(1.0 - beta1);
    let second = second.mul_scalar(beta2) + (gradient.clone() * gradient).mul_scalar(1.0 - beta2);
    let denominator = second.clone().sqrt().mul_scalar(1.0 / correction2.sqrt()).add_scalar(eps);
    let direction =
        (first.clone() / denominator).mul_scalar(1.0 / correction1) + value.clone().mul_scalar(weight_decay);
    let norms =
        Tensor::cat(vec![crate::squared_sum(value.clone()), crate::squared_sum(direction.clone())], 0);
    let norms: Vec<f64> = norms.into_data().iter::<f64>().map(f64::sqrt).collect();
    let rate = lr * trust_ratio(norms[0], norms[1]);
    (value - direction.mul_scalar(rate), [first, second])
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
        use burn::tensor::{Device, Tolerance};
        let device = Device::flex();
        for n in [1, 17, 70_000] {
            let vector = |phase: f32| {
                let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
                Tensor::<1>::from_data(values.as_slice(), &device)
            };
            let run = |fused: bool| {
                let mut value = vector(0.0);
                let mut moments = [vector(0.0).zeros_like(), vector(0.0).zeros_like()];
                for step in 1..4 {
                    let constants = AdamStep {
                        beta1: 0.9,
                        beta2: 0.999,
                        eps: 1e-6,
                        weight_decay: 0.1,
                        lr: 0.01,
                        scale: 0.7,
                        step,
                    };
                    let gradient = vector(step as f32);
                    (value, moments) = match fused {
                        true => lamb(value, gradient, Some(moments), constants),
                        false => composed(value, gradient, moments, constants),
                    };
                }
                let [first, second] = moments;
                [value, first, second].map(Tensor::into_data)
            };
            for (fused, composed) in run(true).into_iter().zip(run(false)) {
                fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(1e-4, 1e-6));
            }
        }
    }
}
