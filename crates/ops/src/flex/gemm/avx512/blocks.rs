//! Integers in blocks with scales: a block's sums and the scaled sums of all blocks stay in registers.

use super::{COLUMNS, Format, Int8, ROWS};
use std::arch::x86_64::*;

/// Lanes in a block.
pub(crate) const BLOCK: usize = 8;

/// Rows whose sums, of both kinds, leave registers for the columns.
const MOST: usize = 6;

/// `to += Σ scale·(a·b)` over blocks of [`BLOCK`] lanes. `scales` and `to` are of [`COLUMNS`] numbers for each block and for
/// each row. With `HALVED`, the right panel's lanes lie two in one: the first in the low halves of its bytes, plus 8.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ, VL and VNNI; the panels have `n_blocks` blocks.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")]
pub(crate) unsafe fn multiply_blocks<const HALVED: bool>(
    n_blocks: usize,
    a: *const u32,
    b: *const u32,
    scales: *const f32,
    [height, width]: [usize; 2],
    to: *mut f32,
) {
    for row in (0..height).step_by(MOST) {
        // SAFETY: the caller's promise.
        unsafe {
            let (a, to) = (a.add(row), to.add(row * COLUMNS));
            macro_rules! by_height {
                ($v:literal: $($r:literal)+) => {
                    match height - row {
                        $($r => blocks::<HALVED, $r, $v>(n_blocks, a, b, scales, to),)+
                        _ => blocks::<HALVED, MOST, $v>(n_blocks, a, b, scales, to),
                    }
                };
            }
            match width > 16 {
                true => by_height!(2: 1 2 3 4 5),
                false => by_height!(1: 1 2 3 4 5),
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")]
unsafe fn blocks<const HALVED: bool, const R: usize, const V: usize>(
    n_blocks: usize,
    mut a: *const u32,
    mut b: *const u32,
    mut scales: *const f32,
    to: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut scaled = [[_mm512_setzero_ps(); V]; R];
        for (r, scaled) in scaled.iter_mut().enumerate() {
            for (v, scaled) in scaled.iter_mut().enumerate() {
                *scaled = _mm512_loadu_ps(to.add(r * COLUMNS + 16 * v));
            }
        }
        for _ in 0..n_blocks {
            let mut sums = [[_mm512_setzero_si512(); V]; R];
            for lane in 0..BLOCK {
                let stored = if HALVED { lane / 2 } else { lane };
                let mut columns = [_mm512_setzero_si512(); V];
                for (v, columns) in columns.iter_mut().enumerate() {
                    *columns = _mm512_loadu_si512(b.add(COLUMNS * stored + 16 * v).cast());
                    if HALVED {
                        let halves = if lane % 2 == 0 { *columns } else { _mm512_srli_epi16::<4>(*columns) };
                        let low = _mm512_and_si512(halves, _mm512_set1_epi8(15));
                        *columns = _mm512_sub_epi8(low, _mm512_set1_epi8(8));
                    }
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let row = _mm512_set1_epi32(a.add(ROWS * lane + r).read().cast_signed());
                    for (sum, columns) in sums.iter_mut().zip(columns) {
                        *sum = Int8::dot(*sum, row, columns);
                    }
                }
            }
            a = a.add(ROWS * BLOCK);
            b = b.add(if HALVED { COLUMNS * BLOCK / 2 } else { COLUMNS * BLOCK });
            for (sums, scaled) in sums.into_iter().zip(&mut scaled) {
                for (v, (sum, scaled)) in sums.into_iter().zip(scaled).enumerate() {
                    let scales = _mm512_loadu_ps(scales.add(16 * v));
                    *scaled = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scales, *scaled);
                }
            }
            scales = scales.add(COLUMNS);
        }
        for (r, scaled) in scaled.into_iter().enumerate() {
            for (v, scaled) in scaled.into_iter().enumerate() {
                _mm512_storeu_ps(to.add(r * COLUMNS + 16 * v), scaled);
            }
        }
    }
}
