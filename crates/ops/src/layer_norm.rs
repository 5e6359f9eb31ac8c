use burn::tensor::Tensor;

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(any(feature = "flex", feature = "cube"))]
use crate::dropout;
use crate::dropout_add;
#[cfg(feature = "flex")]
use crate::flex;

/// Layer normalisation over the last axis (Ba et al. 2016, eq. 4), with the biased variance.
///
/// # Shapes
/// - `x`: `[..., d]`; `gamma`, `beta`: `[d]`; returns `[..., d]`
pub fn layer_norm<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::layer_norm::layer_norm(x, None, gamma, beta, epsilon);
    }
    #[cfg(feature = "cube")]
    if cube::takes(&x) {
        return cube::layer_norm::layer_norm(x, gamma, beta, epsilon);
    }
    composed(x, gamma, beta, epsilon)
}

/// The residual connection before a normalisation.
#[derive(Debug, Clone)]
pub struct Residual<const D: usize> {
    /// The sub-layer's input, `[..., d]`.
    pub input: Tensor<D>,
    /// Dropout on the sub-layer's output.
    pub dropout: f64,
}

/// `LN(residual + dropout(x))`, the end of a post-norm sub-layer (Vaswani et al. 2017, §3.1).
///
/// # Shapes
/// - `x`: `[..., d]`; `gamma`, `beta`: `[d]`; returns `[..., d]`
pub fn add_layer_norm<const D: usize>(
    x: Tensor<D>,
    residual: Residual<D>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        let prob = dropout::effective(&x, residual.dropout);
        return flex::layer_norm::layer_norm(x, Some((residual.input, prob)), gamma, beta, epsilon);
    }
    #[cfg(feature = "cube")]
    if cube::takes(&x) {
        if !cube::has_room(&x.device(), cube::layer_norm::BUFFERS) {
            let total = dropout_add(x, residual.input, residual.dropout);
            return cube::layer_norm::layer_norm(total, gamma, beta, epsilon);
        }
        let prob = dropout::effective(&x, residual.dropout);
        return cube::layer_norm::add_layer_norm(x, (residual.input, prob), gamma, beta, epsilon);
    }
    composed(dropout_add(x, residual.input, residual.dropout), gamma, beta, epsilon)
}

fn composed<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<D> {
    burn::tensor::module::layer_norm(x, gamma, Some(beta), epsilon)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn by_hand() {
        let device = Device::flex();
        let x = Tensor::<2>::from_data([[1.0, 3.0], [-2.0, 2.0]], &device);
        let gamma = Tensor::<1>::from_data([2.0, 1.0], &device);
        let beta = Tensor::<1>::from_data([0.5, 0.0], &device);
        let expected = TensorData::from([[-1.5f32, 1.0], [-1.5, 1.0]]);
        for form in [layer_norm::<2>, composed::<2>] {
            let y = form(x.clone(), gamma.clone(), beta.clone(), 0.0);
            y.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        for (n, d) in [(1, 1), (3, 7), (5, 16), (40, 33), (130, 256), (9, 1_030)] {
            let leaf = |len: usize, phase: f32, shift: f32| {
                let values: Vec<f32> =
                    (0..len).map(|i| (i as f32 * 0.71 + phase).sin() * 2.0 + shift).collect();
                Tensor::<1>::from_data(values.as_slice(), &device)
            };
            let run = |fused: bool, with_residual: bool| {
                let x = leaf(n * d, 0.3, 0.1).reshape([1, n, d]).require_grad();
                let input = leaf(n * d, 1.9, -0.2).reshape([1, n, d]).require_grad();
                let (gamma, beta) = (leaf(d, 5.0, 1.0).require_grad(), leaf(d, 7.0, 0.0).require_grad());
                let (x_in, gamma_in, beta_in) = (x.clone(), gamma.clone(), beta.clone());
                let residual = Residual { input: input.clone(), dropout: 0.0 };
                let y = match (fused, with_residual) {
                    (true, true) => add_layer_norm(x_in, residual, gamma_in, beta_in, 1e-5),
                    (true, false) => layer_norm(x_in, gamma_in, beta_in, 1e-5),
                    (false, true) => composed(input.clone() + x_in, gamma_in, beta_in, 1e-5),
                    (false, false) => composed(x_in, gamma_in, beta_in, 1e-5),
                };
                let weights = leaf(n * d, 11.0, 0.0).reshape([1, n, d]);
                let grads = (y.clone() * weights).sum().backward();
                let mut all = vec![
                    y.into_data(),
                    x.grad(&grads).unwrap().into_data(),
                    gamma.grad(&grads).unwrap().into_data(),
                    beta.grad(&grads).unwrap().into_data(),
                ];
                if with_residual {
                    all.push(input.grad(&grads).unwrap().into_data());
                }
                all
            };
            for with_residual in [false, true] {
                for (fused, composed) in run(true, with_residual).iter().zip(run(false, with_residual)) {
                    fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(2e-4, 2e-4));
                }
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn dropout_in_front_is_the_same_forward_and_backward() {
        let device = Device::flex().autodiff();
        device.seed(5);
        let x = Tensor::<2>::ones([64, 32], &device).require_grad();
        let input =
            Tensor::<2>::random([64, 32], burn::tensor::Distribution::Default, &device).require_grad();
        let (gamma, beta) = (Tensor::ones([32], &device), Tensor::zeros([32], &device));
        let residual = Residual { input: input.clone(), dropout: 0.25 };
        let y = add_layer_norm(x.clone(), residual, gamma, beta, 1e-5);
        let grads =
            (y * Tensor::random([64, 32], burn::tensor::Distribution::Default, &device)).sum().backward();
        let (dx, dinput) = (x.grad(&grads).unwrap().into_data(), input.grad(&grads).unwrap().into_data());
        // A gradient of the input passes the mask: none, or scaled by 4/3.
        let mut dropped = 0;
        for (dx, dinput) in dx.iter::<f32>().zip(dinput.iter::<f32>()) {
            if dx == 0.0 {
                dropped += 1;
            } else {
                assert!((dx - dinput * 4.0 / 3.0).abs() <= 1e-6 * dinput.abs().max(1.0));
            }
        }
        assert!((420..600).contains(&dropped), "{dropped} of 2048 dropped");
    }
}
