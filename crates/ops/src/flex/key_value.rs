//! Attention of single queries to keys and values stored token by token.

use super::vector::{exp, max, sum, vectorised};
use super::{Input, dense, op, tensor};
use burn::tensor::{Shape, Tensor};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

/// A store's keys and values, `[places, n_heads, d]` each.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    pub keys: &'a [f32],
    pub values: &'a [f32],
    pub n_heads: usize,
    /// Of a key and of a value in one head.
    pub widths: [usize; 2],
}

/// Appends `[batch, n_heads, len, d]` token by token, with each token's heads adjacent.
pub(crate) fn append(held: &mut Vec<f32>, new: Tensor<4>) {
    let new = by_token(new);
    held.extend_from_slice(super::values(&new));
}

/// A tensor `[batch, n_heads, len, d]` as dense `[batch, len, n_heads, d]`, the order made by linear maps.
fn by_token(x: Tensor<4>) -> FlexTensor {
    dense(Input::strided(x).value.transpose(1, 2))
}

/// Lanes of a partial sum.
const LANES: usize = 16;

/// Fewer multiplications are not worth a second thread: each reads a number that was stored long ago.
const PARALLEL: usize = 1 << 17;

/// A product of two vectors; the order of its sums depends on their length alone.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *sum = a.mul_add(*b, *sum);
        }
    }
    for half in [8, 4, 2, 1] {
        let (left, right) = lanes.split_at_mut(half);
        for (sum, x) in left.iter_mut().zip(right) {
            *sum += *x;
        }
    }
    a_rest.iter().zip(b_rest).fold(lanes[0], |sum, (a, b)| a.mul_add(*b, sum))
}

/// One head's keys or values.
#[derive(Clone, Copy)]
struct Head<'a> {
    all: &'a [f32],
    /// Stride between tokens.
    stride: usize,
    /// Offset of the head within a token.
    offset: usize,
    width: usize,
}

impl<'a> Head<'a> {
    #[inline(always)]
    fn at(&self, place: u32) -> &'a [f32] {
        &self.all[place as usize * self.stride + self.offset..][..self.width]
    }
}

vectorised! {
    /// The probabilities of the places for a query, which is scaled by `scale`. `bias` is indexed by distance
    /// from the last place; empty for none.
    fn probabilities(
        query: &[f32],
        keys: Head<'_>,
        seen: &[u32],
        scale: f32,
        bias: &[f32],
        probs: &mut [f32],
    ) {
        for (prob, place) in probs.iter_mut().zip(seen) {
            *prob = dot(query, keys.at(*place)) * scale;
        }
        if let Some(furthest) = bias.last() {
            for (distance, prob) in probs.iter_mut().rev().enumerate() {
                *prob += *bias.get(distance).unwrap_or(furthest);
            }
        }
        let greatest = max(probs);
        for prob in probs.iter_mut() {
            *prob = exp(*prob - greatest);
        }
        let inverse = 1.0 / sum([probs], |[p]| p);
        for prob in probs.iter_mut() {
            *prob *= inverse;
        }
    }

    /// The sum of the values at the places, each times its probability.
    fn mix(values: Head<'_>, seen: &[u32], probs: &[f32], context: &mut [f32]) {
        // A part of the features at a time, so that their sums stay in registers.
        const PART: usize = 4 * LANES;
        let (parts, rest) = context.as_chunks_mut::<PART>();
        let n_parts = parts.len();
        for (number, context) in parts.iter_mut().enumerate() {
            let mut sums = [0f32; PART];
            for (prob, place) in probs.iter().zip(seen) {
                let value = &values.at(*place)[number * PART..][..PART];
                for (sum, value) in sums.iter_mut().zip(value) {
                    *sum = prob.mul_add(*value, *sum);
                }
            }
            *context = sums;
        }
        rest.fill(0.0);
        for (prob, place) in probs.iter().zip(seen) {
            for (sum, value) in rest.iter_mut().zip(&values.at(*place)[n_parts * PART..]) {
                *sum = prob.mul_add(*value, *sum);
            }
        }
    }
}

pub(crate) fn attention(
    query: Tensor<4>,
    held: Held<'_>,
    seen: &[&[u32]],
    bias: Option<&Tensor<2>>,
    need_weights: bool,
) -> (Tensor<4>, Option<Tensor<4>>) {
    let [batch, n_heads, q_len, d_k] = query.dims();
    let ([_, d_v], group) = (held.widths, n_heads / held.n_heads);
    let query = by_token(query);
    let query = super::values(&query);
    let n_distances = bias.map_or(0, |bias| bias.dims()[1]);
    let bias = bias.map(|bias| dense(Input::strided(bias.clone()).value));
    let bias: &[f32] = bias.as_ref().map_or(&[], |bias| super::values(bias));
    let n_scores: usize = n_heads * seen.iter().map(|places| places.len()).sum::<usize>();
    op!("attention_at", 2 * n_scores * (d_k + d_v));
    let scale = 1.0 / (d_k as f32).sqrt();
    let longest = seen.iter().map(|places| places.len()).max().unwrap_or(0);
    let mut context = vec![0.0; seen.len() * n_heads * d_v];
    let mut weights = vec![0.0; if need_weights { seen.len() * n_heads * longest } else { 0 }];
    // The heads that share keys and values are a task: what one has read the next finds in the cache.
    let work = |probs: &mut Vec<f32>, number: usize, context: &mut [f32], weights: Option<&mut [f32]>| {
        let (row, head) = (number / held.n_heads, number % held.n_heads);
        let of = |all, width| Head { all, stride: width * held.n_heads, offset: head * width, width };
        let (keys, values) = (of(held.keys, d_k), of(held.values, d_v));
        let queries = query[(row * n_heads + head * group) * d_k..][..group * d_k].chunks_exact(d_k.max(1));
        let mut weights = weights.map(|weights| weights.chunks_exact_mut(longest));
        probs.resize(seen[row].len(), 0.0);
        for (i, (query, context)) in queries.zip(context.chunks_exact_mut(d_v.max(1))).enumerate() {
            let bias = &bias[(head * group + i) * n_distances..][..n_distances];
            probabilities(query, keys, seen[row], scale, bias, probs);
            mix(values, seen[row], probs, context);
            if let Some(weights) = weights.as_mut().and_then(Iterator::next) {
                weights[..probs.len()].copy_from_slice(probs);
            }
        }
    };
    let parallel = n_scores * (d_k + d_v) >= PARALLEL;
    let n_tasks = seen.len() * held.n_heads;
    let least = if parallel { n_tasks / (16 * rayon::current_num_threads()) } else { n_tasks };
    let contexts = context.par_chunks_mut((group * d_v).max(1)).with_min_len(least.max(1)).enumerate();
    match need_weights {
        false => {
            contexts.for_each_init(Vec::new, |probs, (number, context)| work(probs, number, context, None))
        }
        true => contexts
            .zip(weights.par_chunks_mut(group * longest))
            .for_each_init(Vec::new, |probs, ((number, context), weights)| {
                work(probs, number, context, Some(weights))
            }),
    }
    let back = |values: Vec<f32>, width: usize| {
        let values = tensor(values, Shape::new([batch, q_len, n_heads, width])).transpose(1, 2);
        Tensor::from_primitive::<Flex>(values)
    };
    (back(context, d_v), need_weights.then(|| back(weights, longest)))
}
