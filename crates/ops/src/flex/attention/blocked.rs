//! Attention of a head of a long sequence, in tiles of queries and keys: only one tile's scores are in memory
//! (Dao et al. 2022, "FlashAttention").
//!
//! The softmax is computed online for a block of queries: each tile's exponentials use the maximum score so
//! far, and when that grows, the previous sums are rescaled. The output and each row's log-sum are kept, from
//! which the backward pass recomputes the probabilities; it also redraws dropout.
//!
//! Tiles invisible to all queries of the block are skipped.

use super::rows::{self, Part, Running};
use super::view::{Seen, View};
use super::{Call, Task, below, target_below};
use crate::flex::gemm::{Matrix, Target};
use std::ops::Range;
use std::slice;

/// Maximum queries and keys per tile: its scores and their gradients fit in the L2 cache with the rest.
/// Fixed, so that sums do not depend on the number of threads; small in tests, so that there are several
/// tiles.
pub const QUERIES: usize = if cfg!(test) { 6 } else { 256 };
pub const KEYS: usize = if cfg!(test) { 9 } else { 256 };

/// A tile's buffers, reused by a thread.
pub struct Tile {
    scores: Vec<f32>,
    gradient: Vec<f32>,
    /// Sums of the values, weighted by the exponentials so far.
    sums: Vec<f32>,
    rows: Vec<Row>,
}

impl Tile {
    /// Buffers for the forward pass, or for both.
    pub fn new(d_v: usize, backward: bool) -> Self {
        let size = QUERIES * KEYS;
        Self {
            scores: vec![0.0; size],
            gradient: vec![0.0; if backward { size } else { 0 }],
            sums: vec![0.0; QUERIES * d_v],
            rows: Vec::with_capacity(QUERIES),
        }
    }
}

/// One query of a block.
#[derive(Clone, Copy)]
struct Row {
    seen: Seen,
    /// The scale of its scores; zero for a query that sees nothing.
    scale: f32,
    running: Running,
}

/// Initialises `rows` with a block's queries, and returns the keys that any of them sees.
fn begin(call: &Call, view: View, block: Range<usize>, rows: &mut Vec<Row>) -> Range<usize> {
    rows.clear();
    rows.extend(block.map(|row| match view.seen(row) {
        Seen { blind: true, .. } => {
            let seen = Seen { first: 0, end: view.k_len, blind: true };
            Row { seen, scale: 0.0, running: Running::START }
        }
        seen => Row { seen, scale: call.sizes.scale(), running: Running::START },
    }));
    let first = rows.iter().map(|row| row.seen.first).min().unwrap_or(0);
    let end = rows.iter().map(|row| row.seen.end).max().unwrap_or(0);
    first..end
}

/// The blocks of a task's queries.
pub fn blocks(task: &Task) -> impl Iterator<Item = Range<usize>> + use<> {
    let q_len = task.q_len;
    (0..q_len).step_by(QUERIES).map(move |start| start..q_len.min(start + QUERIES))
}

/// The tiles of a block's keys.
fn tiles(keys: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = keys.end;
    keys.step_by(KEYS).map(move |start| start..end.min(start + KEYS))
}

/// Number of scores computed for a task.
pub fn scores(call: &Call, task: &Task) -> usize {
    let mut rows = Vec::with_capacity(QUERIES);
    let of = |block: Range<usize>| block.len() * begin(call, call.view(task), block.clone(), &mut rows).len();
    blocks(task).map(of).sum()
}

impl Row {
    /// What the query sees of a tile's keys.
    fn part<'a>(&self, call: &Call, view: View<'a>, row: usize, column: usize) -> Part<'a> {
        Part {
            column,
            seen: self.seen,
            ignored: if self.seen.blind { &[] } else { view.ignored },
            scale: self.scale,
            keep: call.keep.map(|keep| keep.row(row)),
        }
    }
}

/// Writes the context of a block of queries, and the logarithms of their sums.
///
/// # Safety
/// The block is one of the task's, and the task one of the call's; `context` is the task's part of the
/// output, and `log_sums` has one for each of the block's queries. Nothing else may use these rows of either
/// meanwhile.
pub unsafe fn forward(
    call: &Call,
    task: &Task,
    block: Range<usize>,
    tile: &mut Tile,
    context: Target,
    log_sums: *mut f32,
) {
    let (view, sizes) = (call.view(task), call.sizes);
    let Tile { scores, sums, rows, .. } = tile;
    let keys = begin(call, view, block.clone(), rows);
    // SAFETY: the caller's promise; the buffers are as large as a tile and a block.
    unsafe {
        let [q, k, v] = call.operands(task);
        let q = below(q, block.start);
        for (n, keys) in tiles(keys).enumerate() {
            let (k, v) = (below(k, keys.start), below(v, keys.start));
            let (height, width) = (block.len(), keys.len());
            let target = Target::dense(scores.as_mut_ptr(), width);
            call.product([height, sizes.d_k, width], target, false, q, k.transposed());
            for (i, row) in rows.iter_mut().enumerate() {
                let part = row.part(call, view, task.first_row + block.start + i, keys.start);
                let scores = &mut scores[i * width..][..width];
                let correction = rows::exponentials(scores, part, &mut row.running);
                if n > 0 && correction != 1.0 {
                    rows::multiply(&mut sums[i * sizes.d_v..][..sizes.d_v], correction);
                }
            }
            let target = Target::dense(sums.as_mut_ptr(), sizes.d_v);
            call.product([height, width, sizes.d_v], target, n > 0, Matrix::dense(scores, width), v);
        }
        for (i, row) in rows.iter().enumerate() {
            let sums = &mut sums[i * sizes.d_v..][..sizes.d_v];
            rows::multiply(sums, row.running.inverse());
            context.at(block.start + i, 0).copy_from_nonoverlapping(sums.as_ptr(), sizes.d_v);
            log_sums.add(i).write(row.running.log_sum(row.scale));
        }
    }
}

/// Writes the task's part of the gradients of query, key and value, from that of the output, the output and
/// what [`forward`] wrote; with `add`, those of key and value are accumulated over the keys' other queries.
///
/// # Safety
/// As [`forward`]; the targets' columns are contiguous.
pub unsafe fn backward(
    call: &Call,
    task: &Task,
    [dy, context]: [Matrix; 2],
    log_sums: &[f32],
    tile: &mut Tile,
    [dq, dk, dv]: [Target; 3],
    add: bool,
) {
    let (view, sizes) = (call.view(task), call.sizes);
    let Tile { scores, gradient, rows, .. } = tile;
    // SAFETY: the caller's promise; the buffers are as large as a tile.
    unsafe {
        let [q, k, v] = call.operands(task);
        for key in 0..if add { 0 } else { task.k_len } {
            dk.at(key, 0).write_bytes(0, sizes.d_k);
            dv.at(key, 0).write_bytes(0, sizes.d_v);
        }
        for block in blocks(task) {
            let (q, dy, dq) = (below(q, block.start), below(dy, block.start), target_below(dq, block.start));
            let dots: Vec<f32> = block
                .clone()
                .map(|row| dot(below(context, row), below(dy, row - block.start), sizes.d_v))
                .collect();
            let keys = begin(call, view, block.clone(), rows);
            for (n, keys) in tiles(keys).enumerate() {
                let (k, v) = (below(k, keys.start), below(v, keys.start));
                let (dk, dv) = (target_below(dk, keys.start), target_below(dv, keys.start));
                let (height, width) = (block.len(), keys.len());
                let target = |values: &mut Vec<f32>| Target::dense(values.as_mut_ptr(), width);
                call.product([height, sizes.d_k, width], target(scores), false, q, k.transposed());
                call.product([height, sizes.d_v, width], target(gradient), false, dy, v.transposed());
                let lines = scores.chunks_exact_mut(width).zip(gradient.chunks_exact_mut(width));
                for ((i, row), (scores, gradient)) in rows.iter().enumerate().zip(lines) {
                    let part = row.part(call, view, task.first_row + block.start + i, keys.start);
                    let log_sum = log_sums[block.start + i];
                    rows::gradient(scores, gradient, part, log_sum, dots[i], sizes.scale());
                }
                let (left, ds) = (Matrix::dense(scores, width), Matrix::dense(gradient, width));
                call.product([width, height, sizes.d_v], dv, true, left.transposed(), dy);
                call.product([height, width, sizes.d_k], dq, n > 0, ds, k);
                call.product([width, height, sizes.d_k], dk, true, ds.transposed(), q);
            }
        }
    }
}

/// The product of two matrices' first rows.
///
/// # Safety
/// They have that many columns.
unsafe fn dot(a: Matrix, b: Matrix, len: usize) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        if a.column == 1 && b.column == 1 {
            return rows::dot(slice::from_raw_parts(a.start, len), slice::from_raw_parts(b.start, len));
        }
        let at = |x: Matrix, i: usize| *x.start.offset(i as isize * x.column);
        (0..len).map(|i| at(a, i) * at(b, i)).sum()
    }
}
