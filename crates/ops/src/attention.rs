use burn::tensor::Tensor;
use burn::tensor::activation::softmax;

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "flex")]
use crate::flex;
use crate::heads::assert_groups;
use crate::precision::product;
use crate::{AttentionMask, dropout, is_fused};

/// Whether [`attention`] works on [packed](crate::Packing) sequences one by one for tensors like this one; elsewhere
/// they are right as well, but each token is compared with all others, and padding is faster.
pub fn takes_packed<const D: usize>(x: &Tensor<D>) -> bool {
    #[cfg(feature = "flex")]
    if flex::takes(x) {
        return true;
    }
    #[cfg(feature = "cube")]
    if cube::attention::takes_packed(x) {
        return true;
    }
    let _ = x;
    false
}

/// Scaled dot-product attention, `softmax(Q·Kᵀ / √d_k)·V` (Vaswani et al. 2017, eq. 1).
///
/// Dropout acts on the probabilities, after the softmax, as in the paper's reference code.
///
/// Where it is fused, memory beyond inputs and output grows with the length, not with its square: a sequence of more than
/// 256 queries and keys (exactly: of more than 65,536 scores a head) is computed in blocks (Dao et al. 2022,
/// "FlashAttention"), and blocks that [causality](AttentionMask::causal), the [window](AttentionMask::window) or a
/// [sight](AttentionMask::sights) hides are left out. Shorter sequences keep their probabilities for the backward pass, 4 bytes a score. Elsewhere all scores
/// of all heads are in memory. That is so on every device for a mask with a [bias](AttentionMask::bias), and for one that
/// [goes by positions](AttentionMask::is_by_position) and whose queries are [some tokens](crate::Queries::Tokens).
///
/// On a graphics processor, by the feature `cube`, every sequence is computed in blocks (Dao 2023,
/// "FlashAttention-2"), of heads of up to 256 features, packed ones of up to 1,024, with products in FP32.
///
/// On flex products are made in the precision of the scope, [`with_precision`](crate::with_precision), here and in the
/// backward pass. In bf16 queries, keys, values, exponentials and gradients are rounded before they are multiplied, which
/// changes the output by some 0.2 % and the gradients by 0.3 to 1.5 % (of the norm, measured); sums of probabilities,
/// softmax and dropout are in FP32. Where attention is composed, its operands and both products are rounded, but on flex, where
/// they are in the tensors' precision.
///
/// Keys and values may have fewer heads than queries (Ainslie et al. 2023, "GQA"): each of them is then shared by a group of
/// query heads that follow each other, and is copied nowhere.
///
/// # Shapes
/// - `query`: `[batch, n_heads, q_len, d_k]`; `key`: `[batch, n_kv_heads, k_len, d_k]`;
///   `value`: `[batch, n_kv_heads, k_len, d_v]`, where `n_kv_heads` divides `n_heads`
/// - returns `[batch, n_heads, q_len, d_v]`
///
/// # Panics
/// If sizes do not fit each other or the mask.
pub fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &AttentionMask,
    dropout_prob: f64,
) -> Tensor<4> {
    #[cfg(feature = "flex")]
    if flex::takes(&query) && mask.is_fused() {
        let prob = dropout::effective(&query, dropout_prob);
        return flex::attention::attention(query, key, value, mask, prob);
    }
    #[cfg(feature = "cube")]
    if cube::attention::takes(&query, &key, &value, mask) {
        let prob = dropout::effective(&query, dropout_prob);
        return cube::attention::attention(query, key, value, mask, prob);
    }
    attention_with_weights(query, key, value, mask, dropout_prob).0
}

/// [`attention`] that also returns the probabilities, after dropout, `[batch, n_heads, q_len, k_len]`. Composed on every
/// device.
pub fn attention_with_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &AttentionMask,
    dropout_prob: f64,
) -> (Tensor<4>, Tensor<4>) {
    let weights = dropout(attention_probabilities(query, key, mask), dropout_prob);
    (attention_context(weights.clone(), value), weights)
}

/// The probabilities of [`attention`], `softmax(Q·Kᵀ / √d_k)`, without dropout. Composed on every device.
///
/// # Shapes
/// - `query`: `[batch, n_heads, q_len, d_k]`; `key`: `[batch, n_kv_heads, k_len, d_k]`
/// - returns `[batch, n_heads, q_len, k_len]`
///
/// # Panics
/// If sizes do not fit each other or the mask.
pub fn attention_probabilities(query: Tensor<4>, key: Tensor<4>, mask: &AttentionMask) -> Tensor<4> {
    let [_, n_heads, q_len, d_k] = query.dims();
    let [_, n_kv_heads, k_len, _] = key.dims();
    assert_groups(n_heads, n_kv_heads);
    // The query is scaled and not the scores: it is the smaller tensor for all but short inputs.
    let query = query.mul_scalar(1.0 / (d_k as f64).sqrt());
    let scores = multiply(grouped(query, n_kv_heads), key.swap_dims(2, 3));
    let scores = ungrouped(scores, n_heads, q_len);
    let scores = match mask.score_bias(q_len, k_len, &scores) {
        Some(bias) => scores + bias,
        None => scores,
    };
    softmax(scores, 3)
}

/// The context of queries with these probabilities, their means of the values. Composed on every device.
///
/// # Shapes
/// - `probabilities`: `[batch, n_heads, q_len, k_len]`; `value`: `[batch, n_kv_heads, k_len, d_v]`
/// - returns `[batch, n_heads, q_len, d_v]`
///
/// # Panics
/// If sizes do not fit each other.
pub fn attention_context(probabilities: Tensor<4>, value: Tensor<4>) -> Tensor<4> {
    let ([_, n_heads, q_len, _], [_, n_kv_heads, ..]) = (probabilities.dims(), value.dims());
    assert_groups(n_heads, n_kv_heads);
    ungrouped(multiply(grouped(probabilities, n_kv_heads), value), n_heads, q_len)
}

/// A group's queries one head's after another's, so that they meet its keys in one product:
/// `[batch, n_kv_heads, n_heads / n_kv_heads · q_len, d]`.
fn grouped(x: Tensor<4>, n_kv_heads: usize) -> Tensor<4> {
    let [batch, n_heads, q_len, d] = x.dims();
    match n_heads == n_kv_heads {
        true => x,
        false => x.reshape([batch, n_kv_heads, n_heads / n_kv_heads * q_len, d]),
    }
}

/// The inverse of [`grouped`].
fn ungrouped(x: Tensor<4>, n_heads: usize, q_len: usize) -> Tensor<4> {
    let [batch, n_kv_heads, _, d] = x.dims();
    match n_heads == n_kv_heads {
        true => x,
        false => x.reshape([batch, n_heads, q_len, d]),
    }
}

/// A product; on flex, what is not fused is in the tensors' precision.
fn multiply(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    match is_fused(&a.device()) {
        true => a.matmul(b),
        false => product(a, b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Packing, Queries};
    use burn::tensor::{Bool, Device, Int, TensorData, Tolerance};

    fn close(actual: Tensor<1>, expected: &[f32]) {
        let expected = TensorData::from(expected);
        actual.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
    }

    #[test]
    fn a_row_with_nothing_to_see_is_uniform() {
        let device = Device::flex();
        let q = Tensor::<4>::ones([1, 1, 1, 2], &device);
        let v = Tensor::<4>::from_data([[[[1.0], [3.0]]]], &device);
        let pad_mask = Some(Tensor::from_data([[true, true]], &device));
        let mask = AttentionMask { pad_mask, ..AttentionMask::default() };
        let k = Tensor::<4>::ones([1, 1, 2, 2], &device);
        close(attention(q.clone(), k.clone(), v.clone(), &mask, 0.0).reshape([1]), &[2.0]);
        close(attention_with_weights(q, k, v, &mask, 0.0).0.reshape([1]), &[2.0]);
    }

    #[test]
    fn causal_attention_sees_the_past_only() {
        let device = Device::flex();
        let q = Tensor::<4>::zeros([1, 1, 3, 2], &device);
        let v = Tensor::<4>::from_data([[[[3.0], [6.0], [9.0]]]], &device);
        let mask = AttentionMask { causal: true, ..AttentionMask::default() };
        let context = attention(q.clone(), q.clone(), v.clone(), &mask, 0.0);
        close(context.reshape([3]), &[3.0, 4.5, 6.0]);
        let (context, weights) = attention_with_weights(q.clone(), q, v, &mask, 0.0);
        close(context.reshape([3]), &[3.0, 4.5, 6.0]);
        let third = 1.0 / 3.0;
        close(weights.reshape([9]), &[1.0, 0.0, 0.0, 0.5, 0.5, 0.0, third, third, third]);
    }

    #[test]
    fn a_window_is_as_many_keys_each_way() {
        let device = Device::flex();
        let v = Tensor::<4>::from_data([[[[1.0], [2.0], [4.0], [8.0]]]], &device);
        let k = Tensor::<4>::zeros([1, 1, 4, 2], &device);
        // As many queries as keys; then the last two alone.
        for (window, causal, expected) in [
            (Some(1), false, vec![1.5, 7.0 / 3.0, 14.0 / 3.0, 6.0]),
            (Some(1), true, vec![1.0, 1.5, 3.0, 6.0]),
            (Some(0), false, vec![1.0, 2.0, 4.0, 8.0]),
            (Some(usize::MAX), false, vec![3.75; 4]),
            (Some(1), false, vec![14.0 / 3.0, 6.0]),
        ] {
            let q = Tensor::<4>::zeros([1, 1, expected.len(), 2], &device);
            let mask = AttentionMask { window, causal, ..AttentionMask::default() };
            let flat = |context: Tensor<4>| context.reshape([expected.len()]);
            close(flat(attention(q.clone(), k.clone(), v.clone(), &mask, 0.0)), &expected);
            close(flat(attention_with_weights(q, k.clone(), v.clone(), &mask, 0.0).0), &expected);
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        let leaf = |shape: [usize; 4], phase: f32| {
            let n: usize = shape.iter().product();
            let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.53 + phase).sin() * 1.5).collect();
            Tensor::<1>::from_data(values.as_slice(), &device).reshape(shape).require_grad()
        };
        // Batch, heads, queries, keys, d_k, d_v.
        for [b, h, q_len, k_len, d_k, d_v] in
            [[1, 1, 1, 1, 1, 1], [2, 3, 5, 5, 8, 8], [2, 2, 4, 9, 3, 5], [3, 4, 33, 33, 16, 16]]
        {
            for (padded, causal) in [(false, false), (true, false), (false, true), (true, true)] {
                // The last sequence has nothing to see at all.
                let hidden: Vec<bool> =
                    (0..b * k_len).map(|i| i / k_len + 1 == b || i % k_len > i / k_len + 2).collect();
                let pad_mask = padded.then(|| {
                    Tensor::<2, Bool>::from_data(TensorData::new(hidden.clone(), [b, k_len]), &device)
                });
                let mask = AttentionMask { pad_mask, causal, ..AttentionMask::default() };
                let run = |fused: bool| {
                    // As a model has them: heads inside positions.
                    let (q, k, v) = (
                        leaf([b, q_len, h, d_k], 0.1),
                        leaf([b, k_len, h, d_k], 1.2),
                        leaf([b, k_len, h, d_v], 2.3),
                    );
                    let heads = |x: &Tensor<4>| x.clone().swap_dims(1, 2);
                    let y = match fused {
                        true => attention(heads(&q), heads(&k), heads(&v), &mask, 0.0),
                        false => attention_with_weights(heads(&q), heads(&k), heads(&v), &mask, 0.0).0,
                    };
                    assert_eq!(y.dims(), [b, h, q_len, d_v]);
                    let y = y.swap_dims(1, 2).reshape([b, q_len, h * d_v]);
                    let weights = leaf([b, q_len, h, d_v], 3.4).reshape([b, q_len, h * d_v]);
                    let grads = (y.clone() * weights).sum().backward();
                    let grad = |x: &Tensor<4>| x.grad(&grads).unwrap().into_data();
                    [y.into_data(), grad(&q), grad(&k), grad(&v)]
                };
                for (fused, composed) in run(true).into_iter().zip(run(false)) {
                    fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(1e-4, 1e-5));
                }
            }
        }
    }

    #[test]
    fn shared_keys_are_as_repeated_ones() {
        let ignored: Vec<bool> = (0..18).map(|i| i % 9 > i / 9 + 6).collect();
        for device in [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()] {
            let pad_mask = Tensor::<2, Bool>::from_data(TensorData::new(ignored.clone(), [2, 9]), &device);
            for (n_heads, n_kv_heads) in [(4, 2), (6, 1), (6, 3), (2, 2)] {
                for mask in [
                    AttentionMask::default(),
                    AttentionMask::default().with_causal().with_window(3),
                    AttentionMask::default().with_causal().with_pad_mask(pad_mask.clone()),
                ] {
                    let run = |repeat: bool| {
                        let q = values([2, n_heads, 5, 4], 0.1, &device).require_grad();
                        let k = values([2, n_kv_heads, 9, 4], 1.2, &device).require_grad();
                        let v = values([2, n_kv_heads, 9, 3], 2.3, &device).require_grad();
                        let spread = |x: &Tensor<4>| {
                            let [batch, n, len, d] = x.dims();
                            let groups = [batch, n, n_heads / n_kv_heads, len, d];
                            let groups = x.clone().unsqueeze_dim::<5>(2).expand(groups);
                            if repeat { groups.reshape([batch, n_heads, len, d]) } else { x.clone() }
                        };
                        let y = attention(q.clone(), spread(&k), spread(&v), &mask, 0.0);
                        let grads = (y.clone() * values([2, n_heads, 5, 3], 3.4, &device)).sum().backward();
                        let [dq, dk, dv] = [&q, &k, &v].map(|x| x.grad(&grads).unwrap());
                        [y, dq, dk, dv].map(Tensor::into_data)
                    };
                    for (shared, repeated) in run(false).iter().zip(run(true)) {
                        shared.assert_approx_eq::<f32>(&repeated, Tolerance::rel_abs(1e-4, 1e-5));
                    }
                }
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn packed_sequences_are_as_if_each_was_alone() {
        let device = Device::flex().autodiff();
        let (h, d) = (3, 8);
        for (lengths, causal) in
            [(vec![1], false), (vec![1, 7, 3, 1], false), (vec![4, 4], true), (vec![40, 2, 33], true)]
        {
            let packing = Packing::new(lengths.clone());
            let n = packing.n_tokens();
            let leaf = |phase: f32| {
                let values: Vec<f32> =
                    (0..n * h * d).map(|i| (i as f32 * 0.53 + phase).sin() * 1.5).collect();
                Tensor::<4>::from_data(TensorData::new(values, [1, n, h, d]), &device).require_grad()
            };
            // Fused on the packed batch, composed on it, and each sequence by itself.
            let run = |form: usize| {
                let leaves = [leaf(0.1), leaf(1.2), leaf(2.3)];
                let [q, k, v] = leaves.each_ref().map(|x| x.clone().swap_dims(1, 2));
                let mask =
                    AttentionMask { causal, packing: Some(packing.clone()), ..AttentionMask::default() };
                let y = match form {
                    0 => attention(q, k, v, &mask, 0.0),
                    1 => attention_with_weights(q, k, v, &mask, 0.0).0,
                    _ => {
                        let alone = AttentionMask { packing: None, ..mask };
                        let spans = packing.starts().zip(packing.lengths());
                        let parts = spans.map(|(start, len)| {
                            let cut = |x: &Tensor<4>| x.clone().narrow(2, start, *len);
                            attention_with_weights(cut(&q), cut(&k), cut(&v), &alone, 0.0).0
                        });
                        Tensor::cat(parts.collect(), 2)
                    }
                };
                let y = y.swap_dims(1, 2);
                let grads = (y.clone() * leaf(3.4)).sum().backward();
                let [dq, dk, dv] = leaves.each_ref().map(|x| x.grad(&grads).unwrap().into_data());
                [y.into_data(), dq, dk, dv]
            };
            let expected = run(2);
            for form in [0, 1] {
                for (found, expected) in run(form).iter().zip(&expected) {
                    found.assert_approx_eq::<f32>(expected, Tolerance::rel_abs(1e-4, 1e-5));
                }
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn some_queries_see_what_they_see_among_all() {
        let device = Device::flex().autodiff();
        let (h, d) = (3, 8);
        // Queries of each sequence, by their place in it.
        for (lengths, chosen) in [
            (vec![1], vec![vec![0]]),
            (vec![4, 9], vec![vec![0], vec![0]]),
            (vec![5, 1, 40, 3], vec![vec![1, 4], vec![], vec![0, 7, 7, 39], vec![]]),
            (vec![2, 2], vec![vec![], vec![]]),
        ] {
            let packing = Packing::new(lengths);
            let places = packing.starts().zip(&chosen);
            let tokens: Vec<i32> =
                places.flat_map(|(start, chosen)| chosen.iter().map(move |i| (start + i) as i32)).collect();
            let tokens =
                Tensor::<1, Int>::from_data(TensorData::new(tokens.clone(), [tokens.len()]), &device);
            let (n_keys, n_queries) = (packing.n_tokens(), tokens.dims()[0]);
            let numbers = packing.starts().zip(&chosen);
            let numbers: Vec<usize> =
                numbers.flat_map(|(start, chosen)| chosen.iter().map(move |i| start + i)).collect();
            let leaf = |n: usize, phase: f32| {
                let values: Vec<f32> =
                    (0..n * h * d).map(|i| (i as f32 * 0.53 + phase).sin() * 1.5).collect();
                Tensor::<4>::from_data(TensorData::new(values, [1, n, h, d]), &device).require_grad()
            };
            // All queries and then the chosen ones, and these alone, fused and composed.
            let run = |form: usize| {
                let leaves = [leaf(n_keys, 0.1), leaf(n_keys, 1.2), leaf(n_keys, 2.3)];
                let [q, k, v] = leaves.each_ref().map(|x| x.clone().swap_dims(1, 2));
                let all = AttentionMask { packing: Some(packing.clone()), ..AttentionMask::default() };
                let some = all.clone().with_queries(Queries::Tokens(numbers.clone().into()));
                let y = match form {
                    0 => attention(q.select(2, tokens.clone()), k, v, &some, 0.0),
                    1 => attention_with_weights(q.select(2, tokens.clone()), k, v, &some, 0.0).0,
                    _ => attention_with_weights(q, k, v, &all, 0.0).0.select(2, tokens.clone()),
                };
                let y = y.swap_dims(1, 2);
                let grads = (y.clone() * leaf(n_queries, 3.4)).sum().backward();
                let [dq, dk, dv] = leaves.each_ref().map(|x| x.grad(&grads).unwrap().into_data());
                [y.into_data(), dq, dk, dv]
            };
            let expected = run(2);
            for form in if n_queries > 0 { 0..2 } else { 0..1 } {
                for (found, expected) in run(form).iter().zip(&expected) {
                    found.assert_approx_eq::<f32>(expected, Tolerance::rel_abs(1e-4, 1e-5));
                }
            }
        }
    }

    fn values(shape: [usize; 4], phase: f32, device: &Device) -> Tensor<4> {
        let n = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.53 + phase).sin() * 1.5).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    #[test]
    fn some_queries_know_their_positions() {
        let device = Device::flex();
        let [q, k, v] = [0.1, 1.2, 2.3].map(|phase| values([1, 2, 9, 4], phase, &device));
        let packed = AttentionMask::default().with_packing(Packing::new([6, 3]));
        for all in [
            packed.clone().with_causal(),
            packed.clone().with_window(1),
            packed.with_causal().with_window(2),
            AttentionMask::default().with_causal(),
            AttentionMask::default().with_window(1),
        ] {
            let expected = attention_with_weights(q.clone(), k.clone(), v.clone(), &all, 0.0).0;
            for numbers in [vec![0, 5, 6, 7], vec![4], vec![8]] {
                let tokens: Vec<i32> = numbers.iter().map(|number| *number as i32).collect();
                let tokens = Tensor::<1, Int>::from_data(tokens.as_slice(), &device);
                let some = all.clone().with_queries(Queries::Tokens(numbers.into()));
                let found = attention(q.clone().select(2, tokens.clone()), k.clone(), v.clone(), &some, 0.0);
                let expected = expected.clone().select(2, tokens).into_data();
                found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            }
            let Some(packing) = &all.packing else { continue };
            assert_eq!(all.query_counts(packing)[..], [6, 3]);
            // The last two of the first sequence and the last of the second.
            let tokens = Tensor::<1, Int>::from_data([4, 5, 8], &device);
            let last = all.clone().with_queries(Queries::Counts([2, 1].into()));
            let q = q.clone().select(2, tokens.clone());
            let expected = expected.select(2, tokens).into_data();
            for found in [
                attention(q.clone(), k.clone(), v.clone(), &last, 0.0),
                attention_with_weights(q, k.clone(), v.clone(), &last, 0.0).0,
            ] {
                found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            }
        }
    }

    #[test]
    fn a_bias_is_added_and_learned() {
        let device = Device::flex().autodiff();
        let leaf = |shape: [usize; 4], phase: f32| values(shape, phase, &device).require_grad();
        let ignored: Vec<bool> = (0..10).map(|i| i > 7).collect();
        let pad_mask = Tensor::<2, Bool>::from_data(TensorData::new(ignored, [2, 5]), &device);
        let masks = [
            AttentionMask::default(),
            AttentionMask::default().with_causal(),
            AttentionMask::default().with_pad_mask(pad_mask),
        ];
        for (mask, shape) in masks.iter().flat_map(|mask| {
            [[1, 3, 5, 5], [2, 3, 5, 5], [1, 1, 5, 5], [2, 1, 1, 5]].map(|shape| (mask, shape))
        }) {
            let [q, k, v] = [0.1, 1.2, 2.3].map(|phase| leaf([2, 3, 5, 4], phase));
            let bias = leaf(shape, 3.4);
            let biased = mask.clone().with_bias(bias.clone());
            let y = attention(q.clone(), k.clone(), v.clone(), &biased, 0.0);
            let grads = (y.clone() * values([2, 3, 5, 4], 4.5, &device)).sum().backward();
            let found = [y, q.grad(&grads).unwrap(), bias.grad(&grads).unwrap()];
            // By hand: the scores' exponentials, of those that are seen.
            let (same, other) = (leaf(shape, 3.4), leaf([2, 3, 5, 4], 0.1));
            let scores = other.clone().matmul(k.swap_dims(2, 3)).mul_scalar(0.5) + same.clone();
            let seen = match mask.hidden(5, 5, &device) {
                Some(hidden) => hidden.bool_not().float().expand([2, 3, 5, 5]),
                None => scores.ones_like(),
            };
            let exponentials = scores.exp() * seen;
            let probs = exponentials.clone() / exponentials.sum_dim(3);
            let y = probs.matmul(v);
            let grads = (y.clone() * values([2, 3, 5, 4], 4.5, &device)).sum().backward();
            let expected = [y, other.grad(&grads).unwrap(), same.grad(&grads).unwrap()];
            for (found, expected) in found.into_iter().zip(expected) {
                found
                    .into_data()
                    .assert_approx_eq::<f32>(&expected.into_data(), Tolerance::rel_abs(1e-4, 1e-5));
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn dropout_has_the_gradient_of_its_mask() {
        let device = Device::flex().autodiff();
        let (b, h, len, d) = (2, 2, 64, 8);
        let leaf = |phase: f32| {
            let values: Vec<f32> = (0..b * h * len * d).map(|i| (i as f32 * 0.53 + phase).sin()).collect();
            Tensor::<4>::from_data(TensorData::new(values, [b, h, len, d]), &device).require_grad()
        };
        let everything = AttentionMask::default();
        let fused = |q: &Tensor<4>, k: &Tensor<4>, v: Tensor<4>| {
            device.seed(11);
            attention(q.clone(), k.clone(), v, &everything, 0.25)
        };
        // Values that are the identity read out what dropout leaves.
        let eye = Tensor::<2>::eye(len, &device).reshape([1, 1, len, len]).expand([b, h, len, len]);
        let left = fused(&leaf(0.1), &leaf(1.2), eye).into_data();
        let factors: Vec<f32> = left.iter::<f32>().map(|p| if p == 0.0 { 0.0 } else { 1.0 / 0.75 }).collect();
        let dropped = factors.iter().filter(|factor| **factor == 0.0).count();
        // Five standard deviations of a binomial of 16,384 draws are 280.
        assert!((3_810..4_380).contains(&dropped), "{dropped} of 16384 dropped");
        let factors = Tensor::<4>::from_data(TensorData::new(factors, [b, h, len, len]), &device);

        let run = |fuse: bool| {
            let (q, k, v) = (leaf(0.1), leaf(1.2), leaf(2.3));
            let y = match fuse {
                true => fused(&q, &k, v.clone()),
                false => {
                    let (_, probs) =
                        attention_with_weights(q.clone(), k.clone(), v.clone(), &everything, 0.0);
                    (probs * factors.clone()).matmul(v.clone())
                }
            };
            let grads = (y.clone() * leaf(3.4)).sum().backward();
            [y, q.grad(&grads).unwrap(), k.grad(&grads).unwrap(), v.grad(&grads).unwrap()]
                .map(Tensor::into_data)
        };
        for (fused, composed) in run(true).into_iter().zip(run(false)) {
            fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(1e-4, 1e-5));
        }
    }
}
