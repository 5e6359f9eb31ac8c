use burn::tensor::{Distribution, Tensor};

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "flex")]
use crate::flex;
use crate::is_training;

/// Dropout, active only in [training](is_training), scaled by `1 / (1 − p)` in training (Srivastava et
/// al. 2014, inverted form).
///
/// Returns `x` itself when inactive. The mask comes from the device's generator: seed it
/// (`Device::seed`) for a reproducible step.
///
/// # Shapes
/// - any; returns the same
pub fn dropout<const D: usize>(x: Tensor<D>, prob: f64) -> Tensor<D> {
    let prob = effective(&x, prob);
    if prob == 0.0 {
        return x;
    }
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::dropout::dropout(x, prob);
    }
    #[cfg(feature = "cube")]
    if cube::takes(&x) {
        return cube::dropout::dropout(x, prob);
    }
    composed(x, prob)
}

/// `residual + dropout(x)`, the end of every Transformer sub-layer.
///
/// # Shapes
/// - `x`, `residual`: the same shape, also returned
pub fn dropout_add<const D: usize>(x: Tensor<D>, residual: Tensor<D>, prob: f64) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if effective(&x, prob) > 0.0 && cube::takes(&x) {
        return cube::dropout::dropout_add(x, residual, prob);
    }
    residual + dropout(x, prob)
}

/// The effective dropout probability for this tensor: zero outside training.
pub(crate) fn effective<const D: usize>(x: &Tensor<D>, prob: f64) -> f64 {
    if is_training(&x.device()) { prob.max(0.0) } else { 0.0 }
}

fn composed<const D: usize>(x: Tensor<D>, prob: f64) -> Tensor<D> {
    let keep = x.random_like(Distribution::Bernoulli(1.0 - prob));
    x * keep.mul_scalar(1.0 / (1.0 - prob))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn it_is_off_without_autodiff_and_keeps_the_mean_with_it() {
        let device = Device::flex();
        let x = Tensor::<1>::ones([20_000], &device);
        assert_eq!(dropout(x, 0.3).narrow(0, 0, 3).into_data().try_to_vec::<f32>().unwrap(), [1.0; 3]);
        let device = device.autodiff();
        // Whatever the generator, which other tests share: each bound is six standard deviations away.
        for form in [dropout::<1>, composed::<1>] {
            let y = form(Tensor::ones([20_000], &device), 0.3);
            let mean = y.clone().mean().into_scalar::<f32>();
            assert!((mean - 1.0).abs() < 0.03, "mean {mean}");
            let dropped = y.into_data().iter::<f32>().filter(|v| *v == 0.0).count();
            assert!((5_600..6_400).contains(&dropped), "{dropped} of 20000 dropped");
        }
    }
}
