use crate::Precision;
use crate::precision::product;
use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use crate::flex;

/// `x·W + b` over the last axis, on flattened tokens.
///
/// Flattening matters: on the flex backend a three-dimensional product runs one small
/// single-threaded product per sample; a flattened one is a single multi-threaded product over all
/// tokens. The weight may be a transposed view: nothing is copied, and its gradient has the view's
/// layout.
///
/// Multiplies in the precision of the scope, [`with_precision`](crate::with_precision).
///
/// # Shapes
/// - `x`: `[..., d_in]`; `weight`: `[d_in, d_out]`; `bias`: `[d_out]`; returns `[..., d_out]`
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::linear::linear(x, weight, false, bias);
    }
    composed(x, weight, bias)
}

/// [`linear`] with an embedding table as its matrix: the output layer of a language model (Press & Wolf
/// 2017).
///
/// The table's gradient has the table's memory layout and comes early in the backward pass, so that
/// [`embedding`](crate::embedding()) adds its rows to it.
///
/// # Shapes
/// - `x`: `[..., d_in]`; `table`: `[d_out, d_in]`; `bias`: `[d_out]`; returns `[..., d_out]`
pub fn linear_tied<const D: usize>(x: Tensor<D>, table: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::linear::linear(x, table, true, bias);
    }
    composed(x, table.transpose(), bias)
}

fn composed<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let mut shape = x.dims();
    let [d_in, d_out] = weight.dims();
    let n_tokens = shape.iter().product::<usize>() / shape[D - 1].max(1);
    let x = x.reshape([n_tokens, d_in]);
    let y = match Precision::current() {
        Precision::Fp32 => burn::tensor::module::linear(x, weight, bias),
        Precision::Bf16 | Precision::Fp16 => {
            let y = product(x, weight);
            match bias {
                Some(bias) => y + bias.unsqueeze(),
                None => y,
            }
        }
    };
    shape[D - 1] = d_out;
    y.reshape(shape)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{DType, Device, Tolerance};

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
                let run = |form: Form, tied: bool| {
                    // A view with gaps in its rows, as attention's is.
                    let x = leaf(batch * len * d_in, 0.1).reshape([len, batch, d_in]).require_grad();
                    let weight = match transposed {
                        true => leaf(d_in * d_out, 2.0).reshape([d_out, d_in]),
                        false => leaf(d_in * d_out, 2.0).reshape([d_in, d_out]),
                    };
                    let (weight, bias) = (weight.require_grad(), leaf(d_out, 3.0).require_grad());
                    let is_view = transposed && !tied;
                    let used = if is_view { weight.clone().transpose() } else { weight.clone() };
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
                let composed = run(composed, false);
                let mut fused = vec![run(linear, false)];
                if transposed {
                    fused.push(run(linear_tied, true));
                }
                for fused in fused {
                    assert_eq!(fused.len(), composed.len());
                    for (fused, composed) in fused.iter().zip(&composed) {
                        fused.assert_approx_eq::<f32>(composed, Tolerance::rel_abs(1e-4, 1e-4));
                    }
                }
            }
        }
    }

    #[test]
    fn bf16_rounds_operands_and_keeps_fp32_sums() {
        use crate::with_precision;
        let device = Device::flex().autodiff();
        let (n_tokens, d_in, d_out) = (130, 77, 65);
        let values =
            |n: usize, phase: f32| -> Vec<f32> { (0..n).map(|i| (i as f32 * 0.37 + phase).sin()).collect() };
        let tensor = |shape: [usize; 2], phase: f32| {
            let values = values(shape[0] * shape[1], phase);
            Tensor::<1>::from_data(values.as_slice(), &device).reshape(shape)
        };
        let rounded = |x: Tensor<2>| x.cast(DType::BF16).cast(DType::F32);
        for transposed in [false, true] {
            let x = tensor([n_tokens, d_in], 0.1).require_grad();
            let weight = match transposed {
                true => tensor([d_out, d_in], 2.0).require_grad(),
                false => tensor([d_in, d_out], 2.0).require_grad(),
            };
            let used = if transposed { weight.clone().transpose() } else { weight.clone() };
            let bias = tensor([1, d_out], 3.0).reshape([d_out]).require_grad();
            let gradient = tensor([n_tokens, d_out], 4.0);
            // The backward pass is outside of the scope, and multiplies in bf16 nevertheless.
            let y = with_precision(Precision::Bf16, || linear(x.clone(), used.clone(), Some(bias.clone())));
            let grads = (y.clone() * gradient.clone()).sum().backward();

            let inner = |x: Tensor<2>| rounded(x.inner());
            let (x_, used, dy) = (inner(x.clone()), inner(used), inner(gradient.clone()));
            let dw = x_.clone().transpose().matmul(dy.clone());
            let expected = [
                (y.inner(), x_.matmul(used.clone()) + bias.clone().inner().unsqueeze()),
                (x.grad(&grads).unwrap(), dy.matmul(used.transpose())),
                (weight.grad(&grads).unwrap(), if transposed { dw.transpose() } else { dw }),
            ];
            for (found, expected) in expected {
                let tolerance = Tolerance::<f32>::rel_abs(1e-5, 1e-4);
                found.into_data().assert_approx_eq(&expected.into_data(), tolerance);
            }
            let sum = gradient.inner().sum_dim(0).reshape([d_out]);
            let tolerance = Tolerance::<f32>::rel_abs(1e-5, 1e-4);
            bias.grad(&grads).unwrap().into_data().assert_approx_eq(&sum.into_data(), tolerance);
        }
    }

    #[test]
    fn bf16_fused_and_composed_agree_to_bf16() {
        use crate::with_precision;
        let device = Device::flex().autodiff();
        let leaf = |shape: [usize; 2], phase: f32| {
            let values: Vec<f32> =
                (0..shape[0] * shape[1]).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
            Tensor::<1>::from_data(values.as_slice(), &device).reshape(shape).require_grad()
        };
        let run = |form: fn(Tensor<2>, Tensor<2>, Option<Tensor<1>>) -> Tensor<2>| {
            let (x, weight) = (leaf([34, 96], 0.1), leaf([96, 50], 2.0));
            let bias = leaf([1, 50], 3.0).reshape([50]);
            let y = with_precision(Precision::Bf16, || form(x.clone(), weight.clone(), Some(bias)));
            let grads = (y.clone() * leaf([34, 50], 4.0)).sum().backward();
            [y.inner(), x.grad(&grads).unwrap(), weight.grad(&grads).unwrap()]
        };
        for (fused, composed) in run(linear).into_iter().zip(run(composed)) {
            fused.into_data().assert_approx_eq::<f32>(&composed.into_data(), Tolerance::rel_abs(1e-2, 6e-2));
        }
    }
}
