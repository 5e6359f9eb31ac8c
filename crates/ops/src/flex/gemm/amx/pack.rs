//! Packing FP32 numbers into panels of bf16 tiles.

use super::super::avx512::{self, Format, first, transpose};
use super::super::kernel::Lines;
use super::tiles::{BLOCK, STEP};
use std::arch::x86_64::*;

/// Elements along `k` in a tile.
const K: usize = STEP * <avx512::Bf16 as Format>::DEPTH;
/// Lanes per step in a panel.
const SQUARES: usize = BLOCK * STEP;

/// 32 rows of the left operand: for each step along `k`, the rows of its two tiles in order. Missing rows and
/// elements are zeros.
///
/// # Safety
/// The machine has AVX-512 and its bf16 conversion; the lines may be read, and the lanes of whole steps written.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")]
pub unsafe fn left(from: Lines, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let n = from.n.min(BLOCK);
        if from.step == 1 {
            // Rows as they are: no transposition, unlike in the panels of the other kernels.
            for k in (0..from.len).step_by(K) {
                let square = to.add(k / K * SQUARES);
                for r in 0..n {
                    let lanes =
                        avx512::Bf16::along(from.start.offset(r as isize * from.line).add(k), from.len - k);
                    _mm512_storeu_si512(square.add(r * STEP).cast(), lanes);
                }
            }
        } else {
            for k in (0..from.len).step_by(K) {
                let start = from.start.wrapping_offset(k as isize * from.step);
                let lanes = (from.len - k).min(K).div_ceil(2);
                for group in (0..n).step_by(16) {
                    let mut square = [_mm512_setzero_si512(); 16];
                    let mask = first(n - group);
                    if from.line == 1 {
                        for (lane, square) in square.iter_mut().enumerate().take(lanes) {
                            let start =
                                start.wrapping_offset(2 * lane as isize * from.step).wrapping_add(group);
                            *square = avx512::Bf16::across(start, mask, from.step, from.len - k - 2 * lane);
                        }
                    } else {
                        for (lane, square) in square.iter_mut().enumerate().take(lanes) {
                            let mut gathered = [[0f32; 16]; 2];
                            for (d, gathered) in gathered.iter_mut().enumerate() {
                                if k + 2 * lane + d < from.len {
                                    for (i, value) in gathered.iter_mut().enumerate().take(n - group) {
                                        let row = (group + i) as isize * from.line;
                                        *value = *start.offset(row + (2 * lane + d) as isize * from.step);
                                    }
                                }
                            }
                            *square = avx512::Bf16::across(gathered.as_ptr().cast(), !0, 16, 2);
                        }
                    }
                    transpose(&mut square);
                    let rows = to.add(k / K * SQUARES + group * STEP);
                    for (r, row) in square.iter().enumerate() {
                        _mm512_storeu_si512(rows.add(r * STEP).cast(), *row);
                    }
                }
            }
        }
        // Missing rows, by sixteen where the transposition has not written them.
        let written = if from.step == 1 { n } else { n.next_multiple_of(16) };
        for step in 0..from.len.div_ceil(K) {
            for r in written..BLOCK {
                _mm512_storeu_si512(to.add(step * SQUARES + r * STEP).cast(), _mm512_setzero_si512());
            }
        }
    }
}

/// 32 columns of the right operand: the project's panels, their lengths rounded up to whole steps with zeros.
///
/// # Safety
/// As [`left`].
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")]
pub unsafe fn right(from: Lines, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        match (from.line, from.step) {
            (1, _) if from.n >= BLOCK => right_rows(from, to),
            (line, 1) if line != 1 => right_along(from, to),
            _ => <avx512::Bf16 as Format>::pack::<BLOCK>(from, to),
        }
        let lanes = from.len.div_ceil(2);
        let missing = lanes.next_multiple_of(STEP) - lanes;
        to.add(lanes * BLOCK).write_bytes(0, missing * BLOCK);
    }
}

/// All columns at once: a row's two cache lines are read in order.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")]
unsafe fn right_rows(from: Lines, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        for lane in 0..from.len.div_ceil(2) {
            let k = 2 * lane;
            let start = from.start.wrapping_offset(k as isize * from.step);
            for group in [0, 16] {
                let lanes = avx512::Bf16::across(start.wrapping_add(group), !0, from.step, from.len - k);
                _mm512_storeu_si512(to.add(lane * BLOCK + group).cast(), lanes);
            }
        }
    }
}

/// Columns contiguous along `k`: squares of 16 columns and 16 lanes are transposed.
///
/// Too many columns are read at once, one cache line each, for the hardware prefetcher; prefetching them
/// explicitly made this 1.6 times as fast for weights larger than the caches.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")]
unsafe fn right_along(from: Lines, to: *mut u32) {
    const AHEAD: usize = 4 * K;
    for k in (0..from.len).step_by(K) {
        let lanes = (from.len - k).min(K).div_ceil(2);
        for group in (0..BLOCK).step_by(16) {
            let mut square = [_mm512_setzero_si512(); 16];
            // SAFETY: the caller's promise; what is fetched ahead may lie beyond the operand.
            unsafe {
                for (column, square) in square.iter_mut().enumerate().take(from.n.saturating_sub(group)) {
                    let start = from.start.offset((group + column) as isize * from.line).add(k);
                    for line in [0, 16] {
                        _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(AHEAD + line).cast());
                    }
                    *square = avx512::Bf16::along(start, from.len - k);
                }
                transpose(&mut square);
                for (lane, columns) in square.iter().enumerate().take(lanes) {
                    _mm512_storeu_si512(to.add((k / 2 + lane) * BLOCK + group).cast(), *columns);
                }
            }
        }
    }
}
