//! The interface between blocked products and their kernels.

/// Packs panels and multiplies two of them: a panel is [`Self::ROWS`] rows of the left operand, or
/// [`Self::COLUMNS`] columns of the right one, interleaved, in 32-bit lanes along `k`.
///
/// # Safety
/// The machine has the kernel's instructions; panels have that width, and reads and writes are in bounds.
pub(super) trait Kernel: Send + Sync + 'static {
    const ROWS: usize;
    const COLUMNS: usize;
    /// Elements along `k` in a lane.
    const DEPTH: usize;
    /// Maximum panels of rows and of columns per task: they fit in the L2 cache.
    const TASK: [usize; 2];
    /// A panel's length is a multiple of this many lanes: packing adds zeros.
    const STEP: usize = 1;
    /// Maximum lanes along `k` in a block: a task's panels fit in the L2 cache.
    const LANES: usize = 384;

    /// Whether a task goes through its tiles row by row of the target, otherwise column by column.
    const ROW_BY_ROW: bool = false;

    /// Runs a task on one thread with the machine set up for [`Self::multiply`].
    unsafe fn set_up(work: impl FnOnce()) {
        work();
    }

    /// Writes one lane per line of the panel for each step; missing lines and elements are zeros, up to
    /// the next multiple of [`Self::STEP`].
    unsafe fn pack_left(from: Lines, to: *mut u32);

    /// As [`Self::pack_left`].
    unsafe fn pack_right(from: Lines, to: *mut u32);

    /// `place = onto + a·b`, for panels `len` lanes long.
    unsafe fn multiply(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto);
}

/// Rows (of the left operand) or columns (of the right one).
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    pub start: *const f32,
    /// Stride between lines.
    pub line: isize,
    /// Stride between elements along `k`.
    pub step: isize,
    /// Number of lines, at most a panel's width.
    pub n: usize,
    /// Elements along `k`.
    pub len: usize,
}

/// The addend of a tile's sums.
#[derive(Clone, Copy)]
pub(crate) enum Onto {
    Zero,
    Target,
    /// One row of the tile's columns, for all rows.
    Row(*const f32),
}

/// Part of a row-major matrix.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub start: *mut f32,
    pub row: isize,
    /// Rows, a panel's at most.
    pub height: usize,
    /// Columns, a panel's at most.
    pub width: usize,
}
