//! Blocks of a product: what is packed together, and what a task computes of it.

use super::kernel::{Kernel, Lines, Onto, Place};
use super::{Begin, Matrix, Product, Target, for_each, wanted_tasks};
use std::cell::RefCell;
use std::mem;
use std::ops::Range;

/// Lanes along `k` in a panel, at most: panels of a task stay in the second-level cache.
const LANES: usize = 384;
/// Rows and columns packed at a time: a few megabytes each.
/// Whole panels of every kernel.
const HEIGHT: usize = 3072;
const WIDTH: usize = 3072;

/// Memory for panels, written by the packing before it is read. A thread keeps it for its next product: between
/// the tensors of a step it would leave gaps, which cost 8 % of the memory of a BERT-base.
struct Panels {
    memory: Vec<Line>,
    lanes: usize,
}

thread_local! {
    /// What no product of the thread uses at present. Those of both operands are a few megabytes each.
    static KEPT: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// A line of the cache, where panels begin.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "reached by pointers")] [u32; 16]);

impl Panels {
    /// `n` panels of `lanes` lanes each.
    fn new(n: usize, lanes: usize) -> Self {
        let mut memory = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
        memory.reserve((n * lanes).div_ceil(16));
        Self { memory, lanes }
    }

    fn writer(&mut self) -> Writer {
        Writer { start: self.memory.as_mut_ptr().cast(), lanes: self.lanes }
    }
}

impl Drop for Panels {
    fn drop(&mut self) {
        KEPT.with_borrow_mut(|kept| kept.push(mem::take(&mut self.memory)));
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
pub(super) unsafe fn run<K: Kernel>(product: Product) {
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
        return unsafe { run::<K>(Product { sizes: [n, k, m], target, begin, a, b, ..product }) };
    }

    let lanes = k.div_ceil(K::DEPTH);
    let depth = lanes.div_ceil(lanes.div_ceil(LANES));
    let (height, width) = (m.min(HEIGHT), n.min(WIDTH));
    let mut left = Panels::new(height.div_ceil(K::ROWS), depth * K::ROWS);
    let mut right = Panels::new(width.div_ceil(K::COLUMNS), depth * K::COLUMNS);
    let (left, right) = (left.writer(), right.writer());
    for column in (0..n).step_by(WIDTH) {
        for row in (0..m).step_by(HEIGHT) {
            for lane in (0..lanes).step_by(depth) {
                let block = Block {
                    a,
                    b,
                    target,
                    begin: if lane > 0 { Begin::Target } else { begin },
                    rows: row..m.min(row + height),
                    columns: column..n.min(column + width),
                    k: lane * K::DEPTH..k.min((lane + depth) * K::DEPTH),
                    left,
                    right,
                };
                // SAFETY: the block lies within the product, and its panels within the memory made for them.
                unsafe { block.run::<K>(parallel) }
            }
        }
    }
}

/// A part of a product whose panels are in memory at the same time.
struct Block<'a> {
    a: Matrix,
    b: Matrix,
    target: Target,
    begin: Begin<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
    k: Range<usize>,
    left: Writer,
    right: Writer,
}

impl Block<'_> {
    /// The smaller operand is packed for everyone. Of the larger one each task packs a part of its own, and
    /// multiplies it while its core still has it.
    ///
    /// # Safety
    /// As [`Product::run`], of this part; nobody else uses the panels meanwhile.
    unsafe fn run<K: Kernel>(&self, parallel: bool) {
        let (n_left, n_right) = (self.rows.len().div_ceil(K::ROWS), self.columns.len().div_ceil(K::COLUMNS));
        let [some_left, some_right] = K::TASK;
        // SAFETY: each panel is written by one task, and read by it or after all are written.
        unsafe {
            if self.rows.len() <= self.columns.len() {
                in_parts(n_left, 8, parallel, |panels| self.pack_left::<K>(panels));
                in_parts(n_right, share(n_right, some_right, parallel), parallel, |right| {
                    self.pack_right::<K>(right.clone());
                    in_parts(n_left, some_left, false, |left| self.multiply::<K>(left, right.clone()));
                });
            } else {
                in_parts(n_right, 3, parallel, |panels| self.pack_right::<K>(panels));
                in_parts(n_left, share(n_left, some_left, parallel), parallel, |left| {
                    self.pack_left::<K>(left.clone());
                    in_parts(n_right, some_right, false, |right| self.multiply::<K>(left.clone(), right));
                });
            }
        }
    }

    unsafe fn pack_left<K: Kernel>(&self, panels: Range<usize>) {
        for panel in panels {
            let start = self.rows.start + panel * K::ROWS;
            let n = K::ROWS.min(self.rows.end - start);
            // SAFETY: the caller's promise.
            unsafe {
                let lines = lines(self.a, start, self.k.start, n, self.k.len());
                K::pack_left(lines, self.left.panel(panel));
            }
        }
    }

    unsafe fn pack_right<K: Kernel>(&self, panels: Range<usize>) {
        for panel in panels {
            let start = self.columns.start + panel * K::COLUMNS;
            let n = K::COLUMNS.min(self.columns.end - start);
            // SAFETY: the caller's promise.
            unsafe {
                let lines = lines(self.b.transposed(), start, self.k.start, n, self.k.len());
                K::pack_right(lines, self.right.panel(panel));
            }
        }
    }

    unsafe fn multiply<K: Kernel>(&self, left: Range<usize>, right: Range<usize>) {
        for j in right {
            let column = self.columns.start + j * K::COLUMNS;
            let width = K::COLUMNS.min(self.columns.end - column);
            let onto = match self.begin {
                Begin::Zero => Onto::Zero,
                Begin::Target => Onto::Target,
                Begin::Row(bias) => Onto::Row(bias[column..].as_ptr()),
            };
            for i in left.clone() {
                let row = self.rows.start + i * K::ROWS;
                let height = K::ROWS.min(self.rows.end - row);
                // SAFETY: the caller's promise.
                unsafe {
                    let start = self.target.at(row, column);
                    let place = Place { start, row: self.target.row, height, width };
                    let (a, b) = (self.left.panel(i), self.right.panel(j));
                    K::multiply(self.k.len().div_ceil(K::DEPTH), a, b, place, onto);
                }
            }
        }
    }
}

/// `0..n` in parts of so many, side by side or one after the other.
fn in_parts(n: usize, part: usize, parallel: bool, work: impl Fn(Range<usize>) + Sync + Send) {
    for_each(n.div_ceil(part), parallel, |i| work(i * part..n.min((i + 1) * part)));
}

/// Panels to a task: fewer than `most` where there would be too few tasks to share out.
fn share(n: usize, most: usize, parallel: bool) -> usize {
    (n / wanted_tasks(parallel)).clamp(1, most)
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
