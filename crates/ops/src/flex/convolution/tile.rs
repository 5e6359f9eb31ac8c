//! Tiles of sums of products: the innermost loops of convolutions.
//!
//! A tile's left operand is read where it lies, a number at a time; in a product of matrices it would first be packed into panels.
//! The places of an image overlap in their windows, so packing them would write each number nine times to read it nine times.

use std::array;

/// Numbers added at a time.
const LANES: usize = 16;

/// What a tile is a product of: `Σ a[run + row · a_row + step · a_step] · b[run + step · b_step + column]` over runs of steps.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub a: *const f32,
    pub a_row: usize,
    pub a_step: usize,
    pub b: *const f32,
    pub b_step: usize,
    /// Where each run begins in `a` and in `b`.
    pub runs: &'a [[usize; 2]],
    /// Steps of a run.
    pub len: usize,
}

/// Where a tile goes.
#[derive(Clone, Copy)]
pub(super) struct Onto {
    pub start: *mut f32,
    /// From a row to the next.
    pub row: usize,
    /// Rows and columns that are written: at most the tile's.
    pub height: usize,
    pub width: usize,
    /// Whether the sums are added to what is there.
    pub adds: bool,
}

/// The code for tiles of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub rows: usize,
    pub columns: usize,
    run: unsafe fn(Operands, Onto),
}

impl Tile {
    /// This machine's fastest tile for a result with so many columns.
    pub fn of_columns(n: usize) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx512f") {
                return match n > LANES {
                    true => Self { rows: 8, columns: 2 * LANES, run: avx512::two },
                    false => Self { rows: 16, columns: LANES, run: avx512::one },
                };
            }
            if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
                return Self { rows: 4, columns: LANES, run: avx2 };
            }
        }
        let _ = n;
        Self::anywhere()
    }

    /// The tile that needs no instructions beyond the target's.
    fn anywhere() -> Self {
        Self { rows: 4, columns: LANES, run: anywhere }
    }

    /// Computes a tile.
    ///
    /// # Safety
    /// `a` may be read for all rows and `b` for all columns of the tile, also for those that are not written; `onto` lies within memory that
    /// nothing else uses meanwhile, and is initialised if the sums are added.
    pub unsafe fn run(self, operands: Operands, onto: Onto) {
        // SAFETY: the caller's promise; `of_columns` has looked for the instructions.
        unsafe { (self.run)(operands, onto) }
    }
}

/// The loop for machines with few registers: sums of 4 rows fill eight of AVX2.
///
/// # Safety
/// As [`Tile::run`].
#[inline(always)]
unsafe fn by_arrays<const FUSED: bool>(operands: Operands, onto: Onto) {
    const ROWS: usize = 4;
    let Operands { a, a_row, a_step, b, b_step, runs, len } = operands;
    let mut sums = [[0f32; LANES]; ROWS];
    for [a_run, b_run] in runs {
        // SAFETY: the caller's promise, here and below.
        let (mut a, mut b) = unsafe { (a.add(*a_run), b.add(*b_run)) };
        for _ in 0..len {
            let (x, y): ([f32; ROWS], [f32; LANES]) =
                unsafe { (array::from_fn(|row| *a.add(row * a_row)), *b.cast()) };
            for (sums, x) in sums.iter_mut().zip(x) {
                for (sum, y) in sums.iter_mut().zip(y) {
                    *sum = if FUSED { x.mul_add(y, *sum) } else { x * y + *sum };
                }
            }
            // Past the end after the last step, where nothing is read.
            (a, b) = (a.wrapping_add(a_step), b.wrapping_add(b_step));
        }
    }
    // SAFETY: as above.
    unsafe { put(&sums, onto) }
}

/// # Safety
/// As [`Tile::run`].
#[inline(always)]
unsafe fn put<const W: usize>(sums: &[[f32; W]], onto: Onto) {
    for (row, sums) in sums.iter().take(onto.height).enumerate() {
        for (column, sum) in sums.iter().take(onto.width).enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let to = onto.start.add(row * onto.row + column);
                to.write(if onto.adds { *to + sum } else { *sum });
            }
        }
    }
}

unsafe fn anywhere(operands: Operands, onto: Onto) {
    // Without the instruction, x86 computes a fused addition in software.
    const FUSED: bool =
        cfg!(any(not(any(target_arch = "x86_64", target_arch = "x86")), target_feature = "fma"));
    // SAFETY: the caller's promise.
    unsafe { by_arrays::<FUSED>(operands, onto) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(operands: Operands, onto: Onto) {
    // SAFETY: the caller's promise.
    unsafe { by_arrays::<true>(operands, onto) }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{LANES, Onto, Operands, put};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    pub unsafe fn one(operands: Operands, onto: Onto) {
        // SAFETY: the caller's promise.
        unsafe { tile::<16, 1>(operands, onto) }
    }

    #[target_feature(enable = "avx512f")]
    pub unsafe fn two(operands: Operands, onto: Onto) {
        // SAFETY: the caller's promise.
        unsafe { tile::<8, 2>(operands, onto) }
    }

    /// `R` rows of `V` registers.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "the sums stay in registers so")]
    unsafe fn tile<const R: usize, const V: usize>(operands: Operands, onto: Onto) {
        let Operands { a, a_row, a_step, b, b_step, runs, len } = operands;
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); V]; R];
            for [a_run, b_run] in runs {
                let (mut a, mut b) = (a.add(*a_run), b.add(*b_run));
                for _ in 0..len {
                    let mut y = [_mm512_setzero_ps(); V];
                    for (v, y) in y.iter_mut().enumerate() {
                        *y = _mm512_loadu_ps(b.add(v * LANES));
                    }
                    for row in 0..R {
                        let x = _mm512_set1_ps(*a.add(row * a_row));
                        for v in 0..V {
                            sums[row][v] = _mm512_fmadd_ps(x, y[v], sums[row][v]);
                        }
                    }
                    // Past the end after the last step, where nothing is read.
                    (a, b) = (a.wrapping_add(a_step), b.wrapping_add(b_step));
                }
            }
            // Loops over numbers: iterators, which borrow the sums, would keep them in memory at three times the time.
            if onto.height == R && onto.width == V * LANES {
                for row in 0..R {
                    for v in 0..V {
                        let to = onto.start.add(row * onto.row + v * LANES);
                        let sum = match onto.adds {
                            true => _mm512_add_ps(_mm512_loadu_ps(to), sums[row][v]),
                            false => sums[row][v],
                        };
                        _mm512_storeu_ps(to, sum);
                    }
                }
                return;
            }
            for v in 0..V {
                let mut values = [[0f32; LANES]; R];
                for row in 0..R {
                    _mm512_storeu_ps(values[row].as_mut_ptr(), sums[row][v]);
                }
                let width = LANES.min(onto.width.saturating_sub(v * LANES));
                put(&values, Onto { start: onto.start.wrapping_add(v * LANES), width, ..onto });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles() -> Vec<Tile> {
        let mut tiles = vec![Tile::of_columns(1), Tile::of_columns(17), Tile::anywhere()];
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            tiles.push(Tile { rows: 4, columns: LANES, run: avx2 });
        }
        tiles
    }

    #[test]
    fn a_tile_is_a_sum_of_products_and_touches_nothing_else() {
        for tile in tiles() {
            for (height, width) in [(tile.rows, tile.columns), (1, 1), (tile.rows - 1, tile.columns - 3)] {
                for adds in [false, true] {
                    let (a_row, a_step, b_step, len) = (5, 2, 40, 7);
                    let number = |i: usize| ((i * 37 + 11) % 17) as f32 - 8.0;
                    let a: Vec<f32> = (0..200).map(number).collect();
                    let b: Vec<f32> = (0..500).map(|i| number(i + 3)).collect();
                    let runs = [[0, 0], [30, 41]];
                    let before: Vec<f32> = (0..50 * tile.rows).map(number).collect();
                    let mut found = before.clone();
                    let onto = Onto { start: found.as_mut_ptr(), row: 50, height, width, adds };
                    let operands =
                        Operands { a: a.as_ptr(), a_row, a_step, b: b.as_ptr(), b_step, runs: &runs, len };
                    // SAFETY: the furthest numbers are a[30 + 15 · 5 + 6 · 2] and b[41 + 6 · 40 + 31].
                    unsafe { tile.run(operands, onto) };
                    let mut expected = before;
                    for row in 0..height {
                        for column in 0..width {
                            let products = runs.iter().flat_map(|[a_run, b_run]| {
                                let (a, b) = (&a, &b);
                                (0..len).map(move |step| {
                                    a[a_run + row * a_row + step * a_step] * b[b_run + step * b_step + column]
                                })
                            });
                            let sum = products.sum::<f32>();
                            let to = &mut expected[row * 50 + column];
                            *to = if adds { *to + sum } else { sum };
                        }
                    }
                    // Whole numbers are exact in any order.
                    assert_eq!(found, expected, "{tile:?}, {height} × {width}, {adds}");
                }
            }
        }
    }
}
