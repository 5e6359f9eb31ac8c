//! AVX2 and FMA kernels, for machines without AVX-512: packing and tiles of 6 rows and 16 columns, which keep
//! 12 of the 16 registers busy with sums.

use super::kernel::{Kernel, Lines, Onto, Place};
use std::arch::x86_64::*;
use std::array;

pub(crate) const ROWS: usize = 6;
pub(crate) const COLUMNS: usize = 16;

/// Lanes in a register.
const LANES: usize = 8;

/// Steps along `k` per iteration of the innermost loop. With one, loop overhead costs 10 % of the peak rate:
/// a step's twelve products and eight loads nearly fill the core's issue width.
const STEPS: usize = 4;

/// Whether the machine has what the kernel needs.
pub(crate) fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")
}

/// What the lanes of panels hold.
pub(crate) trait Format {
    /// `sum + a·b`, lane by lane.
    ///
    /// # Safety
    /// The machine has AVX2 and FMA; so below.
    unsafe fn dot(sum: __m256i, a: __m256i, b: __m256i) -> __m256i;

    /// `a + b` of two sums.
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i;
}

/// A number.
pub(crate) struct Fp32;

impl Format for Fp32 {
    #[inline(always)]
    unsafe fn dot(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let (sum, a, b) = (_mm256_castsi256_ps(sum), _mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
            _mm256_castps_si256(_mm256_fmadd_ps(a, b, sum))
        }
    }

    #[inline(always)]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))) }
    }
}

/// Four 8-bit integers, unsigned in the left panel and signed in the right one, summed in 32 bits.
///
/// Exact for right panels up to [`GREATEST`](Self::GREATEST), since two products are added in 16 bits.
pub(crate) struct Int8;

impl Int8 {
    /// `2 · 255 · 64` fits 16 bits, `2 · 255 · 127` does not.
    pub const GREATEST: i8 = 64;
}

impl Format for Int8 {
    #[inline(always)]
    unsafe fn dot(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let pairs = _mm256_maddubs_epi16(a, b);
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(a, b) }
    }
}

/// As [`Int8`], and exact for every right panel: products are added in 32 bits, which takes a third longer.
pub(crate) struct WideInt8;

impl Format for WideInt8 {
    #[inline(always)]
    unsafe fn dot(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            // The first and third bytes of each lane as 16 bits, and the second and fourth.
            let (a_even, a_odd) = (_mm256_and_si256(a, _mm256_set1_epi16(255)), _mm256_srli_epi16::<8>(a));
            let (b_even, b_odd) =
                (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b)), _mm256_srai_epi16::<8>(b));
            let sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a_even, b_even));
            _mm256_add_epi32(sum, _mm256_madd_epi16(a_odd, b_odd))
        }
    }

    #[inline(always)]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(a, b) }
    }
}

/// Lanes in a block of [`multiply_blocks`].
pub(crate) const BLOCK: usize = 8;

/// What a block's sums are held in.
pub(crate) trait Blocks {
    /// `sum + a·b`, of lanes of four 8-bit integers.
    ///
    /// # Safety
    /// The machine has AVX2 and FMA; so below.
    unsafe fn dot(sum: __m256i, a: __m256i, b: __m256i) -> __m256i;

    /// The sums in 32 bits.
    unsafe fn total(sum: __m256i) -> __m256i;
}

/// 16 bits, for right panels up to 8 in magnitude: a block's sums fit, `8 · 2 · 255 · 8 = 32,640`.
pub(crate) struct SmallBlocks;

impl Blocks for SmallBlocks {
    #[inline(always)]
    unsafe fn dot(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)) }
    }

    #[inline(always)]
    unsafe fn total(sum: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) }
    }
}

/// 32 bits, for every right panel.
impl Blocks for WideInt8 {
    #[inline(always)]
    unsafe fn dot(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { <Self as Format>::dot(sum, a, b) }
    }

    #[inline(always)]
    unsafe fn total(sum: __m256i) -> __m256i {
        sum
    }
}

/// `to += Σ scale·(a·b)` over blocks of [`BLOCK`] lanes. `scales` and `to` are of [`COLUMNS`] numbers for each block and for
/// each row. With `HALVED`, the right panel's lanes lie two in one: the first in the low halves of its bytes, plus 8.
///
/// # Safety
/// The machine has AVX2 and FMA, and the caller is compiled for them; the panels have `n_blocks` blocks.
#[inline(always)]
pub(crate) unsafe fn multiply_blocks<B: Blocks, const HALVED: bool>(
    n_blocks: usize,
    a: *const u32,
    b: *const u32,
    scales: *const f32,
    [height, width]: [usize; 2],
    to: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        macro_rules! by_height {
            ($v:literal: $($r:literal)+) => {
                match height {
                    $($r => blocks::<B, HALVED, $r, $v>(n_blocks, a, b, scales, to),)+
                    _ => blocks::<B, HALVED, ROWS, $v>(n_blocks, a, b, scales, to),
                }
            };
        }
        match width > LANES {
            true => by_height!(2: 1 2 3 4 5),
            false => by_height!(1: 1 2 3 4 5),
        }
    }
}

#[inline(always)]
unsafe fn blocks<B: Blocks, const HALVED: bool, const R: usize, const V: usize>(
    n_blocks: usize,
    mut a: *const u32,
    mut b: *const u32,
    mut scales: *const f32,
    to: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for _ in 0..n_blocks {
            let mut sums = [[_mm256_setzero_si256(); V]; R];
            for lane in 0..BLOCK {
                let stored = if HALVED { lane / 2 } else { lane };
                let mut columns = [_mm256_setzero_si256(); V];
                for (v, columns) in columns.iter_mut().enumerate() {
                    *columns = _mm256_loadu_si256(b.add(COLUMNS * stored + LANES * v).cast());
                    if HALVED {
                        let halves = if lane % 2 == 0 { *columns } else { _mm256_srli_epi16::<4>(*columns) };
                        let low = _mm256_and_si256(halves, _mm256_set1_epi8(15));
                        *columns = _mm256_sub_epi8(low, _mm256_set1_epi8(8));
                    }
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let row = _mm256_set1_epi32(a.add(r).read().cast_signed());
                    for (sum, columns) in sums.iter_mut().zip(columns) {
                        *sum = B::dot(*sum, row, columns);
                    }
                }
                a = a.add(ROWS);
            }
            b = b.add(if HALVED { COLUMNS * BLOCK / 2 } else { COLUMNS * BLOCK });
            for (r, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    let to = to.add(r * COLUMNS + LANES * v);
                    let sum = _mm256_cvtepi32_ps(B::total(sum));
                    let scales = _mm256_loadu_ps(scales.add(LANES * v));
                    _mm256_storeu_ps(to, _mm256_fmadd_ps(sum, scales, _mm256_loadu_ps(to)));
                }
            }
            scales = scales.add(COLUMNS);
        }
    }
}

impl Kernel for Fp32 {
    const ROWS: usize = ROWS;
    const COLUMNS: usize = COLUMNS;
    const DEPTH: usize = 1;
    const TASK: [usize; 2] = [24, 8];

    unsafe fn pack_left(from: Lines, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { pack::<ROWS>(from, to.cast()) }
    }

    unsafe fn pack_right(from: Lines, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { pack::<COLUMNS>(from, to.cast()) }
    }

    unsafe fn multiply(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto) {
        #[target_feature(enable = "avx2,fma")]
        unsafe fn compiled(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto) {
            // SAFETY: the caller's promise.
            unsafe { multiply::<Fp32>(len, a, b, place, onto) }
        }
        // SAFETY: the caller's promise.
        unsafe { compiled(len, a, b, place, onto) }
    }
}

/// `place = onto + a·b`, of panels `ROWS` and `COLUMNS` wide and `len` lanes long.
///
/// # Safety
/// The machine has AVX2 and FMA, and the caller is compiled for them; the panels have that size, and the place
/// may be written.
#[inline(always)]
pub(crate) unsafe fn multiply<F: Format>(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto) {
    // SAFETY: the caller's promise.
    unsafe {
        match place.width > LANES {
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
            _ => tile::<F, 6, V>(len, a, b, place, onto),
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
    // SAFETY: the caller's promise.
    unsafe {
        // The target is wanted in the end: fetched meanwhile.
        for r in 0..R {
            let row = place.start.wrapping_offset(r as isize * place.row);
            _mm_prefetch::<_MM_HINT_T0>(row.cast());
            _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(LANES * V - 1).cast());
        }
        let mut sums = [[_mm256_setzero_si256(); V]; R];
        for _ in 0..len / STEPS {
            for step in 0..STEPS {
                sums = stepped::<F, R, V>(sums, a.add(step * ROWS), b.add(step * COLUMNS));
            }
            a = a.add(STEPS * ROWS);
            b = b.add(STEPS * COLUMNS);
        }
        for _ in 0..len % STEPS {
            sums = stepped::<F, R, V>(sums, a, b);
            a = a.add(ROWS);
            b = b.add(COLUMNS);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            let to = place.start.offset(r as isize * place.row);
            match place.width == LANES * V {
                true => write::<F, V>(sums, to, onto),
                false => {
                    // A masked store takes longer than all the rest of the row on some machines.
                    let mut row = [0f32; 2 * LANES];
                    let beginning = match onto {
                        Onto::Zero => None,
                        Onto::Target => Some(to.cast_const()),
                        Onto::Row(row) => Some(row),
                    };
                    if let Some(beginning) = beginning {
                        beginning.copy_to_nonoverlapping(row.as_mut_ptr(), place.width);
                    }
                    write::<F, V>(sums, row.as_mut_ptr(), Onto::Target);
                    row.as_ptr().copy_to_nonoverlapping(to, place.width);
                }
            }
        }
    }
}

/// The sums after one more lane of both panels.
#[inline(always)]
unsafe fn stepped<F: Format, const R: usize, const V: usize>(
    mut sums: [[__m256i; V]; R],
    a: *const u32,
    b: *const u32,
) -> [[__m256i; V]; R] {
    // SAFETY: the caller's promise.
    unsafe {
        let columns: [_; V] = array::from_fn(|v| _mm256_loadu_si256(b.add(LANES * v).cast()));
        for (r, sums) in sums.iter_mut().enumerate() {
            let row = _mm256_set1_epi32(a.add(r).read().cast_signed());
            for (sum, columns) in sums.iter_mut().zip(columns) {
                *sum = F::dot(*sum, row, columns);
            }
        }
        sums
    }
}

/// A whole row of a tile.
#[inline(always)]
unsafe fn write<F: Format, const V: usize>(sums: [__m256i; V], to: *mut f32, onto: Onto) {
    // SAFETY: the caller's promise.
    unsafe {
        for (v, sum) in sums.into_iter().enumerate() {
            let to = to.add(LANES * v);
            let sum = match onto {
                Onto::Zero => sum,
                Onto::Target => F::add(sum, _mm256_loadu_si256(to.cast())),
                Onto::Row(row) => F::add(sum, _mm256_loadu_si256(row.add(LANES * v).cast())),
            };
            _mm256_storeu_si256(to.cast(), sum);
        }
    }
}

/// As [`Kernel::pack_left`].
#[target_feature(enable = "avx2")]
unsafe fn pack<const W: usize>(from: Lines, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        if from.n < W || from.step != 1 && from.line != 1 {
            pack_one_by_one::<W>(from, 0, to);
        } else if from.line == 1 {
            pack_across::<W>(from, to);
        } else {
            pack_along::<W>(from, to);
        }
    }
}

/// Whole panels of adjacent lines.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pack_across<const W: usize>(from: Lines, to: *mut f32) {
    for k in 0..from.len {
        // SAFETY: the caller's promise.
        unsafe {
            let step = from.start.offset(k as isize * from.step).cast::<[f32; W]>().read_unaligned();
            to.add(k * W).cast::<[f32; W]>().write_unaligned(step);
        }
    }
}

/// Whole panels of lines with contiguous elements: squares of 8 lines and 8 elements are transposed.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pack_along<const W: usize>(from: Lines, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let whole = from.len - from.len % LANES;
        for k in (0..whole).step_by(LANES) {
            for group in (0..W).step_by(LANES) {
                let mut square = [_mm256_setzero_ps(); LANES];
                for (i, line) in square.iter_mut().enumerate().take(W - group) {
                    *line = _mm256_loadu_ps(from.start.offset((group + i) as isize * from.line).add(k));
                }
                for (i, column) in transposed(square).into_iter().enumerate() {
                    let to = to.add((k + i) * W + group);
                    // What is too much of a store, the next one overwrites.
                    if W - group >= LANES || i + 1 < LANES {
                        _mm256_storeu_ps(to, column);
                    } else {
                        let mut lanes = [0f32; LANES];
                        _mm256_storeu_ps(lanes.as_mut_ptr(), column);
                        lanes.as_ptr().copy_to_nonoverlapping(to, W - group);
                    }
                }
            }
        }
        pack_one_by_one::<W>(from, whole, to);
    }
}

/// From element `k` of each line on.
unsafe fn pack_one_by_one<const W: usize>(from: Lines, k: usize, to: *mut f32) {
    for k in k..from.len {
        for line in 0..W {
            // SAFETY: the caller's promise.
            unsafe {
                let value = match line < from.n {
                    true => from.start.offset(line as isize * from.line + k as isize * from.step).read(),
                    false => 0.0,
                };
                to.add(k * W + line).write(value);
            }
        }
    }
}

/// Transposes rows and columns.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed(r: [__m256; LANES]) -> [__m256; LANES] {
    // Within the 128-bit halves: fours of rows become fours of columns.
    let mut fours = [[r[0]; 4]; 2];
    for (columns, r) in fours.iter_mut().zip(r.as_chunks::<4>().0) {
        let (a, b) = (_mm256_unpacklo_ps(r[0], r[1]), _mm256_unpackhi_ps(r[0], r[1]));
        let (c, d) = (_mm256_unpacklo_ps(r[2], r[3]), _mm256_unpackhi_ps(r[2], r[3]));
        *columns = [
            _mm256_shuffle_ps::<0x44>(a, c),
            _mm256_shuffle_ps::<0xEE>(a, c),
            _mm256_shuffle_ps::<0x44>(b, d),
            _mm256_shuffle_ps::<0xEE>(b, d),
        ];
    }
    // The halves themselves.
    let mut columns = r;
    for (j, (above, below)) in fours[0].into_iter().zip(fours[1]).enumerate() {
        columns[j] = _mm256_permute2f128_ps::<0x20>(above, below);
        columns[4 + j] = _mm256_permute2f128_ps::<0x31>(above, below);
    }
    columns
}
