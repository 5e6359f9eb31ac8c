//! Blocking of a product: what is packed together, and what a task computes.

use super::kernel::{Kernel, Lines, Onto, Place};
use super::{Begin, Line, Matrix, Product, Target, for_each, wanted_tasks};
use rayon::prelude::*;
use std::cell::RefCell;
use std::mem;
use std::ops::Range;

/// Maximum rows or columns of the shared operand packed at a time: whole panels of every kernel. This and the
/// next are small in tests, so that products have several parts in each direction.
const BREADTH: usize = if cfg!(test) { 96 } else { 3072 };
/// Numbers of the shared operand packed at a time, unless one block has more: 16 megabytes.
const SHARED: usize = if cfg!(test) { 1 << 14 } else { 1 << 22 };

/// Memory for panels, written by packing before it is read. A thread keeps it for its next product: freeing
/// it would fragment the heap, at 8 % of a BERT-base's memory.
struct Memory(Vec<Line>);

thread_local! {
    /// The thread's unused buffers: at most those of a shared operand and of a task's own.
    static KEPT: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

impl Memory {
    /// For `n` panels of this many numbers.
    fn new(n: usize, panel: usize) -> Self {
        let mut memory = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
        memory.reserve((n * panel).div_ceil(16));
        Self(memory)
    }

    /// The panels of an operand from the `first` on.
    fn panels(&mut self, first: usize, panel: usize) -> Panels {
        Panels { start: self.0.as_mut_ptr().cast(), first, panel }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        KEPT.with_borrow_mut(|kept| kept.push(mem::take(&mut self.0)));
    }
}

/// An operand's panels, or some of them, of one block along `k`.
#[derive(Clone, Copy)]
struct Panels {
    start: *mut u32,
    /// The index of the first one present.
    first: usize,
    /// Numbers in a panel.
    panel: usize,
}

// SAFETY: tasks write a panel each, and read when all are written.
unsafe impl Send for Panels {}
// SAFETY: as above.
unsafe impl Sync for Panels {}

impl Panels {
    /// # Safety
    /// The panel is there.
    unsafe fn at(self, i: usize) -> *mut u32 {
        // SAFETY: the caller's promise.
        unsafe { self.start.add((i - self.first) * self.panel) }
    }

    /// The panels of the block `n` panels later.
    ///
    /// # Safety
    /// There are that many.
    unsafe fn behind(self, n: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { start: unsafe { self.start.add(n * self.panel) }, ..self }
    }
}

/// A right operand packed once for many products, such as a weight in inference: the panels of its first
/// block along `k`, then those of the next.
#[derive(Debug)]
pub(in crate::flex) struct PackedRight {
    panels: Vec<Line>,
    n_panels: usize,
    /// Lanes of a panel.
    panel: usize,
    /// Columns of a panel.
    columns: usize,
    /// Elements in a lane.
    depth: usize,
}

impl PackedRight {
    /// # Safety
    /// The machine has the format's instructions, and the matrix this size.
    pub(super) unsafe fn new<K: Kernel>(b: Matrix, [k, n]: [usize; 2]) -> Self {
        let depth = depth::<K>(k);
        let (n_panels, panel) = (n.div_ceil(K::COLUMNS), depth * K::COLUMNS);
        let blocks = k.div_ceil(depth * K::DEPTH);
        let panels = Line::zeros(blocks * n_panels * panel);
        let mut packed = Self { panels, n_panels, panel, columns: K::COLUMNS, depth: K::DEPTH };
        let panels = Panels { start: packed.panels.as_mut_ptr().cast(), first: 0, panel };
        in_parts(blocks * n_panels, 8, true, |part| {
            for i in part {
                let (start, at) = (i % n_panels * K::COLUMNS, i / n_panels * depth * K::DEPTH);
                let (n, len) = (K::COLUMNS.min(n - start), (depth * K::DEPTH).min(k - at));
                // SAFETY: within the matrix and the memory, of which each panel is written once.
                unsafe { K::pack_right(lines(b.transposed(), start, at, n, len), panels.at(i)) }
            }
        });
        packed
    }

    /// The matrix `[k, n]` that was packed, row by row; `None` if it was rounded.
    pub(super) fn unpacked(&self, [k, n]: [usize; 2]) -> Option<Vec<f32>> {
        if self.depth != 1 {
            return None;
        }
        let (lanes, steps) = (Line::lanes(&self.panels), self.panel / self.columns);
        let mut matrix = vec![0.0; k * n];
        matrix.par_chunks_mut(n.max(1)).enumerate().for_each(|(row, to)| {
            for (panel, to) in to.chunks_mut(self.columns).enumerate() {
                let start = (row / steps * self.n_panels + panel) * self.panel + row % steps * self.columns;
                to.iter_mut().zip(&lanes[start..]).for_each(|(to, lane)| *to = f32::from_bits(*lane));
            }
        });
        Some(matrix)
    }

    /// From a panel on. They are only read.
    ///
    /// # Safety
    /// It is there.
    unsafe fn from(&self, block: usize, panel: usize) -> Panels {
        let all = Panels { start: self.panels.as_ptr().cast_mut().cast(), first: 0, panel: self.panel };
        // SAFETY: the caller's promise.
        unsafe { all.behind(block * self.n_panels + panel) }
    }
}

/// Lanes of a block along `k`.
fn depth<K: Kernel>(k: usize) -> usize {
    let lanes = k.div_ceil(K::DEPTH);
    lanes.div_ceil(lanes.div_ceil(K::LANES)).next_multiple_of(K::STEP)
}

/// Computes the product, whose right operand may already be packed.
///
/// # Safety
/// As [`Product::run`]; the machine has the format's instructions, the target's rows or columns are
/// contiguous (its rows, if the right operand is packed), and no size is zero. The same kernel packed the
/// same right operand.
pub(super) unsafe fn run<K: Kernel>(product: Product, packed: Option<&PackedRight>) {
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
        debug_assert!(packed.is_none(), "it is on the other side now");
        return unsafe { run::<K>(Product { sizes: [n, k, m], target, begin, a, b, ..product }, None) };
    }

    let (lanes, depth) = (k.div_ceil(K::DEPTH), depth::<K>(k));
    let shares_left = m <= n;
    let (breadth, width) = if shares_left { (m, K::ROWS) } else { (n, K::COLUMNS) };
    let (most, panel) = (breadth.min(BREADTH), depth * width);
    let blocks = (SHARED / (most * depth)).clamp(1, lanes.div_ceil(depth));
    let to_pack = if shares_left || packed.is_none() { blocks * most.div_ceil(width) } else { 0 };
    let mut shared = Memory::new(to_pack, panel);
    for start in (0..breadth).step_by(BREADTH) {
        let part = start..breadth.min(start + BREADTH);
        let (rows, columns) = if shares_left { (part, 0..n) } else { (0..m, part) };
        for lane in (0..lanes).step_by(blocks * depth) {
            let blocks = (lane..lanes.min(lane + blocks * depth)).step_by(depth);
            let blocks = blocks.map(|lane| lane * K::DEPTH..k.min((lane + depth) * K::DEPTH));
            let slab = Slab {
                shares_left,
                a,
                b,
                target,
                begin: if lane > 0 { Begin::Target } else { begin },
                rows: rows.clone(),
                columns: columns.clone(),
                blocks: blocks.collect(),
                depth,
                shared: shared.panels(0, panel),
                packed: packed.map(|packed| (packed, lane / depth)),
            };
            // SAFETY: the slab lies within the product, and its panels within the memory made for them.
            unsafe { slab.run::<K>(parallel) }
        }
    }
}

/// An operand.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}
use Side::{Left, Right};

impl Side {
    /// Lines in a panel.
    fn width<K: Kernel>(self) -> usize {
        [K::ROWS, K::COLUMNS][self as usize]
    }
}

/// A part of a product whose smaller operand is packed at once and shared by all tasks.
///
/// Each task packs its own panels of the larger operand, block by block, and multiplies them while they are
/// in its core's cache. Threads synchronise only twice, and a task's part of the target is still cached for
/// the next block.
struct Slab<'a> {
    /// Otherwise the right operand is the shared one.
    shares_left: bool,
    a: Matrix,
    b: Matrix,
    target: Target,
    begin: Begin<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
    /// Along `k`.
    blocks: Vec<Range<usize>>,
    /// Maximum lanes of a block.
    depth: usize,
    /// Block after block.
    shared: Panels,
    /// The right operand, if already packed, and the index of its first block.
    packed: Option<(&'a PackedRight, usize)>,
}

impl Slab<'_> {
    /// # Safety
    /// As [`Product::run`], for this part; nothing else uses the panels meanwhile. Likewise below.
    unsafe fn run<K: Kernel>(&self, parallel: bool) {
        let (shared, own) = if self.shares_left { (Left, Right) } else { (Right, Left) };
        let (n_shared, n_own) = (self.n_panels::<K>(shared), self.n_panels::<K>(own));
        let [some_shared, some_own] = [shared, own].map(|side| K::TASK[side as usize]);
        let panel = self.depth * own.width::<K>();
        // SAFETY: each panel is written by one task, and read by it or after all are written.
        unsafe {
            let to_pack = if self.ready::<K>(shared, 0).is_some() { 0 } else { n_shared * self.blocks.len() };
            in_parts(to_pack, [8, 3][shared as usize], parallel, |panels| {
                for i in panels {
                    let (block, i) = (i / n_shared, i % n_shared);
                    self.pack::<K>(shared, i, &self.blocks[block], self.shared.behind(block * n_shared));
                }
            });
            in_parts(n_own, share(n_own, some_own, parallel), parallel, |mine| {
                K::set_up(|| {
                    let mut memory = Memory::new(mine.len(), panel);
                    let packed = memory.panels(mine.start, panel);
                    for block in 0..self.blocks.len() {
                        let ready = self.ready::<K>(own, block);
                        if ready.is_none() {
                            mine.clone().for_each(|i| self.pack::<K>(own, i, &self.blocks[block], packed));
                        }
                        let mine = (mine.clone(), ready.unwrap_or(packed));
                        in_parts(n_shared, some_shared, false, |all| {
                            let ready = self.ready::<K>(shared, block);
                            let all = (all, ready.unwrap_or(self.shared.behind(block * n_shared)));
                            match shared {
                                Left => self.multiply::<K>(block, all, mine.clone()),
                                Right => self.multiply::<K>(block, mine.clone(), all),
                            }
                        });
                    }
                });
            });
        }
    }

    /// A block's panels of an already packed operand.
    ///
    /// # Safety
    /// There is such a block.
    unsafe fn ready<K: Kernel>(&self, side: Side, block: usize) -> Option<Panels> {
        match (side, self.packed) {
            // SAFETY: the caller's promise.
            (Right, Some((packed, first))) => unsafe {
                Some(packed.from(first + block, self.columns.start / K::COLUMNS))
            },
            _ => None,
        }
    }

    fn n_panels<K: Kernel>(&self, side: Side) -> usize {
        self.lines(side).len().div_ceil(side.width::<K>())
    }

    /// The rows of the left operand, or the columns of the right one.
    fn lines(&self, side: Side) -> &Range<usize> {
        match side {
            Left => &self.rows,
            Right => &self.columns,
        }
    }

    unsafe fn pack<K: Kernel>(&self, side: Side, i: usize, k: &Range<usize>, to: Panels) {
        let (all, width) = (self.lines(side), side.width::<K>());
        let start = all.start + i * width;
        let n = width.min(all.end - start);
        // SAFETY: the caller's promise.
        unsafe {
            match side {
                Left => K::pack_left(lines(self.a, start, k.start, n, k.len()), to.at(i)),
                Right => K::pack_right(lines(self.b.transposed(), start, k.start, n, k.len()), to.at(i)),
            }
        }
    }

    /// The tiles of these panels, of one block.
    unsafe fn multiply<K: Kernel>(
        &self,
        block: usize,
        (left, a): (Range<usize>, Panels),
        (right, b): (Range<usize>, Panels),
    ) {
        let len = self.blocks[block].len().div_ceil(K::DEPTH);
        let tile = |i: usize, j: usize| {
            let (row, column) = (self.rows.start + i * K::ROWS, self.columns.start + j * K::COLUMNS);
            let (height, width) =
                (K::ROWS.min(self.rows.end - row), K::COLUMNS.min(self.columns.end - column));
            let onto = match self.begin {
                _ if block > 0 => Onto::Target,
                Begin::Zero => Onto::Zero,
                Begin::Target => Onto::Target,
                Begin::Row(bias) => Onto::Row(bias[column..].as_ptr()),
            };
            // SAFETY: the caller's promise.
            unsafe {
                let start = self.target.at(row, column);
                K::multiply(
                    len,
                    a.at(i),
                    b.at(j),
                    Place { start, row: self.target.row, height, width },
                    onto,
                );
            }
        };
        match K::ROW_BY_ROW {
            true => left.for_each(|i| right.clone().for_each(|j| tile(i, j))),
            false => right.for_each(|j| left.clone().for_each(|i| tile(i, j))),
        }
    }
}

/// Processes `0..n` in parts of this size, in parallel or sequentially.
fn in_parts(n: usize, part: usize, parallel: bool, work: impl Fn(Range<usize>) + Sync + Send) {
    for_each(n.div_ceil(part), parallel, |i| work(i * part..n.min((i + 1) * part)));
}

/// Panels per task: fewer than `most` if there would be too few tasks.
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
