//! Kernels for panels of 8-bit integers: AMX, AVX512-VNNI, two with AVX2, and a portable one.

use super::super::gemm::{self, Line, TASK};
use super::super::vector::vectorised;
use super::{BLOCK_LANES, DEPTH};
use std::sync::LazyLock;

#[cfg(target_arch = "x86_64")]
use super::super::gemm::{
    amx::{
        self,
        machine::Tiles,
        tiles::{BLOCK, Left, STEP, UnsignedSigned},
    },
    avx2, avx512,
    kernel::{Lines, Onto, Place},
};

/// Rows and columns of the plain kernel's tiles, and of those with VNNI.
pub(super) const ROWS: usize = gemm::ROWS;
pub(super) const COLUMNS: usize = gemm::COLUMNS;

/// Maximum integer sums of a tile, whose rows are as long as the kernel's panels are wide.
pub(super) const MOST_SUMS: usize = 32 * 32;
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Sums(pub [i32; MOST_SUMS]);

impl Sums {
    pub fn new() -> Self {
        Self([0; MOST_SUMS])
    }
}

/// A tile's sums over blocks with scales, laid out as [`Sums`].
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct ScaledSums(pub [f32; MOST_SUMS]);

impl ScaledSums {
    pub fn new() -> Self {
        Self([0.0; MOST_SUMS])
    }
}

vectorised! {
    /// Adds a block's sums times its scales, one for each of the tile's columns.
    fn accumulate(sums: &[i32], scales: &[f32], to: &mut [f32]) {
        let n = scales.len();
        for (sums, to) in sums.chunks_exact(n).zip(to.chunks_exact_mut(n)) {
            for i in 0..n {
                to[i] = (sums[i] as f32).mul_add(scales[i], to[i]);
            }
        }
    }
}

/// Panels are of `[lanes, rows]` and `[lanes, columns]`; a lane holds four steps along `k`. With AMX the left ones are of
/// `[rows, lanes]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Amx,
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// For small weights.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// For all weights.
    #[cfg(target_arch = "x86_64")]
    WideAvx2,
    Plain,
}

impl Kernel {
    /// The kernels the machine supports, best first.
    pub fn available() -> impl Iterator<Item = Self> {
        let all = [
            #[cfg(target_arch = "x86_64")]
            (Self::Amx, amx::has_amx()),
            #[cfg(target_arch = "x86_64")]
            (Self::Vnni, avx512::has_vnni()),
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, avx2::has_avx2()),
            #[cfg(target_arch = "x86_64")]
            (Self::WideAvx2, avx2::has_avx2()),
            (Self::Plain, true),
        ];
        all.into_iter().filter(|(_, has)| *has).map(|(kernel, _)| kernel)
    }

    /// The best kernel with correct sums.
    pub fn best() -> Self {
        let right = Self::available().find(|kernel| !Self::refused().contains(kernel));
        right.unwrap_or(Self::Plain)
    }

    /// The best kernel with correct sums for weights of this magnitude.
    pub fn best_for(greatest: u8) -> Self {
        let fits = |kernel: &Self| {
            kernel.greatest_weight().unsigned_abs() >= greatest.min(127) && !Self::refused().contains(kernel)
        };
        Self::available().find(fits).unwrap_or(Self::Plain)
    }

    /// The best kernel for so few rows of [blocks](Self::multiply_blocks), which reads the same panels of columns.
    pub fn for_rows(self, n: usize) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            /// A tile of 16 rows takes as long as these in vectors.
            const FEW: usize = 6;
            const { assert!(COLUMNS == BLOCK) };
            let has_vnni = || avx512::has_vnni() && !Self::refused().contains(&Self::Vnni);
            if self == Self::Amx && n <= FEW && has_vnni() {
                return Self::Vnni;
            }
        }
        self
    }

    /// Supported kernels with wrong sums: hopefully none.
    pub fn refused() -> &'static [Self] {
        static REFUSED: LazyLock<Vec<Kernel>> = LazyLock::new(|| {
            let others = Kernel::available().filter(|kernel| *kernel != Kernel::Plain);
            others.filter(|kernel| !kernel.is_right()).collect()
        });
        &REFUSED
    }

    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => "AMX",
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => "AVX512-VNNI",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::WideAvx2 => "AVX2",
            Self::Plain => "plain",
        }
    }

    /// Whether the sums of two small panels are correct.
    fn is_right(self) -> bool {
        let ([rows, columns], lanes) = (self.tile(), 5usize.next_multiple_of(self.step()));
        let a: Vec<u8> = (0..rows * lanes * DEPTH).map(|i| (i * 89 % 256) as u8).collect();
        let greatest = i32::from(self.greatest_weight());
        let b = |lane: usize, column: usize| -> [i8; DEPTH] {
            let whole = ((lane * columns + column) * DEPTH) as i32;
            std::array::from_fn(|d| ((whole + d as i32) * 57 % (2 * greatest + 1) - greatest) as i8)
        };
        let (mut left, mut right) = (Line::zeros(rows * lanes), Line::zeros(columns * lanes));
        self.pack(&a, &mut Line::lanes_mut(&mut left)[..rows * lanes]);
        for (i, right) in Line::lanes_mut(&mut right).iter_mut().take(columns * lanes).enumerate() {
            *right = u32::from_le_bytes(b(i / columns, i % columns).map(i8::cast_unsigned));
        }
        let mut sums = Sums::new();
        let (left, right) = (&Line::lanes(&left)[..rows * lanes], &Line::lanes(&right)[..columns * lanes]);
        self.set_up(false, || self.multiply(left, right, rows, columns, &mut sums));
        (0..rows * columns).all(|place| {
            let (row, column) = (place / columns, place % columns);
            let steps = a[row * lanes * DEPTH..][..lanes * DEPTH].iter();
            let weights = (0..lanes).flat_map(|lane| b(lane, column));
            sums.0[place] == steps.zip(weights).map(|(a, b)| i32::from(*a) * i32::from(b)).sum::<i32>()
        })
    }

    /// A panel's length is a multiple of this many lanes, unless it is of blocks.
    pub fn step(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => STEP,
            _ => 1,
        }
    }

    /// Rows and columns of a tile.
    pub fn tile(self) -> [usize; 2] {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => [BLOCK, BLOCK],
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::WideAvx2 => [avx2::ROWS, avx2::COLUMNS],
            _ => [ROWS, COLUMNS],
        }
    }

    /// Maximum panels of rows and of columns per task: the same total size for every kernel.
    pub fn task(self) -> [usize; 2] {
        let [rows, columns] = self.tile();
        [TASK[0] * ROWS / rows, TASK[1] * COLUMNS / columns]
    }

    /// Runs a task on one thread with the machine set up for [`Self::multiply`], or for [blocks](Self::multiply_blocks).
    pub fn set_up(self, in_blocks: bool, work: impl FnOnce()) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine was found to have tiles.
        let _tiles = (self == Self::Amx).then(|| unsafe {
            match in_blocks {
                true => Tiles::for_blocks(),
                false => Tiles::configured(),
            }
        });
        work();
    }

    /// The maximum magnitude of a weight: the faster kernel with AVX2 adds two products in 16 bits. The others take −128
    /// too.
    pub fn greatest_weight(self) -> i8 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::Int8::GREATEST,
            _ => i8::MAX,
        }
    }

    /// Packs a tile's rows of steps into a panel.
    pub fn pack(self, rows: &[u8], panel: &mut [u32]) {
        assert_eq!(rows.len(), panel.len() * DEPTH);
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => {
                for (lane, bytes) in panel.iter_mut().zip(rows.as_chunks::<DEPTH>().0) {
                    *lane = u32::from_le_bytes(*bytes);
                }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => {
                let (start, lanes) = (rows.as_ptr().cast(), panel.len() / ROWS);
                let lines = Lines { start, line: lanes as isize, step: 1, n: ROWS, len: lanes };
                // SAFETY: the machine was found to have AVX-512 and VNNI; rows and panel have as many lanes,
                // which are read without regard to alignment.
                unsafe { <avx512::Int8 as avx512::Format>::pack::<ROWS>(lines, panel.as_mut_ptr()) }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::WideAvx2 => pack::<{ avx2::ROWS }>(rows, panel),
            Self::Plain => pack::<ROWS>(rows, panel),
        }
    }

    /// The sums of the first `height` rows and `width` columns, at least: steps times signed numbers. Call
    /// within [`Self::set_up`].
    pub fn multiply(self, a: &[u32], b: &[u32], height: usize, width: usize, sums: &mut Sums) {
        let [rows, columns] = self.tile();
        assert_eq!(a.len() / rows, b.len() / columns, "as many lanes");
        assert!((1..=rows).contains(&height) && (1..=columns).contains(&width), "within a tile");
        #[cfg(target_arch = "x86_64")]
        let (lanes, place) = {
            let start = sums.0.as_mut_ptr().cast();
            (a.len() / rows, Place { start, row: columns as isize, height, width })
        };
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the machine was found to have tiles, which the caller has set up; both panels are whole, and the
            // sums as large as a block of tiles.
            Self::Amx => unsafe {
                let rows = Left::rows(a.as_ptr().cast(), 4 * lanes as isize);
                amx::multiply::<UnsignedSigned>(lanes / STEP, rows, b.as_ptr(), place, Onto::Zero);
            },
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
            #[cfg(target_arch = "x86_64")]
            Self::WideAvx2 => {
                #[target_feature(enable = "avx2,fma")]
                unsafe fn compiled(lanes: usize, a: *const u32, b: *const u32, place: Place) {
                    // SAFETY: the caller's promise.
                    unsafe { avx2::multiply::<avx2::WideInt8>(lanes, a, b, place, Onto::Zero) }
                }
                // SAFETY: the machine was found to have AVX2; as above.
                unsafe { compiled(lanes, a.as_ptr(), b.as_ptr(), place) }
            }
            Self::Plain => multiply_plain(a.as_chunks().0, b.as_chunks().0, height, sums),
        }
    }
}

impl Kernel {
    /// Whether [`multiply_blocks`](Self::multiply_blocks) takes panels of 4 bits as they are stored, two lanes in one.
    pub fn reads_halves(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni | Self::Avx2 => true,
            _ => false,
        }
    }

    /// [`multiply`](Self::multiply) in blocks of [`BLOCK_LANES`] lanes, with a scale for each block and column: adds their
    /// sums times their scales to `to`, in the order of the blocks. `greatest` is the greatest magnitude in `b`, which may be
    /// halved if the kernel [reads halves](Self::reads_halves). Call within [`Self::set_up`] for blocks.
    pub fn multiply_blocks(
        self,
        (a, b, scales): (&[u32], &[u32], &[f32]),
        greatest: u8,
        [height, width]: [usize; 2],
        to: &mut ScaledSums,
    ) {
        let [rows, columns] = self.tile();
        let n_blocks = scales.len() / columns;
        assert_eq!(a.len(), n_blocks * BLOCK_LANES * rows, "as many blocks");
        let halved = self.reads_halves() && 2 * b.len() == n_blocks * BLOCK_LANES * columns;
        assert!(halved || b.len() == n_blocks * BLOCK_LANES * columns, "as many blocks");
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma")]
            unsafe fn compiled<B: avx2::Blocks, const HALVED: bool>(
                n_blocks: usize,
                (a, b, scales): (*const u32, *const u32, *const f32),
                tile: [usize; 2],
                to: *mut f32,
            ) {
                // SAFETY: the caller's promise.
                unsafe { avx2::multiply_blocks::<B, HALVED>(n_blocks, a, b, scales, tile, to) }
            }
            const { assert!(avx2::BLOCK == BLOCK_LANES && avx512::BLOCK == BLOCK_LANES) };
            let (tile, to) = ([height, width], to.0.as_mut_ptr());
            let panels @ (a, b, scales) = (a.as_ptr(), b.as_ptr(), scales.as_ptr());
            // SAFETY: the machine was found to have the instructions; panels and scales are of as many blocks, and the sums as
            // large as a tile.
            unsafe {
                match self {
                    Self::Amx => return amx::multiply_blocks(n_blocks, a, b, scales, tile, to),
                    Self::Vnni if halved => {
                        return avx512::multiply_blocks::<true>(n_blocks, a, b, scales, tile, to);
                    }
                    Self::Vnni => return avx512::multiply_blocks::<false>(n_blocks, a, b, scales, tile, to),
                    Self::Avx2 if halved => {
                        return compiled::<avx2::SmallBlocks, true>(n_blocks, panels, tile, to);
                    }
                    Self::Avx2 if greatest <= 8 => {
                        return compiled::<avx2::SmallBlocks, false>(n_blocks, panels, tile, to);
                    }
                    Self::WideAvx2 => return compiled::<avx2::WideInt8, false>(n_blocks, panels, tile, to),
                    _ => {}
                }
            }
        }
        let mut sums = Sums::new();
        let blocks = a.chunks_exact(BLOCK_LANES * rows).zip(b.chunks_exact(BLOCK_LANES * columns));
        for ((a, b), scales) in blocks.zip(scales.chunks_exact(columns)) {
            self.multiply(a, b, height, width, &mut sums);
            accumulate(&sums.0[..height * columns], scales, &mut to.0);
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
    for (r, sums) in sums.0.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate().take(height) {
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
        let whole = lanes.next_multiple_of(kernel.step());
        let (mut left, mut right) = (Line::zeros(whole * rows), Line::zeros(whole * columns));
        let mut padded = vec![0; whole * rows * DEPTH];
        for (padded, a) in padded.chunks_exact_mut(whole * DEPTH).zip(a.chunks_exact(lanes * DEPTH)) {
            padded[..a.len()].copy_from_slice(a);
        }
        kernel.pack(&padded, &mut Line::lanes_mut(&mut left)[..whole * rows]);
        for (c, column) in b.chunks_exact(lanes * DEPTH).enumerate() {
            for (lane, b) in column.as_chunks::<DEPTH>().0.iter().enumerate() {
                Line::lanes_mut(&mut right)[lane * columns + c] =
                    u32::from_le_bytes(b.map(i8::cast_unsigned));
            }
        }
        let mut sums = Sums::new();
        let (left, right) = (&Line::lanes(&left)[..whole * rows], &Line::lanes(&right)[..whole * columns]);
        kernel.set_up(false, || kernel.multiply(left, right, height, width, &mut sums));
        sums
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn kernels_compute_exact_sums(
            lanes in 1..70usize, height in 1..=32usize, width in 1..=32usize, seed in any::<u32>(),
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
                        prop_assert_eq!(sums.0[r * columns + c], expected, "{:?} at {}, {}", kernel, r, c);
                    }
                }
            }
        }
    }

    #[test]
    fn every_kernel_of_the_machine_is_right() {
        assert_eq!(Kernel::refused(), []);
        assert_eq!(Some(Kernel::best()), Kernel::available().next());
        for kernel in Kernel::available() {
            let greatest = kernel.greatest_weight().unsigned_abs();
            assert!(Kernel::best_for(greatest).greatest_weight().unsigned_abs() >= greatest);
        }
        // −128, which a file may hold.
        assert_eq!(Kernel::best_for(128).greatest_weight(), 127);
    }

    #[test]
    fn blocks_have_the_same_bits_with_every_kernel() {
        let scale = |block: usize, column: usize| ((block * 7 + column) as f32).sin() * 0.01;
        let tiles = [[1, 1], [5, 13], [6, 16], [7, 17], [12, 32], [29, 31], [32, 32]];
        for (kernel, n_blocks) in Kernel::available().flat_map(|kernel| [1, 2, 3, 4, 9].map(|n| (kernel, n)))
        {
            let ([rows, columns], lanes) = (kernel.tile(), n_blocks * BLOCK_LANES);
            for (greatest, halved) in [(8, false), (8, true), (127, false)] {
                if kernel.greatest_weight() < greatest || halved && !kernel.reads_halves() {
                    continue;
                }
                let a = bytes(lanes * rows * DEPTH, 3);
                // Of 4 bits are -8 to 7.
                let b: Vec<i8> = signed(lanes * columns * DEPTH, greatest, 4)
                    .into_iter()
                    .map(|b| if greatest == 8 { b.min(7) } else { b })
                    .collect();
                let (mut left, mut right) = (Line::zeros(lanes * rows), Line::zeros(lanes * columns));
                kernel.pack(&a, &mut Line::lanes_mut(&mut left)[..lanes * rows]);
                for (c, column) in b.chunks_exact(lanes * DEPTH).enumerate() {
                    for (lane, b) in column.as_chunks::<DEPTH>().0.iter().enumerate() {
                        let right = Line::lanes_mut(&mut right);
                        match halved {
                            true => {
                                let bits = u32::from_le_bytes(b.map(|b| (b + 8).cast_unsigned()));
                                right[lane / 2 * columns + c] |= bits << (4 * (lane % 2));
                            }
                            false => right[lane * columns + c] = u32::from_le_bytes(b.map(i8::cast_unsigned)),
                        }
                    }
                }
                let scales: Vec<f32> =
                    (0..n_blocks * columns).map(|i| scale(i / columns, i % columns)).collect();
                let stored = if halved { lanes / 2 } else { lanes };
                let (left, right) =
                    (&Line::lanes(&left)[..lanes * rows], &Line::lanes(&right)[..stored * columns]);
                for [height, width] in tiles.map(|[height, width]| [height.min(rows), width.min(columns)]) {
                    let mut to = ScaledSums([0.5; MOST_SUMS]);
                    kernel.set_up(true, || {
                        let panels = (left, right, &*scales);
                        kernel.multiply_blocks(panels, greatest.unsigned_abs(), [height, width], &mut to);
                    });
                    for (row, column) in (0..height * width).map(|i| (i / width, i % width)) {
                        let expected = (0..n_blocks).fold(0.5, |sum: f32, block| {
                            let part = |of: usize| (of * lanes + block * BLOCK_LANES) * DEPTH;
                            let products = (0..BLOCK_LANES * DEPTH)
                                .map(|k| i32::from(a[part(row) + k]) * i32::from(b[part(column) + k]));
                            (products.sum::<i32>() as f32).mul_add(scale(block, column), sum)
                        });
                        let found = to.0[row * columns + column];
                        assert_eq!(
                            found, expected,
                            "{kernel:?}, halved {halved}, {n_blocks} blocks, {row}, {column}"
                        );
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
                assert_eq!(sums.0[columns + 1], expected, "{kernel:?}");
            }
        }
    }
}
