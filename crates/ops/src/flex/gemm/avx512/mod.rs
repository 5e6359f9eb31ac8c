//! AVX-512 kernels: the contents of a packed panel's 32-bit lane, and the instruction that multiplies two of
//! them.

mod blocks;
mod pack;
mod tile;

pub(crate) use blocks::{BLOCK, multiply_blocks};
pub(super) use pack::transpose;

use super::kernel::{Kernel, Lines, Onto, Place};
use super::{COLUMNS, ROWS, TASK};
use std::arch::x86_64::*;

/// One FP32 number, two bf16 numbers or four 8-bit integers: 1, 2 or 4 steps along `k`.
///
/// # Safety
/// The functions need the instructions that the format's check looks for.
pub(crate) trait Format: Send + Sync + 'static {
    /// Elements of the source in a lane.
    const DEPTH: usize;

    /// `sum + a·b`, lane by lane.
    unsafe fn dot(sum: __m512i, a: __m512i, b: __m512i) -> __m512i;

    /// `a + b` of two sums.
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i;

    /// 16 lanes from `n` contiguous elements along `k` (or as many as needed).
    unsafe fn along(from: *const f32, n: usize) -> __m512i;

    /// One lane each from 16 adjacent rows or columns with `n` elements along `k` (or as many as needed),
    /// `step` apart.
    unsafe fn across(from: *const f32, mask: __mmask16, step: isize, n: usize) -> __m512i;

    /// [`pack::pack`], compiled for the format's instructions.
    unsafe fn pack<const W: usize>(from: Lines, to: *mut u32);

    /// [`tile::multiply`], compiled for the format's instructions.
    unsafe fn multiply(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto);
}

impl<F: Format> Kernel for F {
    const ROWS: usize = ROWS;
    const COLUMNS: usize = COLUMNS;
    const DEPTH: usize = F::DEPTH;
    const TASK: [usize; 2] = TASK;

    unsafe fn pack_left(from: Lines, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { F::pack::<ROWS>(from, to) }
    }

    unsafe fn pack_right(from: Lines, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { F::pack::<COLUMNS>(from, to) }
    }

    unsafe fn multiply(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto) {
        // SAFETY: the caller's promise.
        unsafe { <F as Format>::multiply(len, a, b, place, onto) }
    }
}

macro_rules! compiled_for {
    ($features:literal) => {
        unsafe fn pack<const W: usize>(from: Lines, to: *mut u32) {
            #[target_feature(enable = $features)]
            unsafe fn compiled<F: Format, const W: usize>(from: Lines, to: *mut u32) {
                // SAFETY: the caller's promise.
                unsafe { pack::pack::<F, W>(from, to) }
            }
            // SAFETY: as above, and the machine has the instructions.
            unsafe { compiled::<Self, W>(from, to) }
        }

        unsafe fn multiply(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto) {
            #[target_feature(enable = $features)]
            unsafe fn compiled<F: Format>(
                len: usize,
                a: *const u32,
                b: *const u32,
                place: Place,
                onto: Onto,
            ) {
                // SAFETY: the caller's promise.
                unsafe { tile::multiply::<F>(len, a, b, place, onto) }
            }
            // SAFETY: as above, and the machine has the instructions.
            unsafe { compiled::<Self>(len, a, b, place, onto) }
        }
    };
}

/// Whether the machine has what [`Fp32`] and the packing need.
pub(crate) fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512vl")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512bw")
}

pub(crate) fn has_bf16() -> bool {
    has_avx512() && std::is_x86_feature_detected!("avx512bf16")
}

/// Whether the processor is from AMD, whose fast instructions differ.
pub(crate) fn is_amd() -> bool {
    let id = __cpuid(0);
    [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
}

pub(crate) fn has_vnni() -> bool {
    has_avx512() && std::is_x86_feature_detected!("avx512vnni")
}

/// The mask of the first `n` lanes.
#[inline(always)]
pub(crate) fn first(n: usize) -> __mmask16 {
    if n >= 16 { !0 } else { (1 << n) - 1 }
}

pub(crate) struct Fp32;

impl Format for Fp32 {
    const DEPTH: usize = 1;

    compiled_for!("avx512f,avx512vl,avx512dq,avx512bw");

    #[inline(always)]
    unsafe fn dot(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let (sum, a, b) = (_mm512_castsi512_ps(sum), _mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
            _mm512_castps_si512(_mm512_fmadd_ps(a, b, sum))
        }
    }

    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b))) }
    }

    #[inline(always)]
    unsafe fn along(from: *const f32, n: usize) -> __m512i {
        // SAFETY: as above; what is masked is not read.
        unsafe { _mm512_maskz_loadu_epi32(first(n), from.cast()) }
    }

    #[inline(always)]
    unsafe fn across(from: *const f32, mask: __mmask16, _: isize, _: usize) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_maskz_loadu_epi32(mask, from.cast()) }
    }
}

pub(crate) struct Bf16;

impl Format for Bf16 {
    const DEPTH: usize = 2;

    compiled_for!("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16");

    #[inline(always)]
    unsafe fn dot(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise; the types are 512 bits of anything.
        unsafe {
            let (a, b) =
                (std::mem::transmute::<__m512i, __m512bh>(a), std::mem::transmute::<__m512i, __m512bh>(b));
            _mm512_castps_si512(_mm512_dpbf16_ps(_mm512_castsi512_ps(sum), a, b))
        }
    }

    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { Fp32::add(a, b) }
    }

    #[inline(always)]
    unsafe fn along(from: *const f32, n: usize) -> __m512i {
        // SAFETY: as above; what is masked is not read, and its address not used.
        unsafe {
            let low = _mm512_maskz_loadu_ps(first(n), from);
            let high = _mm512_maskz_loadu_ps(first(n.saturating_sub(16)), from.wrapping_add(16));
            std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low))
        }
    }

    #[inline(always)]
    unsafe fn across(from: *const f32, mask: __mmask16, step: isize, n: usize) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let low = _mm512_maskz_loadu_ps(mask, from);
            let high =
                if n > 1 { _mm512_maskz_loadu_ps(mask, from.offset(step)) } else { _mm512_setzero_ps() };
            let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
            // From sixteen and sixteen to sixteen pairs.
            let pairs = _mm512_set_epi16(
                31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19,
                3, 18, 2, 17, 1, 16, 0,
            );
            _mm512_permutexvar_epi16(pairs, both)
        }
    }
}

/// Unsigned times signed integers, summed in 32 bits.
pub(crate) struct Int8;

impl Format for Int8 {
    const DEPTH: usize = 1;

    compiled_for!("avx512f,avx512vl,avx512dq,avx512bw,avx512vnni");

    #[inline(always)]
    unsafe fn dot(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise, here and below.
        unsafe { _mm512_dpbusd_epi32(sum, a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_add_epi32(a, b) }
    }

    // Packed lanes of four are moved as they are.

    #[inline(always)]
    unsafe fn along(from: *const f32, n: usize) -> __m512i {
        // SAFETY: as above.
        unsafe { Fp32::along(from, n) }
    }

    #[inline(always)]
    unsafe fn across(from: *const f32, mask: __mmask16, step: isize, n: usize) -> __m512i {
        // SAFETY: as above.
        unsafe { Fp32::across(from, mask, step, n) }
    }
}
