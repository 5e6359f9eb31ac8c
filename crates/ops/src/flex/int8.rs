//! Linear maps in 8 bits: tokens are rounded into panels, and tiles of integer sums scaled to FP32.
//!
//! Three kernels, for AVX512-VNNI, AVX2 and any machine, compute the same integers from the same panels.

use super::gemm::{COLUMNS, ROWS, TASK, Target, for_each, wanted_tasks};
use super::vector::vectorised;
use super::{Input, filled, tensor, values};
use crate::int8::Quantized;
use burn::tensor::{Shape, Tensor};
use burn_flex::Flex;
use rayon::prelude::*;

/// Steps along `k` in a 32-bit lane.
const DEPTH: usize = 4;

/// Products of fewer multiplications are not worth a second thread.
const PARALLEL: usize = 1 << 22;

/// The integer sums of a tile.
type Sums = [[i32; COLUMNS]; ROWS];

/// A weight in panels: for each `COLUMNS` columns, lanes of four rows, zeros where there are none.
#[derive(Debug)]
pub(crate) struct PackedWeight {
    d_out: usize,
    lanes: usize,
    panels: Vec<[u32; COLUMNS]>,
    scales: Vec<f32>,
    /// Of each column, for the tokens' zero points.
    sums: Vec<i32>,
}

impl PackedWeight {
    pub fn new(weight: &Quantized) -> Self {
        let [d_in, d_out] = weight.dims;
        let lanes = d_in.div_ceil(DEPTH);
        let mut panels = vec![[0; COLUMNS]; lanes * d_out.div_ceil(COLUMNS)];
        let mut sums = vec![0; d_out];
        for (i, row) in weight.values.chunks_exact(d_out.max(1)).enumerate() {
            for (j, w) in row.iter().enumerate() {
                let bits = u32::from(w.cast_unsigned()) << (8 * (i % DEPTH));
                panels[j / COLUMNS * lanes + i / DEPTH][j % COLUMNS] |= bits;
                sums[j] += i32::from(*w);
            }
        }
        Self { d_out, lanes, panels, scales: weight.scales.clone(), sums }
    }
}

vectorised! {
    /// Rounds a token to 8 bits; returns the scale and the zero point, `x ≈ scale · (q − zero)`.
    fn quantize(x: &[f32], to: &mut [u8]) -> (f32, i32) {
        const LANES: usize = 64;
        let (mut least, mut most, mut poison) = ([0f32; LANES], [0f32; LANES], [0f32; LANES]);
        let (whole, rest) = x.as_chunks::<LANES>();
        for chunk in whole {
            for i in 0..LANES {
                least[i] = if chunk[i] < least[i] { chunk[i] } else { least[i] };
                most[i] = if chunk[i] > most[i] { chunk[i] } else { most[i] };
                poison[i] += chunk[i] * 0.0;
            }
        }
        for (i, x) in rest.iter().enumerate() {
            least[i] = least[i].min(*x);
            most[i] = most[i].max(*x);
            poison[i] += x * 0.0;
        }
        let (mut low, mut high, mut sum) = (0f32, 0f32, 0f32);
        for i in 0..LANES {
            low = low.min(least[i]);
            high = high.max(most[i]);
            sum += poison[i];
        }
        // Anything infinite or NaN makes the scale, and so the results, NaN.
        let scale = (high - low) / 255.0 + sum;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        // Adding 1.5·2²³ rounds to a whole number, which then stands in the lowest bits.
        const ROUND: f32 = 12_582_912.0;
        let zero = (-low * inverse).round_ties_even();
        for (x, to) in x.iter().zip(to) {
            let step = (*x * inverse + ROUND) - ROUND + zero;
            let step = if step > 0.0 { step } else { 0.0 };
            let step = if step < 255.0 { step } else { 255.0 };
            *to = (step + ROUND).to_bits() as u8;
        }
        (scale, zero as i32)
    }

    /// A tile's sums to its numbers.
    fn scale(sums: &Sums, tokens: &[(f32, i32)], column_sums: &[i32], scales: &[f32], bias: &[f32], to: &mut [[f32; COLUMNS]; ROWS]) {
        let n = bias.len();
        let (column_sums, scales) = (&column_sums[..n], &scales[..n]);
        for ((sums, (scale, zero)), to) in sums.iter().zip(tokens).zip(to) {
            let (sums, to) = (&sums[..n], &mut to[..n]);
            for j in 0..n {
                let sum = sums[j].wrapping_sub(zero.wrapping_mul(column_sums[j]));
                to[j] = sum as f32 * (scale * scales[j]) + bias[j];
            }
        }
    }
}

/// A way to multiply panels: `[lanes][ROWS]` unsigned by `[lanes][COLUMNS]` signed, each lane four numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Plain,
}

impl Kernel {
    /// Those that the machine has, the best one first.
    fn available() -> impl Iterator<Item = Self> {
        let all = [
            #[cfg(target_arch = "x86_64")]
            (Self::Vnni, super::gemm::format::has_vnni()),
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, std::is_x86_feature_detected!("avx2")),
            (Self::Plain, true),
        ];
        all.into_iter().filter(|(_, has)| *has).map(|(kernel, _)| kernel)
    }

    fn best() -> Self {
        Self::available().next().expect("the plain one always is")
    }

    /// Puts `ROWS` rows of bytes into a panel.
    fn pack(self, rows: &[u8], panel: &mut [[u32; ROWS]]) {
        let lanes = panel.len();
        assert_eq!(rows.len(), ROWS * lanes * DEPTH);
        #[cfg(target_arch = "x86_64")]
        if self == Self::Vnni {
            use super::gemm::format::{Format, Int8};
            use super::gemm::pack::Lines;
            let lines =
                Lines { start: rows.as_ptr().cast(), line: lanes as isize, step: 1, n: ROWS, len: lanes };
            // SAFETY: the machine was found to have AVX-512 and VNNI; rows and panel have as many lanes,
            // which are read without regard to alignment.
            return unsafe { Int8::pack::<ROWS>(lines, panel.as_mut_ptr().cast()) };
        }
        for (r, row) in rows.chunks_exact(lanes * DEPTH).enumerate() {
            for (to, lane) in panel.iter_mut().zip(row.as_chunks::<DEPTH>().0) {
                to[r] = u32::from_le_bytes(*lane);
            }
        }
    }

    /// The sums of the first `height` rows and `width` columns, at least.
    fn multiply(self, a: &[[u32; ROWS]], b: &[[u32; COLUMNS]], height: usize, width: usize, sums: &mut Sums) {
        assert_eq!(a.len(), b.len());
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => {
                use super::gemm::format::{Format, Int8};
                use super::gemm::tile::{Onto, Place};
                let place = Place { start: sums.as_mut_ptr().cast(), row: COLUMNS as isize, height, width };
                // SAFETY: the machine was found to have VNNI; the panels are of the same length, and the
                // sums are as large as a tile.
                unsafe { Int8::multiply(a.len(), a.as_ptr().cast(), b.as_ptr().cast(), place, Onto::Zero) }
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the machine was found to have AVX2.
            Self::Avx2 => unsafe { multiply_avx2(a, b, height, width, sums) },
            Self::Plain => multiply_plain(a, b, height, sums),
        }
    }
}

fn multiply_plain(a: &[[u32; ROWS]], b: &[[u32; COLUMNS]], height: usize, sums: &mut Sums) {
    for (r, sums) in sums.iter_mut().enumerate().take(height) {
        *sums = [0; COLUMNS];
        for (a, b) in a.iter().zip(b) {
            let a = a[r].to_le_bytes().map(i32::from);
            for (sum, b) in sums.iter_mut().zip(b) {
                let b = b.to_le_bytes().map(|b| i32::from(b.cast_signed()));
                *sum += a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
            }
        }
    }
}

/// Bytes of even and of odd places are widened to 16 bits: exact, where adding pairs of 8-bit products in 16
/// bits is not.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_avx2(a: &[[u32; ROWS]], b: &[[u32; COLUMNS]], height: usize, width: usize, sums: &mut Sums) {
    use std::arch::x86_64::*;
    const HIGH: usize = 3;
    const WIDE: usize = 2;
    for top in (0..height).step_by(HIGH) {
        for left in (0..width).step_by(8 * WIDE) {
            let mut tile = [[_mm256_setzero_si256(); WIDE]; HIGH];
            for (a, b) in a.iter().zip(b) {
                let mut even = [_mm256_setzero_si256(); WIDE];
                let mut odd = even;
                for v in 0..WIDE {
                    // SAFETY: 8 lanes from a multiple of 16 on, within the panel's columns.
                    let b = unsafe { _mm256_loadu_si256(b[left + 8 * v..][..8].as_ptr().cast()) };
                    even[v] = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b));
                    odd[v] = _mm256_srai_epi16::<8>(b);
                }
                for (r, tile) in tile.iter_mut().enumerate() {
                    let a = _mm256_set1_epi32(a[top + r].cast_signed());
                    let a_even = _mm256_and_si256(a, _mm256_set1_epi16(0xff));
                    let a_odd = _mm256_srli_epi16::<8>(a);
                    for v in 0..WIDE {
                        let pairs = _mm256_madd_epi16(a_even, even[v]);
                        let others = _mm256_madd_epi16(a_odd, odd[v]);
                        tile[v] = _mm256_add_epi32(tile[v], _mm256_add_epi32(pairs, others));
                    }
                }
            }
            for (r, tile) in tile.iter().enumerate() {
                for (v, tile) in tile.iter().enumerate() {
                    let to = &mut sums[top + r][left + 8 * v..][..8];
                    // SAFETY: 8 sums.
                    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), *tile) };
                }
            }
        }
    }
}

/// Tokens in panels of `ROWS`, and each one's scale and zero point.
struct Tokens {
    panels: Vec<[u32; ROWS]>,
    scales: Vec<(f32, i32)>,
}

impl Tokens {
    fn new(kernel: Kernel, x: &[f32], d_in: usize, lanes: usize, parallel: bool) -> Self {
        let n_panels = (x.len() / d_in).div_ceil(ROWS);
        let mut panels = vec![[0; ROWS]; n_panels * lanes];
        let mut scales = vec![(0.0, 0); n_panels * ROWS];
        let panels_and_scales = panels.par_chunks_exact_mut(lanes).zip(scales.par_chunks_exact_mut(ROWS));
        let tasks = panels_and_scales.zip(x.par_chunks(ROWS * d_in));
        let tasks = if parallel { tasks.with_min_len(1) } else { tasks.with_min_len(n_panels) };
        tasks.for_each(|((panel, scales), x)| {
            let mut bytes = vec![0; ROWS * lanes * DEPTH];
            let rows = bytes.chunks_exact_mut(lanes * DEPTH);
            for ((x, scale), bytes) in x.chunks_exact(d_in).zip(scales).zip(rows) {
                *scale = quantize(x, &mut bytes[..d_in]);
            }
            kernel.pack(&bytes, panel);
        });
        Self { panels, scales }
    }
}

pub(crate) fn linear<const D: usize>(
    x: Tensor<D>,
    weight: &PackedWeight,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let mut shape = x.dims();
    let d_in = shape[D - 1];
    let x = Input::dense(x).value;
    let bias = bias.map(|bias| Input::dense(bias).value);
    let y = multiply(Kernel::best(), values(&x), d_in, weight, bias.as_ref().map(values));
    shape[D - 1] = weight.d_out;
    Tensor::from_primitive::<Flex>(tensor(y, Shape::from(shape.to_vec())))
}

/// Panels of rows and of columns to a task: fewer where there would be too few tasks to share out.
fn task(n_left: usize, n_right: usize, parallel: bool) -> [usize; 2] {
    let [mut rows, mut columns] = TASK;
    let wanted = wanted_tasks(parallel);
    while n_left.div_ceil(rows) * n_right.div_ceil(columns) < wanted && (rows > 2 || columns > 2) {
        if rows > columns { rows /= 2 } else { columns /= 2 }
    }
    [rows, columns]
}

fn multiply(kernel: Kernel, x: &[f32], d_in: usize, weight: &PackedWeight, bias: Option<&[f32]>) -> Vec<f32> {
    let (d_out, lanes) = (weight.d_out, weight.lanes);
    let none = vec![0.0; if bias.is_some() { 0 } else { d_out }];
    let bias = bias.unwrap_or(&none);
    assert_eq!(bias.len(), d_out, "the bias has another width than the weight");
    let n_tokens = x.len() / d_in.max(1);
    if lanes == 0 || n_tokens == 0 || d_out == 0 {
        return bias.repeat(n_tokens);
    }
    let parallel = n_tokens * d_in * d_out >= PARALLEL;
    let tokens = Tokens::new(kernel, x, d_in, lanes, parallel);
    let (n_left, n_right) = (n_tokens.div_ceil(ROWS), d_out.div_ceil(COLUMNS));
    let [task_rows, task_columns] = task(n_left, n_right, parallel);
    let columns = n_right.div_ceil(task_columns);
    // SAFETY: every task writes its own rows and columns, and together they write all.
    unsafe {
        filled(n_tokens * d_out, |y| {
            let target = Target::dense(y.as_mut_ptr().cast(), d_out);
            for_each(n_left.div_ceil(task_rows) * columns, parallel, |task| {
                let (i, j) = (task / columns * task_rows, task % columns * task_columns);
                let (mut sums, mut scaled) = ([[0; COLUMNS]; ROWS], [[0.0; COLUMNS]; ROWS]);
                for j in j..n_right.min(j + task_columns) {
                    let column = j * COLUMNS;
                    let width = COLUMNS.min(d_out - column);
                    let columns = column..column + width;
                    let (column_sums, scales) =
                        (&weight.sums[columns.clone()], &weight.scales[columns.clone()]);
                    let bias = &bias[columns];
                    let right = &weight.panels[j * lanes..][..lanes];
                    for i in i..n_left.min(i + task_rows) {
                        let height = ROWS.min(n_tokens - i * ROWS);
                        kernel.multiply(
                            &tokens.panels[i * lanes..][..lanes],
                            right,
                            height,
                            width,
                            &mut sums,
                        );
                        let tokens = &tokens.scales[i * ROWS..][..height];
                        scale(&sums, tokens, column_sums, scales, bias, &mut scaled);
                        for (r, scaled) in scaled.iter().enumerate().take(height) {
                            scaled.as_ptr().copy_to_nonoverlapping(target.at(i * ROWS + r, column), width);
                        }
                    }
                }
            });
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(n: usize, seed: u32) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            // Extremes often: they are what overflows.
            match state >> 28 {
                0 => 0,
                1 => 127,
                2 => 128,
                3 => 255,
                _ => (state >> 8) as u8,
            }
        };
        (0..n).map(|_| next()).collect()
    }

    fn floats(n: usize, seed: u32) -> Vec<f32> {
        bytes(2 * n, seed)
            .as_chunks::<2>()
            .0
            .iter()
            .map(|b| f32::from(i16::from_le_bytes(*b)) / 9973.0)
            .collect()
    }

    fn quantized(dims: [usize; 2], seed: u32) -> Quantized {
        let values = bytes(dims[0] * dims[1], seed).into_iter().map(|b| b.cast_signed().max(-127)).collect();
        Quantized {
            dims,
            values,
            scales: floats(dims[1], seed + 1).into_iter().map(|s| s.abs() * 1e-2).collect(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn kernels_compute_the_same_integers(
            lanes in 1..70usize, height in 1..=ROWS, width in 1..=COLUMNS, seed in any::<u32>(),
        ) {
            let lane = |b: &[u8; 4]| u32::from_le_bytes(*b);
            let a: Vec<u32> = bytes(lanes * ROWS * 4, seed).as_chunks().0.iter().map(lane).collect();
            let b: Vec<u32> = bytes(lanes * COLUMNS * 4, seed ^ 1).as_chunks().0.iter().map(lane).collect();
            let (a, b) = (a.as_chunks().0, b.as_chunks().0);
            for kernel in Kernel::available() {
                let mut sums = [[0; COLUMNS]; ROWS];
                kernel.multiply(a, b, height, width, &mut sums);
                for r in 0..height {
                    for c in 0..width {
                        let expected: i32 = (0..lanes)
                            .flat_map(|l| {
                                let (a, b) = (a[l][r].to_le_bytes(), b[l][c].to_le_bytes());
                                (0..4).map(move |i| i32::from(a[i]) * i32::from(b[i].cast_signed()))
                            })
                            .sum();
                        prop_assert_eq!(sums[r][c], expected, "{:?} at {}, {}", kernel, r, c);
                    }
                }
            }
        }

        #[test]
        fn kernels_give_the_same_bits(
            n_tokens in 1..40usize, d_in in 1..80usize, d_out in 1..80usize, seed in 0..u32::MAX - 9,
        ) {
            let weight = PackedWeight::new(&quantized([d_in, d_out], seed));
            let (x, bias) = (floats(n_tokens * d_in, seed + 2), floats(d_out, seed + 3));
            let all: Vec<Vec<u32>> = Kernel::available()
                .map(|kernel| multiply(kernel, &x, d_in, &weight, Some(&bias)).into_iter().map(f32::to_bits).collect())
                .collect();
            prop_assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }

    #[test]
    fn the_largest_sums_do_not_overflow() {
        let lanes = 65_536 / DEPTH;
        let (a, b) = (vec![[u32::MAX; ROWS]; lanes], vec![[0x8181_8181; COLUMNS]; lanes]);
        for kernel in Kernel::available() {
            let mut sums = [[0; COLUMNS]; ROWS];
            kernel.multiply(&a, &b, 2, 2, &mut sums);
            assert_eq!(sums[1][1], -255 * 127 * 65_536, "{kernel:?}");
        }
    }

    #[test]
    fn tokens_are_rounded_to_the_nearest_step() {
        for n in [1, 2, 15, 64, 67, 200] {
            for shift in [-3.0, 0.0, 3.0, 40.0] {
                let x: Vec<f32> = floats(n, 7).into_iter().map(|x| x + shift).collect();
                let mut steps = vec![0; n];
                let (scale, zero) = quantize(&x, &mut steps);
                for (x, step) in x.iter().zip(steps) {
                    let back = scale * (i32::from(step) - zero) as f32;
                    // The zero point's own rounding may cost as much again at the ends.
                    assert!((back - x).abs() <= 1.01 * scale, "{x} became {back} in steps of {scale}");
                }
            }
        }
        let mut steps = [9; 3];
        assert_eq!(quantize(&[0.0; 3], &mut steps), (0.0, 0));
        assert_eq!(steps, [0; 3]);
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let (n_tokens, d_in, d_out) = (131, 450, 170);
        let (weight, x) = (PackedWeight::new(&quantized([d_in, d_out], 1)), floats(n_tokens * d_in, 2));
        let [one, two, three] = [1, 2, 3].map(|n| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            let y = pool.install(|| multiply(Kernel::best(), &x, d_in, &weight, None));
            y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert!(one == two && one == three);
    }
}
