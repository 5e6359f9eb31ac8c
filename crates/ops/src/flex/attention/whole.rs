//! Attention of a head of a short sequence: all of its probabilities are in memory and kept for the
//! backward pass.
//!
//! Dropout is drawn once and recorded in the sign of the probabilities for the backward pass.

use super::{Call, Task, rows};
use crate::flex::gemm::{Matrix, Target};
use std::slice;

/// The probabilities after dropout, and scores or their gradients, sized for the largest task.
pub struct Buffer {
    pub scores: Vec<f32>,
    pub left: Vec<f32>,
}

/// Turns uninitialised `scores` into the probabilities before dropout, negated where dropped.
///
/// # Safety
/// The task is one of the call's, `context` its part of the output; nothing else uses that and the scores meanwhile.
pub unsafe fn forward(call: &Call, task: &Task, scores: *mut f32, left: &mut [f32], context: Target) {
    let Task { q_len, k_len, .. } = *task;
    let (view, sizes) = (call.view(task), call.sizes);
    // SAFETY: the caller's promise; the product writes all scores.
    unsafe {
        let [q, k, v] = call.operands(task);
        call.product([q_len, sizes.d_k, k_len], Target::dense(scores, k_len), false, q, k.transposed());
        let probs = slice::from_raw_parts_mut(scores, task.scores());
        for (row, probs) in probs.chunks_exact_mut(k_len.max(1)).enumerate() {
            rows::softmax(probs, view.ignored, view.seen(row), sizes.scale());
        }
        let used = match call.keep {
            Some(keep) => {
                let left = &mut left[..probs.len()];
                let both = probs.chunks_exact_mut(k_len.max(1)).zip(left.chunks_exact_mut(k_len.max(1)));
                for (row, (probs, left)) in both.enumerate() {
                    rows::drop(probs, keep.row(task.first_row + row), left);
                }
                &*left
            }
            None => &*probs,
        };
        call.product([q_len, k_len, sizes.d_v], context, false, Matrix::dense(used, k_len), v);
    }
}

/// Writes the task's part of the gradients of query, key and value, from that of the output and the
/// probabilities that [`forward`] left; with `add`, those of key and value are accumulated over the keys'
/// other queries.
///
/// # Safety
/// As [`forward`].
pub unsafe fn backward(
    call: &Call,
    task: &Task,
    dy: Matrix,
    probs: &[f32],
    buffer: &mut Buffer,
    [dq, dk, dv]: [Target; 3],
    add: bool,
) {
    let Task { q_len, k_len, .. } = *task;
    let (sizes, width) = (call.sizes, k_len.max(1));
    let dropout = call.keep.map(|keep| keep.scale);
    let used = match dropout {
        Some(scale) => {
            let left = &mut buffer.left[..probs.len()];
            for (probs, left) in probs.chunks_exact(width).zip(left.chunks_exact_mut(width)) {
                rows::dropped(probs, scale, left);
            }
            &*left
        }
        None => probs,
    };
    let ds = &mut buffer.scores[..probs.len()];
    // SAFETY: the caller's promise; each product writes all of its target.
    unsafe {
        let [q, k, v] = call.operands(task);
        call.product([k_len, q_len, sizes.d_v], dv, add, Matrix::dense(used, k_len).transposed(), dy);
        let target = Target::dense(ds.as_mut_ptr(), k_len);
        call.product([q_len, sizes.d_v, k_len], target, false, dy, v.transposed());
        for (probs, ds) in probs.chunks_exact(width).zip(ds.chunks_exact_mut(width)) {
            if let Some(scale) = dropout {
                rows::drop_backward(probs, scale, ds);
            }
            rows::softmax_backward(probs, ds, sizes.scale());
        }
        let ds = Matrix::dense(ds, k_len);
        call.product([q_len, k_len, sizes.d_k], dq, false, ds, k);
        call.product([k_len, q_len, sizes.d_k], dk, add, ds.transposed(), q);
    }
}
