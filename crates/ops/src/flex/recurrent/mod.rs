//! Recurrent layers over packed sequences.
//!
//! Sequences are independent, so they are divided into groups, each of which runs all of its time steps on
//! one thread: a step multiplies the states of the group's unfinished sequences, which come first because the
//! longest come first. A weight too large for a core's cache is better shared between the cores: then there
//! is one group, and all cores work on each step.
//!
//! The weight's gradient is one product over all steps, computed at the end.

mod attentive;
mod gru;
mod lstm;

use super::gemm::{Begin, Matrix, Packed, Product, Target};
use super::{BLOCK, filled};
use crate::{Direction, Packing, Precision};
pub(crate) use attentive::attentive;
use burn::tensor::Tensor;
pub(crate) use gru::gru;
pub(crate) use lstm::lstm;
use rayon::prelude::*;
use std::mem::MaybeUninit;
use std::slice;

/// Maximum sequences per group.
const GROUP: usize = 24;
/// Numbers of a weight that fit in a core's cache: 1 MiB.
const CACHED: usize = 1 << 18;

/// A sequence of a group.
#[derive(Debug, Clone, Copy)]
struct Row {
    sequence: usize,
    /// The index of its first token.
    start: usize,
    len: usize,
}

/// The sequences, and the order in which their tokens are read.
#[derive(Debug, Clone)]
struct Plan {
    /// The longest sequence first.
    groups: Vec<Vec<Row>>,
    direction: Direction,
    n_tokens: usize,
    n_sequences: usize,
    d: usize,
}

impl Plan {
    /// For a weight `[d, width]`.
    fn new(packing: &Packing, direction: Direction, [d, width]: [usize; 2]) -> Self {
        let lengths = packing.lengths();
        let sequences = packing.starts().zip(lengths).enumerate();
        let mut rows: Vec<Row> =
            sequences.map(|(sequence, (start, len))| Row { sequence, start, len: *len }).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.len));
        let n_groups = match d * width <= CACHED {
            // As many for two threads as for one, and even shares for them.
            true => rows.len().div_ceil(GROUP).next_power_of_two(),
            false => 1,
        };
        let mut groups = vec![Vec::new(); n_groups];
        // Dealt out, so that groups take about as long as each other.
        rows.iter().enumerate().for_each(|(i, row)| groups[i % n_groups].push(*row));
        groups.retain(|group| !group.is_empty());
        Self { groups, direction, n_tokens: packing.n_tokens(), n_sequences: lengths.len(), d }
    }

    fn token(&self, row: &Row, step: usize) -> usize {
        row.start + self.direction.place(step, row.len)
    }

    /// Whether the cores share each step instead of the groups.
    fn shares_steps(&self) -> bool {
        self.groups.len() == 1
    }

    /// Number of a group's sequences that have a step.
    fn active(group: &[Row], step: usize) -> usize {
        group.partition_point(|row| row.len > step)
    }

    fn for_each_group(&self, work: impl Fn(&[Row]) + Sync + Send) {
        match self.shares_steps() {
            true => self.groups.iter().for_each(|group| work(group)),
            false => self.groups.par_iter().for_each(|group| work(group)),
        }
    }

    /// Work on this many rows of a step.
    fn for_each_row(&self, n: usize, work: impl Fn(usize) + Sync + Send) {
        if self.shares_steps() && n * self.d > BLOCK {
            let least = (BLOCK / 4 / self.d.max(1)).max(1);
            return (0..n).into_par_iter().with_min_len(least).for_each(work);
        }
        (0..n).for_each(work);
    }

    /// The initial states of a group's sequences, or zeros.
    fn initial_rows(&self, group: &[Row], initial: Option<&[f32]>) -> Vec<f32> {
        let d = self.d;
        let mut states = vec![0.0; group.len() * d];
        if let Some(initial) = initial {
            for (row, state) in group.iter().zip(states.chunks_exact_mut(d)) {
                state.copy_from_slice(&initial[row.sequence * d..][..d]);
            }
        }
        states
    }

    /// The state before a step, from the states of all tokens and the initial states of all
    /// sequences.
    fn before<'a>(&self, row: &Row, step: usize, states: &'a [f32], initial: &'a [f32]) -> &'a [f32] {
        match step.checked_sub(1) {
            Some(step) => &states[self.token(row, step) * self.d..][..self.d],
            None => &initial[row.sequence * self.d..][..self.d],
        }
    }

    /// The state before each token, `[n_tokens, d]`; the initial state for first tokens.
    fn states_before(&self, states: &[f32], initial: Option<&[f32]>) -> Vec<f32> {
        let d = self.d;
        // SAFETY: the sequences' tokens are all there are, and each has a row of its own.
        unsafe {
            filled(self.n_tokens * d, |before| {
                let before = Rows::new(before, d);
                self.groups.iter().flatten().collect::<Vec<_>>().par_iter().for_each(|row| {
                    for step in 0..row.len {
                        let to = before.at(self.token(row, step));
                        match (step.checked_sub(1), initial) {
                            (Some(step), _) => copy(&states[self.token(row, step) * d..][..d], to),
                            (None, Some(initial)) => copy(&initial[row.sequence * d..][..d], to),
                            (None, None) => to.fill(MaybeUninit::new(0.0)),
                        }
                    }
                });
            })
        }
    }

    /// The gradient of a weight: `[d, width]` of which `target` is given `columns` from `from` on.
    ///
    /// # Safety
    /// `gradients` has `columns` numbers per token, and `target` these columns of `d` rows, which nothing
    /// else uses meanwhile.
    unsafe fn weight_gradient(
        &self,
        before: &[f32],
        gradients: Matrix,
        columns: usize,
        target: Target,
        precision: Precision,
    ) {
        let product = Product {
            sizes: [self.d, self.n_tokens, columns],
            target,
            begin: Begin::Zero,
            a: Matrix::dense(before, self.d).transposed(),
            b: gradients,
            precision,
            parallel: true,
        };
        // SAFETY: the caller's promise.
        unsafe { product.run() }
    }
}

/// Writes numbers to uninitialised memory.
fn copy(from: &[f32], to: &mut [MaybeUninit<f32>]) {
    to.write_copy_of_slice(from);
}

/// Rows of memory written by threads, each its own rows.
#[derive(Clone, Copy)]
struct Rows<T> {
    start: *mut T,
    width: usize,
}

// SAFETY: whoever asks for a row vouches for it.
unsafe impl<T: Send> Send for Rows<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Rows<T> {}

impl<T> Rows<T> {
    fn new(x: &mut [T], width: usize) -> Self {
        Self { start: x.as_mut_ptr(), width }
    }

    /// # Safety
    /// It exists, and nothing else uses it meanwhile.
    unsafe fn at<'a>(self, i: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.start.add(i * self.width), self.width) }
    }

    /// A range of elements, regardless of rows.
    ///
    /// # Safety
    /// They exist, and nothing else uses them meanwhile.
    unsafe fn elements<'a>(self, start: usize, n: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.start.add(start), n) }
    }

    /// # Safety
    /// It exists and is initialised, and nothing writes it meanwhile.
    unsafe fn read<'a>(self, i: usize) -> &'a [f32] {
        const { assert!(size_of::<T>() == size_of::<f32>()) };
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts(self.start.add(i * self.width).cast(), self.width) }
    }
}

/// The right operand of every step's product.
struct Weight {
    matrix: Matrix,
    sizes: [usize; 2],
    /// Packed for a kernel of ours, if there is one and several steps.
    packed: Option<Packed>,
    precision: Precision,
    parallel: bool,
}

impl Weight {
    /// # Safety
    /// The matrix has this size, `[k, n]`, and lives as long as this.
    unsafe fn new(matrix: Matrix, sizes: [usize; 2], precision: Precision, plan: &Plan) -> Self {
        let steps = plan.groups.iter().flatten().map(|row| row.len).max();
        let packed = match steps {
            // SAFETY: the caller's promise.
            Some(2..) => unsafe { Packed::new(matrix, sizes, precision) },
            _ => None,
        };
        Self { matrix, sizes, packed, precision, parallel: plan.shares_steps() }
    }

    /// `target += left · weight`, or `=`, for `n` rows.
    fn multiply(&self, n: usize, left: &[f32], add: bool, target: &mut [f32]) {
        let [k, width] = self.sizes;
        assert!(left.len() >= n * k && target.len() >= n * width, "memory of so many rows");
        let product = Product {
            sizes: [n, k, width],
            target: Target::dense(target.as_mut_ptr(), width),
            begin: if add { Begin::Target } else { Begin::Zero },
            a: Matrix::dense(left, k),
            b: self.matrix,
            precision: self.precision,
            parallel: self.parallel,
        };
        // SAFETY: the memory is there, as just seen, and the matrix as `new` was promised.
        unsafe {
            match &self.packed {
                Some(packed) => packed.run(product),
                None => product.run(),
            }
        }
    }
}

/// Some rows of an operation's output, which is several tensors stacked vertically.
fn part(all: &Tensor<2>, start: usize, n: usize) -> Tensor<2> {
    all.clone().narrow(0, start, n)
}
