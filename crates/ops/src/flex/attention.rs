//! Scaled dot-product attention, a task for each sequence and head.

use super::linear::{Matrix, product};
use super::random::{Keep, RowKeep};
use super::vector::{exp, max, sum, vectorised};
use super::{Input, draw_seed, filled, op, output};
use crate::AttentionMask;
use burn::tensor::{DType, Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor, Layout};
use burn_std::Bytes;
use rayon::prelude::*;

vectorised! {
    /// Scores to probabilities, over the first `limit` keys less the ignored ones.
    fn softmax_row(row: &mut [f32], ignored: &[bool], limit: usize, scale: f32) {
        let len = row.len();
        let (seen, unseen) = row.split_at_mut(limit);
        if !ignored.is_empty() {
            for (score, ignored) in seen.iter_mut().zip(ignored) {
                *score = if *ignored { f32::NEG_INFINITY } else { *score };
            }
        }
        let greatest = max(seen);
        if greatest == f32::NEG_INFINITY && seen.iter().all(|score| !score.is_nan()) {
            // Nothing to see: as if every score were the same.
            let share = 1.0 / len as f32;
            seen.fill(share);
            unseen.fill(share);
            return;
        }
        for score in seen.iter_mut() {
            // The exponential of minus infinity is tiny, but not nothing.
            let hidden = *score == f32::NEG_INFINITY;
            let e = exp((*score - greatest) * scale);
            *score = if hidden { 0.0 } else { e };
        }
        let inverse = 1.0 / sum(seen.len(), |i| seen[i]);
        for score in seen.iter_mut() {
            *score *= inverse;
        }
        unseen.fill(0.0);
    }

    fn drop_row(from: &[f32], keep: RowKeep, to: &mut [f32]) {
        for (i, (from, to)) in from.iter().zip(to).enumerate() {
            *to = *from * keep.factor(i);
        }
    }

    fn drop_row_in_place(row: &mut [f32], keep: RowKeep) {
        for (i, x) in row.iter_mut().enumerate() {
            *x *= keep.factor(i);
        }
    }

    /// The gradient of the probabilities to that of the scores.
    fn softmax_row_backward(probs: &[f32], gradient: &mut [f32], scale: f32) {
        let gradient = &mut gradient[..probs.len()];
        let dot = sum(probs.len(), |i| probs[i] * gradient[i]);
        for (gradient, p) in gradient.iter_mut().zip(probs) {
            *gradient = *p * (*gradient - dot) * scale;
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    n_heads: usize,
    q_len: usize,
    k_len: usize,
    d_k: usize,
    d_v: usize,
}

impl Sizes {
    fn tasks(&self) -> usize {
        self.batch * self.n_heads
    }

    /// Of the two products.
    fn flops(&self) -> usize {
        2 * self.tasks() * self.q_len * self.k_len * (self.d_k + self.d_v)
    }

    fn scale(&self) -> f32 {
        1.0 / (self.d_k as f32).sqrt()
    }
}

/// One sequence's and head's matrix of a `[batch, n_heads, len, d]` tensor.
///
/// # Safety
/// `task` is below `batch · n_heads`.
unsafe fn head(x: &FlexTensor, task: usize) -> Matrix {
    let layout = x.layout();
    let (n_heads, strides) = (layout.shape()[1] as isize, layout.strides());
    let (sequence, head) = (task as isize / n_heads, task as isize % n_heads);
    let start = x.storage::<f32>()[layout.start_offset()..].as_ptr();
    // SAFETY: within the tensor, for the task is.
    let start = unsafe { start.offset(sequence * strides[0] + head * strides[1]) };
    Matrix { start, row: strides[2], column: strides[3] }
}

/// Memory that tasks write disjoint parts of.
#[derive(Clone, Copy)]
struct Target(*mut f32);

// SAFETY: every task writes its own sequence's and head's elements only.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// Where a task's matrix begins in memory of the order `[batch, len, n_heads, d]`.
    ///
    /// # Safety
    /// The memory has that size.
    unsafe fn head(self, task: usize, n_heads: usize, len: usize, d: usize) -> *mut f32 {
        let (sequence, head) = (task / n_heads, task % n_heads);
        // SAFETY: the caller's promise.
        unsafe { self.0.add((sequence * len * n_heads + head) * d) }
    }
}

/// A tensor `[batch, n_heads, len, d]` on memory of the order `[batch, len, n_heads, d]`: what the linear
/// maps on both sides have.
fn heads_inside(values: Vec<f32>, [batch, n_heads, len, d]: [usize; 4]) -> FlexTensor {
    let strides = [len * n_heads * d, d, n_heads * d, 1].map(|stride| stride as isize);
    let layout = Layout::new(Shape::new([batch, n_heads, len, d]), strides.to_vec(), 0);
    FlexTensor::new(Bytes::from_elems(values), layout, DType::F32)
}

#[derive(Debug, Clone)]
struct State {
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
    /// `[batch, n_heads, q_len, k_len]`, before dropout.
    probs: Vec<f32>,
    keep: Option<Keep>,
    sizes: Sizes,
}

#[derive(Debug)]
struct Attention;

impl Backward<Flex, 3> for Attention {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("attention_backward", 2 * ops.state.sizes.flops());
        let gradient = grads.consume::<Flex>(&ops.node);
        for (parent, gradient) in ops.parents.into_iter().zip(ops.state.gradients(&gradient)) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

impl State {
    /// The gradients of query, key and value.
    fn gradients(&self, gradient: &FlexTensor) -> [FlexTensor; 3] {
        let Self { query, key, value, probs, keep, sizes } = self;
        let Sizes { batch, n_heads, q_len, k_len, d_k, d_v } = *sizes;
        let scale = sizes.scale();
        let mut grads = [(q_len, d_k), (k_len, d_k), (k_len, d_v)]
            .map(|(len, d)| Vec::<f32>::with_capacity(batch * len * n_heads * d));
        let [dq, dk, dv] = grads.each_mut().map(|grad| Target(grad.as_mut_ptr()));
        let scores = q_len * k_len;
        let step = n_heads as isize;
        probs.par_chunks(scores.max(1)).enumerate().for_each_init(
            || (vec![0.0; scores], vec![0.0; if keep.is_some() { scores } else { 0 }]),
            |(ds, dropped), (task, probs)| {
                let row_keep = |row: usize| keep.map(|keep| keep.row(task * q_len + row));
                let used = match keep {
                    Some(_) => {
                        let rows = probs.chunks_exact(k_len).zip(dropped.chunks_exact_mut(k_len));
                        for (row, (from, to)) in rows.enumerate() {
                            if let Some(keep) = row_keep(row) {
                                drop_row(from, keep, to);
                            }
                        }
                        &dropped[..]
                    }
                    None => probs,
                };
                // SAFETY: the matrices are those of the forward pass; each product writes this task's part
                // of its target, and all of it.
                unsafe {
                    let dy = head(gradient, task);
                    let (q, k, v) = (head(query, task), head(key, task), head(value, task));
                    let target = dv.head(task, n_heads, k_len, d_v);
                    let probs_matrix = Matrix::dense(used, k_len).transposed();
                    let strides = (step * d_v as isize, 1);
                    product([k_len, q_len, d_v], target, strides, false, probs_matrix, dy, false);
                    let sizes = [q_len, d_v, k_len];
                    product(sizes, ds.as_mut_ptr(), (k_len as isize, 1), false, dy, v.transposed(), false);
                    let rows = probs.chunks_exact(k_len).zip(ds.chunks_exact_mut(k_len));
                    for (row, (probs, ds)) in rows.enumerate() {
                        if let Some(keep) = row_keep(row) {
                            drop_row_in_place(ds, keep);
                        }
                        softmax_row_backward(probs, ds, scale);
                    }
                    let ds = Matrix::dense(ds, k_len);
                    let strides = (step * d_k as isize, 1);
                    let target = dq.head(task, n_heads, q_len, d_k);
                    product([q_len, k_len, d_k], target, strides, false, ds, k, false);
                    let target = dk.head(task, n_heads, k_len, d_k);
                    product([k_len, q_len, d_k], target, strides, false, ds.transposed(), q, false);
                }
            },
        );
        let shapes =
            [[batch, n_heads, q_len, d_k], [batch, n_heads, k_len, d_k], [batch, n_heads, k_len, d_v]];
        let mut shapes = shapes.into_iter();
        grads.map(|mut grad| {
            let shape = shapes.next().expect("three shapes");
            // SAFETY: the tasks wrote every sequence's and head's part.
            unsafe { grad.set_len(shape.iter().product()) };
            heads_inside(grad, shape)
        })
    }
}

/// The padding mask in rows of `k_len`; empty where there is none.
fn ignored(mask: &AttentionMask, sizes: Sizes) -> Vec<bool> {
    let Some(pad_mask) = &mask.pad_mask else {
        return Vec::new();
    };
    let [batch, len] = pad_mask.dims();
    assert_eq!(len, sizes.k_len, "pad_mask covers {len} positions, there are {} keys", sizes.k_len);
    assert_eq!(batch, sizes.batch, "pad_mask is of {batch} sequences, there are {}", sizes.batch);
    pad_mask.to_data().iter::<bool>().collect()
}

pub(crate) fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &AttentionMask,
    dropout_prob: f64,
) -> Tensor<4> {
    let [batch, n_heads, q_len, d_k] = query.dims();
    let [_, _, k_len, d_v] = value.dims();
    assert_eq!(key.dims(), [batch, n_heads, k_len, d_k], "the keys do not fit queries and values");
    assert_eq!(value.dims()[..2], [batch, n_heads], "the values do not fit the queries");
    let sizes = Sizes { batch, n_heads, q_len, k_len, d_k, d_v };
    op!("attention", sizes.flops());
    let ignored = ignored(mask, sizes);
    let causal = mask.causal && q_len > 1;
    let keep = (dropout_prob > 0.0).then(|| Keep::new(dropout_prob, draw_seed(&query.device())));
    let [query, key, value] = [query, key, value].map(Input::strided);
    let tracked = query.node.is_some();

    let scores = q_len * k_len;
    let step = n_heads as isize;
    let one = |task: usize, probs: &mut [f32], dropped: &mut [f32], context: Target| {
        // SAFETY: the matrices are within their tensors, whose sizes were compared; the target is this
        // task's part of the context.
        unsafe {
            let (q, k, v) = (head(&query.value, task), head(&key.value, task), head(&value.value, task));
            let row_of_scores = (k_len as isize, 1);
            product([q_len, d_k, k_len], probs.as_mut_ptr(), row_of_scores, false, q, k.transposed(), false);
            let ignored = match ignored.is_empty() {
                true => &[],
                false => &ignored[task / n_heads * k_len..][..k_len],
            };
            for (row, probs) in probs.chunks_exact_mut(k_len).enumerate() {
                let limit = if causal { (row + 1 + k_len).saturating_sub(q_len).min(k_len) } else { k_len };
                softmax_row(probs, ignored, limit, sizes.scale());
            }
            let used = match keep {
                Some(keep) => {
                    let rows = probs.chunks_exact(k_len).zip(dropped.chunks_exact_mut(k_len));
                    for (row, (from, to)) in rows.enumerate() {
                        drop_row(from, keep.row(task * q_len + row), to);
                    }
                    &*dropped
                }
                None => &*probs,
            };
            let target = context.head(task, n_heads, q_len, d_v);
            let strides = (step * d_v as isize, 1);
            product([q_len, k_len, d_v], target, strides, false, Matrix::dense(used, k_len), v, false);
        }
    };

    let mut probs = vec![0.0; if tracked { sizes.tasks() * scores } else { 0 }];
    // SAFETY: the tasks write every sequence's and head's part of `[batch, q_len, n_heads, d_v]`.
    let context = unsafe {
        filled(batch * q_len * n_heads * d_v, |context| {
            let context = Target(context.as_mut_ptr().cast());
            let dropped = || vec![0.0; if keep.is_some() { scores } else { 0 }];
            if tracked {
                probs
                    .par_chunks_mut(scores.max(1))
                    .enumerate()
                    .for_each_init(dropped, |dropped, (task, probs)| one(task, probs, dropped, context));
            } else {
                (0..sizes.tasks()).into_par_iter().for_each_init(
                    || (vec![0.0; scores], dropped()),
                    |(probs, dropped), task| one(task, probs, dropped, context),
                );
            }
        })
    };
    let context = heads_inside(context, [batch, n_heads, q_len, d_v]);
    let nodes = [query.node, key.node, value.node];
    let (query, key, value) = (query.value, key.value, value.value);
    output(Attention, nodes, context, || State { query, key, value, probs, keep, sizes })
}
