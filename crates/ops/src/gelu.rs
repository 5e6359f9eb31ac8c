use burn::tensor::Tensor;

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "flex")]
use crate::flex;

/// GELU, `x · Φ(x)` with the exact normal distribution function (Hendrycks & Gimpel 2016).
///
/// # Shapes
/// - any; returns the same
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::gelu::exact(x);
    }
    #[cfg(feature = "cube")]
    if cube::takes_in_training(&x) {
        return cube::gelu::exact(x);
    }
    composed(x)
}

/// Not burn's own: outside flex its gradient is that of the tanh form, off by up to 7e-4 (burn-backend
/// 0.22.1, `gelu_backward`).
fn composed<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let twice_phi = x.clone().mul_scalar(std::f64::consts::FRAC_1_SQRT_2).erf().add_scalar(1.0);
    x.mul_scalar(0.5) * twice_phi
}

/// GELU by the hyperbolic tangent, `0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`, as in
/// google-research/bert's and GPT-2's code.
///
/// # Shapes
/// - any; returns the same
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::gelu::tanh(x);
    }
    #[cfg(feature = "cube")]
    if cube::takes_in_training(&x) {
        return cube::gelu::tanh(x);
    }
    composed_tanh(x)
}

fn composed_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let cubed = x.clone() * x.clone() * x.clone();
    let inner = (x.clone() + cubed.mul_scalar(0.044715)).mul_scalar((2.0 / std::f64::consts::PI).sqrt());
    x.mul_scalar(0.5) * inner.tanh().add_scalar(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn the_two_at_known_points() {
        // From torch.nn.functional.gelu, exact and approximate="tanh".
        let x = || Tensor::<1>::from_data([-1.0, 0.0, 0.5, 2.0], &Device::flex());
        let close = |y: Tensor<1>, expected: [f32; 4]| {
            y.into_data().assert_approx_eq::<f32>(&TensorData::from(expected), Tolerance::absolute(1e-6));
        };
        for exact in [gelu, composed] {
            close(exact(x()), [-0.158_655_26, 0.0, 0.345_731_23, 1.954_499_7]);
        }
        close(gelu_tanh(x()), [-0.158_808, 0.0, 0.345_714, 1.954_597_7]);
        close(composed_tanh(x()), [-0.158_808, 0.0, 0.345_714, 1.954_597_7]);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        type Form = fn(Tensor<1>) -> Tensor<1>;
        let pairs: [(Form, Form); 2] = [(gelu, composed), (gelu_tanh, composed_tanh)];
        for n in [1, 5, 16, 1_000, 20_001] {
            let x: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin() * 6.0).collect();
            for (fused, composed) in pairs {
                let run = |form: Form| {
                    let x = Tensor::<1>::from_data(x.as_slice(), &device).require_grad();
                    let y = form(x.clone());
                    let weights = Tensor::from_data(x.clone().into_data(), &device).sin();
                    let grads = (y.clone() * weights).sum().backward();
                    (y.into_data(), x.grad(&grads).unwrap().into_data())
                };
                let ((y, dx), (expected, expected_dx)) = (run(fused), run(composed));
                y.assert_approx_eq::<f32>(&expected, Tolerance::absolute(2e-6));
                dx.assert_approx_eq::<f32>(&expected_dx, Tolerance::absolute(4e-6));
            }
        }
    }
}
