//! Blocks of a product: what is packed together, and what a task computes of it.

use super::format::Format;
use super::pack::Lines;
use super::tile::{Onto, Place};
use super::{Begin, COLUMNS, Matrix, Product, ROWS, Target, for_each, task};

/// Lanes along `k` in a panel, at most: panels of a task stay in the second-level cache.
const LANES: usize = 384;
/// Rows and columns packed at a time: a few megabytes each.
const HEIGHT: usize = 256 * ROWS;
const WIDTH: usize = 96 * COLUMNS;

/// Memory for panels, written by the packing before it is read.
struct Panels {
    memory: Vec<Line>,
    lanes: usize,
}

/// A line of the cache, where panels begin.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "reached by pointers")] [u32; 16]);

impl Panels {
    /// `n` panels of `lanes` lanes each.
    fn new(n: usize, lanes: usize) -> Self {
        Self { memory: Vec::with_capacity((n * lanes).div_ceil(16)), lanes }
    }

    fn writer(&mut self) -> Writer {
        Writer { start: self.memory.as_mut_ptr().cast(), lanes: self.lanes }
    }
}

#[derive(Clone, Copy)]
struct Writer {
    start: *mut u32,
    lanes: usize,
}

// SAFETY: tasks write a panel each, and read when all are written.
unsafe impl Send for Writer {}
// SAFETY: as above.
unsafe impl Sync for Writer {}

impl Writer {
    /// # Safety
    /// There are that many panels.
    unsafe fn panel(self, i: usize) -> *mut u32 {
        // SAFETY: the caller's promise.
        unsafe { self.start.add(i * self.lanes) }
    }
}

/// Computes the product.
///
/// # Safety
/// As [`Product::run`]; the machine has the format's instructions, the target's rows or columns lie next to
/// each other, and no size is zero.
pub(super) unsafe fn run<F: Format>(product: Product) {
    let Product { sizes: [m, k, n], target, begin, a, b, parallel, .. } = product;
    if target.column != 1 {
        // Column by column it is the transposed product, row by row.
        let begin = match begin {
            Begin::Row(_) => {
                // SAFETY: the caller's promise.
                unsafe { return product.run_anywhere() }
            }
            begin => begin,
        };
        let target = Target { row: target.column, column: target.row, ..target };
        let (a, b) = (b.transposed(), a.transposed());
        // SAFETY: the caller's promise.
        return unsafe { run::<F>(Product { sizes: [n, k, m], target, begin, a, b, ..product }) };
    }

    let lanes = k.div_ceil(F::DEPTH);
    let depth = lanes.div_ceil(lanes.div_ceil(LANES));
    let (height, width) = (m.min(HEIGHT), n.min(WIDTH));
    let mut left = Panels::new(height.div_ceil(ROWS), depth * ROWS);
    let mut right = Panels::new(width.div_ceil(COLUMNS), depth * COLUMNS);
    let (left, right) = (left.writer(), right.writer());
    for column in (0..n).step_by(WIDTH) {
        let width = width.min(n - column);
        for row in (0..m).step_by(HEIGHT) {
            let height = height.min(m - row);
            let (n_left, n_right) = (height.div_ceil(ROWS), width.div_ceil(COLUMNS));
            for lane in (0..lanes).step_by(depth) {
                let k_start = lane * F::DEPTH;
                let len = (depth * F::DEPTH).min(k - k_start);
                // SAFETY: the panels lie within the matrices and within the memory made for them; each is
                // written by one task, and read after all are written.
                unsafe {
                    // A few panels at a time.
                    let n_packs = n_left.div_ceil(8) + n_right.div_ceil(3);
                    for_each(n_packs, parallel, |i| match i.checked_sub(n_left.div_ceil(8)) {
                        None => {
                            for panel in i * 8..n_left.min(i * 8 + 8) {
                                let start = row + panel * ROWS;
                                let n = ROWS.min(m - start);
                                F::pack::<ROWS>(lines(a, start, k_start, n, len), left.panel(panel));
                            }
                        }
                        Some(i) => {
                            for panel in i * 3..n_right.min(i * 3 + 3) {
                                let start = column + panel * COLUMNS;
                                let n = COLUMNS.min(n - start);
                                F::pack::<COLUMNS>(
                                    lines(b.transposed(), start, k_start, n, len),
                                    right.panel(panel),
                                );
                            }
                        }
                    });
                    let [task_rows, task_columns] = task(n_left, n_right, parallel);
                    let columns = n_right.div_ceil(task_columns);
                    for_each(n_left.div_ceil(task_rows) * columns, parallel, |i| {
                        let (i, j) = (i / columns * task_rows, i % columns * task_columns);
                        for j in j..n_right.min(j + task_columns) {
                            let column = column + j * COLUMNS;
                            let onto = match begin {
                                _ if lane > 0 => Onto::Target,
                                Begin::Zero => Onto::Zero,
                                Begin::Target => Onto::Target,
                                Begin::Row(bias) => Onto::Row(bias[column..].as_ptr()),
                            };
                            for i in i..n_left.min(i + task_rows) {
                                let row = row + i * ROWS;
                                let (height, width) = (ROWS.min(m - row), COLUMNS.min(n - column));
                                let start = target.at(row, column);
                                let place = Place { start, row: target.row, height, width };
                                let (a, b) = (left.panel(i), right.panel(j));
                                F::multiply(len.div_ceil(F::DEPTH), a, b, place, onto);
                            }
                        }
                    });
                }
            }
        }
    }
}

/// `n` rows of a matrix from `start` on, from column `k` on.
///
/// # Safety
/// They lie within it.
unsafe fn lines(x: Matrix, start: usize, k: usize, n: usize, len: usize) -> Lines {
    // SAFETY: the caller's promise.
    let first = unsafe { x.start.offset(start as isize * x.row + k as isize * x.column) };
    Lines { start: first, line: x.row, step: x.column, n, len }
}
