//! Scaled dot-product attention, per sequence and head.
//!
//! For a short sequence, all of a head's probabilities are computed at once and kept for the backward pass
//! ([`whole`]); for a long one they are computed tile by tile and not kept ([`blocked`]). The choice depends
//! only on the sequence's length.

mod blocked;
pub(super) mod rows;
#[cfg(test)]
mod tests;
pub(super) mod view;
mod whole;

use super::gemm::{Begin, Matrix, PARALLEL, Product, Target};
use super::random::Keep;
use super::{Input, draw_seed, filled, op, output, register};
use crate::attention_mask::COUNTS;
use crate::heads::assert_groups;
use crate::{AttentionMask, Precision, Queries, Sight};
use blocked::{KEYS, QUERIES, Tile};
use burn::tensor::{DType, Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor, Layout};
use burn_std::Bytes;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use view::View;
use whole::Buffer;

/// A head with more scores than a tile is computed in blocks. For 384 queries and keys that takes as long as
/// all at once in FP32, and 80 % of the time in bf16; for 256, 5 % longer and 5 % less (forward and backward
/// pass, measured on a Xeon with AMX).
const WHOLE: usize = QUERIES * KEYS;

#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    n_heads: usize,
    /// Key–value heads, each shared by a group of query heads.
    n_kv_heads: usize,
    q_len: usize,
    k_len: usize,
    d_k: usize,
    d_v: usize,
}

impl Sizes {
    /// The scale of the scores.
    fn scale(&self) -> f32 {
        1.0 / (self.d_k as f32).sqrt()
    }

    /// Query heads per key–value head.
    fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// The tasks, one per sequence and head: in packing order if there is one, else one sequence
    /// per row.
    fn tasks(&self, mask: &AttentionMask) -> Vec<Task> {
        mask.check_sights(self.batch);
        let Self { batch, n_heads, q_len, k_len, .. } = *self;
        let group = self.group();
        let mut sequences: Vec<[usize; 5]> = Vec::new();
        match &mask.packing {
            Some(packing) => {
                mask.check_packing(packing, [batch, q_len, k_len]);
                let mut query = 0;
                let counts = mask.query_counts(packing);
                for ((key, k_len), q_len) in packing.starts().zip(packing.lengths()).zip(counts.iter()) {
                    sequences.push([0, query, *q_len, key, *k_len]);
                    query += q_len;
                }
            }
            None => {
                assert!(!matches!(mask.queries, Queries::Counts(_)), "{COUNTS}");
                sequences.extend((0..batch).map(|row| [row, 0, q_len, 0, k_len]));
            }
        }
        let (mut first_row, mut first_score) = (0, 0);
        let mut tasks = Vec::with_capacity(sequences.len() * n_heads);
        for (sequence, [row, query, q_len, key, k_len]) in sequences.into_iter().enumerate() {
            for head in 0..n_heads {
                let shared = head / group;
                tasks.push(Task {
                    sequence,
                    row,
                    head,
                    shared,
                    query,
                    q_len,
                    key,
                    k_len,
                    first_row,
                    first_score,
                });
                first_row += q_len;
                first_score += if q_len * k_len <= WHOLE { q_len * k_len } else { 0 };
            }
        }
        tasks
    }
}

/// The work for one sequence and head.
#[derive(Debug, Clone, Copy)]
struct Task {
    /// The sequence's index in the packing, or the row.
    sequence: usize,
    /// The index on the batch axis.
    row: usize,
    head: usize,
    /// The key–value head.
    shared: usize,
    /// The sequence's first query.
    query: usize,
    q_len: usize,
    /// The sequence's first key.
    key: usize,
    k_len: usize,
    /// Number of queries of all previous tasks.
    first_row: usize,
    /// Number of scores of all previous whole tasks.
    first_score: usize,
}

impl Task {
    /// Number of scores, over all queries and keys.
    fn scores(&self) -> usize {
        self.q_len * self.k_len
    }

    /// Whether all of its scores are in memory at once.
    fn is_whole(&self) -> bool {
        self.scores() <= WHOLE
    }

    /// The task's matrix of a head of a `[batch, n_heads, len, d]` tensor, from its sequence's first query or key on.
    ///
    /// # Safety
    /// The task is one of the tensor's.
    unsafe fn matrix(&self, x: &FlexTensor, head: usize, first: usize) -> Matrix {
        let (layout, strides) = (x.layout(), x.layout().strides());
        let place = [self.row, head, first].map(|i| i as isize);
        let start = x.storage::<f32>()[layout.start_offset()..].as_ptr();
        // SAFETY: within the tensor, for the task is.
        let start =
            unsafe { start.offset(place[0] * strides[0] + place[1] * strides[1] + place[2] * strides[2]) };
        Matrix { start, row: strides[2], column: strides[3] }
    }

    /// The same matrix in memory ordered `[batch, len, n_heads, d]`.
    ///
    /// # Safety
    /// The memory has that size and the task is one of its tensor's.
    unsafe fn target(
        &self,
        memory: *mut f32,
        head: usize,
        first: usize,
        [len, n_heads, d]: [usize; 3],
    ) -> Target {
        let all = Target::dense(memory, n_heads * d);
        // SAFETY: the caller's promise.
        Target { start: unsafe { all.at(self.row * len + first, head * d) }, ..all }
    }
}

/// A matrix from a row on.
///
/// # Safety
/// It has that row.
unsafe fn below(x: Matrix, row: usize) -> Matrix {
    // SAFETY: the caller's promise.
    Matrix { start: unsafe { x.start.offset(row as isize * x.row) }, ..x }
}

/// As [`below`].
///
/// # Safety
/// As there.
unsafe fn target_below(x: Target, row: usize) -> Target {
    // SAFETY: the caller's promise.
    Target { start: unsafe { x.at(row, 0) }, ..x }
}

/// Inputs of both passes.
#[derive(Debug, Clone)]
struct Call {
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
    sizes: Sizes,
    tasks: Vec<Task>,
    causal: bool,
    window: Option<usize>,
    /// What each sequence's queries see.
    sights: Option<Arc<[Sight]>>,
    /// `[batch, k_len]`; empty if no key is ignored.
    ignored: Vec<bool>,
    keep: Option<Keep>,
    precision: Precision,
}

impl Call {
    /// What the queries of a task see.
    fn view(&self, task: &Task) -> View<'_> {
        let Task { sequence, row, key, q_len, k_len, .. } = *task;
        let sight = self.sights.as_ref().map_or(Sight::All, |sights| sights[sequence]);
        let ignored = match self.ignored.is_empty() {
            true => &[],
            false => &self.ignored[row * self.sizes.k_len + key..][..k_len],
        };
        View { q_len, k_len, causal: self.causal, window: self.window, sight, ignored }
    }

    /// The task's queries, keys and values.
    ///
    /// # Safety
    /// It is one of the call's.
    unsafe fn operands(&self, task: &Task) -> [Matrix; 3] {
        // SAFETY: the tensors' sizes were compared.
        unsafe {
            [
                task.matrix(&self.query, task.head, task.query),
                task.matrix(&self.key, task.shared, task.key),
                task.matrix(&self.value, task.shared, task.key),
            ]
        }
    }

    /// Writes `a·b`, or adds it, on this thread.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn product(&self, sizes: [usize; 3], target: Target, add: bool, a: Matrix, b: Matrix) {
        let begin = if add { Begin::Target } else { Begin::Zero };
        // SAFETY: the caller's promise.
        unsafe { Product { sizes, target, begin, a, b, precision: self.precision, parallel: false }.run() }
    }

    /// Number of scores computed.
    fn scores(&self) -> usize {
        let of = |task: &Task| if task.is_whole() { task.scores() } else { blocked::scores(self, task) };
        self.tasks.iter().map(of).sum()
    }

    /// Operations of the query–key and probability–value products.
    fn flops(&self) -> usize {
        2 * self.scores() * (self.sizes.d_k + self.sizes.d_v)
    }

    /// Operations of the backward pass: twice as many products, plus the query–key product again for
    /// blocks.
    fn backward_flops(&self) -> usize {
        let blocked = self.tasks.iter().filter(|task| !task.is_whole());
        let again: usize = blocked.map(|task| blocked::scores(self, task)).sum();
        2 * self.flops() + 2 * again * self.sizes.d_k
    }

    /// The maximum scores of a whole task.
    fn greatest(&self) -> usize {
        self.tasks.iter().filter(|task| task.is_whole()).map(Task::scores).max().unwrap_or(0)
    }

    /// The scores of all whole tasks.
    fn total(&self) -> usize {
        self.tasks.iter().filter(|task| task.is_whole()).map(Task::scores).sum()
    }

    fn has_blocks(&self) -> bool {
        self.tasks.iter().any(|task| !task.is_whole())
    }

    /// Calls `work` for every part, on all cores if worthwhile.
    fn for_each<T: Sync>(&self, parts: &[T], backward: bool, work: impl Fn(&mut Buffers, &T) + Sync + Send) {
        let buffers = || Buffers::new(self, backward);
        if self.scores() * (self.sizes.d_k + self.sizes.d_v) < PARALLEL {
            let mut buffers = buffers();
            parts.iter().for_each(|part| work(&mut buffers, part));
        } else {
            // Whatever a thread takes over from another begins with memory of its own: not for a part or two.
            let least = parts.len() / (16 * rayon::current_num_threads());
            parts.par_iter().with_min_len(least).for_each_init(buffers, work);
        }
    }
}

/// Buffers that a thread reuses between parts.
struct Buffers {
    whole: Buffer,
    tile: Option<Tile>,
}

impl Buffers {
    fn new(call: &Call, backward: bool) -> Self {
        let scores = call.greatest();
        let left = if call.keep.is_some() { scores } else { 0 };
        Self {
            whole: Buffer { scores: vec![0.0; scores], left: vec![0.0; left] },
            tile: call.has_blocks().then(|| Tile::new(call.sizes.d_v, backward)),
        }
    }

    fn tile(&mut self) -> &mut Tile {
        self.tile.as_mut().expect("the call has blocks")
    }
}

/// Memory written by several parts of the work, at disjoint elements.
#[derive(Clone, Copy)]
pub(super) struct Shared(pub(super) *mut f32);

// SAFETY: every part writes its own sequence's, head's and block's elements only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// # Safety
    /// There are so many elements.
    pub(super) unsafe fn at(self, i: usize) -> *mut f32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(i) }
    }
}

/// A tensor `[batch, n_heads, len, d]` on memory of the order `[batch, len, n_heads, d]`: the order used
/// by the linear maps on both sides.
fn heads_inside(values: Vec<f32>, [batch, n_heads, len, d]: [usize; 4]) -> FlexTensor {
    let strides = [len * n_heads * d, d, n_heads * d, 1].map(|stride| stride as isize);
    let layout = Layout::new(Shape::new([batch, n_heads, len, d]), strides.to_vec(), 0);
    FlexTensor::new(Bytes::from_elems(values), layout, DType::F32)
}

/// The padding mask in rows of `k_len`; empty if there is none.
fn ignored(mask: &AttentionMask, sizes: Sizes) -> Vec<bool> {
    let Some(pad_mask) = &mask.pad_mask else {
        return Vec::new();
    };
    let [batch, len] = pad_mask.dims();
    assert_eq!(len, sizes.k_len, "pad_mask covers {len} positions, there are {} keys", sizes.k_len);
    assert_eq!(batch, sizes.batch, "pad_mask is of {batch} sequences, there are {}", sizes.batch);
    pad_mask.to_data().iter::<bool>().collect()
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    call: Call,
    /// For each whole task `[q_len, k_len]`, before dropout, negated where dropped.
    probs: Vec<f32>,
    /// Present if there are blocked tasks.
    blocks: Option<Blocks>,
}

#[derive(Debug, Clone)]
struct Blocks {
    /// `[batch, n_heads, q_len, d_v]`
    context: FlexTensor,
    /// The log-sum-exp of each task's queries.
    log_sums: Vec<f32>,
}

#[derive(Debug)]
struct Attention;

impl Backward<Flex, 3> for Attention {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("attention_backward", ops.state.call.backward_flops());
        let gradient = grads.consume::<Flex>(&ops.node);
        register(grads, &ops, ops.state.gradients(&gradient));
    }
}

impl State {
    /// The gradients of query, key and value.
    fn gradients(&self, gradient: &FlexTensor) -> [FlexTensor; 3] {
        let Self { call, probs, blocks } = self;
        let Sizes { batch, n_heads, n_kv_heads, q_len, k_len, d_k, d_v } = call.sizes;
        let shapes =
            [[batch, n_heads, q_len, d_k], [batch, n_kv_heads, k_len, d_k], [batch, n_kv_heads, k_len, d_v]];
        let mut grads = shapes.map(|shape| Vec::<f32>::with_capacity(shape.iter().product()));
        let [dq, dk, dv] = grads.each_mut().map(|grad| Shared(grad.as_mut_ptr()));
        // The heads that share keys are one part of the work, so that nothing is added across threads.
        let groups: Vec<&[Task]> = call.tasks.chunks(call.sizes.group()).collect();
        call.for_each(&groups, true, |buffers, tasks| {
            for (n, task) in tasks.iter().enumerate() {
                // SAFETY: the matrices are those of the forward pass; the targets are this task's parts, and those of
                // keys and values this group's.
                unsafe {
                    let dy = task.matrix(gradient, task.head, task.query);
                    let targets = [
                        task.target(dq.at(0), task.head, task.query, [q_len, n_heads, d_k]),
                        task.target(dk.at(0), task.shared, task.key, [k_len, n_kv_heads, d_k]),
                        task.target(dv.at(0), task.shared, task.key, [k_len, n_kv_heads, d_v]),
                    ];
                    let add = n > 0;
                    match blocks {
                        Some(Blocks { context, log_sums }) if !task.is_whole() => {
                            let context = task.matrix(context, task.head, task.query);
                            let log_sums = &log_sums[task.first_row..][..task.q_len];
                            let tile = buffers.tile();
                            blocked::backward(call, task, [dy, context], log_sums, tile, targets, add);
                        }
                        _ => {
                            let probs = &probs[task.first_score..][..task.scores()];
                            whole::backward(call, task, dy, probs, &mut buffers.whole, targets, add);
                        }
                    }
                }
            }
        });
        let mut shapes = shapes.into_iter();
        grads.map(|mut grad| {
            let shape = shapes.next().expect("three shapes");
            // SAFETY: the tasks wrote every sequence's and head's part.
            unsafe { grad.set_len(shape.iter().product()) };
            heads_inside(grad, shape)
        })
    }
}

/// A part of the forward pass: all of a task's queries, or a block.
struct Part {
    task: Task,
    queries: Range<usize>,
}

impl Part {
    fn of(task: &Task) -> Vec<Self> {
        let task = *task;
        match task.is_whole() {
            true => vec![Self { task, queries: 0..task.q_len }],
            false => blocked::blocks(&task).map(|queries| Self { task, queries }).collect(),
        }
    }
}

pub(crate) fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &AttentionMask,
    dropout_prob: f64,
) -> Tensor<4> {
    let [batch, n_heads, q_len, d_k] = query.dims();
    let [_, n_kv_heads, k_len, d_v] = value.dims();
    assert_eq!(key.dims(), [batch, n_kv_heads, k_len, d_k], "the keys do not fit queries and values");
    assert_eq!(value.dims()[0], batch, "the values do not fit the queries");
    assert_groups(n_heads, n_kv_heads);
    let sizes = Sizes { batch, n_heads, n_kv_heads, q_len, k_len, d_k, d_v };
    let keep = (dropout_prob > 0.0).then(|| Keep::new(dropout_prob, draw_seed(&query.device())));
    let [query, key, value] = [query, key, value].map(Input::strided);
    let nodes = [query.node, key.node, value.node];
    let call = Call {
        query: query.value,
        key: key.value,
        value: value.value,
        sizes,
        tasks: sizes.tasks(mask),
        causal: mask.causal,
        window: mask.window,
        sights: mask.sights.clone(),
        ignored: ignored(mask, sizes),
        keep,
        precision: Precision::current(),
    };
    op!("attention", call.flops());
    let parts: Vec<Part> = call.tasks.iter().flat_map(Part::of).collect();

    let tracked = nodes[0].is_some();
    let has_blocks = call.has_blocks();
    let mut log_sums = vec![0.0; if has_blocks { batch * n_heads * q_len } else { 0 }];
    let mut probs = Vec::<f32>::with_capacity(if tracked { call.total() } else { 0 });
    let (kept, sums) = (Shared(probs.as_mut_ptr()), Shared(log_sums.as_mut_ptr()));
    // SAFETY: the parts write every sequence's and head's part of `[batch, q_len, n_heads, d_v]`, and all
    // probabilities of whole tasks.
    let context = unsafe {
        filled(batch * q_len * n_heads * d_v, |context| {
            let context = Shared(context.as_mut_ptr().cast());
            call.for_each(&parts, false, |buffers, Part { task, queries }| {
                let target = task.target(context.at(0), task.head, task.query, [q_len, n_heads, d_v]);
                if task.is_whole() {
                    let Buffer { scores, left } = &mut buffers.whole;
                    let scores = if tracked { kept.at(task.first_score) } else { scores.as_mut_ptr() };
                    whole::forward(&call, task, scores, left, target);
                } else {
                    let sums = sums.at(task.first_row + queries.start);
                    blocked::forward(&call, task, queries.clone(), buffers.tile(), target, sums);
                }
            });
        })
    };
    if tracked {
        // SAFETY: see above.
        unsafe { probs.set_len(call.total()) };
    }
    let context = heads_inside(context, [batch, n_heads, q_len, d_v]);
    let blocks = has_blocks.then(|| Blocks { context: context.clone(), log_sums });
    output(Attention, nodes, context, || State { call, probs, blocks })
}
