//! Matrix products in FP32 and in bf16 with FP32 sums.
//!
//! In bf16 with AMX, AVX-512 or AVX2, and in FP32 where faster, we use our own, after Goto and van de Geijn
//! 2008 ("Anatomy of high-performance matrix multiplication"): blocks of both operands are packed into panels
//! that the innermost loop reads sequentially ([`blocked`]), while keeping a tile of the result in registers
//! ([`amx`], [`avx512`], [`avx2`]). Otherwise we use the crate `gemm`. [`choice`] selects the kernels for
//! this machine.
//!
//! Results do not depend on the number of threads: the code path depends only on sizes and layout, and every
//! element of our own products is a sum over `k` in an order that depends only on `k`.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
mod bf16;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no kernel of ours is there yet"))]
mod blocked;
mod choice;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "as above"))]
pub(super) mod kernel;

use crate::Precision;
use blocked::PackedRight;
pub(super) use choice::Choice;
use choice::Way;
use rayon::prelude::*;
use std::slice;

/// Products of fewer multiplications are not worth a second thread.
pub(super) const PARALLEL: usize = 1 << 20;

/// Products of fewer multiplications are not worth the packing.
const WORTHWHILE: usize = 1 << 12;

/// Rows and columns of a tile, and so of the panels of the two operands.
pub(super) const ROWS: usize = 12;
pub(super) const COLUMNS: usize = 32;
/// Maximum panels of rows and of columns per task: they fit in the L2 cache.
pub(super) const TASK: [usize; 2] = [16, 8];

/// A cache line, to which panels are aligned.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Line(#[allow(dead_code, reason = "reached by pointers")] [u32; 16]);

impl Line {
    /// Zeros for this many 32-bit lanes, rounded up to whole lines.
    pub fn zeros(lanes: usize) -> Vec<Self> {
        vec![Self([0; 16]); lanes.div_ceil(16)]
    }

    /// Their lanes, concatenated.
    pub fn lanes(lines: &[Self]) -> &[u32] {
        // SAFETY: a line is its sixteen lanes and nothing else.
        unsafe { slice::from_raw_parts(lines.as_ptr().cast(), 16 * lines.len()) }
    }

    /// As [`Self::lanes`].
    pub fn lanes_mut(lines: &mut [Self]) -> &mut [u32] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), 16 * lines.len()) }
    }
}

/// A matrix in memory: its start, and the strides of rows and columns in elements.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub start: *const f32,
    pub row: isize,
    pub column: isize,
}

// SAFETY: whoever makes a product vouches for the memory, which the product's threads only read.
unsafe impl Send for Matrix {}
// SAFETY: as above.
unsafe impl Sync for Matrix {}

impl Matrix {
    /// A row-major matrix.
    pub fn dense(values: &[f32], width: usize) -> Self {
        Self { start: values.as_ptr(), row: width as isize, column: 1 }
    }

    /// One that is not read.
    pub fn unread() -> Self {
        Self { start: std::ptr::null(), row: 0, column: 0 }
    }

    pub fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }
}

/// A product's destination, with strides as in [`Matrix`].
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub start: *mut f32,
    pub row: isize,
    pub column: isize,
}

// SAFETY: whoever makes a product vouches for the memory, of which tasks write disjoint parts.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// A row-major matrix.
    pub fn dense(start: *mut f32, width: usize) -> Self {
        Self { start, row: width as isize, column: 1 }
    }

    /// A pointer to an element.
    ///
    /// # Safety
    /// It lies within the memory.
    pub unsafe fn at(self, row: usize, column: usize) -> *mut f32 {
        // SAFETY: the caller's promise.
        unsafe { self.start.offset(row as isize * self.row + column as isize * self.column) }
    }
}

/// The addend of a product.
#[derive(Clone, Copy)]
pub(super) enum Begin<'a> {
    Zero,
    /// The target's contents.
    Target,
    /// The same row everywhere: a bias.
    Row(&'a [f32]),
}

/// `target = begin + a·b`, where `a` is `[m, k]` and `b` is `[k, n]`.
pub(super) struct Product<'a> {
    pub sizes: [usize; 3],
    pub target: Target,
    pub begin: Begin<'a>,
    pub a: Matrix,
    pub b: Matrix,
    pub precision: Precision,
    /// Whether other threads may help.
    pub parallel: bool,
}

impl Product<'_> {
    /// Computes it.
    ///
    /// # Safety
    /// The matrices lie within memory that the caller may read, the target within memory that nothing
    /// else uses meanwhile; with [`Begin::Target`] it is initialised.
    pub unsafe fn run(mut self) {
        let [m, k, n] = self.sizes;
        if let Begin::Row(row) = self.begin {
            assert_eq!(row.len(), n, "a bias for every column");
        }
        if m == 0 || n == 0 {
            return;
        }
        self.parallel &= m * k * n >= PARALLEL;
        let unit = self.target.row == 1 || self.target.column == 1;
        let way = Choice::here().way(self.precision);
        let suits = k > 0 && unit && m * k * n >= WORTHWHILE && self.suits(way);
        // SAFETY: the caller's promise, and the machine has the instructions of its choice.
        unsafe { if suits { way.run(self, None) } else { self.run_anywhere() } }
    }

    /// Whether a kernel of ours is faster than the crate `gemm`; always in bf16.
    fn suits(&self, way: Way) -> bool {
        match (way, self.precision) {
            #[cfg(target_arch = "x86_64")]
            (Way::Avx512, Precision::Fp32 | Precision::Fp16) => self.suits_avx512(),
            #[cfg(target_arch = "x86_64")]
            (Way::Avx2, Precision::Fp32 | Precision::Fp16) => self.suits_avx2(),
            _ => way != Way::Anywhere,
        }
    }

    /// Whether our kernel is faster for this layout of FP32 operands: the right one is transposed and long,
    /// or there are few rows to share the packing (measured; the crate `gemm` reaches only down to 30 % of
    /// peak here, and 90 % otherwise).
    #[cfg(target_arch = "x86_64")]
    fn suits_avx512(&self) -> bool {
        let [m, k, _] = self.sizes;
        self.b.column != 1 && m >= 8 && (k >= 1024 || m <= 64 && k >= 128)
    }

    /// The same with AVX2, where the crate `gemm` reaches 60 % of peak and our kernel 75 %, unless packing
    /// does not pay: a row-major right operand for few rows, or a left one for few columns.
    #[cfg(target_arch = "x86_64")]
    fn suits_avx2(&self) -> bool {
        let [m, k, n] = self.sizes;
        self.b.column != 1 || if n <= 64 { k < 64 } else { m >= 32 }
    }

    /// Portable version: operands of another precision are first rounded into copies.
    unsafe fn run_anywhere(self) {
        let [m, k, n] = self.sizes;
        // SAFETY: the caller's promise; the copies are as large as the matrices.
        unsafe {
            if let Begin::Row(row) = self.begin {
                for i in 0..m {
                    for (j, value) in row.iter().enumerate() {
                        self.target.at(i, j).write(*value);
                    }
                }
            }
            let keep = !matches!(self.begin, Begin::Zero);
            match self.precision {
                Precision::Fp32 | Precision::Fp16 => self.run_by_gemm(keep, self.a, self.b),
                Precision::Bf16 => {
                    let (a, b) = (bf16::rounded(self.a, [m, k]), bf16::rounded(self.b, [k, n]));
                    let (a, b) = (Matrix::dense(&a, k), Matrix::dense(&b, n));
                    let rounded = Self {
                        a,
                        b,
                        begin: if keep { Begin::Target } else { Begin::Zero },
                        precision: Precision::Fp32,
                        ..self
                    };
                    rounded.run();
                }
            }
        }
    }

    unsafe fn run_by_gemm(&self, keep: bool, a: Matrix, b: Matrix) {
        let ([m, k, n], target) = (self.sizes, self.target);
        let parallelism = match self.parallel {
            true => gemm::Parallelism::Rayon(0),
            false => gemm::Parallelism::None,
        };
        // SAFETY: the caller's promise.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                target.start,
                target.column,
                target.row,
                keep,
                a.start,
                a.column,
                a.row,
                b.start,
                b.column,
                b.row,
                1f32,
                1f32,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

/// The right operand of many products in the panels of this machine's kernel, in a precision.
#[derive(Debug)]
pub(crate) struct Packed {
    way: Way,
    precision: Precision,
    right: PackedRight,
}

impl Packed {
    /// Packs a matrix `[k, n]`; `None` if no kernel of ours is used here, or the matrix is empty.
    ///
    /// # Safety
    /// The matrix has this size.
    pub(in crate::flex) unsafe fn new(b: Matrix, sizes: [usize; 2], precision: Precision) -> Option<Self> {
        let way = Choice::here().way(precision);
        if sizes.contains(&0) {
            return None;
        }
        // SAFETY: the caller's promise, and the machine has the instructions of its choice.
        let right = unsafe { way.pack(precision, b, sizes) };
        right.map(|right| Self { way, precision, right })
    }

    /// The matrix `[k, n]` that was packed, row by row; `None` if it was rounded.
    pub(in crate::flex) fn unpacked(&self, sizes: [usize; 2]) -> Option<Vec<f32>> {
        self.right.unpacked(sizes)
    }

    /// Computes `target = begin + a·b` in this precision, where `b` is the matrix that was packed; `product.b` is not read.
    ///
    /// # Safety
    /// As [`Product::run`]; the target's rows are dense.
    pub(in crate::flex) unsafe fn run(&self, mut product: Product) {
        let [m, k, n] = product.sizes;
        if m == 0 {
            return;
        }
        product.precision = self.precision;
        product.parallel &= m * k * n >= PARALLEL;
        // SAFETY: the caller's promise; neither `k` nor `n` is zero.
        unsafe { self.way.run(product, Some(&self.right)) }
    }
}

/// Minimum number of tasks of a product, for even distribution.
pub(super) fn wanted_tasks(parallel: bool) -> usize {
    if parallel { 4 * rayon::current_num_threads() } else { 1 }
}

/// Runs tasks in parallel or sequentially.
pub(super) fn for_each(n: usize, parallel: bool, task: impl Fn(usize) + Sync + Send) {
    match parallel {
        true => (0..n).into_par_iter().for_each(task),
        false => (0..n).for_each(task),
    }
}

#[cfg(test)]
mod tests {
    use super::choice::draw;
    use super::*;
    use proptest::prelude::*;

    /// How a matrix lies in memory.
    #[derive(Debug, Clone, Copy)]
    enum Order {
        Rows,
        Columns,
        /// With gaps both ways.
        Gaps,
    }

    const ORDERS: [Order; 3] = [Order::Rows, Order::Columns, Order::Gaps];

    impl Order {
        fn strides(self, [height, width]: [usize; 2]) -> (isize, isize) {
            match self {
                Self::Rows => (width as isize + 3, 1),
                Self::Columns => (1, height as isize + 1),
                Self::Gaps => (2 * width as isize, 2),
            }
        }

        fn memory(self, [height, width]: [usize; 2], seed: u64) -> Vec<f32> {
            draw(2 * (height + 1) * (width + 3), seed)
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Start {
        Zero,
        Target,
        Row,
    }

    #[derive(Debug, Clone, Copy)]
    struct Case {
        sizes: [usize; 3],
        orders: [Order; 3],
        start: Start,
        precision: Precision,
        parallel: bool,
    }

    impl Case {
        /// Which code multiplies: none is the product's own choice.
        fn ways(self) -> Vec<Option<Way>> {
            let kernels = !matches!(self.orders[2], Order::Gaps) && !self.sizes.contains(&0);
            let ways = Way::candidates(self.precision).iter().copied();
            let possible = |way: &Way| way.is_there() && (kernels || *way == Way::Anywhere);
            [None].into_iter().chain(ways.filter(possible).map(Some)).collect()
        }
    }

    /// The target's memory after the product, and what should be there with its tolerance, element by
    /// element.
    fn run(case: Case, way: Option<Way>) -> (Vec<f32>, Vec<(usize, f64, f64)>) {
        let Case { sizes: [m, k, n], orders: [a_order, b_order, order], precision, parallel, .. } = case;
        let (a, b) = (a_order.memory([m, k], 1), b_order.memory([k, n], 2));
        let (bias, before) = (draw(n, 3), order.memory([m, n], 4));
        let mut after = before.clone();
        let matrix = |x: &[f32], order: Order, size| {
            let (row, column) = order.strides(size);
            Matrix { start: x.as_ptr(), row, column }
        };
        let (row, column) = order.strides([m, n]);
        let begin = match case.start {
            Start::Zero => Begin::Zero,
            Start::Target => Begin::Target,
            Start::Row => Begin::Row(&bias),
        };
        let product = Product {
            sizes: case.sizes,
            target: Target { start: after.as_mut_ptr(), row, column },
            begin,
            a: matrix(&a, a_order, [m, k]),
            b: matrix(&b, b_order, [k, n]),
            precision,
            parallel,
        };
        // SAFETY: the matrices have the memory of their order.
        unsafe {
            match way {
                None => product.run(),
                Some(way) => way.run(product, None),
            }
        }

        let operand = |x: f32| match precision {
            Precision::Fp32 | Precision::Fp16 => f64::from(x),
            Precision::Bf16 => f64::from(bf16::round(x)),
        };
        let at = |order: Order, size, i: usize, j: usize| {
            let (row, column) = order.strides(size);
            i * row as usize + j * column as usize
        };
        let mut expected = Vec::new();
        for i in 0..m {
            for j in 0..n {
                let place = at(order, [m, n], i, j);
                let start = match case.start {
                    Start::Zero => 0.0,
                    Start::Target => f64::from(before[place]),
                    Start::Row => f64::from(bias[j]),
                };
                let (mut sum, mut magnitude) = (start, start.abs());
                for l in 0..k {
                    let term = operand(a[at(a_order, [m, k], i, l)]) * operand(b[at(b_order, [k, n], l, j)]);
                    sum += term;
                    magnitude += term.abs();
                }
                expected.push((place, sum, magnitude));
            }
        }
        // What lies between the rows is not touched.
        let mut inside = vec![false; before.len()];
        expected.iter().for_each(|e| inside[e.0] = true);
        for (place, (before, after)) in before.iter().zip(&after).enumerate() {
            assert!(inside[place] || before.to_bits() == after.to_bits(), "{case:?}: wrote at {place}");
        }
        (after, expected)
    }

    fn check(case: Case) {
        for way in case.ways() {
            let (found, expected) = run(case, way);
            for (place, sum, magnitude) in expected {
                let error = (f64::from(found[place]) - sum).abs();
                // Errors of half a unit for each addition, at most, and they rarely all add up.
                let bound = magnitude * (case.sizes[1] as f64 + 2.0).sqrt() * 1.2e-7 * 3.0;
                assert!(error <= bound, "{case:?}, {way:?}: {} at {place}, not {sum}", found[place]);
            }
        }
    }

    fn case() -> impl Strategy<Value = Case> {
        let size = prop_oneof![Just(1usize), Just(2), Just(31), Just(32), Just(37), 1..90usize];
        let order = || (0..3usize).prop_map(|i| ORDERS[i]);
        (
            [size.clone(), size.clone(), size],
            [order(), order(), order()],
            (0..3usize).prop_map(|i| [Start::Zero, Start::Target, Start::Row][i]),
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(sizes, orders, start, low, parallel)| {
                let precision = if low { Precision::Bf16 } else { Precision::Fp32 };
                Case { sizes, orders, start, precision, parallel }
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn products_are_right_in_any_layout(case in case()) {
            check(case);
        }
    }

    #[test]
    fn products_of_several_blocks_are_right() {
        for (sizes, orders) in [
            ([13, 1601, 33], [Order::Rows; 3]),
            ([101, 801, 115], [Order::Rows; 3]),
            ([115, 801, 101], [Order::Rows, Order::Columns, Order::Rows]),
            ([25, 770, 64], [Order::Columns, Order::Columns, Order::Rows]),
            ([3079, 9, 5], [Order::Rows, Order::Columns, Order::Rows]),
            ([5, 9, 3110], [Order::Columns, Order::Rows, Order::Columns]),
        ] {
            for (precision, start) in [(Precision::Fp32, Start::Target), (Precision::Bf16, Start::Row)] {
                check(Case { sizes, orders, start, precision, parallel: true });
            }
        }
    }

    #[test]
    fn nothing_to_add_leaves_the_beginning() {
        for start in [Start::Zero, Start::Target, Start::Row] {
            for precision in [Precision::Fp32, Precision::Bf16] {
                check(Case { sizes: [5, 0, 7], orders: [Order::Rows; 3], start, precision, parallel: true });
                check(Case { sizes: [0, 3, 7], orders: [Order::Rows; 3], start, precision, parallel: true });
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        for precision in [Precision::Fp32, Precision::Bf16] {
            for (sizes, order) in [([130, 900, 200], Order::Rows), ([301, 1060, 97], Order::Columns)] {
                let orders = [Order::Rows, order, Order::Rows];
                let case = Case { sizes, orders, start: Start::Zero, precision, parallel: true };
                let [one, two, three] = [1, 2, 3].map(|n| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
                    let product = pool.install(|| multiply(case));
                    product.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                });
                assert!(one == two && one == three, "{case:?}");
            }
        }
    }

    /// Without the reference.
    fn multiply(case: Case) -> Vec<f32> {
        let Case { sizes: [m, k, n], orders, precision, parallel, .. } = case;
        let (a, b) = (orders[0].memory([m, k], 1), orders[1].memory([k, n], 2));
        let mut y = vec![0.0; m * n];
        let matrix = |x: &[f32], order: Order, size| {
            let (row, column) = order.strides(size);
            Matrix { start: x.as_ptr(), row, column }
        };
        let (a, b) = (matrix(&a, orders[0], [m, k]), matrix(&b, orders[1], [k, n]));
        let target = Target::dense(y.as_mut_ptr(), n);
        // SAFETY: the matrices have the memory of their order.
        unsafe { Product { sizes: case.sizes, target, begin: Begin::Zero, a, b, precision, parallel }.run() };
        y
    }

    #[test]
    fn a_row_does_not_depend_on_the_others() {
        let orders = [Order::Rows; 3];
        let (precision, parallel, start) = (Precision::Bf16, true, Start::Zero);
        let [all, few] =
            [61, 14].map(|m| multiply(Case { sizes: [m, 501, 45], orders, start, precision, parallel }));
        assert_eq!(all[..few.len()], few);
    }
}
