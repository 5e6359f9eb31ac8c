//! Shared by AdamW, LAMB and StableAdamW: Adam's moments and update direction.

use burn::tensor::Tensor;

/// The constants of one update by [`adamw`](crate::adamw()), [`lamb`](crate::lamb()) or
/// [`stable_adamw`](crate::stable_adamw()).
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
    /// The factor for every gradient, such as the clipping factor.
    pub scale: f64,
    /// The update's number, from 1.
    pub step: u64,
}

impl AdamStep {
    /// `1 − β₁ᵗ` and `1 − β₂ᵗ`, the bias corrections of moments initialised to zero.
    pub(crate) fn corrections(&self) -> [f64; 2] {
        [self.beta1, self.beta2].map(|beta| 1.0 - beta.powi(self.step as i32))
    }

    /// The updated moments and `m / (√v̂ + ε)`, from composed operations.
    ///
    /// # Shapes
    /// - all: `[n]`
    pub(crate) fn composed(
        &self,
        gradient: Tensor<1>,
        [first, second]: [Tensor<1>; 2],
    ) -> ([Tensor<1>; 2], Tensor<1>) {
        let Self { beta1, beta2, eps, scale, .. } = *self;
        let gradient = if scale == 1.0 { gradient } else { gradient.mul_scalar(scale) };
        // Operations on tensors held once work in place.
        let first = first.mul_scalar(beta1) + gradient.clone().mul_scalar(1.0 - beta1);
        let second = second.mul_scalar(beta2) + (gradient.clone() * gradient).mul_scalar(1.0 - beta2);
        let root = second.clone().sqrt().mul_scalar(1.0 / self.corrections()[1].sqrt());
        let direction = first.clone() / root.add_scalar(eps);
        ([first, second], direction)
    }
}

/// The constants for every element, in the parameters' precision.
#[cfg(any(feature = "flex", feature = "cube"))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Constants {
    pub beta1: f32,
    pub beta2: f32,
    pub eps: f32,
    pub lr: f32,
    pub weight_decay: f32,
    /// `1 − lr · weight_decay`
    pub keep: f32,
    /// `1 / (1 − β₁ᵗ)`
    pub first_correction: f32,
    /// `lr / (1 − β₁ᵗ)`
    pub rate: f32,
    /// `1 / √(1 − β₂ᵗ)`
    pub correction: f32,
    pub scale: f32,
}

#[cfg(any(feature = "flex", feature = "cube"))]
impl From<AdamStep> for Constants {
    fn from(step: AdamStep) -> Self {
        let AdamStep { beta1, beta2, eps, weight_decay, lr, scale, .. } = step;
        let [correction1, correction2] = step.corrections();
        Self {
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            eps: eps as f32,
            lr: lr as f32,
            weight_decay: weight_decay as f32,
            keep: (1.0 - lr * weight_decay) as f32,
            first_correction: (1.0 / correction1) as f32,
            rate: (lr / correction1) as f32,
            correction: (1.0 / correction2.sqrt()) as f32,
            scale: scale as f32,
        }
    }
}

/// The body of an update: its fused form, the function `$name` of `flex`'s module `$name`, if flex takes the
/// tensors, else the function `composed` next to it. The moments start at zero.
macro_rules! update {
    ($name:ident, $value:ident, $gradient:ident, $moments:ident, $step:ident) => {{
        let moments = $moments.unwrap_or_else(|| [$gradient.zeros_like(), $gradient.zeros_like()]);
        #[cfg(feature = "flex")]
        if $crate::flex::takes(&$value) && $crate::flex::takes(&$gradient) {
            return $crate::flex::$name::$name($value, $gradient, moments, $step);
        }
        composed($value, $gradient, moments, $step)
    }};
}
pub(crate) use update;

/// Three updates by the fused and by the composed form, which must agree.
#[cfg(all(test, feature = "flex"))]
pub(crate) fn assert_forms_agree(
    fused: impl Fn(Tensor<1>, Tensor<1>, Option<[Tensor<1>; 2]>, AdamStep) -> (Tensor<1>, [Tensor<1>; 2]),
    composed: impl Fn(Tensor<1>, Tensor<1>, [Tensor<1>; 2], AdamStep) -> (Tensor<1>, [Tensor<1>; 2]),
    relative: f64,
) {
    use burn::tensor::{Device, Tolerance};
    let device = Device::flex();
    for n in [1, 17, 70_000] {
        let vector = |phase: f32| {
            let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
            Tensor::<1>::from_data(values.as_slice(), &device)
        };
        let run = |is_fused: bool| {
            let mut value = vector(0.0);
            let mut moments = [vector(0.0).zeros_like(), vector(0.0).zeros_like()];
            for step in 1..4 {
                let gradient = vector(step as f32);
                let step = AdamStep {
                    beta1: 0.9,
                    beta2: 0.999,
                    eps: 1e-6,
                    weight_decay: 0.1,
                    lr: 0.01,
                    scale: 0.7,
                    step,
                };
                (value, moments) = match is_fused {
                    true => fused(value, gradient, Some(moments), step),
                    false => composed(value, gradient, moments, step),
                };
            }
            let [first, second] = moments;
            [value, first, second].map(Tensor::into_data)
        };
        for (fused, composed) in run(true).into_iter().zip(run(false)) {
            fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(relative, 1e-6));
        }
    }
}
