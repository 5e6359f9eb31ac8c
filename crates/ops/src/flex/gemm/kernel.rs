//! What a product's blocks ask of the instructions they are multiplied with.

/// Packs panels and multiplies two of them: a panel is [`Self::ROWS`] rows of the left operand, or
/// [`Self::COLUMNS`] columns of the right one, side by side, in 32-bit lanes along `k`.
///
/// # Safety
/// The machine has the kernel's instructions; panels have that width, and what is read and written is there.
pub(super) trait Kernel: Send + Sync + 'static {
    const ROWS: usize;
    const COLUMNS: usize;
    /// Elements along `k` in a lane.
    const DEPTH: usize;
    /// Panels of rows and of columns to a task, at most: they stay in the second-level cache.
    const TASK: [usize; 2];
    /// Lanes that a panel's length is a multiple of: packing adds zeros.
    const STEP: usize = 1;
    /// Lanes along `k` in a block, at most: a task's panels stay in the second-level cache.
    const LANES: usize = 384;

    /// Whether a task goes through its tiles row by row of the target, otherwise column by column.
    const ROW_BY_ROW: bool = false;

    /// Does a task's work, all of it on one thread, with the machine set up for [`Self::multiply`].
    unsafe fn set_up(work: impl FnOnce()) {
        work();
    }

    /// Writes as many lanes for each step as the panel is wide; those of missing lines and elements are
    /// zeros, also up to the next multiple of [`Self::STEP`].
    unsafe fn pack_left(from: Lines, to: *mut u32);

    /// As [`Self::pack_left`].
    unsafe fn pack_right(from: Lines, to: *mut u32);

    /// `place = onto + a·b`, of panels that are `len` lanes long.
    unsafe fn multiply(len: usize, a: *const u32, b: *const u32, place: Place, onto: Onto);
}

/// Rows (of the left operand) or columns (of the right one).
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    pub start: *const f32,
    /// From one line to the next.
    pub line: isize,
    /// From one element along `k` to the next.
    pub step: isize,
    /// Lines, a panel's width at most.
    pub n: usize,
    /// Elements along `k`.
    pub len: usize,
}

/// What a tile's sums are added to.
#[derive(Clone, Copy)]
pub(crate) enum Onto {
    Zero,
    Target,
    /// A row for all rows, of the tile's columns.
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
