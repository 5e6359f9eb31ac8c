//! Relative attention, one batch row and head at a time.
//!
//! The distance scores of a block of queries are one product with the keys of all distances any of them has.
//! Each query's scores are a slice of its row at a different offset: nothing is gathered. In the backward
//! pass the score gradients are written to the same slices, in rows of zeros.
//!
//! The probabilities are kept, negated where dropped.

use super::attention::Shared;
use super::attention::rows::{drop, drop_backward, dropped, softmax, softmax_backward};
use super::attention::view::Seen;
use super::gemm::{Begin, Matrix, PARALLEL, Product, Target};
use super::linear::sum_rows;
use super::random::Keep;
use super::vector::{sum, vectorised};
use super::{Input, dense, draw_seed, filled, op, output, register, tensor, values};
use crate::Precision;
use crate::relative::{Pairs, RelativeInput, RelativeMask};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

/// Maximum queries per block: a block has fewer distances than all queries of a long sequence together. Small
/// in tests, so that there are several.
const QUERIES: usize = if cfg!(test) { 5 } else { 128 };

/// Batch rows per backward task, which sums their gradients of distances and biases. Fixed, so that sums do
/// not depend on the number of threads.
const ROWS: usize = 4;

/// Vectors of each head before the distances' gradients: the two biases, and a segment's bias and vector.
const VECTORS: usize = 4;

vectorised! {
    /// Writes the sum of two rows.
    fn write_sum(a: &[f32], b: &[f32], total: &mut [f32]) {
        for ((total, a), b) in total.iter_mut().zip(a).zip(b) {
            *total = a + b;
        }
    }

    /// Adds a row to another.
    fn add(x: &[f32], total: &mut [f32]) {
        for (total, x) in total.iter_mut().zip(x) {
            *total += x;
        }
    }

    /// Adds a multiple of a row to another.
    fn add_multiple(x: &[f32], factor: f32, total: &mut [f32]) {
        for (total, x) in total.iter_mut().zip(x) {
            *total += factor * x;
        }
    }

    /// Adds a number where `which` is true.
    fn add_where(which: &[bool], number: f32, total: &mut [f32]) {
        for (total, which) in total.iter_mut().zip(which) {
            *total += if *which { number } else { 0.0 };
        }
    }

    /// `(a + b)·c`
    fn dot_of_sum(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
        sum([a, b, c], |[a, b, c]| (a + b) * c)
    }
}

/// The sizes of a tensor `[rows, len, n_heads, d]`, used as matrices `[len, d]` per row and head.
#[derive(Debug, Clone, Copy)]
struct Heads {
    len: usize,
    n_heads: usize,
    d: usize,
}

impl Heads {
    /// Numbers per row.
    fn row(&self) -> usize {
        self.len * self.n_heads * self.d
    }

    /// Start of the vector at a place.
    fn at(&self, part: Part, place: usize) -> usize {
        ((part.row * self.len + place) * self.n_heads + part.head) * self.d
    }

    /// The vector of a place.
    fn vector<'a>(&self, x: &'a [f32], part: Part, place: usize) -> &'a [f32] {
        &x[self.at(part, place)..][..self.d]
    }

    /// The matrix from a place on.
    fn matrix(&self, x: &[f32], part: Part, place: usize) -> Matrix {
        Matrix { start: x[self.at(part, place)..].as_ptr(), row: (self.n_heads * self.d) as isize, column: 1 }
    }

    /// The same in memory that is written.
    ///
    /// # Safety
    /// The memory has that place.
    unsafe fn target(&self, memory: Shared, part: Part, place: usize) -> Target {
        // SAFETY: the caller's promise.
        Target::dense(unsafe { memory.at(self.at(part, place)) }, self.n_heads * self.d)
    }

    /// The vector of a place in memory that is written.
    ///
    /// # Safety
    /// The memory has that place, its numbers are initialised, and nothing else uses them meanwhile.
    unsafe fn vector_mut<'a>(&self, memory: Shared, part: Part, place: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts_mut(memory.at(self.at(part, place)), self.d) }
    }
}

/// A row and a head.
#[derive(Debug, Clone, Copy)]
struct Part {
    row: usize,
    head: usize,
}

/// Inputs of both passes; all tensors are dense.
#[derive(Debug, Clone)]
struct Call {
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
    position: FlexTensor,
    content_bias: FlexTensor,
    position_bias: FlexTensor,
    /// The segment's bias and vector.
    segment: Option<[FlexTensor; 2]>,
    pairs: Arc<Pairs>,
    n_heads: usize,
    n_distances: usize,
    d_k: usize,
    d_v: usize,
    keep: Option<Keep>,
    precision: Precision,
}

/// A block of queries, and the distances that any of them has.
struct Block {
    queries: Range<usize>,
    distances: Range<usize>,
}

impl Call {
    fn heads(&self, len: usize, d: usize) -> Heads {
        Heads { len, n_heads: self.n_heads, d }
    }

    /// Of queries.
    fn queries(&self) -> Heads {
        self.heads(self.pairs.q_len, self.d_k)
    }

    /// Of keys.
    fn keys(&self) -> Heads {
        self.heads(self.pairs.k_len, self.d_k)
    }

    /// Of values.
    fn values(&self) -> Heads {
        self.heads(self.pairs.k_len, self.d_v)
    }

    /// Of contexts.
    fn contexts(&self) -> Heads {
        self.heads(self.pairs.q_len, self.d_v)
    }

    /// Of the gradients shared by batch rows: [`VECTORS`] per head, and the distances'.
    fn shared(&self) -> Heads {
        self.heads(VECTORS + self.n_distances, self.d_k)
    }

    /// A head's vector.
    fn of_head<'a>(&self, x: &'a FlexTensor, part: Part) -> &'a [f32] {
        &values(x)[part.head * self.d_k..][..self.d_k]
    }

    /// The keys of distances from one on.
    fn position(&self, part: Part, first: usize) -> Matrix {
        let of_all = Part { row: 0, ..part };
        self.heads(self.n_distances, self.d_k).matrix(values(&self.position), of_all, first)
    }

    fn scale(&self) -> f32 {
        1.0 / (self.d_k as f32).sqrt()
    }

    /// The blocks of a row's queries.
    fn blocks(&self, row: usize) -> impl Iterator<Item = Block> + '_ {
        let Pairs { q_len, k_len, ref first, .. } = *self.pairs;
        (0..q_len).step_by(QUERIES).map(move |start| {
            let queries = start..q_len.min(start + QUERIES);
            let first = &first[row * q_len..][queries.clone()];
            let (least, most) = first.iter().fold((usize::MAX, 0), |(a, b), x| (a.min(*x), b.max(*x)));
            Block { queries, distances: least..most + k_len }
        })
    }

    /// A query's values among those of all pairs; empty if there are none.
    fn of_query<'a>(&self, pairs: &'a [bool], part: Part, query: usize) -> &'a [bool] {
        let Pairs { q_len, k_len, .. } = *self.pairs;
        if pairs.is_empty() { &[] } else { &pairs[(part.row * q_len + query) * k_len..][..k_len] }
    }

    /// Number of feature products for the scores, each row's counted once for all heads.
    fn scores(&self) -> usize {
        let of_block = |block: Block| block.queries.len() * (self.pairs.k_len + block.distances.len());
        (0..self.pairs.batch).map(|row| self.blocks(row).map(of_block).sum::<usize>()).sum()
    }

    fn flops(&self) -> usize {
        let Pairs { batch, q_len, k_len, .. } = *self.pairs;
        2 * self.n_heads * (self.scores() * self.d_k + batch * q_len * k_len * self.d_v)
    }

    /// Writes `begin + a·b` on this thread.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn product(&self, sizes: [usize; 3], target: Target, begin: Begin<'_>, a: Matrix, b: Matrix) {
        // SAFETY: the caller's promise.
        unsafe { Product { sizes, target, begin, a, b, precision: self.precision, parallel: false }.run() }
    }

    /// Calls `work` for each of `n` tasks, on all cores if worthwhile.
    fn for_each(&self, n: usize, work: impl Fn(&mut Buffers, usize) + Sync + Send) {
        let buffers = || Buffers::new(self);
        if self.flops() < 2 * PARALLEL {
            let mut buffers = buffers();
            (0..n).for_each(|task| work(&mut buffers, task));
        } else {
            // Whatever a thread takes over from another begins with memory of its own: not for a task or two.
            let least = n / (16 * rayon::current_num_threads());
            (0..n).into_par_iter().with_min_len(least).for_each_init(buffers, work);
        }
    }

    /// Writes the queries of a block with a bias.
    fn biased(&self, part: Part, block: &Block, bias: &FlexTensor, to: &mut [f32]) {
        let (queries, bias) = (self.queries(), self.of_head(bias, part));
        for (query, to) in block.queries.clone().zip(to.chunks_exact_mut(self.d_k)) {
            write_sum(queries.vector(values(&self.query), part, query), bias, to);
        }
    }

    /// Writes the contexts of a row and head; turns uninitialised `probs`, `[q_len, k_len]`, into the
    /// probabilities before dropout, negated where dropped.
    ///
    /// # Safety
    /// The part is one of the call's, `context` the whole output; nothing else uses the part's contexts and probabilities
    /// meanwhile.
    unsafe fn forward(&self, part: Part, probs: Shared, buffers: &mut Buffers, context: Shared) {
        let (k_len, d_k) = (self.pairs.k_len, self.d_k);
        let Buffers { query, by_distance, left, .. } = buffers;
        for block in self.blocks(part.row) {
            let (height, width) = (block.queries.len(), block.distances.len());
            // SAFETY: the caller's promise; the buffers are as large as a block, and the products write all scores.
            unsafe {
                let scores = probs.at(block.queries.start * k_len);
                self.biased(part, &block, &self.content_bias, query);
                let keys = self.keys().matrix(values(&self.key), part, 0).transposed();
                let target = Target::dense(scores, k_len);
                self.product([height, d_k, k_len], target, Begin::Zero, Matrix::dense(query, d_k), keys);
                self.biased(part, &block, &self.position_bias, query);
                let keys = self.position(part, block.distances.start).transposed();
                let target = Target::dense(by_distance.as_mut_ptr(), width);
                self.product([height, d_k, width], target, Begin::Zero, Matrix::dense(query, d_k), keys);
                let probs = slice::from_raw_parts_mut(scores, height * k_len);
                self.probabilities(part, &block, probs, by_distance, left);
                let used = if self.keep.is_some() { &*left } else { &*probs };
                let values = self.values().matrix(values(&self.value), part, 0);
                let target = self.contexts().target(context, part, block.queries.start);
                let sizes = [height, k_len, self.d_v];
                self.product(sizes, target, Begin::Zero, Matrix::dense(used, k_len), values);
            }
        }
    }

    /// Turns a block's content scores into probabilities, and writes `left`, the probabilities after
    /// dropout.
    fn probabilities(
        &self,
        part: Part,
        block: &Block,
        scores: &mut [f32],
        by_distance: &[f32],
        left: &mut [f32],
    ) {
        let Pairs { q_len, k_len, ref first, ref hidden, ref others, .. } = *self.pairs;
        let seen = Seen { first: 0, end: k_len, blind: false };
        let width = block.distances.len();
        for (i, query) in block.queries.clone().enumerate() {
            let scores = &mut scores[i * k_len..][..k_len];
            let hidden = self.of_query(hidden, part, query);
            if !hidden.is_empty() && hidden.iter().all(|hidden| *hidden) {
                scores.fill(0.0);
            } else {
                let own = first[part.row * q_len + query] - block.distances.start;
                add(&by_distance[i * width + own..][..k_len], scores);
                if let Some([bias, vector]) = &self.segment {
                    let of_query = self.queries().vector(values(&self.query), part, query);
                    let number = dot_of_sum(of_query, self.of_head(bias, part), self.of_head(vector, part));
                    add_where(self.of_query(others, part, query), number, scores);
                }
                softmax(scores, hidden, seen, self.scale());
            }
            if let Some(keep) = self.keep {
                let row = (part.row * self.n_heads + part.head) * q_len + query;
                drop(scores, keep.row(row), &mut left[i * k_len..][..k_len]);
            }
        }
    }
}

/// Buffers that a thread reuses between tasks, for a block of queries.
struct Buffers {
    /// With a bias, `[queries, d_k]`.
    query: Vec<f32>,
    /// The gradient of those, `[queries, d_k]`.
    gradient: Vec<f32>,
    /// `[queries, distances]`: scores, or their gradients.
    by_distance: Vec<f32>,
    /// `[queries, k_len]`: scores, or their gradients.
    scores: Vec<f32>,
    /// The probabilities after dropout.
    left: Vec<f32>,
}

impl Buffers {
    fn new(call: &Call) -> Self {
        let Pairs { q_len, k_len, .. } = *call.pairs;
        let height = q_len.min(QUERIES);
        let zeros = |width: usize| vec![0.0; height * width];
        Self {
            query: zeros(call.d_k),
            gradient: zeros(call.d_k),
            by_distance: zeros(call.n_distances),
            scores: zeros(k_len),
            left: zeros(if call.keep.is_some() { k_len } else { 0 }),
        }
    }
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    call: Call,
    /// `[batch, n_heads, q_len, k_len]`, before dropout, negated where dropped.
    probs: Vec<f32>,
}

/// Destinations of the gradients: queries, keys and values, and the parameters shared by batch rows, one row
/// per task.
#[derive(Clone, Copy)]
struct Gradient {
    query: Shared,
    key: Shared,
    value: Shared,
    shared: Shared,
}

impl State {
    /// The gradients of queries, keys, values, distances, the two biases, and the segment's bias and vector.
    fn gradients(&self, gradient: &FlexTensor) -> [FlexTensor; 8] {
        let call = &self.call;
        let Pairs { batch, q_len, k_len, .. } = *call.pairs;
        let n_groups = batch.div_ceil(ROWS);
        let mut query = vec![0.0; batch * call.queries().row()];
        let mut key = Vec::<f32>::with_capacity(batch * call.keys().row());
        let mut value = Vec::<f32>::with_capacity(batch * call.values().row());
        let mut shared = vec![0.0; n_groups * call.shared().row()];
        let to = Gradient {
            query: Shared(query.as_mut_ptr()),
            key: Shared(key.as_mut_ptr()),
            value: Shared(value.as_mut_ptr()),
            shared: Shared(shared.as_mut_ptr()),
        };
        call.for_each(n_groups * call.n_heads, |buffers, task| {
            let (group, head) = (task / call.n_heads, task % call.n_heads);
            for row in group * ROWS..batch.min((group + 1) * ROWS) {
                // SAFETY: each task writes its own rows' and head's parts.
                unsafe { self.backward(Part { row, head }, values(gradient), buffers, to) }
            }
        });
        // SAFETY: the tasks wrote every row's and head's part.
        unsafe {
            key.set_len(batch * call.keys().row());
            value.set_len(batch * call.values().row());
        }
        let total = sum_rows(&shared, call.shared().row());
        let width = call.n_heads * call.d_k;
        let vectors = |number: usize| total[number * width..][..width].to_vec();
        let of_head = |number: usize| tensor(vectors(number), Shape::new([call.n_heads, call.d_k]));
        let of = |values: Vec<f32>, len: usize, d: usize| {
            tensor(values, Shape::new([batch, len, call.n_heads, d]))
        };
        let position = total[VECTORS * width..].to_vec();
        [
            of(query, q_len, call.d_k),
            of(key, k_len, call.d_k),
            of(value, k_len, call.d_v),
            tensor(position, Shape::new([call.n_distances, call.n_heads, call.d_k])),
            of_head(0),
            of_head(1),
            of_head(2),
            of_head(3),
        ]
    }

    /// Writes the gradients of a row and head, from that of the contexts; adds to those of queries and of
    /// shared parameters.
    ///
    /// # Safety
    /// The part is one of the call's; nothing else uses the part's gradients, and those of the row's group and the head,
    /// meanwhile.
    unsafe fn backward(&self, part: Part, gradient: &[f32], buffers: &mut Buffers, to: Gradient) {
        let call = &self.call;
        let Pairs { q_len, k_len, .. } = *call.pairs;
        let (d_k, d_v) = (call.d_k, call.d_v);
        let group = Part { row: part.row / ROWS, ..part };
        for block in call.blocks(part.row) {
            let (height, width) = (block.queries.len(), block.distances.len());
            let begin = || if block.queries.start == 0 { Begin::Zero } else { Begin::Target };
            let first = (part.row * call.n_heads + part.head) * q_len + block.queries.start;
            let probs = &self.probs[first * k_len..][..height * k_len];
            let used = self.used(probs, &mut buffers.left);
            let dy = call.contexts().matrix(gradient, part, block.queries.start);
            // SAFETY: the caller's promise; the buffers are as large as a block, and the first block's products write all
            // gradients of keys and values.
            unsafe {
                let target = call.values().target(to.value, part, 0);
                let used = Matrix::dense(used, k_len).transposed();
                call.product([k_len, height, d_v], target, begin(), used, dy);
                let target = Target::dense(buffers.scores.as_mut_ptr(), k_len);
                let value = call.values().matrix(values(&call.value), part, 0).transposed();
                call.product([height, d_v, k_len], target, Begin::Zero, dy, value);
                self.score_gradients(part, &block, probs, buffers, to);

                let scores = Matrix::dense(&buffers.scores, k_len);
                call.biased(part, &block, &call.content_bias, &mut buffers.query);
                let target = call.keys().target(to.key, part, 0);
                let query = Matrix::dense(&buffers.query, d_k);
                call.product([k_len, height, d_k], target, begin(), scores.transposed(), query);
                let target = Target::dense(buffers.gradient.as_mut_ptr(), d_k);
                let key = call.keys().matrix(values(&call.key), part, 0);
                call.product([height, k_len, d_k], target, Begin::Zero, scores, key);
                self.add_queries(part, &block, &buffers.gradient, 0, to);

                let by_distance = Matrix::dense(&buffers.by_distance, width);
                call.biased(part, &block, &call.position_bias, &mut buffers.query);
                let target = call.shared().target(to.shared, group, VECTORS + block.distances.start);
                let query = Matrix::dense(&buffers.query, d_k);
                call.product([width, height, d_k], target, Begin::Target, by_distance.transposed(), query);
                let target = Target::dense(buffers.gradient.as_mut_ptr(), d_k);
                let position = call.position(part, block.distances.start);
                call.product([height, width, d_k], target, Begin::Zero, by_distance, position);
                self.add_queries(part, &block, &buffers.gradient, 1, to);
            }
        }
    }

    /// A block's probabilities after dropout.
    fn used<'a>(&self, probs: &'a [f32], left: &'a mut [f32]) -> &'a [f32] {
        let Some(keep) = self.call.keep else { return probs };
        let left = &mut left[..probs.len()];
        dropped(probs, keep.scale, left);
        left
    }

    /// Turns the gradients of a block's probabilities after dropout, in `buffers.scores`, into those of the
    /// scores, also written to `buffers.by_distance`; adds the segments' share.
    ///
    /// # Safety
    /// As [`Self::backward`].
    unsafe fn score_gradients(
        &self,
        part: Part,
        block: &Block,
        probs: &[f32],
        buffers: &mut Buffers,
        to: Gradient,
    ) {
        let call = &self.call;
        let Pairs { q_len, k_len, ref first, ref others, .. } = *call.pairs;
        let width = block.distances.len();
        let by_distance = &mut buffers.by_distance[..block.queries.len() * width];
        by_distance.fill(0.0);
        for (i, query) in block.queries.clone().enumerate() {
            let scores = &mut buffers.scores[i * k_len..][..k_len];
            let probs = &probs[i * k_len..][..k_len];
            if let Some(keep) = call.keep {
                drop_backward(probs, keep.scale, scores);
            }
            softmax_backward(probs, scores, call.scale());
            let own = first[part.row * q_len + query] - block.distances.start;
            by_distance[i * width + own..][..k_len].copy_from_slice(scores);
            if let Some([bias, vector]) = &call.segment {
                let others = call.of_query(others, part, query);
                let gradient = scores.iter().zip(others).filter(|(_, other)| **other).map(|(x, _)| x).sum();
                let (bias, vector) = (call.of_head(bias, part), call.of_head(vector, part));
                let of_query = call.queries().vector(values(&call.query), part, query);
                let group = Part { row: part.row / ROWS, ..part };
                // SAFETY: the caller's promise; these gradients begin with zeros.
                let [of_queries, of_bias, of_vector] = unsafe {
                    [
                        call.queries().vector_mut(to.query, part, query),
                        call.shared().vector_mut(to.shared, group, 2),
                        call.shared().vector_mut(to.shared, group, 3),
                    ]
                };
                add_multiple(vector, gradient, of_queries);
                add_multiple(vector, gradient, of_bias);
                add_multiple(of_query, gradient, of_vector);
                add_multiple(bias, gradient, of_vector);
            }
        }
    }

    /// Adds the gradients of a block's biased queries to those of the queries and of the bias, which is
    /// shared vector `number`.
    ///
    /// # Safety
    /// As [`Self::backward`].
    unsafe fn add_queries(&self, part: Part, block: &Block, gradient: &[f32], number: usize, to: Gradient) {
        let call = &self.call;
        let group = Part { row: part.row / ROWS, ..part };
        for (query, gradient) in block.queries.clone().zip(gradient.chunks_exact(call.d_k)) {
            // SAFETY: the caller's promise; both begin with zeros.
            let [of_query, of_bias] = unsafe {
                [
                    call.queries().vector_mut(to.query, part, query),
                    call.shared().vector_mut(to.shared, group, number),
                ]
            };
            add(gradient, of_query);
            add(gradient, of_bias);
        }
    }
}

#[derive(Debug)]
struct RelativeAttention;

/// Registers the parents' gradients: without a segment there are two parents fewer.
fn backward<const N: usize>(ops: Ops<State, N>, grads: &mut Gradients) {
    op!("relative_attention_backward", 2 * ops.state.call.flops());
    let gradient = dense(grads.consume::<Flex>(&ops.node));
    register(grads, &ops, ops.state.gradients(&gradient));
}

impl Backward<Flex, 6> for RelativeAttention {
    type State = State;

    fn backward(self, ops: Ops<State, 6>, grads: &mut Gradients, _: &mut Checkpointer) {
        backward(ops, grads);
    }
}

impl Backward<Flex, 8> for RelativeAttention {
    type State = State;

    fn backward(self, ops: Ops<State, 8>, grads: &mut Gradients, _: &mut Checkpointer) {
        backward(ops, grads);
    }
}

pub(crate) fn relative_attention(input: RelativeInput, mask: &RelativeMask, dropout_prob: f64) -> Tensor<4> {
    let pairs = mask.pairs.clone();
    let Pairs { batch, q_len, k_len, .. } = *pairs;
    let ([n_distances, n_heads, d_k], [.., d_v]) = (input.position.dims(), input.value.dims());
    let keep = (dropout_prob > 0.0).then(|| Keep::new(dropout_prob, draw_seed(&input.query.device())));
    let [query, key, value] = [input.query, input.key, input.value].map(Input::dense);
    let position = Input::dense(input.position);
    let [content_bias, position_bias] = [input.content_bias, input.position_bias].map(Input::dense);
    let (segment, segment_nodes) = match input.segment.filter(|_| mask.has_others()) {
        Some(vectors) => {
            let [bias, vector] = vectors.map(Input::dense);
            (Some([bias.value, vector.value]), Some([bias.node, vector.node]))
        }
        None => (None, None),
    };
    let call = Call {
        query: query.value,
        key: key.value,
        value: value.value,
        position: position.value,
        content_bias: content_bias.value,
        position_bias: position_bias.value,
        segment,
        pairs,
        n_heads,
        n_distances,
        d_k,
        d_v,
        keep,
        precision: Precision::current(),
    };
    op!("relative_attention", call.flops());
    let tracked = query.node.is_some();
    let n_probs = if tracked { batch * n_heads * q_len * k_len } else { 0 };
    let mut probs = Vec::<f32>::with_capacity(n_probs);
    let kept = Shared(probs.as_mut_ptr());
    // SAFETY: the tasks write the contexts and the probabilities of every row and head.
    let context = unsafe {
        filled(batch * call.contexts().row(), |context| {
            let context = Shared(context.as_mut_ptr().cast());
            call.for_each(batch * n_heads, |buffers, task| {
                let part = Part { row: task / n_heads, head: task % n_heads };
                if tracked {
                    call.forward(part, Shared(kept.at(task * q_len * k_len)), buffers, context);
                } else {
                    let mut probs = Vec::<f32>::with_capacity(q_len * k_len);
                    call.forward(part, Shared(probs.as_mut_ptr()), buffers, context);
                }
            });
        })
    };
    // SAFETY: see above.
    unsafe { probs.set_len(n_probs) };
    let context = tensor(context, Shape::new([batch, q_len, n_heads, d_v]));
    let state = || State { call, probs };
    let nodes = [query.node, key.node, value.node, position.node, content_bias.node, position_bias.node];
    match segment_nodes {
        None => output(RelativeAttention, nodes, context, state),
        Some([bias, vector]) => {
            let [query, key, value, position, u, v] = nodes;
            let nodes = [query, key, value, position, u, v, bias, vector];
            output(RelativeAttention, nodes, context, state)
        }
    }
}
