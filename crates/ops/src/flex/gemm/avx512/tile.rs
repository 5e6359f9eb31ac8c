//! The innermost loop: a tile of the result, held in registers.

use super::super::kernel::{Onto, Place};
use super::{COLUMNS, Format, ROWS, first};
use std::arch::x86_64::*;

/// `place = onto + a·b`, of panels `ROWS` and `COLUMNS` wide and `len` lanes long.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ, VL and what the format needs; the panels have that size, and the place
/// may be written.
#[inline(always)]
pub(crate) unsafe fn multiply<F: Format>(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto) {
    // SAFETY: the caller's promise.
    unsafe {
        match place.width > 16 {
            true => by_height::<F, 2>(len, a, b, place, onto),
            false => by_height::<F, 1>(len, a, b, place, onto),
        }
    }
}

#[inline(always)]
unsafe fn by_height<F: Format, const V: usize>(
    len: usize,
    a: *const u32,
    b: *const u32,
    place: Place,
    onto: Onto,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match place.height {
            1 => tile::<F, 1, V>(len, a, b, place, onto),
            2 => tile::<F, 2, V>(len, a, b, place, onto),
            3 => tile::<F, 3, V>(len, a, b, place, onto),
            4 => tile::<F, 4, V>(len, a, b, place, onto),
            5 => tile::<F, 5, V>(len, a, b, place, onto),
            6 => tile::<F, 6, V>(len, a, b, place, onto),
            7 => tile::<F, 7, V>(len, a, b, place, onto),
            8 => tile::<F, 8, V>(len, a, b, place, onto),
            9 => tile::<F, 9, V>(len, a, b, place, onto),
            10 => tile::<F, 10, V>(len, a, b, place, onto),
            11 => tile::<F, 11, V>(len, a, b, place, onto),
            _ => tile::<F, 12, V>(len, a, b, place, onto),
        }
    }
}

#[inline(always)]
unsafe fn tile<F: Format, const R: usize, const V: usize>(
    len: usize,
    mut a: *const u32,
    mut b: *const u32,
    place: Place,
    onto: Onto,
) {
    // SAFETY: the caller's promise; what is masked is neither read nor written.
    unsafe {
        // The target is wanted in the end: fetched meanwhile.
        for r in 0..R {
            let row = place.start.wrapping_offset(r as isize * place.row);
            for v in 0..V {
                _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(16 * v).cast());
            }
        }
        let mut sums = [[_mm512_setzero_si512(); V]; R];
        for _ in 0..len {
            let mut columns = [_mm512_setzero_si512(); V];
            for (v, columns) in columns.iter_mut().enumerate() {
                *columns = _mm512_loadu_si512(b.add(16 * v).cast());
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let row = _mm512_set1_epi32(a.add(r).read().cast_signed());
                for (sum, columns) in sums.iter_mut().zip(columns) {
                    *sum = F::dot(*sum, row, columns);
                }
            }
            a = a.add(ROWS);
            b = b.add(COLUMNS);
        }
        let last = place.width - 16 * (V - 1);
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                let mask = if v + 1 < V { !0 } else { first(last) };
                let to = place.start.offset(r as isize * place.row).add(16 * v);
                let sum = match onto {
                    Onto::Zero => *sum,
                    Onto::Target => F::add(*sum, _mm512_maskz_loadu_epi32(mask, to.cast())),
                    Onto::Row(row) => F::add(*sum, _mm512_maskz_loadu_epi32(mask, row.add(16 * v).cast())),
                };
                _mm512_mask_storeu_epi32(to.cast(), mask, sum);
            }
        }
    }
}
