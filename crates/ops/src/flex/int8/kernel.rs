//! Ways to multiply panels of 8-bit integers: with AVX512-VNNI, with AVX2, and on any machine.

use super::super::gemm::{self, TASK};
use super::DEPTH;

#[cfg(target_arch = "x86_64")]
use super::super::gemm::{
    avx2, avx512,
    kernel::{Lines, Onto, Place},
};

/// Lanes in a panel of one step along `k`, at most.
pub(super) const ROWS: usize = gemm::ROWS;
pub(super) const COLUMNS: usize = gemm::COLUMNS;

/// The integer sums of a tile: its rows are as long as the kernel's panels are wide.
pub(super) type Sums = [i32; ROWS * COLUMNS];

/// Panels are of `[lanes, rows]` and `[lanes, columns]`; a lane holds four steps along `k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Plain,
}

impl Kernel {
    /// Those that the machine has, the best one first.
    pub fn available() -> impl Iterator<Item = Self> {
        let all = [
            #[cfg(target_arch = "x86_64")]
            (Self::Vnni, avx512::has_vnni()),
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, avx2::has_avx2()),
            (Self::Plain, true),
        ];
        all.into_iter().filter(|(_, has)| *has).map(|(kernel, _)| kernel)
    }

    pub fn best() -> Self {
        Self::available().next().expect("the plain one always is")
    }

    /// Rows and columns of a tile.
    pub fn tile(self) -> [usize; 2] {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => [avx2::ROWS, avx2::COLUMNS],
            _ => [ROWS, COLUMNS],
        }
    }

    /// Panels of rows and of columns to a task, at most: of the same size whichever the kernel.
    pub fn task(self) -> [usize; 2] {
        let [rows, columns] = self.tile();
        [TASK[0] * ROWS / rows, TASK[1] * COLUMNS / columns]
    }

    /// What a weight's magnitude may be: AVX2 adds two products in 16 bits.
    pub fn greatest_weight(self) -> i8 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::Int8::GREATEST,
            _ => i8::MAX,
        }
    }

    /// Puts a tile's rows of steps into a panel.
    pub fn pack(self, rows: &[u8], panel: &mut [u32]) {
        assert_eq!(rows.len(), panel.len() * DEPTH);
        let [height, _] = self.tile();
        let lanes = panel.len() / height;
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => {
                let start = rows.as_ptr().cast();
                let lines = Lines { start, line: lanes as isize, step: 1, n: ROWS, len: lanes };
                // SAFETY: the machine was found to have AVX-512 and VNNI; rows and panel have as many lanes,
                // which are read without regard to alignment.
                unsafe { <avx512::Int8 as avx512::Format>::pack::<ROWS>(lines, panel.as_mut_ptr()) }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => pack::<{ avx2::ROWS }>(rows, panel),
            Self::Plain => pack::<ROWS>(rows, panel),
        }
    }

    /// The sums of the first `height` rows and `width` columns, at least: steps times signed numbers.
    pub fn multiply(self, a: &[u32], b: &[u32], height: usize, width: usize, sums: &mut Sums) {
        let [rows, columns] = self.tile();
        assert_eq!(a.len() / rows, b.len() / columns, "as many lanes");
        assert!((1..=rows).contains(&height) && (1..=columns).contains(&width), "within a tile");
        #[cfg(target_arch = "x86_64")]
        let (lanes, place) = {
            let start = sums.as_mut_ptr().cast();
            (a.len() / rows, Place { start, row: columns as isize, height, width })
        };
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the machine was found to have VNNI; the panels are of the same length, and the sums are
            // as large as a tile.
            Self::Vnni => unsafe {
                <avx512::Int8 as avx512::Format>::multiply(lanes, a.as_ptr(), b.as_ptr(), place, Onto::Zero);
            },
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                #[target_feature(enable = "avx2,fma")]
                unsafe fn compiled(lanes: usize, a: *const u32, b: *const u32, place: Place) {
                    // SAFETY: the caller's promise.
                    unsafe { avx2::multiply::<avx2::Int8>(lanes, a, b, place, Onto::Zero) }
                }
                // SAFETY: the machine was found to have AVX2; as above.
                unsafe { compiled(lanes, a.as_ptr(), b.as_ptr(), place) }
            }
            Self::Plain => multiply_plain(a.as_chunks().0, b.as_chunks().0, height, sums),
        }
    }
}

fn pack<const R: usize>(rows: &[u8], panel: &mut [u32]) {
    let panel = panel.as_chunks_mut::<R>().0;
    for (r, row) in rows.chunks_exact(panel.len() * DEPTH).enumerate() {
        for (step, lane) in panel.iter_mut().zip(row.as_chunks::<DEPTH>().0) {
            step[r] = u32::from_le_bytes(*lane);
        }
    }
}

fn multiply_plain(a: &[[u32; ROWS]], b: &[[u32; COLUMNS]], height: usize, sums: &mut Sums) {
    for (r, sums) in sums.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate().take(height) {
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

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, signed};
    use super::*;
    use proptest::prelude::*;

    /// Rows of steps and columns of weights, `lanes` lanes long, and the sums that the kernel finds.
    fn multiply(kernel: Kernel, a: &[u8], b: &[i8], lanes: usize, height: usize, width: usize) -> Sums {
        let [rows, columns] = kernel.tile();
        let (mut left, mut right) = (vec![0; lanes * rows], vec![0; lanes * columns]);
        kernel.pack(a, &mut left);
        for (c, column) in b.chunks_exact(lanes * DEPTH).enumerate() {
            for (lane, b) in column.as_chunks::<DEPTH>().0.iter().enumerate() {
                right[lane * columns + c] = u32::from_le_bytes(b.map(i8::cast_unsigned));
            }
        }
        let mut sums = [0; ROWS * COLUMNS];
        kernel.multiply(&left, &right, height, width, &mut sums);
        sums
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn kernels_compute_exact_sums(
            lanes in 1..70usize, height in 1..=ROWS, width in 1..=COLUMNS, seed in any::<u32>(),
        ) {
            for kernel in Kernel::available() {
                let [rows, columns] = kernel.tile();
                let (height, width) = (height.min(rows), width.min(columns));
                let a = bytes(lanes * rows * DEPTH, seed);
                let b = signed(lanes * columns * DEPTH, kernel.greatest_weight(), seed ^ 1);
                let sums = multiply(kernel, &a, &b, lanes, height, width);
                for (r, row) in a.chunks_exact(lanes * DEPTH).enumerate().take(height) {
                    for (c, column) in b.chunks_exact(lanes * DEPTH).enumerate().take(width) {
                        let products = row.iter().zip(column).map(|(a, b)| i32::from(*a) * i32::from(*b));
                        let expected: i32 = products.sum();
                        prop_assert_eq!(sums[r * columns + c], expected, "{:?} at {}, {}", kernel, r, c);
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_sums_do_not_overflow() {
        let lanes = 65_536 / DEPTH;
        for kernel in Kernel::available() {
            let ([rows, columns], greatest) = (kernel.tile(), kernel.greatest_weight());
            for weight in [-greatest, greatest] {
                let a = vec![u8::MAX; rows * lanes * DEPTH];
                let sums = multiply(kernel, &a, &vec![weight; columns * lanes * DEPTH], lanes, 2, 2);
                let expected = 255 * i32::from(weight) * 65_536;
                assert_eq!(sums[columns + 1], expected, "{kernel:?}");
            }
        }
    }
}
