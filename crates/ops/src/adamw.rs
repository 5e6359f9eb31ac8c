use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use crate::flex;

/// The constants of one update by [`adamw`] or [`lamb`](crate::lamb).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// The learning rate.
    pub lr: f64,
    /// What every gradient is multiplied by: the clipping factor.
    pub scale: f64,
    /// The update's number, from 1.
    pub step: u64,
}

/// One update of AdamW (Loshchilov & Hutter 2019, algorithm 2) with Adam's bias correction.
///
/// Takes and returns the parameter's values and its two moments, without autodiff; the moments are none
/// before the first update.
///
/// # Shapes
/// - all: `[n]`
pub fn adamw(
    value: Tensor<1>,
    gradient: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    let moments = moments.unwrap_or_else(|| [gradient.zeros_like(), gradient.zeros_like()]);
    #[cfg(feature = "flex")]
    if flex::takes(&value) && flex::takes(&gradient) {
        return flex::adamw::adamw(value, gradient, moments, step);
    }
    composed(value, gradient, moments, step)
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
    let gradient = if scale == 1.0 { gradient } else { gradient.mul_scalar(scale) };
    // Operations on tensors held once work in place.
    let first = first.mul_scalar(beta1) + gradient.clone().mul_scalar(1.0 - beta1);
    let second = second.mul_scalar(beta2) + (gradient.clone() * gradient).mul_scalar(1.0 - beta2);
    let denominator = second.clone().sqrt().mul_scalar(1.0 / correction2.sqrt()).add_scalar(eps);
    let update = (first.clone() / denominator).mul_scalar(lr / correction1);
    let value = if weight_decay == 0.0 { value } else { value.mul_scalar(1.0 - lr * weight_decay) };
    (value - update, [first, second])
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
    (x.clone() * x).sum()
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn fused_and_composed_agree() {
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
                    let step = AdamStep {
                        beta1: 0.9,
                        beta2: 0.999,
                        eps: 1e-6,
                        weight_decay: 0.1,
                        lr: 0.01,
                        scale: 0.7,
                        step,
                    };
                    let gradient = vector(step.step as f32);
                    (value, moments) = match fused {
                        true => adamw(value, gradient, Some(moments), step),
                        false => composed(value, gradient, moments, step),
                    };
                }
                let [first, second] = moments;
                [value, first, second].map(Tensor::into_data)
            };
            for (fused, composed) in run(true).into_iter().zip(run(false)) {
                fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(1e-5, 1e-6));
            }
            let sum = squared_sum(vector(1.0)).into_scalar::<f32>();
            let expected = (vector(1.0) * vector(1.0)).sum().into_scalar::<f32>();
            assert!((sum - expected).abs() <= 1e-4 * expected, "{sum} is not {expected}");
        }
    }
}
