//! AMX kernels: FP32 operands are rounded to bf16 when packed, and multiplied in tiles of 16 by 16 FP32 sums.
//!
//! For every 32 steps along `k` the processor sums even and odd products separately, with fused additions
//! from zero, adds the two, and adds that to the sum. So results differ from other kernels in the order of
//! sums, and depend on no size but `k`. Subnormal operands, sums and targets are flushed to zero, regardless
//! of the thread's floating-point mode.

mod blocks;
pub(in crate::flex) mod machine;
mod pack;
pub(in crate::flex) mod tiles;

pub(in crate::flex) use blocks::multiply_blocks;

use super::avx512::{self, first};
use super::kernel::{Kernel, Lines, Onto, Place};
use machine::Tiles;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ptr::null;
use tiles::{BLOCK, Bf16Pairs, Element, Left, STEP, Sums};

/// Whether tiles and the packing instructions are available.
pub(in crate::flex) fn has_amx() -> bool {
    avx512::has_bf16() && machine::available()
}

pub(in crate::flex) struct Bf16;

impl Kernel for Bf16 {
    const ROWS: usize = BLOCK;
    const COLUMNS: usize = BLOCK;
    const DEPTH: usize = 2;
    const TASK: [usize; 2] = [8, 8];
    const STEP: usize = STEP;
    const LANES: usize = 512;
    // Writing the target takes the most time, and the processor sees where its rows go on.
    const ROW_BY_ROW: bool = true;

    unsafe fn set_up(work: impl FnOnce()) {
        // SAFETY: the caller's promise.
        let _tiles = unsafe { Tiles::configured() };
        work();
    }

    unsafe fn pack_left(from: Lines, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { pack::left(from, to) }
    }

    unsafe fn pack_right(from: Lines, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { pack::right(from, to) }
    }

    unsafe fn multiply(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto) {
        // SAFETY: the caller's promise; panels are whole steps long.
        unsafe { multiply::<Bf16Pairs>(len.div_ceil(STEP), Left::panel(a), b, place, onto) }
    }
}

/// `place = onto + a·b`, of `steps` whole tiles along `k`; 32-bit integers if the tiles hold
/// integers.
///
/// # Safety
/// As [`Kernel::multiply`]; tiles are configured.
pub(in crate::flex) unsafe fn multiply<E: Element>(
    steps: usize,
    a: Left,
    b: *const u32,
    place: Place,
    onto: Onto,
) {
    // SAFETY: the caller's promise; elsewhere than in the place, the tiles are read and written in a block of
    // our own.
    unsafe {
        let Place { start, row, height, width } = place;
        if height.is_multiple_of(16) && width.is_multiple_of(16) {
            let row = 4 * row;
            let onto = match onto {
                Onto::Zero => Sums { start: null(), row: 0 },
                Onto::Target => Sums { start: start.cast_const().cast(), row },
                // The same row for all rows.
                Onto::Row(bias) => Sums { start: bias.cast(), row: 0 },
            };
            return by_size::<E>(steps, a, b, [height, width], onto, Sums { start: start.cast(), row });
        }
        let mut block = MaybeUninit::<Block>::uninit();
        let own = Place { start: block.as_mut_ptr().cast(), row: BLOCK as isize, height, width };
        let sums = Sums { start: own.start.cast::<u8>(), row: 4 * own.row };
        let from = match onto {
            Onto::Zero => Sums { start: null(), row: 0 },
            Onto::Target => {
                copy(start, row, own);
                Sums { start: sums.start.cast_const(), row: sums.row }
            }
            Onto::Row(bias) => {
                copy(bias, 0, Place { height: 1, ..own });
                Sums { start: sums.start.cast_const(), row: 0 }
            }
        };
        by_size::<E>(steps, a, b, [height, width], from, sums);
        copy(own.start, own.row, place);
    }
}

/// A buffer of whole tiles, for a partial place.
#[repr(align(64))]
#[allow(dead_code, reason = "reached by pointers")]
struct Block([f32; BLOCK * BLOCK]);

unsafe fn by_size<E: Element>(
    steps: usize,
    a: Left,
    b: *const u32,
    [height, width]: [usize; 2],
    onto: Sums<*const u8>,
    to: Sums<*mut u8>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (height > 16, width > 16) {
            (true, true) => E::multiply::<2, 2>(steps, a, b, onto, to),
            (true, false) => E::multiply::<2, 1>(steps, a, b, onto, to),
            (false, true) => E::multiply::<1, 2>(steps, a, b, onto, to),
            (false, false) => E::multiply::<1, 1>(steps, a, b, onto, to),
        }
    }
}

/// Copies rows into a place.
#[target_feature(enable = "avx512f")]
unsafe fn copy(from: *const f32, row: isize, to: Place) {
    // SAFETY: the caller's promise; what is masked is neither read nor written.
    unsafe {
        for r in 0..to.height as isize {
            for column in (0..to.width).step_by(16) {
                let mask = first(to.width - column);
                let x = _mm512_maskz_loadu_ps(mask, from.offset(r * row).add(column));
                _mm512_mask_storeu_ps(to.start.offset(r * to.row).add(column), mask, x);
            }
        }
    }
}
