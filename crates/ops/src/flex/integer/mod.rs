//! Linear maps in integers: tokens are quantised into panels, and tiles of integer sums are scaled to FP32.

mod kernel;
mod rescale;
mod table;

pub(crate) use rescale::{added, exponentials, gelu, normalised, probabilities, to_8_bits};
pub(crate) use table::embedding;

use super::gemm::{Line, Target, for_each, wanted_tasks};
use super::vector::vectorised;
use super::{Input, filled, tensor, values};
use crate::{Bits, IntegerMatrix, Scales, TokenRange, TokenRounding};
use burn::tensor::{Shape, Tensor};
use burn_flex::Flex;
use kernel::{Kernel, ScaledSums, Sums};
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

/// Lanes whose weights share a scale.
const BLOCK_LANES: usize = crate::BLOCK / DEPTH;

/// Products of fewer multiplications are not worth a second thread.
const PARALLEL: usize = 1 << 22;

/// Weights of so many numbers are worth one for a single token, since it takes long to read them.
const PARALLEL_WEIGHTS: usize = 1 << 20;

/// A weight in the panels of a kernel: for each tile's columns, lanes of four rows, padded with zeros.
#[derive(Debug)]
pub(crate) struct PackedWeight {
    kernel: Kernel,
    d_out: usize,
    lanes: usize,
    panels: Vec<Line>,
    /// Whether a panel's lanes are stored two in one: the first in the low halves of its bytes, plus 8.
    halved: bool,
    /// The greatest magnitude of an integer.
    greatest: u8,
    scaled: Scaled,
}

#[derive(Debug)]
enum Scaled {
    /// By column.
    Columns {
        scales: Vec<f32>,
        /// The sum of each column, for the tokens' zero points.
        sums: Vec<i32>,
    },
    /// By blocks of [`BLOCK_LANES`].
    Blocks {
        /// For each tile's columns and each block, `[tiles, blocks, columns]`.
        scales: Vec<f32>,
        /// The scaled sum of each column.
        sums: Vec<f32>,
    },
}

impl PackedWeight {
    /// For the best of the machine's kernels that is exact for the integers. The outputs that are `lost` become NaN.
    pub fn new(weight: &IntegerMatrix, lost: &[bool]) -> Self {
        Self::packed(weight, lost, Kernel::best_for(weight.greatest()))
    }

    fn packed(weight: &IntegerMatrix, lost: &[bool], kernel: Kernel) -> Self {
        let ([d_out, d_in], [_, columns]) = (weight.dims(), kernel.tile());
        let in_blocks = matches!(weight.scales(), Scales::Blocks(_));
        let lanes = d_in.div_ceil(DEPTH).next_multiple_of(if in_blocks { 1 } else { kernel.step() });
        // Blocks of 4 bits stay halved; columns are quickest as bytes.
        let halved = weight.bits() == Bits::Four && in_blocks;
        let (stored, at) = match halved {
            true => (lanes / 2, 4),
            false => (lanes, 8),
        };
        let mut lines = Line::zeros(stored * d_out.next_multiple_of(columns));
        let panels = Line::lanes_mut(&mut lines);
        if halved {
            // Zeros, for the columns that only fill the last panel.
            panels.fill(0x8888_8888);
        }
        let mut integer_sums = vec![0; d_out];
        let mut row = vec![0i8; d_in];
        for (j, sum) in integer_sums.iter_mut().enumerate() {
            weight.row(j).zip(&mut row).for_each(|(q, place)| *place = q);
            *sum = row.iter().map(|q| i32::from(*q)).sum();
            let place = |lane: usize| (j / columns * stored + lane) * columns + j % columns;
            for (lane, q) in row.chunks(DEPTH).enumerate() {
                let bytes: [u8; DEPTH] =
                    std::array::from_fn(|d| q.get(d).copied().unwrap_or(0).cast_unsigned());
                match halved {
                    true => {
                        // q + 8 in place of 8, without a carry: the halves differ in their bits.
                        let bits = u32::from_le_bytes(bytes.map(|q| q.wrapping_add(8) ^ 8));
                        panels[place(lane / 2)] ^= bits << (at * (lane % 2));
                    }
                    false => panels[place(lane)] = u32::from_le_bytes(bytes),
                }
            }
        }
        let is_lost = |j: usize| lost.get(j).copied().unwrap_or(false);
        let scaled = match weight.scales() {
            Scales::Rows(scales) => {
                let scales = scales.iter().enumerate();
                let scales = scales.map(|(j, scale)| if is_lost(j) { f32::NAN } else { *scale });
                Scaled::Columns { scales: scales.collect(), sums: integer_sums }
            }
            Scales::Blocks(by_row) => {
                let n_blocks = d_in / crate::BLOCK;
                let mut scales = vec![0.0; d_out.next_multiple_of(columns) * n_blocks];
                let mut sums = vec![0f32; d_out];
                for (j, sum) in sums.iter_mut().enumerate() {
                    weight.row(j).zip(&mut row).for_each(|(q, place)| *place = q);
                    for (block, q) in row.as_chunks::<{ crate::BLOCK }>().0.iter().enumerate() {
                        let scale = if is_lost(j) { f32::NAN } else { by_row[j * n_blocks + block] };
                        scales[(j / columns * n_blocks + block) * columns + j % columns] = scale;
                        *sum = (q.iter().map(|q| i32::from(*q)).sum::<i32>() as f32).mul_add(scale, *sum);
                    }
                }
                Scaled::Blocks { scales, sums }
            }
        };
        Self { kernel, d_out, lanes, panels: lines, halved, greatest: weight.greatest(), scaled }
    }

    /// The panel of a tile's columns, for so many panels of rows. If it is halved, several of these share what is unpacked into
    /// `whole`, and for one alone the kernel unpacks it, if it can.
    fn panel<'a>(&'a self, kernel: Kernel, j: usize, n_left: usize, whole: &'a mut Vec<u32>) -> &'a [u32] {
        let [_, columns] = kernel.tile();
        let n = self.lanes * columns;
        if !self.halved {
            return &Line::lanes(&self.panels)[j * n..][..n];
        }
        let halves = &Line::lanes(&self.panels)[j * n / 2..][..n / 2];
        if n_left == 1 && kernel.reads_halves() {
            return halves;
        }
        whole.resize(n, 0);
        unpack(halves, columns, whole);
        whole
    }
}

/// The greatest magnitude of an 8-bit weight for the best of the machine's kernels.
pub(crate) fn greatest_weight() -> i8 {
    Kernel::best().greatest_weight()
}

vectorised! {
    /// Quantises a token to 8 bits; returns the scale and the zero point, `x ≈ scale · (q − zero)`.
    fn quantize(x: &[f32], symmetric: bool, to: &mut [u8]) -> (f32, i32) {
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
        let (low, high) = match symmetric {
            true if -low > high => (low, -low),
            true => (-high, high),
            false => (low, high),
        };
        // Anything infinite or NaN makes the scale, and so the results, NaN.
        let scale = (high - low) / 255.0 + sum;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        // Adding 1.5·2²³ rounds to a whole number, which then stands in the lowest bits.
        const ROUND: f32 = 12_582_912.0;
        // Half of 255 steps, rounded up as everyone does.
        let zero = if symmetric { 128.0 } else { (-low * inverse).round_ties_even() };
        for (x, to) in x.iter().zip(to) {
            let step = (*x * inverse + ROUND) - ROUND + zero;
            let step = if step > 0.0 { step } else { 0.0 };
            let step = if step < 255.0 { step } else { 255.0 };
            *to = (step + ROUND).to_bits() as u8;
        }
        (scale, zero as i32)
    }

    /// Quantises a token to a given range; returns its scale, or NaN if a number is not finite, and the zero point.
    fn quantize_to(x: &[f32], range: TokenRange, to: &mut [u8]) -> (f32, i32) {
        const LANES: usize = 64;
        const ROUND: f32 = 12_582_912.0;
        let mut poison = [0f32; LANES];
        let inverse = if range.scale > 0.0 { 1.0 / range.scale } else { 0.0 };
        let zero = f32::from(range.zero);
        let step = |x: f32| {
            // Within a whole number's bits before it is rounded, however large it is.
            let step = x * inverse + zero;
            let step = if step > 0.0 { step } else { 0.0 };
            let step = if step < 255.0 { step } else { 255.0 };
            (step + ROUND).to_bits() as u8
        };
        let ((whole, rest), (to_whole, to_rest)) = (x.as_chunks::<LANES>(), to.as_chunks_mut::<LANES>());
        for (x, to) in whole.iter().zip(to_whole) {
            for i in 0..LANES {
                poison[i] += x[i] * 0.0;
                to[i] = step(x[i]);
            }
        }
        for ((x, to), poison) in rest.iter().zip(to_rest).zip(&mut poison) {
            *poison += x * 0.0;
            *to = step(*x);
        }
        (range.scale + poison.iter().sum::<f32>(), i32::from(range.zero))
    }

    /// Multiplies a token's features by their factors.
    fn multiplied(x: &[f32], factors: &[f32], to: &mut [f32]) {
        for ((x, factor), to) in x.iter().zip(factors).zip(to) {
            *to = x * factor;
        }
    }

    /// Two lanes of signed bytes, of `columns` each, for one of halves.
    fn unpack(halves: &[u32], columns: usize, to: &mut [u32]) {
        for (halves, to) in halves.chunks_exact(columns).zip(to.chunks_exact_mut(2 * columns)) {
            let (low, high) = to.split_at_mut(columns);
            for i in 0..columns {
                // Less 8 in each byte: without a borrow from its neighbour, as the highest bit is set first.
                let less_8 = |half: u32| ((half | 0x8080_8080) - 0x0808_0808) ^ 0x8080_8080;
                low[i] = less_8(halves[i] & 0x0F0F_0F0F);
                high[i] = less_8(halves[i] >> 4 & 0x0F0F_0F0F);
            }
        }
    }

    /// As [`scale`], of sums that are scaled by blocks.
    fn finish(sums: &ScaledSums, columns: usize, tokens: &[(f32, i32)], column_sums: &[f32], bias: &[f32], to: Rows) {
        let n = bias.len();
        let column_sums = &column_sums[..n];
        for (i, (sums, (scale, zero))) in sums.0.chunks_exact(columns).zip(tokens).enumerate() {
            // SAFETY: whoever made the rows vouches for as many as there are tokens.
            let (sums, to) = (&sums[..n], unsafe { to.row(i, n) });
            let zero = *zero as f32;
            for j in 0..n {
                to[j].write((sums[j] - zero * column_sums[j]) * scale + bias[j]);
            }
        }
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
    fn new(
        kernel: Kernel,
        lanes: usize,
        rounding: &TokenRounding,
        x: &[f32],
        d_in: usize,
        parallel: bool,
    ) -> Self {
        let [rows, _] = kernel.tile();
        let n_panels = (x.len() / d_in).div_ceil(rows);
        let mut lines = Line::zeros(n_panels * rows * lanes);
        let panels = Line::lanes_mut(&mut lines);
        let mut scales = vec![(0.0, 0); n_panels * rows];
        let panels_and_scales =
            panels.par_chunks_exact_mut(rows * lanes).zip(scales.par_chunks_exact_mut(rows));
        let tasks = panels_and_scales.zip(x.par_chunks(rows * d_in));
        let tasks = if parallel { tasks.with_min_len(1) } else { tasks.with_min_len(n_panels) };
        let factors = rounding.factors.as_deref();
        let buffers = || (vec![0; rows * lanes * DEPTH], vec![0.0; factors.map_or(0, <[f32]>::len)]);
        tasks.for_each_init(buffers, |(bytes, multiples), ((panel, scales), x)| {
            let rows = bytes.chunks_exact_mut(lanes * DEPTH);
            for ((x, scale), bytes) in x.chunks_exact(d_in).zip(scales).zip(rows) {
                let x = match factors {
                    Some(factors) => {
                        multiplied(x, factors, multiples);
                        &*multiples
                    }
                    None => x,
                };
                *scale = match rounding.range {
                    Some(range) => quantize_to(x, range, &mut bytes[..d_in]),
                    None => quantize(x, rounding.symmetric, &mut bytes[..d_in]),
                };
            }
            kernel.pack(bytes, panel);
        });
        Self { panels: lines, scales }
    }
}

pub(crate) fn linear<const D: usize>(
    x: Tensor<D>,
    weight: &PackedWeight,
    rounding: &TokenRounding,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let mut shape = x.dims();
    let d_in = shape[D - 1];
    let x = Input::dense(x).value;
    let bias = bias.map(|bias| Input::dense(bias).value);
    let y = multiply(values(&x), d_in, (weight, rounding), bias.as_ref().map(values));
    shape[D - 1] = weight.d_out;
    Tensor::from_primitive::<Flex>(tensor(y, Shape::from(shape.to_vec())))
}

/// The sums of products of integers and of a weight, plus a bias: `[n, d_out]`. The weight has a scale for each column.
pub(crate) fn sums(x: &[i8], d_in: usize, weight: &PackedWeight, bias: &[i32]) -> Vec<i32> {
    /// Steps are unsigned: a number is `step − ZERO`.
    const ZERO: i32 = 128;
    let (kernel, d_out, lanes) = (weight.kernel, weight.d_out, weight.lanes);
    let n = x.len() / d_in.max(1);
    if lanes == 0 || n == 0 || d_out == 0 {
        return bias.repeat(n);
    }
    let Scaled::Columns { sums: column_sums, .. } = &weight.scaled else {
        unreachable!("maps of integers alone have a scale for each column")
    };
    let offsets: Vec<i32> =
        bias.iter().zip(column_sums).map(|(bias, sum)| bias.wrapping_sub(sum.wrapping_mul(ZERO))).collect();
    let [rows, columns] = kernel.tile();
    let n_panels = n.div_ceil(rows);
    let is_large = n * d_in * d_out >= PARALLEL;
    let per_task = match is_large {
        true => n_panels.div_ceil(wanted_tasks(true)).min(kernel.task()[0]),
        false => n_panels,
    };
    let mut y = vec![0; n * d_out];
    let task = |(y, x): (&mut [i32], &[i8])| {
        let n_panels = (x.len() / d_in).div_ceil(rows);
        let mut lines = Line::zeros(n_panels * rows * lanes);
        let mut bytes = vec![0u8; rows * lanes * DEPTH];
        let panels = Line::lanes_mut(&mut lines);
        for (panel, x) in panels.chunks_exact_mut(rows * lanes).zip(x.chunks(rows * d_in)) {
            for (bytes, x) in bytes.chunks_exact_mut(lanes * DEPTH).zip(x.chunks_exact(d_in)) {
                bytes.iter_mut().zip(x).for_each(|(byte, x)| *byte = x.cast_unsigned() ^ 0x80);
            }
            kernel.pack(&bytes, panel);
        }
        let panels = Line::lanes(&lines);
        kernel.set_up(false, || {
            let (mut sums, mut whole) = (Sums::new(), Vec::new());
            for j in 0..d_out.div_ceil(columns) {
                let of = j * columns..d_out.min((j + 1) * columns);
                let right = weight.panel(kernel, j, n_panels, &mut whole);
                for (panel, y) in panels.chunks_exact(rows * lanes).zip(y.chunks_mut(rows * d_out)) {
                    kernel.multiply(panel, right, y.len() / d_out, of.len(), &mut sums);
                    for (y, sums) in y.chunks_exact_mut(d_out).zip(sums.0.chunks_exact(columns)) {
                        for ((y, sum), offset) in y[of.clone()].iter_mut().zip(sums).zip(&offsets[of.clone()])
                        {
                            *y = sum.wrapping_add(*offset);
                        }
                    }
                }
            }
        });
    };
    match is_large {
        true => {
            let tasks = y.par_chunks_mut(per_task * rows * d_out).zip(x.par_chunks(per_task * rows * d_in));
            tasks.for_each(task);
        }
        false => task((&mut y, x)),
    }
    y
}

vectorised! {
    /// The sums of products of one row and of each of several.
    pub(crate) fn scores(row: &[i16], others: &[i16], to: &mut [i32]) {
        for (other, to) in others.chunks_exact(row.len().max(1)).zip(to) {
            let mut sum = 0;
            for i in 0..row.len() {
                sum += i32::from(row[i]) * i32::from(other[i]);
            }
            *to = sum;
        }
    }
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

fn multiply(
    x: &[f32],
    d_in: usize,
    (weight, rounding): (&PackedWeight, &TokenRounding),
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let (d_out, lanes) = (weight.d_out, weight.lanes);
    let none = vec![0.0; if bias.is_some() { 0 } else { d_out }];
    let bias = bias.unwrap_or(&none);
    assert_eq!(bias.len(), d_out, "the bias has another width than the weight");
    let n_tokens = x.len() / d_in.max(1);
    if lanes == 0 || n_tokens == 0 || d_out == 0 {
        return bias.repeat(n_tokens);
    }
    let parallel = n_tokens * d_in * d_out >= PARALLEL || d_in * d_out >= PARALLEL_WEIGHTS;
    let in_blocks = matches!(weight.scaled, Scaled::Blocks { .. });
    let kernel = if in_blocks { weight.kernel.for_rows(n_tokens) } else { weight.kernel };
    let tokens = Tokens::new(kernel, lanes, rounding, x, d_in, parallel);
    let [rows, columns] = kernel.tile();
    let (n_left, n_right) = (n_tokens.div_ceil(rows), d_out.div_ceil(columns));
    let [task_rows, task_columns] = task(kernel, n_left, n_right, parallel);
    let across = n_right.div_ceil(task_columns);
    let panels = Line::lanes(&tokens.panels);
    // SAFETY: every task writes its own rows and columns, and together they write all.
    unsafe {
        filled(n_tokens * d_out, |y| {
            let target = Target::dense(y.as_mut_ptr().cast(), d_out);
            for_each(n_left.div_ceil(task_rows) * across, parallel, |task| {
                let (i, j) = (task / across * task_rows, task % across * task_columns);
                // Of four kilobytes each: cleared for every tile, they would take a sixth of the time.
                let (mut sums, mut scaled_sums) = (Sums::new(), ScaledSums::new());
                let mut whole = Vec::new();
                kernel.set_up(in_blocks, || {
                    for j in j..n_right.min(j + task_columns) {
                        let column = j * columns;
                        let of = column..d_out.min(column + columns);
                        let (width, bias) = (of.len(), &bias[of.clone()]);
                        let right = weight.panel(kernel, j, n_left, &mut whole);
                        for i in i..n_left.min(i + task_rows) {
                            let height = rows.min(n_tokens - i * rows);
                            let left = &panels[i * lanes * rows..][..lanes * rows];
                            let tokens = &tokens.scales[i * rows..][..height];
                            let to = Rows { start: target.at(i * rows, column).cast(), apart: d_out };
                            match &weight.scaled {
                                Scaled::Columns { scales, sums: column_sums } => {
                                    kernel.multiply(left, right, height, width, &mut sums);
                                    let (column_sums, scales) =
                                        (&column_sums[of.clone()], &scales[of.clone()]);
                                    scale(&sums, columns, tokens, column_sums, scales, bias, to);
                                }
                                Scaled::Blocks { scales, sums: column_sums } => {
                                    scaled_sums.0[..height * columns].fill(0.0);
                                    let n = lanes / BLOCK_LANES * columns;
                                    let panels = (left, right, &scales[j * n..][..n]);
                                    kernel.multiply_blocks(
                                        panels,
                                        weight.greatest,
                                        [height, width],
                                        &mut scaled_sums,
                                    );
                                    finish(&scaled_sums, columns, tokens, &column_sums[of.clone()], bias, to);
                                }
                            }
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

    /// A weight of 8 bits with a scale for each of `d_out` rows.
    fn quantized([d_in, d_out]: [usize; 2], greatest: i8, seed: u32) -> IntegerMatrix {
        let values: Vec<u8> =
            signed(d_in * d_out, greatest, seed).into_iter().map(i8::cast_unsigned).collect();
        let scales = floats(d_out, seed + 1).into_iter().map(|s| s.abs() * 1e-2).collect();
        IntegerMatrix::new([d_out, d_in], Bits::Eight, values.into(), Scales::Rows(scales)).unwrap()
    }

    /// A weight with scales for blocks.
    fn in_blocks([d_in, d_out]: [usize; 2], bits: Bits, seed: u32) -> IntegerMatrix {
        let numbers = floats(d_in * d_out, seed);
        match bits {
            Bits::Eight => IntegerMatrix::q8_0(&numbers, [d_out, d_in]).unwrap(),
            Bits::Four => IntegerMatrix::q4_0(&numbers, [d_out, d_in]).unwrap(),
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
                let packed = PackedWeight::packed(&quantized, &[], kernel);
                let y = multiply(&x, d_in, (&packed, &TokenRounding::default()), Some(&bias));
                let mut steps = vec![0; d_in];
                for (x, y) in x.chunks_exact(d_in).zip(y.chunks_exact(d_out)) {
                    let (scale, zero) = quantize(x, false, &mut steps);
                    for (j, (y, bias)) in y.iter().zip(&bias).enumerate() {
                        let products = steps.iter().zip(quantized.row(j)).map(|(x, w)| (i32::from(*x) - zero) * i32::from(w));
                        let Scales::Rows(scales) = quantized.scales() else { unreachable!() };
                        let expected = products.sum::<i32>() as f32 * (scale * scales[j]) + bias;
                        prop_assert_eq!(y.to_bits(), expected.to_bits(), "{:?}", kernel);
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn sums_of_integers_are_exact_on_every_kernel(
            n in 1..40usize, d_in in 1..80usize, d_out in 1..80usize, seed in 0..u32::MAX - 9,
        ) {
            let x: Vec<i8> = bytes(n * d_in, seed + 2).into_iter().map(u8::cast_signed).collect();
            let bias: Vec<i32> = (0..d_out as i32).map(|i| i * 7_919 - 9_999).collect();
            for kernel in Kernel::available() {
                let weight = quantized([d_in, d_out], kernel.greatest_weight(), seed);
                let y = sums(&x, d_in, &PackedWeight::packed(&weight, &[], kernel), &bias);
                for (x, y) in x.chunks_exact(d_in).zip(y.chunks_exact(d_out)) {
                    for (j, y) in y.iter().enumerate() {
                        let products = x.iter().zip(weight.row(j)).map(|(x, w)| i32::from(*x) * i32::from(w));
                        prop_assert_eq!(*y, products.sum::<i32>() + bias[j], "{:?}", kernel);
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_have_their_scales() {
        for (n_tokens, d_in, d_out) in [(1, 32, 1), (7, 96, 50), (40, 64, 17), (3, 416, 33)] {
            for bits in [Bits::Eight, Bits::Four] {
                let (x, weight) = (floats(n_tokens * d_in, 5), in_blocks([d_in, d_out], bits, 7));
                let mut numbers = vec![0.0; d_in];
                let y =
                    multiply(&x, d_in, (&PackedWeight::new(&weight, &[]), &TokenRounding::default()), None);
                let mut steps = vec![0; d_in];
                for (x, y) in x.chunks_exact(d_in).zip(y.chunks_exact(d_out)) {
                    let (scale, zero) = quantize(x, false, &mut steps);
                    for (j, y) in y.iter().enumerate() {
                        weight.dequantize_row(j, &mut numbers);
                        let back = |step: &u8| f64::from(scale) * f64::from(i32::from(*step) - zero);
                        let products = steps.iter().zip(&numbers).map(|(step, w)| back(step) * f64::from(*w));
                        let sizes: f64 = products.clone().map(f64::abs).sum();
                        let expected: f64 = products.sum();
                        assert!((f64::from(*y) - expected).abs() <= 1e-5 * sizes + 1e-6, "{y} {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_token_alone_has_the_bits_that_it_has_among_others() {
        let (n_tokens, d_in, d_out) = (40, 416, 50);
        let x = floats(n_tokens * d_in, 5);
        for bits in [Bits::Eight, Bits::Four] {
            let weight = PackedWeight::new(&in_blocks([d_in, d_out], bits, 7), &[]);
            let product = |x: &[f32]| multiply(x, d_in, (&weight, &TokenRounding::default()), None);
            let alone: Vec<f32> = x.chunks_exact(d_in).flat_map(product).collect();
            assert_eq!(alone, product(&x));
        }
    }

    #[test]
    fn a_lost_output_is_nan_alone() {
        let x = floats(3 * 64, 5);
        for weight in [quantized([64, 3], 64, 1), in_blocks([64, 3], Bits::Four, 1)] {
            let packed = PackedWeight::new(&weight, &[false, true, false]);
            let y = multiply(&x, 64, (&packed, &TokenRounding::default()), None);
            assert!(y.iter().enumerate().all(|(i, y)| y.is_nan() == (i % 3 == 1)), "{y:?}");
        }
    }

    #[test]
    fn a_range_and_factors_are_for_all_tokens() {
        let (d_in, d_out) = (70, 9);
        let (x, weight) = (floats(5 * d_in, 5), quantized([d_in, d_out], 127, 1));
        let factors: Vec<f32> = (0..d_in).map(|i| 0.5 + (i % 5) as f32).collect();
        let range = TokenRange::of(-1.0, 2.5);
        assert_eq!(range.zero, 73);
        let rounding = TokenRounding { factors: Some(factors.clone()), range: Some(range), symmetric: false };
        let packed = PackedWeight::new(&weight, &[]);
        let y = multiply(&x, d_in, (&packed, &rounding), None);
        let mut numbers = vec![0.0; d_in];
        for (x, y) in x.chunks_exact(d_in).zip(y.chunks_exact(d_out)) {
            for (j, y) in y.iter().enumerate() {
                weight.dequantize_row(j, &mut numbers);
                let products = x.iter().zip(&factors).zip(&numbers).map(|((x, factor), w)| {
                    let step = (x * factor / range.scale + 73.0).clamp(0.0, 255.0).round_ties_even();
                    f64::from(step - 73.0) * f64::from(range.scale) * f64::from(*w)
                });
                // A number between two steps may be rounded to the other one.
                let expected: f64 = products.sum();
                assert!((f64::from(*y) - expected).abs() < 2e-2, "{y} {expected}");
            }
        }
        // What is out of range becomes its end, and what is not finite is told.
        let mut steps = [0; 4];
        assert_eq!(quantize_to(&[-1e30, 1e30, 0.0, 2.5], range, &mut steps), (range.scale, 73));
        assert_eq!(steps, [0, 255, 73, 255]);
        for lost in [f32::NAN, f32::INFINITY] {
            assert!(quantize_to(&[1.0, lost], range, &mut steps).0.is_nan());
        }
        assert_eq!(quantize_to(&[1.0], TokenRange::of(0.0, 0.0), &mut steps).0, 0.0);
    }

    #[test]
    fn tokens_are_rounded_to_the_nearest_step() {
        for n in [1, 2, 15, 64, 67, 200] {
            for shift in [-3.0, 0.0, 3.0, 40.0] {
                let x: Vec<f32> = floats(n, 7).into_iter().map(|x| x + shift).collect();
                let mut steps = vec![0; n];
                let (scale, zero) = quantize(&x, false, &mut steps);
                for (x, step) in x.iter().zip(steps) {
                    let back = scale * (i32::from(step) - zero) as f32;
                    // The zero point's own rounding may cost as much again at the ends.
                    assert!((back - x).abs() <= 1.01 * scale, "{x} became {back} in steps of {scale}");
                }
            }
        }
        let mut steps = [9; 3];
        assert_eq!(quantize(&[0.0; 3], false, &mut steps), (0.0, 0));
        assert_eq!(steps, [0; 3]);
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let (n_tokens, d_in, d_out) = (131, 450, 170);
        let x = floats(n_tokens * d_in, 2);
        let weights =
            [quantized([d_in, d_out], greatest_weight(), 1), in_blocks([448, d_out], Bits::Four, 1)];
        for weight in weights {
            let (packed, d_in) = (PackedWeight::new(&weight, &[]), weight.dims()[1]);
            let [one, two, three] = [1, 2, 3].map(|n| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
                let x = &x[..n_tokens * d_in];
                let y = pool.install(|| multiply(x, d_in, (&packed, &TokenRounding::default()), None));
                y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert!(one == two && one == three);
        }
    }
}
