use burn::tensor::Tensor;

use crate::{AdamStep, adam};

/// One update of StableAdamW (Wortsman et al. 2023, "Stable and low-precision training for large-scale
/// vision-language models", algorithm 2): AdamW with Adafactor's update clipping instead of gradient
/// clipping.
///
/// The second moment lags behind a suddenly growing gradient, which makes the update too large. The lag is
/// measured by `RMS = √(mean(g² / max(v̂, ε²)))` over the parameter, and the learning rate is divided by it
/// if above 1: `η = lr / max(1, RMS)`, `x ← x − η·λ·x − η · m̂ / (√v̂ + ε)`.
///
/// Takes and returns the parameter's values and its two moments, without autodiff; the moments are
/// `None` before the first update.
///
/// # Shapes
/// - all: `[n]`, one whole parameter
pub fn stable_adamw(
    value: Tensor<1>,
    gradient: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    adam::update!(stable_adamw, value, gradient, moments, step)
}

/// `1 / max(1, RMS)` of the mean of the `g² / max(v̂, ε²)`. A non-finite mean clips nothing, so that the
/// update shows the non-finite gradient.
pub(crate) fn clipping(mean: f64) -> f64 {
    if mean > 1.0 && mean.is_finite() { 1.0 / mean.sqrt() } else { 1.0 }
}

fn composed(
    value: Tensor<1>,
    gradient: Tensor<1>,
    moments: [Tensor<1>; 2],
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    let ([first, second], direction) = step.composed(gradient.clone(), moments);
    let [correction1, correction2] = step.corrections();
    let estimate = second.clone().mul_scalar(1.0 / correction2).clamp_min(step.eps * step.eps);
    let ratio = (gradient.mul_scalar(step.scale).powi_scalar(2) / estimate).mean();
    let lr = step.lr * clipping(ratio.into_data().iter::<f64>().sum());
    let value = value.mul_scalar(1.0 - lr * step.weight_decay);
    (value - direction.mul_scalar(lr / correction1), [first, second])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_long_is_clipped() {
        assert_eq!(clipping(0.25), 1.0);
        assert_eq!(clipping(4.0), 0.5);
        assert_eq!(clipping(f64::NAN), 1.0);
        assert_eq!(clipping(f64::INFINITY), 1.0);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        adam::assert_forms_agree(stable_adamw, composed, 1e-4);
    }
}
