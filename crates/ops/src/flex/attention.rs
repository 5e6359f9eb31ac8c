//! Scaled dot-product attention, a task for each sequence and head.
//!
//! Dropout is drawn once: what the backward pass needs of it is the sign of the probabilities that it reads.

use super::gemm::PARALLEL;
use super::linear::{Matrix, product};
use super::random::{Keep, RowKeep};
use super::vector::{exp, max, sum, vectorised};
use super::{Input, draw_seed, filled, op, output, register};
use crate::AttentionMask;
use burn::tensor::{DType, Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor, Layout};
use burn_std::Bytes;
use rayon::prelude::*;
use std::slice;

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

    /// Writes what dropout leaves of a row, and a minus before the probabilities that it drops.
    fn drop_row(probs: &mut [f32], keep: RowKeep, left: &mut [f32]) {
        for (i, (p, left)) in probs.iter_mut().zip(left).enumerate() {
            let factor = keep.factor(i);
            *left = *p * factor;
            *p = if factor == 0.0 { -*p } else { *p };
        }
    }

    /// What [`drop_row`] left of the row that it marked.
    fn dropped_row(probs: &[f32], scale: f32, left: &mut [f32]) {
        for (p, left) in probs.iter().zip(left) {
            *left = p.abs() * factor(*p, scale);
        }
    }

    /// The gradient of what dropout left to that of the probabilities.
    fn drop_row_backward(probs: &[f32], scale: f32, gradient: &mut [f32]) {
        for (p, gradient) in probs.iter().zip(gradient) {
            *gradient *= factor(*p, scale);
        }
    }

    /// The gradient of the probabilities to that of the scores.
    fn softmax_row_backward(probs: &[f32], gradient: &mut [f32], scale: f32) {
        let gradient = &mut gradient[..probs.len()];
        let dot = sum(probs.len(), |i| probs[i].abs() * gradient[i]);
        for (gradient, p) in gradient.iter_mut().zip(probs) {
            *gradient = p.abs() * (*gradient - dot) * scale;
        }
    }
}

/// What dropout multiplied a probability by that [`drop_row`] has marked; `scale` is `1 / (1 − p)`.
#[inline(always)]
fn factor(prob: f32, scale: f32) -> f32 {
    if prob.is_sign_negative() { 0.0 } else { scale }
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
    /// Of the two products.
    fn flops(&self, tasks: &[Task]) -> usize {
        tasks.iter().map(|task| 2 * task.scores() * (self.d_k + self.d_v)).sum()
    }

    fn scale(&self) -> f32 {
        1.0 / (self.d_k as f32).sqrt()
    }

    /// The sequences' heads, in the order of the packing where there is one, else a sequence a row.
    fn tasks(&self, mask: &AttentionMask) -> Vec<Task> {
        let Self { batch, n_heads, q_len, k_len, .. } = *self;
        let mut sequences: Vec<[usize; 5]> = Vec::new();
        match &mask.packing {
            Some(packing) => {
                mask.check_packing(packing, [batch, q_len, k_len]);
                let mut query = 0;
                for ((key, k_len), q_len) in
                    packing.starts().zip(packing.lengths()).zip(mask.query_lengths(packing))
                {
                    sequences.push([0, query, *q_len, key, *k_len]);
                    query += q_len;
                }
            }
            None => sequences.extend((0..batch).map(|row| [row, 0, q_len, 0, k_len])),
        }
        let (mut first_row, mut first_score) = (0, 0);
        let mut tasks = Vec::with_capacity(sequences.len() * n_heads);
        for [row, query, q_len, key, k_len] in sequences {
            for head in 0..n_heads {
                tasks.push(Task { row, head, query, q_len, key, k_len, first_row, first_score });
                first_row += q_len;
                first_score += q_len * k_len;
            }
        }
        tasks
    }
}

/// One sequence's and head's part of the work.
#[derive(Debug, Clone, Copy)]
struct Task {
    /// On the batch axis.
    row: usize,
    head: usize,
    /// The sequence's first query.
    query: usize,
    q_len: usize,
    /// The sequence's first key.
    key: usize,
    k_len: usize,
    /// How many queries the tasks before have.
    first_row: usize,
    /// How many scores the tasks before have.
    first_score: usize,
}

impl Task {
    fn scores(&self) -> usize {
        self.q_len * self.k_len
    }

    /// The task's matrix of a `[batch, n_heads, len, d]` tensor, from its sequence's first query or key on.
    ///
    /// # Safety
    /// The task is one of the tensor's.
    unsafe fn matrix(&self, x: &FlexTensor, first: usize) -> Matrix {
        let (layout, strides) = (x.layout(), x.layout().strides());
        let place = [self.row, self.head, first].map(|i| i as isize);
        let start = x.storage::<f32>()[layout.start_offset()..].as_ptr();
        // SAFETY: within the tensor, for the task is.
        let start =
            unsafe { start.offset(place[0] * strides[0] + place[1] * strides[1] + place[2] * strides[2]) };
        Matrix { start, row: strides[2], column: strides[3] }
    }

    /// Where that matrix begins in memory of the order `[batch, len, n_heads, d]`.
    ///
    /// # Safety
    /// The memory has that size and the task is one of its tensor's.
    unsafe fn target(&self, memory: Target, first: usize, [len, n_heads, d]: [usize; 3]) -> *mut f32 {
        // SAFETY: the caller's promise.
        unsafe { memory.at(((self.row * len + first) * n_heads + self.head) * d) }
    }
}

/// Calls `work` for every task, on all cores where that is worth it; `init` makes what a thread reuses from task
/// to task.
fn for_each_task<T>(
    tasks: &[Task],
    sizes: Sizes,
    init: impl Fn() -> T + Sync + Send,
    work: impl Fn(&mut T, &Task) + Sync + Send,
) {
    if total(tasks) * (sizes.d_k + sizes.d_v) < PARALLEL {
        let mut reused = init();
        tasks.iter().for_each(|task| work(&mut reused, task));
    } else {
        // Whatever a thread takes over from another begins with memory of its own: not for a task or two.
        let least = tasks.len() / (16 * rayon::current_num_threads());
        tasks.par_iter().with_min_len(least).for_each_init(init, |reused, task| work(reused, task));
    }
}

/// Memory that tasks write disjoint parts of.
#[derive(Clone, Copy)]
struct Target(*mut f32);

// SAFETY: every task writes its own sequence's and head's elements only.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// # Safety
    /// There are so many elements.
    unsafe fn at(self, i: usize) -> *mut f32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(i) }
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
    tasks: Vec<Task>,
    /// Each task's `[q_len, k_len]`, before dropout, with a minus where it dropped them.
    probs: Vec<f32>,
    /// What dropout multiplied the others by.
    kept: Option<f32>,
    sizes: Sizes,
}

#[derive(Debug)]
struct Attention;

impl Backward<Flex, 3> for Attention {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("attention_backward", 2 * ops.state.sizes.flops(&ops.state.tasks));
        let gradient = grads.consume::<Flex>(&ops.node);
        register(grads, &ops, ops.state.gradients(&gradient));
    }
}

impl State {
    /// The gradients of query, key and value.
    fn gradients(&self, gradient: &FlexTensor) -> [FlexTensor; 3] {
        let Self { query, key, value, tasks, probs, kept, sizes } = self;
        let Sizes { batch, n_heads, q_len, k_len, d_k, d_v } = *sizes;
        let scale = sizes.scale();
        let mut grads = [(q_len, d_k), (k_len, d_k), (k_len, d_v)]
            .map(|(len, d)| Vec::<f32>::with_capacity(batch * len * n_heads * d));
        let [dq, dk, dv] = grads.each_mut().map(|grad| Target(grad.as_mut_ptr()));
        let scores = greatest(tasks);
        let step = n_heads as isize;
        let buffers = || (vec![0.0; scores], vec![0.0; if kept.is_some() { scores } else { 0 }]);
        for_each_task(tasks, *sizes, buffers, |(ds, left), task| {
            let probs = &probs[task.first_score..][..task.scores()];
            let ds = &mut ds[..task.scores()];
            let Task { q_len: rows, k_len: columns, .. } = *task;
            let used = match kept {
                Some(scale) => {
                    let left = &mut left[..probs.len()];
                    for (probs, left) in probs.chunks_exact(columns).zip(left.chunks_exact_mut(columns)) {
                        dropped_row(probs, *scale, left);
                    }
                    &*left
                }
                None => probs,
            };
            // SAFETY: the matrices are those of the forward pass; each product writes this task's part of
            // its target, and all of it.
            unsafe {
                let (q, dy) = (task.matrix(query, task.query), task.matrix(gradient, task.query));
                let (k, v) = (task.matrix(key, task.key), task.matrix(value, task.key));
                let target = task.target(dv, task.key, [k_len, n_heads, d_v]);
                let probs_matrix = Matrix::dense(used, columns).transposed();
                let strides = (step * d_v as isize, 1);
                product([columns, rows, d_v], target, strides, false, probs_matrix, dy, false);
                let strides = (columns as isize, 1);
                product([rows, d_v, columns], ds.as_mut_ptr(), strides, false, dy, v.transposed(), false);
                for (probs, ds) in probs.chunks_exact(columns).zip(ds.chunks_exact_mut(columns)) {
                    if let Some(scale) = kept {
                        drop_row_backward(probs, *scale, ds);
                    }
                    softmax_row_backward(probs, ds, scale);
                }
                let ds = Matrix::dense(ds, columns);
                let strides = (step * d_k as isize, 1);
                let target = task.target(dq, task.query, [q_len, n_heads, d_k]);
                product([rows, columns, d_k], target, strides, false, ds, k, false);
                let target = task.target(dk, task.key, [k_len, n_heads, d_k]);
                product([columns, rows, d_k], target, strides, false, ds.transposed(), q, false);
            }
        });
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

/// The scores of all tasks.
fn total(tasks: &[Task]) -> usize {
    tasks.iter().map(Task::scores).sum()
}

/// The most scores that a task has.
fn greatest(tasks: &[Task]) -> usize {
    tasks.iter().map(Task::scores).max().unwrap_or(0)
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
    let ignored = ignored(mask, sizes);
    let tasks = sizes.tasks(mask);
    op!("attention", sizes.flops(&tasks));
    let keep = (dropout_prob > 0.0).then(|| Keep::new(dropout_prob, draw_seed(&query.device())));
    let [query, key, value] = [query, key, value].map(Input::strided);
    let tracked = query.node.is_some();

    let step = n_heads as isize;
    let one = |task: &Task, scores: *mut f32, left: &mut [f32], context: Target| {
        let Task { q_len: rows, k_len: columns, .. } = *task;
        let causal = mask.causal && rows > 1;
        // SAFETY: the matrices are within their tensors, whose sizes were compared; the targets are this task's
        // parts of the scores, all of which the product writes, and of the context.
        unsafe {
            let q = task.matrix(&query.value, task.query);
            let (k, v) = (task.matrix(&key.value, task.key), task.matrix(&value.value, task.key));
            let strides = (columns as isize, 1);
            product([rows, d_k, columns], scores, strides, false, q, k.transposed(), false);
            let probs = slice::from_raw_parts_mut(scores, task.scores());
            let ignored = match ignored.is_empty() {
                true => &[],
                false => &ignored[task.row * k_len + task.key..][..columns],
            };
            for (row, probs) in probs.chunks_exact_mut(columns).enumerate() {
                let limit =
                    if causal { (row + 1 + columns).saturating_sub(rows).min(columns) } else { columns };
                softmax_row(probs, ignored, limit, sizes.scale());
            }
            let used = match keep {
                Some(keep) => {
                    let left = &mut left[..probs.len()];
                    let rows = probs.chunks_exact_mut(columns).zip(left.chunks_exact_mut(columns));
                    for (row, (probs, left)) in rows.enumerate() {
                        drop_row(probs, keep.row(task.first_row + row), left);
                    }
                    &*left
                }
                None => &*probs,
            };
            let target = task.target(context, task.query, [q_len, n_heads, d_v]);
            let strides = (step * d_v as isize, 1);
            product([rows, columns, d_v], target, strides, false, Matrix::dense(used, columns), v, false);
        }
    };

    let scores = greatest(&tasks);
    let left = || vec![0.0; if keep.is_some() { scores } else { 0 }];
    let mut probs = Vec::new();
    // SAFETY: the tasks write every sequence's and head's part of `[batch, q_len, n_heads, d_v]`, and all scores.
    let context = unsafe {
        filled(batch * q_len * n_heads * d_v, |context| {
            let context = Target(context.as_mut_ptr().cast());
            if tracked {
                probs = filled(total(&tasks), |probs| {
                    let probs = Target(probs.as_mut_ptr().cast());
                    for_each_task(&tasks, sizes, left, |left, task| {
                        one(task, probs.at(task.first_score), left, context);
                    });
                });
            } else {
                let buffers = || (vec![0.0; scores], left());
                for_each_task(&tasks, sizes, buffers, |(probs, left), task| {
                    one(task, probs.as_mut_ptr(), left, context);
                });
            }
        })
    };
    let context = heads_inside(context, [batch, n_heads, q_len, d_v]);
    let nodes = [query.node, key.node, value.node];
    let (query, key, value) = (query.value, key.value, value.value);
    let kept = keep.map(|keep| keep.scale);
    output(Attention, nodes, context, || State { query, key, value, tasks, probs, kept, sizes })
}
