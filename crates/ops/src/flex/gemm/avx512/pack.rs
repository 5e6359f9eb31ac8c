//! Packing: up to `W` rows of the left operand, or columns of the right one, interleaved, so that the
//! innermost loop finds each step along `k` in one place.

use super::super::kernel::Lines;
use super::{Format, first};
use std::arch::x86_64::*;

/// Writes `len / F::DEPTH` times `W` lanes; those of missing lines and elements are zeros.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ, VL and what the format needs; the lines may be read and the lanes written.
#[inline(always)]
pub(crate) unsafe fn pack<F: Format, const W: usize>(from: Lines, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        if from.step == 1 && from.line != 1 {
            pack_along::<F, W>(from, to);
        } else if from.line == 1 {
            pack_across::<F, W>(from, to);
        } else {
            pack_any::<F, W>(from, to);
        }
    }
}

/// Adjacent lines.
#[inline(always)]
unsafe fn pack_across<F: Format, const W: usize>(from: Lines, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        for group in (0..W).step_by(16) {
            let mask = first(from.n.saturating_sub(group));
            let (start, stored) = (from.start.wrapping_add(group), first(W - group));
            for lane in 0..from.len.div_ceil(F::DEPTH) {
                let k = lane * F::DEPTH;
                let lanes =
                    F::across(start.wrapping_offset(k as isize * from.step), mask, from.step, from.len - k);
                _mm512_mask_storeu_epi32(to.add(lane * W + group).cast(), stored, lanes);
            }
        }
    }
}

/// Elements contiguous along `k`: squares of 16 lines and 16 lanes are transposed.
#[inline(always)]
unsafe fn pack_along<F: Format, const W: usize>(from: Lines, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let lanes = from.len.div_ceil(F::DEPTH);
        for group in (0..W).step_by(16) {
            let stored = first(W - group);
            for lane in (0..lanes).step_by(16) {
                let k = lane * F::DEPTH;
                let mut square = [_mm512_setzero_si512(); 16];
                for (i, row) in square.iter_mut().enumerate() {
                    if group + i < from.n {
                        let start = from.start.offset((group + i) as isize * from.line).add(k);
                        *row = F::along(start, from.len - k);
                    }
                }
                transpose(&mut square);
                for (i, column) in square.iter().enumerate().take(lanes - lane) {
                    _mm512_mask_storeu_epi32(to.add((lane + i) * W + group).cast(), stored, *column);
                }
            }
        }
    }
}

/// Neither is contiguous: elements are gathered one by one.
#[inline(always)]
unsafe fn pack_any<F: Format, const W: usize>(from: Lines, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        for lane in 0..from.len.div_ceil(F::DEPTH) {
            let k = lane * F::DEPTH;
            let depth = F::DEPTH.min(from.len - k);
            for group in (0..W).step_by(16) {
                let mut gathered = [[0f32; 16]; 2];
                for (d, gathered) in gathered.iter_mut().enumerate().take(depth) {
                    for (i, value) in gathered.iter_mut().enumerate().take(from.n.saturating_sub(group)) {
                        *value = *from
                            .start
                            .offset((group + i) as isize * from.line + (k + d) as isize * from.step);
                    }
                }
                let lanes = F::across(gathered.as_ptr().cast(), !0, 16, depth);
                _mm512_mask_storeu_epi32(to.add(lane * W + group).cast(), first(W - group), lanes);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn transpose(r: &mut [__m512i; 16]) {
    // Within the 128-bit quarters: fours of rows become fours of columns.
    let mut t = [_mm512_setzero_si512(); 16];
    for i in (0..16).step_by(4) {
        let (a, b) = (_mm512_unpacklo_epi32(r[i], r[i + 1]), _mm512_unpackhi_epi32(r[i], r[i + 1]));
        let (c, d) = (_mm512_unpacklo_epi32(r[i + 2], r[i + 3]), _mm512_unpackhi_epi32(r[i + 2], r[i + 3]));
        t[i] = _mm512_unpacklo_epi64(a, c);
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    // The quarters themselves.
    for j in 0..4 {
        let even = _mm512_shuffle_i32x4::<0x88>(t[j], t[4 + j]);
        let odd = _mm512_shuffle_i32x4::<0xdd>(t[j], t[4 + j]);
        let even_below = _mm512_shuffle_i32x4::<0x88>(t[8 + j], t[12 + j]);
        let odd_below = _mm512_shuffle_i32x4::<0xdd>(t[8 + j], t[12 + j]);
        r[j] = _mm512_shuffle_i32x4::<0x88>(even, even_below);
        r[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd, odd_below);
        r[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even, even_below);
        r[12 + j] = _mm512_shuffle_i32x4::<0xdd>(odd, odd_below);
    }
}
