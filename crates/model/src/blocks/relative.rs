use super::Embedding;
use crate::ParamInit;
use crate::ops::{self, AttentionMask, TokenPositions};
use burn::module::Module;
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};
use serde::{Deserialize, Serialize};

/// Learned vectors for the distance between key and query (Shaw et al. 2018, eq. 3 and 4): `e_ij = q_i·(k_j +
/// a^K_(j−i)) / √d_k` and `z_i = Σ_j α_ij (v_j + a^V_(j−i))`. Distances are clipped to `max_distance`. Heads share the
/// vectors, layers do not, as in tensor2tensor.
///
/// The keys' term is a score bias and the values' term needs the probabilities, so attention with relative
/// positions is composed on every device, and its memory grows with the square of the length.
#[derive(Module, Debug)]
pub struct RelativePositions {
    /// `[2 · max_distance + 1, d_k]`: for the distances from `−max_distance` (the key is before the query) to
    /// `max_distance`.
    pub keys: Embedding,
    /// `[2 · max_distance + 1, d_v]`, if there are vectors for values.
    pub values: Option<Embedding>,
    max_distance: usize,
}

/// Configuration of [`RelativePositions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelativeConfig {
    /// The greatest distance with its own vector.
    pub max_distance: usize,
    /// Whether there are vectors for values as well as for keys.
    pub values: bool,
}

impl RelativeConfig {
    /// New vectors for keys of `d_k` and values of `d_v` features.
    pub fn init(&self, d_k: usize, d_v: usize, init: &mut ParamInit) -> RelativePositions {
        let n = 2 * self.max_distance + 1;
        RelativePositions {
            keys: Embedding::new(n, d_k, init),
            values: self.values.then(|| Embedding::new(n, d_v, init)),
            max_distance: self.max_distance,
        }
    }
}

impl RelativePositions {
    /// The keys' term, to be added to the scores.
    ///
    /// # Shapes
    /// - `query`: `[batch, n_heads, q_len, d_k]`; `distances`: see [`distances`]
    /// - returns `[batch, n_heads, q_len, k_len]`
    pub(super) fn scores(&self, query: Tensor<4>, distances: &Tensor<4, Int>) -> Tensor<4> {
        let [batch, n_heads, q_len, d_k] = query.dims();
        let k_len = distances.dims()[3];
        let of_distances = ops::linear_tied(query, self.keys.weight.val(), None);
        let rows = self.rows(distances).expand([batch, n_heads, q_len, k_len]);
        of_distances.gather(3, rows).mul_scalar(1.0 / (d_k as f64).sqrt())
    }

    /// The values' term, to be added to the context; none if there are no vectors for values.
    ///
    /// # Shapes
    /// - `weights`: `[batch, n_heads, q_len, k_len]`; returns `[batch, n_heads, q_len, d_v]`
    pub(super) fn context(&self, weights: Tensor<4>, distances: &Tensor<4, Int>) -> Option<Tensor<4>> {
        let values = self.values.as_ref()?;
        let [batch, n_heads, q_len, k_len] = weights.dims();
        let rows = self.rows(distances).expand([batch, n_heads, q_len, k_len]);
        let n = 2 * self.max_distance + 1;
        let of_distances = Tensor::<4>::zeros([batch, n_heads, q_len, n], &weights.device());
        let of_distances = of_distances.scatter(3, rows, weights, IndexingUpdateOp::Add);
        Some(ops::linear(of_distances, values.weight.val(), None))
    }

    /// The table's row for each distance.
    fn rows(&self, distances: &Tensor<4, Int>) -> Tensor<4, Int> {
        let most = self.max_distance as i64;
        distances.clone().clamp(-most, most).add_scalar(most)
    }
}

/// The distance from each query to each key, negative if the key is before the query. For padding and for tokens of
/// different sequences it is arbitrary.
///
/// # Shapes
/// - returns `[batch, 1, q_len, k_len]`, with a batch of 1 if it is the same in all rows
///
/// # Panics
/// If the mask does not match the sizes.
pub(super) fn distances(mask: &AttentionMask, q_len: usize, k_len: usize, device: &Device) -> Tensor<4, Int> {
    let keys = positions(mask.key_positions(k_len), k_len, device);
    let queries = positions(mask.query_positions(q_len, k_len), q_len, device);
    let ([of_keys, _], [of_queries, _]) = (keys.dims(), queries.dims());
    let shape = [of_keys.max(of_queries), 1, q_len, k_len];
    let keys = keys.reshape([of_keys, 1, 1, k_len]).expand(shape);
    keys - queries.reshape([of_queries, 1, q_len, 1]).expand(shape)
}

/// `[batch or 1, len]`
fn positions(positions: TokenPositions, len: usize, device: &Device) -> Tensor<2, Int> {
    match positions {
        TokenPositions::From(first) => {
            Tensor::<1, Int>::arange(first as i64..(first + len) as i64, device).unsqueeze_dim(0)
        }
        TokenPositions::Packed { positions, .. } => {
            let positions: Vec<i32> = positions.iter().map(|position| *position as i32).collect();
            Tensor::<1, Int>::from_data(positions.as_slice(), device).unsqueeze_dim(0)
        }
        TokenPositions::Rows { positions, .. } => positions,
        other => unreachable!("{other:?}"),
    }
}

/// The slope of each head's bias (Press et al. 2022, "Train Short, Test Long", §3). For `n` heads, `n` a power of 2, it
/// is the geometric sequence with first term and ratio `2^(−8/n)`. For other `n`, the sequence of the next lower power
/// is followed by every other term of that of the next higher power, as in the authors' code.
pub(super) fn alibi_slopes(n_heads: usize) -> Vec<f32> {
    let sequence = |n: usize| (1..=n).map(move |head| 2f64.powf(-8.0 * head as f64 / n as f64) as f32);
    let below = if n_heads.is_power_of_two() { n_heads } else { n_heads.next_power_of_two() / 2 };
    sequence(below).chain(sequence(2 * below).step_by(2)).take(n_heads).collect()
}

/// A bias that decreases with the distance between query and key (Press et al. 2022): `−slope · |i − j|`. The
/// paper covers left-to-right models, in which no key is after its query; in an encoder, both directions
/// count equally.
///
/// # Shapes
/// - returns `[batch, n_heads, q_len, k_len]`
pub(super) fn alibi_bias(slopes: &[f32], distances: &Tensor<4, Int>) -> Tensor<4> {
    let slopes = Tensor::<1>::from_data(slopes, &distances.device()).reshape([1, slopes.len(), 1, 1]);
    distances.clone().abs().float() * slopes.neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{
        Attention, AttentionInput, KeyValueCache, MultiHeadAttention, MultiHeadAttentionConfig,
    };
    use burn::tensor::activation::softmax;
    use burn::tensor::{Bool, TensorData, Tolerance};

    const D: usize = 12;
    const HEADS: usize = 3;

    fn devices() -> [Device; 2] {
        [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()]
    }

    fn config() -> MultiHeadAttentionConfig {
        MultiHeadAttentionConfig::new(D, HEADS)
    }

    fn init(config: MultiHeadAttentionConfig, device: &Device) -> MultiHeadAttention {
        config.init(&mut ParamInit::new(device, 1).with_std(0.4))
    }

    fn states(batch: usize, len: usize, device: &Device) -> Tensor<3> {
        let values: Vec<f32> = (0..batch * len * D).map(|i| (i as f32 * 0.53).sin() * 1.5).collect();
        Tensor::from_data(TensorData::new(values, [batch, len, D]), device)
    }

    /// The equations as in the paper, with a vector for each pair of tokens.
    fn slow(
        block: &MultiHeadAttention,
        x: Tensor<3>,
        seen: impl Fn(usize, usize, usize) -> bool,
    ) -> Tensor<3> {
        let ([batch, len, _], device) = (x.dims(), x.device());
        let heads = |map: &crate::blocks::Linear| {
            map.forward(x.clone()).reshape([batch, len, HEADS, D / HEADS]).swap_dims(1, 2)
        };
        let (q, k, v) = (heads(&block.query), heads(&block.key), heads(&block.value));
        let relative = block.relative.as_ref();
        let pairs = |table: &Embedding| {
            let most = relative.expect("relative positions").max_distance as i64;
            let rows: Vec<i32> = (0..len * len)
                .map(|pair| ((pair % len) as i64 - (pair / len) as i64).clamp(-most, most) + most)
                .map(|row| row as i32)
                .collect();
            let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &device);
            table.weight.val().select(0, rows).reshape([1, 1, len, len, D / HEADS])
        };
        // `[batch, n_heads, q_len, k_len, d]`
        let mut keys = k.unsqueeze_dim::<5>(2).expand([batch, HEADS, len, len, D / HEADS]);
        let mut values = v.unsqueeze_dim::<5>(2).expand([batch, HEADS, len, len, D / HEADS]);
        if let Some(relative) = relative {
            keys = keys + pairs(&relative.keys);
            if let Some(table) = &relative.values {
                values = values + pairs(table);
            }
        }
        let scores = (q.unsqueeze_dim::<5>(3) * keys).sum_dim(4).squeeze_dim::<4>(4);
        let mut scores = scores.mul_scalar(1.0 / ((D / HEADS) as f64).sqrt());
        let mut hidden = Vec::new();
        let mut bias = Vec::new();
        for row in 0..batch {
            for head in 0..HEADS {
                for (i, j) in (0..len * len).map(|pair| (pair / len, pair % len)) {
                    hidden.push(!seen(row, i, j));
                    let slope = block.alibi.as_ref().map_or(0.0, |slopes| slopes[head]);
                    bias.push(-slope * i.abs_diff(j) as f32);
                }
            }
        }
        let shape = [batch, HEADS, len, len];
        scores = scores + Tensor::from_data(TensorData::new(bias, shape), &device);
        let hidden = Tensor::<4, Bool>::from_data(TensorData::new(hidden, shape), &device);
        let weights = softmax(scores.mask_fill(hidden, f32::MIN), 3);
        let context = (weights.unsqueeze_dim::<5>(4) * values).sum_dim(3).squeeze_dim::<4>(3);
        block.output.forward(context.swap_dims(1, 2).reshape([batch, len, D]))
    }

    fn blocks(device: &Device) -> Vec<MultiHeadAttention> {
        let relative = |max_distance, values| RelativeConfig { max_distance, values };
        [
            config().with_relative(relative(2, true)),
            config().with_relative(relative(20, true)),
            config().with_relative(relative(3, false)),
            config().with_alibi(),
        ]
        .map(|config| init(config, device))
        .into()
    }

    /// The context, and the gradients of the input and the parameters.
    fn results(
        block: &MultiHeadAttention,
        x: &Tensor<3>,
        form: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Vec<TensorData> {
        let x = x.clone().require_grad();
        let context = form(x.clone());
        let n = context.shape().num_elements() as i64;
        let weights = Tensor::<1, Int>::arange(0..n, &x.device()).float().sin().reshape(context.dims());
        let grads = (context.clone() * weights).sum().backward();
        let mut all = vec![context.into_data(), x.grad(&grads).unwrap().into_data()];
        let maps = [&block.query, &block.key, &block.value, &block.output];
        let mut tables: Vec<Tensor<2>> = maps.iter().map(|map| map.weight.val()).collect();
        if let Some(relative) = &block.relative {
            tables.push(relative.keys.weight.val());
            tables.extend(relative.values.as_ref().map(|table| table.weight.val()));
        }
        all.extend(tables.iter().map(|table| table.grad(&grads).unwrap().into_data()));
        all
    }

    #[test]
    fn positions_in_the_attention_equal_their_equations() {
        for device in devices() {
            let x = states(2, 6, &device);
            let ignored: Vec<bool> = (0..12).map(|i| i > 9).collect();
            let pad_mask = Tensor::<2, Bool>::from_data(TensorData::new(ignored, [2, 6]), &device);
            let causal = AttentionMask::default().with_causal();
            let padded = AttentionMask::default().with_pad_mask(pad_mask);
            type Seen = fn(usize, usize, usize) -> bool;
            let cases: [(AttentionMask, Seen); 3] = [
                (AttentionMask::default(), |_, _, _| true),
                (causal, |_, i, j| j <= i),
                (padded, |row, _, j| row == 0 || j < 4),
            ];
            for block in blocks(&device) {
                for (mask, seen) in &cases {
                    // Contexts at padding are arbitrary.
                    let of_tokens = |x: Tensor<3>| {
                        let tokens = if mask.pad_mask.is_some() { 4 } else { 6 };
                        let second = x.clone().narrow(0, 1, 1).narrow(1, 0, tokens);
                        Tensor::cat(vec![x.narrow(0, 0, 1), second], 1)
                    };
                    let found = results(&block, &x, |x| {
                        of_tokens(block.forward(AttentionInput::new(x, mask)).context)
                    });
                    let expected = results(&block, &x, |x| of_tokens(slow(&block, x, seen)));
                    for (found, expected) in found.iter().zip(&expected) {
                        found.assert_approx_eq::<f32>(expected, Tolerance::rel_abs(1e-4, 1e-5));
                    }
                }
            }
        }
    }

    #[test]
    fn cached_and_packed_tokens_have_the_same_distances() {
        for device in devices().map(Device::inner) {
            let x = states(1, 6, &device);
            let causal = AttentionMask::default().with_causal();
            for block in blocks(&device) {
                assert!(!block.takes_packed());
                let whole = block.forward(AttentionInput::new(x.clone(), &causal)).context;
                let mut cache = KeyValueCache::new();
                for (start, n) in [(0, 3), (3, 1), (4, 2)] {
                    let input = AttentionInput::new(x.clone().narrow(1, start, n), &causal);
                    let context = block.forward(input.with_cache(&mut cache)).context;
                    let expected = whole.clone().narrow(1, start, n).into_data();
                    context.into_data().assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(1e-4, 1e-5));
                }
                let both = Tensor::cat(vec![x.clone().narrow(1, 0, 2), x.clone()], 1);
                let packed = causal.clone().with_packing(ops::Packing::new([2, 6]));
                let context = block.forward(AttentionInput::new(both, &packed)).context;
                let expected = Tensor::cat(vec![whole.clone().narrow(1, 0, 2), whole], 1).into_data();
                context.into_data().assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(1e-4, 1e-5));
            }
        }
    }

    #[test]
    fn slopes_are_the_papers() {
        assert_eq!(alibi_slopes(8), [1, 2, 3, 4, 5, 6, 7, 8].map(|i| 0.5f32.powi(i)));
        // The authors' `get_slopes(12)`: the slopes of 8 heads, then every other one of those of 16.
        let twelve = alibi_slopes(12);
        assert_eq!(twelve[..8], alibi_slopes(8));
        let expected = [0.5, 1.5, 2.5, 3.5].map(|exponent| 2f32.powf(-exponent));
        for (found, expected) in twelve[8..].iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{twelve:?}");
        }
        assert_eq!(alibi_slopes(1), [2f32.powi(-8)]);
    }

    #[test]
    fn a_memory_has_no_positions() {
        let device = Device::flex();
        for block in blocks(&device) {
            let (queries, memory) = (states(2, 3, &device), states(2, 5, &device));
            let mask = AttentionMask::default();
            let run = |memory: Tensor<3>| {
                block
                    .forward(AttentionInput::new(queries.clone(), &mask).with_memory(memory))
                    .context
                    .into_data()
            };
            run(memory.clone().flip([1])).assert_approx_eq::<f32>(&run(memory), Tolerance::absolute(1e-5));
        }
    }
}
