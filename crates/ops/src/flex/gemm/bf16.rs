//! Rounding to bf16, the upper half of an FP32 number.

use super::Matrix;
#[cfg(target_arch = "x86_64")]
use super::kernel::{Kernel, Lines, Onto, Place};
use crate::flex::vector::vectorised;
#[cfg(target_arch = "x86_64")]
use std::{marker::PhantomData, slice};

/// The nearest bf16 number, ties to the even one, as the AVX512-BF16 instructions round: subnormal numbers
/// are zero to them.
#[inline(always)]
pub(super) fn round(x: f32) -> f32 {
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + even) & 0xffff_0000;
    if x.is_nan() {
        f32::from_bits((bits | 0x0040_0000) & 0xffff_0000)
    } else if x.is_subnormal() {
        f32::from_bits(bits & 0x8000_0000)
    } else {
        f32::from_bits(rounded)
    }
}

vectorised! {
    /// Rounds every number.
    fn round_all(x: &mut [f32]) {
        for x in x {
            *x = round(*x);
        }
    }
}

/// An FP32 kernel for bf16 numbers, whose products are exact in FP32: without bf16 instructions, panels are
/// rounded when packed.
#[cfg(target_arch = "x86_64")]
pub(super) struct Rounded<K>(PhantomData<fn(K)>);

#[cfg(target_arch = "x86_64")]
impl<K: Kernel> Rounded<K> {
    /// # Safety
    /// There are that many numbers.
    unsafe fn round(panel: *mut u32, len: usize) {
        // SAFETY: the caller's promise; 32 bits are a number here.
        round_all(unsafe { slice::from_raw_parts_mut(panel.cast(), len) });
    }
}

#[cfg(target_arch = "x86_64")]
impl<K: Kernel> Kernel for Rounded<K> {
    const ROWS: usize = K::ROWS;
    const COLUMNS: usize = K::COLUMNS;
    const DEPTH: usize = {
        assert!(K::DEPTH == 1, "a lane is a number");
        1
    };
    const TASK: [usize; 2] = K::TASK;

    unsafe fn pack_left(from: Lines, to: *mut u32) {
        // SAFETY: the caller's promise; packing writes the whole panel.
        unsafe {
            K::pack_left(from, to);
            Self::round(to, from.len * K::ROWS);
        }
    }

    unsafe fn pack_right(from: Lines, to: *mut u32) {
        // SAFETY: as above.
        unsafe {
            K::pack_right(from, to);
            Self::round(to, from.len * K::COLUMNS);
        }
    }

    unsafe fn multiply(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto) {
        // SAFETY: the caller's promise.
        unsafe { K::multiply(len, a, b, place, onto) }
    }
}

/// A row-major copy, rounded.
///
/// # Safety
/// The matrix has this size.
pub(super) unsafe fn rounded(x: Matrix, [height, width]: [usize; 2]) -> Vec<f32> {
    let mut copy = Vec::with_capacity(height * width);
    for i in 0..height as isize {
        for j in 0..width as isize {
            // SAFETY: within the matrix.
            copy.push(unsafe { *x.start.offset(i * x.row + j * x.column) });
        }
    }
    round_all(&mut copy);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pattern of the upper half, with lower halves at and around the ties.
    fn patterns() -> impl Iterator<Item = f32> {
        let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
        (0..=u16::MAX)
            .flat_map(move |upper| lower.map(|lower| f32::from_bits(u32::from(upper) << 16 | lower)))
    }

    #[test]
    fn rounds_to_the_nearest_with_ties_to_even() {
        for x in patterns() {
            let (found, below) = (round(x), f32::from_bits(x.to_bits() & 0xffff_0000));
            if x.is_nan() {
                assert!(found.is_nan());
                continue;
            }
            if x.is_subnormal() {
                assert_eq!(found, 0.0);
                continue;
            }
            let above = f32::from_bits(below.to_bits().wrapping_add(0x1_0000));
            let up = match x.to_bits() & 0xffff {
                0x8000 => below.to_bits() & 0x1_0000 != 0,
                lower => lower > 0x8000,
            };
            assert_eq!(found.to_bits(), if up { above } else { below }.to_bits(), "{x:e}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_machine_rounds_the_same() {
        use super::super::avx512::{Bf16, Format, has_bf16};
        use super::super::kernel::Lines;
        if !has_bf16() {
            println!("skipped: no AVX512-BF16");
            return;
        }
        let all: Vec<f32> = patterns().collect();
        for x in all.chunks_exact(32) {
            let mut lanes = [0u32; 16];
            // SAFETY: the machine has the instructions; 32 elements make 16 lanes.
            unsafe {
                Bf16::pack::<1>(
                    Lines { start: x.as_ptr(), line: 2, step: 1, n: 1, len: 32 },
                    lanes.as_mut_ptr(),
                );
            }
            for (x, lane) in x.as_chunks::<2>().0.iter().zip(lanes) {
                for (x, half) in x.iter().zip([lane << 16, lane & 0xffff_0000]) {
                    let (expected, found) = (round(*x), f32::from_bits(half));
                    assert!(
                        expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan(),
                        "{x:e}: {found:e}, not {expected:e}"
                    );
                }
            }
        }
    }
}
