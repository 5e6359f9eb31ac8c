//! The few operations that decide a Transformer's speed, behind one signature each.
//!
//! The blocks call these and nothing else for normalisation, activation, attention, dropout with
//! residual, linear maps and the loss. Here they are composed from burn's operations, which work on
//! every device; a fused version for one device belongs behind the same signature.

use burn::tensor::activation::{self, softmax};
use burn::tensor::{Bool, DType, Distribution, Int, Tensor};

/// Dropout that is active exactly on an autodiff device, scaled by `1 / (1 − p)` in training
/// (Srivastava et al. 2014, inverted form).
///
/// Returns `x` itself where it is inactive. The mask comes from the device's generator: seed it
/// (`Device::seed`) for a reproducible step.
pub fn dropout<const D: usize>(x: Tensor<D>, prob: f64) -> Tensor<D> {
    if prob == 0.0 || !x.device().is_autodiff() {
        return x;
    }
    let keep = x.random_like(Distribution::Bernoulli(1.0 - prob));
    x * keep.mul_scalar(1.0 / (1.0 - prob))
}

/// `residual + dropout(x)`, the end of every Transformer sub-layer.
pub fn dropout_add<const D: usize>(x: Tensor<D>, residual: Tensor<D>, prob: f64) -> Tensor<D> {
    residual + dropout(x, prob)
}

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
    burn::tensor::module::layer_norm(x, gamma, Some(beta), epsilon)
}

/// GELU, `x · Φ(x)` with the exact normal distribution function (Hendrycks & Gimpel 2016).
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    activation::gelu(x)
}

/// GELU by the hyperbolic tangent, `0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`, as in
/// google-research/bert's and GPT-2's code.
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let cubed = x.clone() * x.clone() * x.clone();
    let inner = (x.clone() + cubed.mul_scalar(0.044715)).mul_scalar((2.0 / std::f64::consts::PI).sqrt());
    x.mul_scalar(0.5) * inner.tanh().add_scalar(1.0)
}

/// `x·W + b` over the last axis, on flattened tokens.
///
/// Flattening matters: on the flex backend a three-dimensional product runs one small
/// single-threaded product a sample, a flattened one is a single threaded product over all tokens.
///
/// # Shapes
/// - `x`: `[..., d_in]`; `weight`: `[d_in, d_out]`; `bias`: `[d_out]`; returns `[..., d_out]`
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let mut shape = x.dims();
    let [d_in, d_out] = weight.dims();
    let n_tokens = shape.iter().product::<usize>() / shape[D - 1].max(1);
    let y = burn::tensor::module::linear(x.reshape([n_tokens, d_in]), weight, bias);
    shape[D - 1] = d_out;
    y.reshape(shape)
}

/// Which key positions a query may look at.
#[derive(Debug, Clone, Default)]
pub struct AttentionMask {
    /// `[batch, k_len]`, `true` = ignored (the opposite of Hugging Face's `attention_mask`).
    pub pad_mask: Option<Tensor<2, Bool>>,
    /// A query at position `i` sees keys up to `i + k_len − q_len` only (left to right).
    pub causal: bool,
}

impl AttentionMask {
    /// The mask as a term added to the scores: 0 where seen, the type's most negative number where
    /// not, broadcastable to `[batch, n_heads, q_len, k_len]`; none where everything is seen.
    ///
    /// Not minus infinity: a row without any visible key then has uniform weights and not NaN, as
    /// in transformers.
    pub fn bias(&self, q_len: usize, k_len: usize, scores: &Tensor<4>) -> Option<Tensor<4>> {
        let device = scores.device();
        let lowest = match scores.dtype() {
            DType::F16 => -65504.0,
            _ => f64::from(f32::MIN),
        };
        let pad = self.pad_mask.as_ref().map(|mask| {
            let [batch, len] = mask.dims();
            assert_eq!(len, k_len, "pad_mask covers {len} positions, there are {k_len} keys");
            mask.clone().reshape([batch, 1, 1, len])
        });
        let causal = (self.causal && q_len > 1).then(|| {
            let offset = k_len as i64 - q_len as i64;
            Tensor::<2, Bool>::tril_mask([q_len, k_len], offset, &device).reshape([1, 1, q_len, k_len])
        });
        let hidden = match (pad, causal) {
            (Some(pad), Some(causal)) => {
                let [batch, ..] = pad.dims();
                let shape = [batch, 1, q_len, k_len];
                Tensor::bool_or(pad.expand(shape), causal.expand(shape))
            }
            (Some(mask), None) | (None, Some(mask)) => mask,
            (None, None) => return None,
        };
        Some(hidden.float().cast(scores.dtype()).mul_scalar(lowest))
    }
}

/// Scaled dot-product attention, `softmax(Q·Kᵀ / √d_k)·V` (Vaswani et al. 2017, eq. 1).
///
/// Dropout acts on the probabilities, after the softmax, as in the paper's reference code.
/// Returns the context and the probabilities (after dropout; moved out, not copied).
///
/// # Shapes
/// - `query`: `[batch, n_heads, q_len, d_k]`; `key`: `[batch, n_heads, k_len, d_k]`;
///   `value`: `[batch, n_heads, k_len, d_v]`
/// - returns `[batch, n_heads, q_len, d_v]` and `[batch, n_heads, q_len, k_len]`
pub fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &AttentionMask,
    dropout_prob: f64,
) -> (Tensor<4>, Tensor<4>) {
    let [_, _, q_len, d_k] = query.dims();
    let [_, _, k_len, _] = key.dims();
    // The query is scaled and not the scores: it is the smaller tensor for all but short inputs.
    let query = query.mul_scalar(1.0 / (d_k as f64).sqrt());
    let scores = query.matmul(key.swap_dims(2, 3));
    let scores = match mask.bias(q_len, k_len, &scores) {
        Some(bias) => scores + bias,
        None => scores,
    };
    let weights = dropout(softmax(scores, 3), dropout_prob);
    (weights.clone().matmul(value), weights)
}

/// Cross-entropy of each row, `−log softmax(logits)[label]`, in nats.
///
/// # Shapes
/// - `logits`: `[n, n_classes]`; `labels`: `[n]`, each in `0..n_classes`; returns `[n]`
pub fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    let [n, _] = logits.dims();
    let log_probs = activation::log_softmax(logits, 1);
    log_probs.gather(1, labels.reshape([n, 1])).reshape([n]).neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    fn close(actual: Tensor<1>, expected: &[f32]) {
        let expected = TensorData::from(expected);
        actual.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
    }

    #[test]
    fn layer_norm_by_hand() {
        let device = Device::flex();
        let x = Tensor::<2>::from_data([[1.0, 3.0], [-2.0, 2.0]], &device);
        let gamma = Tensor::<1>::from_data([2.0, 1.0], &device);
        let beta = Tensor::<1>::from_data([0.5, 0.0], &device);
        close(layer_norm(x, gamma, beta, 0.0).reshape([4]), &[-1.5, 1.0, -1.5, 1.0]);
    }

    #[test]
    fn the_two_gelus_at_known_points() {
        // From torch.nn.functional.gelu, exact and approximate="tanh".
        let x = || Tensor::<1>::from_data([-1.0, 0.0, 0.5, 2.0], &Device::flex());
        close(gelu(x()), &[-0.158_655_26, 0.0, 0.345_731_23, 1.954_499_7]);
        close(gelu_tanh(x()), &[-0.158_808, 0.0, 0.345_714, 1.954_597_7]);
    }

    #[test]
    fn a_row_with_nothing_to_see_is_uniform() {
        let device = Device::flex();
        let q = Tensor::<4>::ones([1, 1, 1, 2], &device);
        let v = Tensor::<4>::from_data([[[[1.0], [3.0]]]], &device);
        let mask =
            AttentionMask { pad_mask: Some(Tensor::from_data([[true, true]], &device)), causal: false };
        let k = Tensor::<4>::ones([1, 1, 2, 2], &device);
        let (context, _) = attention(q, k, v, &mask, 0.0);
        close(context.reshape([1]), &[2.0]);
    }

    #[test]
    fn causal_attention_sees_the_past_only() {
        let device = Device::flex();
        let q = Tensor::<4>::zeros([1, 1, 3, 2], &device);
        let v = Tensor::<4>::from_data([[[[3.0], [6.0], [9.0]]]], &device);
        let mask = AttentionMask { pad_mask: None, causal: true };
        let (context, weights) = attention(q.clone(), q, v, &mask, 0.0);
        close(context.reshape([3]), &[3.0, 4.5, 6.0]);
        let third = 1.0 / 3.0;
        close(weights.reshape([9]), &[1.0, 0.0, 0.0, 0.5, 0.5, 0.0, third, third, third]);
    }

    #[test]
    fn dropout_is_off_without_autodiff_and_keeps_the_mean_with_it() {
        let device = Device::flex();
        let x = Tensor::<1>::ones([20_000], &device);
        close(dropout(x, 0.3).narrow(0, 0, 3), &[1.0, 1.0, 1.0]);
        let device = device.autodiff();
        device.seed(3);
        let y = dropout(Tensor::<1>::ones([20_000], &device), 0.3);
        let mean = y.clone().mean().into_scalar::<f32>();
        assert!((mean - 1.0).abs() < 0.02, "mean {mean}");
        let dropped = y.into_data().iter::<f32>().filter(|v| *v == 0.0).count();
        assert!((5_600..6_400).contains(&dropped), "{dropped} of 20000 dropped");
    }

    #[test]
    fn cross_entropy_of_uniform_logits_is_the_log_of_the_classes() {
        let device = Device::flex();
        let logits = Tensor::<2>::zeros([2, 8], &device);
        let labels = Tensor::<1, Int>::from_data([0, 7], &device);
        close(cross_entropy(logits, labels), &[8f32.ln(), 8f32.ln()]);
    }
}
