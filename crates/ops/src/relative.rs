use burn::tensor::activation::softmax;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use std::cell::OnceCell;
use std::sync::Arc;

use crate::dropout;
#[cfg(feature = "flex")]
use crate::flex;

/// Positions of [`relative_attention`]'s queries among the keys, and what they see: on the host, and the same
/// for all heads. One mask serves all layers.
#[derive(Debug, Clone)]
pub struct RelativeMask {
    pub(crate) pairs: Arc<Pairs>,
    tensors: OnceCell<Tensors>,
}

/// Data on each pair of query and key.
#[derive(Debug, Clone)]
pub(crate) struct Pairs {
    pub batch: usize,
    pub q_len: usize,
    pub k_len: usize,
    /// `[batch, q_len]`: the row of the query's distance to the first key.
    pub first: Vec<usize>,
    /// `[batch, q_len, k_len]`: whether the query does not see the key; empty if it sees all.
    pub hidden: Vec<bool>,
    /// `[batch, q_len, k_len]`: whether the key is of another segment than the query; empty if none is.
    pub others: Vec<bool>,
}

/// [`Pairs`] for composed attention.
#[derive(Debug, Clone)]
struct Tensors {
    /// `[batch, 1, q_len, k_len]`: the row of the pair's distance.
    rows: Tensor<4, Int>,
    /// `[batch, 1, q_len, k_len]`: 1 where a key is hidden, else 0.
    hidden: Option<Tensor<4>>,
    /// `[batch, 1, q_len, 1]`: 0 for a query that sees nothing, else 1.
    seeing: Option<Tensor<4>>,
    /// `[batch, 1, q_len, k_len]`: 1 where a key is of another segment, else 0.
    others: Option<Tensor<4>>,
}

impl RelativeMask {
    /// Queries that see all of `k_len` keys, with the same number in each batch row.
    ///
    /// # Shapes
    /// - `first`: `[batch, q_len]`: the row of [`positions`](RelativeInput::position) for the distance from
    ///   the query to the row's first key; each further key uses the next row.
    ///
    /// # Panics
    /// If there is no query or no key, or batch rows differ in their number of queries.
    pub fn new(first: Vec<usize>, batch: usize, k_len: usize) -> Self {
        assert!(k_len > 0 && !first.is_empty(), "attention of a query to a key");
        assert!(batch > 0 && first.len().is_multiple_of(batch), "equally many queries of each row");
        let q_len = first.len() / batch;
        let pairs = Pairs { batch, q_len, k_len, first, hidden: Vec::new(), others: Vec::new() };
        Self { pairs: Arc::new(pairs), tensors: OnceCell::new() }
    }

    /// Hides keys from single queries: `[batch, q_len, k_len]`, `true` = hidden.
    ///
    /// # Panics
    /// Unless there is one value per pair.
    pub fn with_hidden(self, hidden: Vec<bool>) -> Self {
        let hidden = self.kept(hidden);
        Self::of(Pairs { hidden, ..Arc::unwrap_or_clone(self.pairs) })
    }

    /// Marks keys in another segment than the query: `[batch, q_len, k_len]`, `true` = another
    /// segment.
    ///
    /// # Panics
    /// Unless there is one value per pair.
    pub fn with_others(self, others: Vec<bool>) -> Self {
        let others = self.kept(others);
        Self::of(Pairs { others, ..Arc::unwrap_or_clone(self.pairs) })
    }

    /// Whether any key is of another segment than a query.
    pub fn has_others(&self) -> bool {
        !self.pairs.others.is_empty()
    }

    fn of(pairs: Pairs) -> Self {
        Self { pairs: Arc::new(pairs), tensors: OnceCell::new() }
    }

    /// Values of all pairs; empty if all are false.
    fn kept(&self, values: Vec<bool>) -> Vec<bool> {
        let Pairs { first, k_len, .. } = &*self.pairs;
        assert_eq!(values.len(), first.len() * k_len, "a value for each pair of a query and a key");
        if values.contains(&true) { values } else { Vec::new() }
    }

    /// The tensors on the first requested device.
    fn tensors(&self, device: &Device) -> &Tensors {
        self.tensors.get_or_init(|| self.pairs.tensors(device))
    }
}

impl Pairs {
    fn tensors(&self, device: &Device) -> Tensors {
        let Self { batch, q_len, k_len, first, hidden, others } = self;
        let rows = first.iter().flat_map(|first| (*first as i32..).take(*k_len)).collect();
        let floats = |values: Vec<bool>, width: usize| -> Tensor<4> {
            let values: Vec<f32> = values.into_iter().map(|value| f32::from(u8::from(value))).collect();
            Tensor::from_data(TensorData::new(values, [*batch, 1, *q_len, width]), device)
        };
        let seeing: Vec<bool> = hidden.chunks(*k_len).map(|keys| keys.contains(&false)).collect();
        let matrix = |values: &[bool]| (!values.is_empty()).then(|| floats(values.to_vec(), *k_len));
        Tensors {
            rows: Tensor::from_data(TensorData::new::<i32, _>(rows, [*batch, 1, *q_len, *k_len]), device),
            hidden: matrix(hidden),
            seeing: seeing.contains(&false).then(|| floats(seeing, 1)),
            others: matrix(others),
        }
    }
}

/// Inputs of [`relative_attention`]. Heads are inside positions, as linear maps return them.
#[derive(Debug, Clone)]
pub struct RelativeInput {
    /// `[batch, q_len, n_heads, d_k]`
    pub query: Tensor<4>,
    /// `[batch, k_len, n_heads, d_k]`
    pub key: Tensor<4>,
    /// `[batch, k_len, n_heads, d_v]`
    pub value: Tensor<4>,
    /// The keys of distances, `[n_distances, n_heads, d_k]`.
    pub position: Tensor<3>,
    /// `u`, `[n_heads, d_k]`
    pub content_bias: Tensor<2>,
    /// `v`, `[n_heads, d_k]`
    pub position_bias: Tensor<2>,
    /// `b` and `s`, both `[n_heads, d_k]`, if the mask marks keys [of another
    /// segment](RelativeMask::with_others).
    pub segment: Option<[Tensor<2>; 2]>,
}

impl RelativeInput {
    /// # Panics
    /// If the shapes do not match each other or the mask.
    fn check(&self, mask: &RelativeMask) {
        let Pairs { batch, q_len, k_len, first, .. } = &*mask.pairs;
        let ([_, _, n_heads, d_k], [.., d_v]) = (self.query.dims(), self.value.dims());
        assert_eq!(self.query.dims(), [*batch, *q_len, n_heads, d_k], "the queries do not fit the mask");
        assert_eq!(self.key.dims(), [*batch, *k_len, n_heads, d_k], "the keys do not fit queries and mask");
        assert_eq!(self.value.dims(), [*batch, *k_len, n_heads, d_v], "the values do not fit the keys");
        let [n_distances, ..] = self.position.dims();
        assert_eq!(self.position.dims(), [n_distances, n_heads, d_k], "the distances do not fit the keys");
        let biases = [&self.content_bias, &self.position_bias];
        for vectors in biases.into_iter().chain(self.segment.iter().flatten()) {
            assert_eq!(vectors.dims(), [n_heads, d_k], "a vector of each head");
        }
        let last = first.iter().max().map_or(0, |first| first + k_len);
        assert!(last <= n_distances, "{n_distances} distances, of which row {} is wanted", last - 1);
    }
}

/// Attention by content, distance and segment (Dai et al. 2019, "Transformer-XL", §3.3; Yang et al. 2019, "XLNet", §2.5):
/// the softmax, over the keys `j` that a query `i` sees, of the scores
///
/// `((q_i + u)·k_j + (q_i + v)·r_ij + [j is of another segment] (q_i + b)·s) / √d_k`,
///
/// where `r_ij` is the row of [`position`](RelativeInput::position) for the distance from `i` to `j`. Dropout acts on the
/// probabilities. The context of a query that sees nothing is zeros.
///
/// When fused, the only quadratic memory kept for the backward pass is the probabilities, 4 bytes each.
/// Products are computed in the precision of the scope, [`with_precision`](crate::with_precision). Elsewhere
/// it is composed, in the tensors' precision.
///
/// # Shapes
/// - see [`RelativeInput`]; returns `[batch, q_len, n_heads, d_v]`
///
/// # Panics
/// If the shapes do not match each other or the mask.
pub fn relative_attention(input: RelativeInput, mask: &RelativeMask, dropout_prob: f64) -> Tensor<4> {
    input.check(mask);
    #[cfg(feature = "flex")]
    if flex::takes(&input.query) {
        let prob = dropout::effective(&input.query, dropout_prob);
        return flex::relative::relative_attention(input, mask, prob);
    }
    let weights = weights(&input, mask);
    let context = dropout(weights, dropout_prob).matmul(input.value.swap_dims(1, 2));
    context.swap_dims(1, 2)
}

/// The probabilities, before dropout, `[batch, n_heads, q_len, k_len]`.
fn weights(input: &RelativeInput, mask: &RelativeMask) -> Tensor<4> {
    let ([batch, q_len, n_heads, d_k], [_, k_len, ..]) = (input.query.dims(), input.key.dims());
    let Tensors { rows, hidden, seeing, others } = mask.tensors(&input.query.device());
    // The query is scaled and not the scores: it is the smaller tensor.
    let scale = 1.0 / (d_k as f64).sqrt();
    let biased = |bias: &Tensor<2>| {
        let bias = bias.clone().reshape([1, 1, n_heads, d_k]);
        (input.query.clone() + bias).mul_scalar(scale).swap_dims(1, 2)
    };
    let by_content = biased(&input.content_bias).matmul(input.key.clone().permute([0, 2, 3, 1]));
    let [n_distances, ..] = input.position.dims();
    let position = input.position.clone().permute([1, 2, 0]).unsqueeze_dim::<4>(0);
    let position = position.expand([batch, n_heads, d_k, n_distances]);
    let by_distance = biased(&input.position_bias).matmul(position);
    let by_distance = by_distance.gather(3, rows.clone().expand([batch, n_heads, q_len, k_len]));
    let mut scores = by_content + by_distance;
    if let (Some(others), Some([bias, segment])) = (others, &input.segment) {
        let segment = segment.clone().reshape([1, n_heads, 1, d_k]);
        let by_segment = (biased(bias) * segment).sum_dim(3);
        scores = scores + by_segment * others.clone();
    }
    if let Some(hidden) = hidden {
        let lowest = match scores.dtype() {
            DType::F16 => -65504.0,
            _ => f64::from(f32::MIN),
        };
        let hidden = hidden.clone().cast(scores.dtype()).mul_scalar(lowest);
        scores = scores + hidden;
    }
    let weights = softmax(scores, 3);
    match seeing {
        Some(seeing) => weights * seeing.clone(),
        None => weights,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;

    /// Sizes: rows of the batch, queries, keys, heads, features of keys and of values.
    #[derive(Debug, Clone, Copy)]
    struct Case {
        sizes: [usize; 6],
        hidden: bool,
        segments: bool,
    }

    /// A leaf where the device tracks gradients.
    fn numbers<const D: usize>(shape: [usize; D], phase: f32, device: &Device) -> Tensor<D> {
        let n = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.53 + phase).sin() * 1.5).collect();
        let numbers = Tensor::from_data(TensorData::new(values, shape), device);
        if device.is_autodiff() { numbers.require_grad() } else { numbers }
    }

    impl Case {
        /// Queries in any order; each row's last one sees nothing.
        fn mask(&self) -> RelativeMask {
            let [batch, q_len, k_len, ..] = self.sizes;
            let first = (0..batch * q_len).map(|query| query * 7 % (q_len + 2)).collect();
            let mask = RelativeMask::new(first, batch, k_len);
            let pairs = || (0..batch * q_len * k_len).map(|pair| (pair / k_len, pair % k_len));
            let hides = |(query, key)| query % q_len == q_len - 1 || (query * 5 + key * 3) % 4 == 1;
            let differs = |(query, key)| (query + key) % 3 == 0;
            let mask = if self.hidden { mask.with_hidden(pairs().map(hides).collect()) } else { mask };
            if self.segments { mask.with_others(pairs().map(differs).collect()) } else { mask }
        }

        fn leaves(&self, device: &Device) -> RelativeInput {
            let [batch, q_len, k_len, h, d_k, d_v] = self.sizes;
            let vectors = |phase| numbers([h, d_k], phase, device);
            RelativeInput {
                query: numbers([batch, q_len, h, d_k], 0.1, device),
                key: numbers([batch, k_len, h, d_k], 1.2, device),
                value: numbers([batch, k_len, h, d_v], 2.3, device),
                position: numbers([q_len + 1 + k_len, h, d_k], 3.4, device),
                content_bias: vectors(4.5),
                position_bias: vectors(5.6),
                segment: self.segments.then(|| [vectors(6.7), vectors(7.8)]),
            }
        }

        /// The output, and the gradients of its weighted sum.
        fn run(
            &self,
            device: &Device,
            attention: impl Fn(RelativeInput, &RelativeMask) -> Tensor<4>,
        ) -> Vec<TensorData> {
            let leaves = self.leaves(device);
            let y = attention(leaves.clone(), &self.mask());
            let grads = (y.clone() * numbers(y.dims(), 8.9, device)).sum().backward();
            let RelativeInput { query, key, value, position, content_bias, position_bias, segment } = leaves;
            let tokens = [query, key, value].map(|x| x.grad(&grads).expect("a leaf").into_data());
            let vectors = [content_bias, position_bias].into_iter().chain(segment.into_iter().flatten());
            let vectors = vectors.map(|x| x.grad(&grads).expect("a leaf").into_data());
            let position = position.grad(&grads).expect("a leaf").into_data();
            [y.into_data(), position].into_iter().chain(tokens).chain(vectors).collect()
        }
    }

    const CASES: [Case; 5] = [
        Case { sizes: [1, 1, 1, 1, 1, 1], hidden: false, segments: false },
        Case { sizes: [2, 7, 9, 3, 5, 4], hidden: true, segments: true },
        Case { sizes: [5, 12, 13, 2, 8, 8], hidden: true, segments: false },
        Case { sizes: [3, 6, 31, 1, 3, 7], hidden: false, segments: true },
        // More work than one thread is for.
        Case { sizes: [9, 33, 40, 4, 16, 16], hidden: true, segments: true },
    ];

    /// By the formula, number by number.
    fn slow(input: &RelativeInput, mask: &RelativeMask) -> Vec<f32> {
        let ([batch, q_len, h, d_k], [_, k_len, _, d_v]) = (input.query.dims(), input.value.dims());
        let read = |data: TensorData| data.iter::<f32>().collect::<Vec<_>>();
        let all = |x: &Tensor<4>| read(x.to_data());
        let (q, k, v) = (all(&input.query), all(&input.key), all(&input.value));
        let position = read(input.position.to_data());
        let [u, w] = [&input.content_bias, &input.position_bias].map(|x| read(x.to_data()));
        let segment = input.segment.as_ref().map(|vectors| vectors.each_ref().map(|x| read(x.to_data())));
        let pairs = &mask.pairs;
        let mut context = Vec::new();
        for (row, i, head) in
            (0..batch).flat_map(|b| (0..q_len).flat_map(move |i| (0..h).map(move |n| (b, i, n))))
        {
            let query = row * q_len + i;
            let dot = |bias: &[f32], other: &[f32], at: usize| -> f32 {
                let q = &q[(query * h + head) * d_k..][..d_k];
                let terms = q.iter().zip(&bias[head * d_k..]).zip(&other[at * d_k..][..d_k]);
                terms.map(|((q, bias), other)| (q + bias) * other).sum()
            };
            let weight = |j: usize| {
                let pair = query * k_len + j;
                if pairs.hidden.get(pair) == Some(&true) {
                    return 0.0;
                }
                let mut score = dot(&u, &k, (row * k_len + j) * h + head);
                score += dot(&w, &position, (pairs.first[query] + j) * h + head);
                if let (Some([bias, segment]), Some(true)) = (&segment, pairs.others.get(pair)) {
                    score += dot(bias, segment, head);
                }
                (score / (d_k as f32).sqrt()).exp()
            };
            let weights: Vec<f32> = (0..k_len).map(weight).collect();
            let total = weights.iter().sum::<f32>().max(f32::MIN_POSITIVE);
            context.extend((0..d_v).map(|feature| {
                let value = |j: usize| v[((row * k_len + j) * h + head) * d_v + feature];
                weights.iter().enumerate().map(|(j, weight)| weight / total * value(j)).sum::<f32>()
            }));
        }
        context
    }

    #[test]
    fn it_is_the_formula() {
        for case in CASES {
            for device in [Device::flex(), Device::flex().autodiff().gradient_checkpointing()] {
                let (input, mask) = (case.leaves(&device), case.mask());
                let expected = TensorData::new(slow(&input, &mask), case_shape(case));
                let found = relative_attention(input, &mask, 0.0).into_data();
                found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            }
        }
    }

    fn case_shape(case: Case) -> [usize; 4] {
        let [batch, q_len, _, h, _, d_v] = case.sizes;
        [batch, q_len, h, d_v]
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_gradients_are_the_composed_ones() {
        let fused = Device::flex().autodiff();
        let composed = fused.clone().gradient_checkpointing();
        for case in CASES {
            let whole = |input: RelativeInput, mask: &RelativeMask| relative_attention(input, mask, 0.0);
            let (found, expected) = (case.run(&fused, whole), case.run(&composed, whole));
            assert_eq!(found.len(), 7 + 2 * usize::from(case.segments));
            for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let scale = expected.iter::<f32>().fold(1.0f32, |scale, x| scale.max(x.abs()));
                // What all rows of the batch share is a sum over all queries, whose terms cancel out.
                let tolerance = if part == 1 || part > 4 { 5e-5 } else { 1e-5 };
                for (a, b) in found.iter::<f32>().zip(expected.iter::<f32>()) {
                    assert!((a - b).abs() <= tolerance * scale, "{case:?}, part {part}: {a} is not {b}");
                }
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn dropout_has_the_gradient_of_its_mask() {
        let device = Device::flex().autodiff();
        let case = CASES[4];
        let [batch, q_len, k_len, h, ..] = case.sizes;
        let dropped = |input: RelativeInput, mask: &RelativeMask| {
            device.seed(11);
            relative_attention(input, mask, 0.25)
        };
        // Values that are the identity read out what dropout leaves.
        let eye = Tensor::<2>::eye(k_len, &device).reshape([1, k_len, 1, k_len]);
        let eye = eye.expand([batch, k_len, h, k_len]);
        let (input, mask) = (case.leaves(&device), case.mask());
        let left = dropped(RelativeInput { value: eye, ..input.clone() }, &mask).swap_dims(1, 2).into_data();
        let all = weights(&input, &mask).into_data();
        let factor = |(left, prob): (f32, f32)| if left == 0.0 && prob > 0.0 { 0.0 } else { 1.0 / 0.75 };
        let factors: Vec<f32> = left.iter::<f32>().zip(all.iter::<f32>()).map(factor).collect();
        let seen = all.iter::<f32>().filter(|prob| *prob > 0.0).count();
        let share = factors.iter().filter(|factor| **factor == 0.0).count() as f32 / seen as f32;
        assert!((0.23..0.27).contains(&share), "{share} of {seen} dropped");
        let factors = Tensor::<4>::from_data(TensorData::new(factors, [batch, h, q_len, k_len]), &device);
        let expected = case.run(&device, |input, mask| {
            let weights = weights(&input, mask) * factors.clone();
            weights.matmul(input.value.swap_dims(1, 2)).swap_dims(1, 2)
        });
        for (found, expected) in case.run(&device, dropped).iter().zip(&expected) {
            found.assert_approx_eq::<f32>(expected, Tolerance::rel_abs(1e-4, 1e-4));
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let device = Device::flex().autodiff();
        let [one, three] = [1, 3].map(|n| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("a pool");
            pool.install(|| {
                CASES[4].run(&device, |input, mask| {
                    device.seed(5);
                    relative_attention(input, mask, 0.1)
                })
            })
        });
        assert!(one == three);
    }

    #[test]
    #[should_panic(expected = "4 distances, of which row 4 is wanted")]
    fn distances_without_a_row_are_refused() {
        let case = Case { sizes: [1, 2, 3, 1, 2, 2], hidden: false, segments: false };
        let input = case.leaves(&Device::flex());
        let position = input.position.clone().narrow(0, 0, 4);
        let mask = RelativeMask::new(vec![0, 2], 1, 3);
        relative_attention(RelativeInput { position, ..input }, &mask, 0.0);
    }
}
