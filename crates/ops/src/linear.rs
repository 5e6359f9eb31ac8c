use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use crate::flex;

/// `x·W + b` over the last axis, on flattened tokens.
///
/// Flattening matters: on the flex backend a three-dimensional product runs one small
/// single-threaded product a sample, a flattened one is a single threaded product over all tokens.
/// The weight may be a transposed view: nothing is copied, and its gradient has the view's layout.
///
/// # Shapes
/// - `x`: `[..., d_in]`; `weight`: `[d_in, d_out]`; `bias`: `[d_out]`; returns `[..., d_out]`
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::linear::linear(x, weight, bias);
    }
    composed(x, weight, bias)
}

fn composed<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let mut shape = x.dims();
    let [d_in, d_out] = weight.dims();
    let n_tokens = shape.iter().product::<usize>() / shape[D - 1].max(1);
    let y = burn::tensor::module::linear(x.reshape([n_tokens, d_in]), weight, bias);
    shape[D - 1] = d_out;
    y.reshape(shape)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        type Form = fn(Tensor<3>, Tensor<2>, Option<Tensor<1>>) -> Tensor<3>;
        for (batch, len, d_in, d_out) in [(1, 1, 1, 1), (2, 3, 5, 7), (3, 16, 32, 48), (4, 130, 64, 33)] {
            let leaf = |n: usize, phase: f32| {
                let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
                Tensor::<1>::from_data(values.as_slice(), &device)
            };
            for (with_bias, transposed) in [(true, false), (false, false), (true, true)] {
                let run = |form: Form| {
                    // A view with gaps in its rows, as attention's is.
                    let x = leaf(batch * len * d_in, 0.1).reshape([len, batch, d_in]).require_grad();
                    let weight = match transposed {
                        true => leaf(d_in * d_out, 2.0).reshape([d_out, d_in]),
                        false => leaf(d_in * d_out, 2.0).reshape([d_in, d_out]),
                    };
                    let (weight, bias) = (weight.require_grad(), leaf(d_out, 3.0).require_grad());
                    let used = if transposed { weight.clone().transpose() } else { weight.clone() };
                    let y = form(x.clone().swap_dims(0, 1), used, with_bias.then(|| bias.clone()));
                    let weights = leaf(batch * len * d_out, 4.0).reshape([batch, len, d_out]);
                    let grads = (y.clone() * weights).sum().backward();
                    let mut all = vec![
                        y.into_data(),
                        x.grad(&grads).unwrap().into_data(),
                        weight.grad(&grads).unwrap().into_data(),
                    ];
                    all.extend(bias.grad(&grads).map(Tensor::into_data));
                    all
                };
                let (fused, composed) = (run(linear), run(composed));
                assert_eq!(fused.len(), composed.len());
                for (fused, composed) in fused.iter().zip(composed) {
                    fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(1e-4, 1e-4));
                }
            }
        }
    }
}
