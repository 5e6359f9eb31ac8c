//! Linear maps in 8 bits: tokens are quantised into panels, and tiles of integer sums are scaled to
//! FP32.

mod kernel;

use super::gemm::{Line, Target, for_each, wanted_tasks};
use super::vector::vectorised;
use super::{Input, filled, tensor, values};
use crate::int8::Quantized;
use burn::tensor::{Shape, Tensor};
use burn_flex::Flex;
use kernel::{Kernel, Sums};
use rayon::prelude::*;
use std::mem::MaybeUninit;
use std::slice;

/// The name of the kernel in use.
pub(crate) fn kernel_name() -> &'static str {
    Kernel::best().name()
}

/// The names of supported kernels that give wrong results.
pub(crate) fn refused_kernels() -> impl Iterator<Item = &'static str> {
    Kernel::refused().iter().map(|kernel| kernel.name())
}

/// Steps along `k` in a 32-bit lane.
const DEPTH: usize = 4;

/// Products of fewer multiplications are not worth a second thread.
const PARALLEL: usize = 1 << 22;

/// A weight in the panels of a kernel: for each tile's columns, lanes of four rows, padded with zeros.
#[derive(Debug)]
pub(crate) struct PackedWeight {
    kernel: Kernel,
    d_out: usize,
    lanes: usize,
    panels: Vec<Line>,
    scales: Vec<f32>,
    /// The sum of each column, for the tokens' zero points.
    sums: Vec<i32>,
}

impl PackedWeight {
    /// For the best of the machine's kernels; the weight is rounded to [`greatest_weight`] at most.
    pub fn new(weight: &Quantized) -> Self {
        Self::packed(weight, Kernel::best())
    }

    fn packed(weight: &Quantized, kernel: Kernel) -> Self {
        let ([d_in, d_out], [_, columns]) = (weight.dims, kernel.tile());
        let lanes = d_in.div_ceil(DEPTH).next_multiple_of(kernel.step());
        let mut lines = Line::zeros(lanes * d_out.next_multiple_of(columns));
        let panels = Line::lanes_mut(&mut lines);
        let mut sums = vec![0; d_out];
        for (i, row) in weight.values.chunks_exact(d_out.max(1)).enumerate() {
            for (j, w) in row.iter().enumerate() {
                let bits = u32::from(w.cast_unsigned()) << (8 * (i % DEPTH));
                panels[(j / columns * lanes + i / DEPTH) * columns + j % columns] |= bits;
                sums[j] += i32::from(*w);
            }
        }
        Self { kernel, d_out, lanes, panels: lines, scales: weight.scales.clone(), sums }
    }
}

/// The greatest magnitude of an 8-bit weight for the best of the machine's kernels.
pub(crate) fn greatest_weight() -> i8 {
    Kernel::best().greatest_weight()
}

vectorised! {
    /// Quantises a token to 8 bits; returns the scale and the zero point, `x ≈ scale · (q − zero)`.
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
        // Halves on halves, in vectors as long as there are any; one number after the other took half of the time.
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                least[i] = if least[i + half] < least[i] { least[i + half] } else { least[i] };
                most[i] = if most[i + half] > most[i] { most[i + half] } else { most[i] };
                poison[i] += poison[i + half];
            }
            half /= 2;
        }
        let (low, high, sum) = (least[0], most[0], poison[0]);
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

    /// Converts a tile's sums to numbers, written row by row to `to`.
    fn scale(sums: &Sums, columns: usize, tokens: &[(f32, i32)], column_sums: &[i32], scales: &[f32], bias: &[f32], to: Rows) {
        let n = bias.len();
        let (column_sums, scales) = (&column_sums[..n], &scales[..n]);
        for (i, (sums, (scale, zero))) in sums.0.chunks_exact(columns).zip(tokens).enumerate() {
            // SAFETY: whoever made the rows vouches for as many as there are tokens.
            let (sums, to) = (&sums[..n], unsafe { to.row(i, n) });
            for j in 0..n {
                let sum = sums[j].wrapping_sub(zero.wrapping_mul(column_sums[j]));
                to[j].write(sum as f32 * (scale * scales[j]) + bias[j]);
            }
        }
    }
}

/// A tile's rows in the result, with their stride.
#[derive(Clone, Copy)]
struct Rows {
    start: *mut MaybeUninit<f32>,
    apart: usize,
}

impl Rows {
    /// The first `n` numbers of a row.
    ///
    /// # Safety
    /// They exist, and nothing else uses them meanwhile.
    unsafe fn row<'a>(self, i: usize, n: usize) -> &'a mut [MaybeUninit<f32>] {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.start.add(i * self.apart), n) }
    }
}

/// Tokens in the panels of a kernel, and each one's scale and zero point.
struct Tokens {
    panels: Vec<Line>,
    scales: Vec<(f32, i32)>,
}

impl Tokens {
    fn new(kernel: Kernel, x: &[f32], d_in: usize, lanes: usize, parallel: bool) -> Self {
        let [rows, _] = kernel.tile();
        let n_panels = (x.len() / d_in).div_ceil(rows);
        let mut lines = Line::zeros(n_panels * rows * lanes);
        let panels = Line::lanes_mut(&mut lines);
        let mut scales = vec![(0.0, 0); n_panels * rows];
        let panels_and_scales =
            panels.par_chunks_exact_mut(rows * lanes).zip(scales.par_chunks_exact_mut(rows));
        let tasks = panels_and_scales.zip(x.par_chunks(rows * d_in));
        let tasks = if parallel { tasks.with_min_len(1) } else { tasks.with_min_len(n_panels) };
        let bytes = || vec![0; rows * lanes * DEPTH];
        tasks.for_each_init(bytes, |bytes, ((panel, scales), x)| {
            let rows = bytes.chunks_exact_mut(lanes * DEPTH);
            for ((x, scale), bytes) in x.chunks_exact(d_in).zip(scales).zip(rows) {
                *scale = quantize(x, &mut bytes[..d_in]);
            }
            kernel.pack(bytes, panel);
        });
        Self { panels: lines, scales }
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
    let y = multiply(values(&x), d_in, weight, bias.as_ref().map(values));
    shape[D - 1] = weight.d_out;
    Tensor::from_primitive::<Flex>(tensor(y, Shape::from(shape.to_vec())))
}

/// Panels of rows and of columns per task: fewer if there would be too few tasks.
fn task(kernel: Kernel, n_left: usize, n_right: usize, parallel: bool) -> [usize; 2] {
    let [mut rows, mut columns] = kernel.task();
    let wanted = wanted_tasks(parallel);
    while n_left.div_ceil(rows) * n_right.div_ceil(columns) < wanted && (rows > 2 || columns > 2) {
        if rows > columns { rows /= 2 } else { columns /= 2 }
    }
    [rows, columns]
}

fn multiply(x: &[f32], d_in: usize, weight: &PackedWeight, bias: Option<&[f32]>) -> Vec<f32> {
    let (kernel, d_out, lanes) = (weight.kernel, weight.d_out, weight.lanes);
    let none = vec![0.0; if bias.is_some() { 0 } else { d_out }];
    let bias = bias.unwrap_or(&none);
    assert_eq!(bias.len(), d_out, "the bias has another width than the weight");
    let n_tokens = x.len() / d_in.max(1);
    if lanes == 0 || n_tokens == 0 || d_out == 0 {
        return bias.repeat(n_tokens);
    }
    let parallel = n_tokens * d_in * d_out >= PARALLEL;
    let tokens = Tokens::new(kernel, x, d_in, lanes, parallel);
    let [rows, columns] = kernel.tile();
    let (n_left, n_right) = (n_tokens.div_ceil(rows), d_out.div_ceil(columns));
    let [task_rows, task_columns] = task(kernel, n_left, n_right, parallel);
    let across = n_right.div_ceil(task_columns);
    let (weights, panels) = (Line::lanes(&weight.panels), Line::lanes(&tokens.panels));
    // SAFETY: every task writes its own rows and columns, and together they write all.
    unsafe {
        filled(n_tokens * d_out, |y| {
            let target = Target::dense(y.as_mut_ptr().cast(), d_out);
            for_each(n_left.div_ceil(task_rows) * across, parallel, |task| {
                let (i, j) = (task / across * task_rows, task % across * task_columns);
                let mut sums = Sums::new();
                kernel.set_up(|| {
                    for j in j..n_right.min(j + task_columns) {
                        let column = j * columns;
                        let of = column..d_out.min(column + columns);
                        let width = of.len();
                        let (column_sums, scales, bias) =
                            (&weight.sums[of.clone()], &weight.scales[of.clone()], &bias[of]);
                        let right = &weights[j * lanes * columns..][..lanes * columns];
                        for i in i..n_left.min(i + task_rows) {
                            let height = rows.min(n_tokens - i * rows);
                            let left = &panels[i * lanes * rows..][..lanes * rows];
                            kernel.multiply(left, right, height, width, &mut sums);
                            let tokens = &tokens.scales[i * rows..][..height];
                            let to = Rows { start: target.at(i * rows, column).cast(), apart: d_out };
                            scale(&sums, columns, tokens, column_sums, scales, bias, to);
                        }
                    }
                });
            });
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn bytes(n: usize, seed: u32) -> Vec<u8> {
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

    /// Weights.
    pub(super) fn signed(n: usize, greatest: i8, seed: u32) -> Vec<i8> {
        bytes(n, seed).into_iter().map(|b| b.cast_signed().clamp(-greatest, greatest)).collect()
    }

    fn quantized(dims: [usize; 2], greatest: i8, seed: u32) -> Quantized {
        Quantized {
            dims,
            values: signed(dims[0] * dims[1], greatest, seed),
            scales: floats(dims[1], seed + 1).into_iter().map(|s| s.abs() * 1e-2).collect(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn kernels_give_the_bits_of_their_integers(
            n_tokens in 1..40usize, d_in in 1..80usize, d_out in 1..80usize, seed in 0..u32::MAX - 9,
        ) {
            let (x, bias) = (floats(n_tokens * d_in, seed + 2), floats(d_out, seed + 3));
            for kernel in Kernel::available() {
                let quantized = quantized([d_in, d_out], kernel.greatest_weight(), seed);
                let y = multiply(&x, d_in, &PackedWeight::packed(&quantized, kernel), Some(&bias));
                let mut steps = vec![0; d_in];
                for (x, y) in x.chunks_exact(d_in).zip(y.chunks_exact(d_out)) {
                    let (scale, zero) = quantize(x, &mut steps);
                    for (j, (y, bias)) in y.iter().zip(&bias).enumerate() {
                        let weights = quantized.values.iter().skip(j).step_by(d_out);
                        let products = steps.iter().zip(weights).map(|(x, w)| (i32::from(*x) - zero) * i32::from(*w));
                        let expected = products.sum::<i32>() as f32 * (scale * quantized.scales[j]) + bias;
                        prop_assert_eq!(y.to_bits(), expected.to_bits(), "{:?}", kernel);
                    }
                }
            }
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
        let (weight, x) =
            (PackedWeight::new(&quantized([d_in, d_out], greatest_weight(), 1)), floats(n_tokens * d_in, 2));
        let [one, two, three] = [1, 2, 3].map(|n| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            let y = pool.install(|| multiply(&x, d_in, &weight, None));
            y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert!(one == two && one == three);
    }
}
