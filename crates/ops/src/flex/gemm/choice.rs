//! Kernel selection: the fastest one that the machine supports and that gives correct products.

use super::blocked::PackedRight;
use super::{Begin, Matrix, Product, Target, bf16};
#[cfg(target_arch = "x86_64")]
use super::{amx, avx2, avx512, bf16::Rounded, blocked};
use crate::Precision;
use std::sync::LazyLock;

/// A way to multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::flex) enum Way {
    #[cfg(target_arch = "x86_64")]
    Amx,
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The crate `gemm`, on any machine.
    Anywhere,
}

/// An expression with a way's kernel as a type, or another if the way has no kernel of ours.
macro_rules! with_kernel {
    ($way:expr, $precision:expr, |$kernel:ident| $with:expr, else $without:block) => {
        match ($way, $precision) {
            #[cfg(target_arch = "x86_64")]
            (Way::Amx, _) => with_kernel!(@ $kernel = amx::Bf16, $with),
            #[cfg(target_arch = "x86_64")]
            (Way::Avx512Bf16, _) => with_kernel!(@ $kernel = avx512::Bf16, $with),
            #[cfg(target_arch = "x86_64")]
            (Way::Avx512, Precision::Fp32 | Precision::Fp16) => with_kernel!(@ $kernel = avx512::Fp32, $with),
            #[cfg(target_arch = "x86_64")]
            (Way::Avx512, Precision::Bf16) => with_kernel!(@ $kernel = Rounded<avx512::Fp32>, $with),
            #[cfg(target_arch = "x86_64")]
            (Way::Avx2, Precision::Fp32 | Precision::Fp16) => with_kernel!(@ $kernel = avx2::Fp32, $with),
            #[cfg(target_arch = "x86_64")]
            (Way::Avx2, Precision::Bf16) => with_kernel!(@ $kernel = Rounded<avx2::Fp32>, $with),
            (Way::Anywhere, _) => $without,
        }
    };
    (@ $kernel:ident = $type:ty, $with:expr) => {{
        type $kernel = $type;
        $with
    }};
}

impl Way {
    /// The ways for products in a precision, fastest first.
    pub fn candidates(precision: Precision) -> &'static [Self] {
        match precision {
            #[cfg(target_arch = "x86_64")]
            Precision::Fp32 | Precision::Fp16 => &[Self::Avx512, Self::Avx2, Self::Anywhere],
            #[cfg(target_arch = "x86_64")]
            Precision::Bf16 => &[Self::Amx, Self::Avx512Bf16, Self::Avx512, Self::Avx2, Self::Anywhere],
            #[cfg(not(target_arch = "x86_64"))]
            _ => &[Self::Anywhere],
        }
    }

    /// Whether the machine has its instructions.
    pub fn is_there(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => amx::has_amx(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => avx512::has_bf16(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::has_avx512(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::has_avx2(),
            Self::Anywhere => true,
        }
    }

    /// Whether using them is worthwhile on this machine.
    fn pays(self) -> bool {
        match self {
            // Intel's instructions for bf16 make half as many sums at a time as those for FP32: 223 and 404 GFLOP/s on
            // two cores of a Xeon with AMX. AMD's make nearly twice as many.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => avx512::is_amd(),
            _ => true,
        }
    }

    pub fn name(self, precision: Precision) -> &'static str {
        match (self, precision) {
            #[cfg(target_arch = "x86_64")]
            (Self::Amx, _) => "AMX",
            #[cfg(target_arch = "x86_64")]
            (Self::Avx512Bf16, _) => "AVX512-BF16",
            #[cfg(target_arch = "x86_64")]
            (Self::Avx512, Precision::Fp32 | Precision::Fp16) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            (Self::Avx512, Precision::Bf16) => "FP32 products of rounded numbers (AVX-512)",
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, Precision::Fp32 | Precision::Fp16) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, Precision::Bf16) => "FP32 products of rounded numbers (AVX2)",
            (Self::Anywhere, Precision::Fp32 | Precision::Fp16) => "the crate gemm",
            (Self::Anywhere, Precision::Bf16) => "FP32 products of rounded numbers (the crate gemm)",
        }
    }

    /// Computes a product this way; its right operand may have been packed by [`Self::pack`].
    ///
    /// # Safety
    /// As [`Product::run`]; the machine has the way's instructions, the target's rows or columns are
    /// contiguous, and no size is zero. Where the right operand is packed, it is the product's, and the
    /// target's rows are dense.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(unused, reason = "no kernel of ours takes the packed operand")
    )]
    pub unsafe fn run(self, product: Product, packed: Option<&PackedRight>) {
        // SAFETY: the caller's promise.
        unsafe {
            with_kernel!(self, product.precision, |Kernel| blocked::run::<Kernel>(product, packed), else {
                product.run_anywhere();
            });
        }
    }

    /// The right operand `[k, n]` of many products in the kernel's panels; `None` if the kernel is not ours.
    ///
    /// # Safety
    /// The machine has the way's instructions, and the matrix this size, no part of which is zero.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused, reason = "no kernel of ours packs operands"))]
    pub unsafe fn pack(self, precision: Precision, b: Matrix, sizes: [usize; 2]) -> Option<PackedRight> {
        // SAFETY: the caller's promise.
        unsafe {
            with_kernel!(self, precision, |Kernel| Some(PackedRight::new::<Kernel>(b, sizes)), else { None })
        }
    }

    fn is_right(self, precision: Precision) -> bool {
        // SAFETY: the machine has the instructions; the product's sizes and layouts are what is asked for.
        is_right(precision, |product| unsafe { self.run(product, None) })
    }
}

/// Whether products that exercise every part of a kernel are correct: partial panels, several steps along
/// `k`, both operand layouts.
fn is_right(precision: Precision, run: impl Fn(Product)) -> bool {
    let sizes @ [m, k, n] = [45, 75, 37];
    let (a, b) = (draw(m * k, 1), draw(k * n, 2));
    let operand = |x: f32| match precision {
        Precision::Fp32 | Precision::Fp16 => f64::from(x),
        Precision::Bf16 => f64::from(bf16::round(x)),
    };
    [false, true].into_iter().all(|transposed| {
        let mut found = vec![f32::NAN; m * n];
        let [left, right] = match transposed {
            false => [Matrix::dense(&a, k), Matrix::dense(&b, n)],
            true => [Matrix::dense(&a, m).transposed(), Matrix::dense(&b, k).transposed()],
        };
        let target = Target::dense(found.as_mut_ptr(), n);
        // On the caller's thread alone: others may be waiting for the choice.
        run(Product { sizes, target, begin: Begin::Zero, a: left, b: right, precision, parallel: false });
        (0..m * n).all(|place| {
            let (i, j) = (place / n, place % n);
            let at = |l: usize| if transposed { (l * m + i, j * k + l) } else { (i * k + l, l * n + j) };
            let sum: f64 = (0..k).map(|l| operand(a[at(l).0]) * operand(b[at(l).1])).sum();
            (f64::from(found[place]) - sum).abs() < 1e-4
        })
    })
}

/// Values between −1 and 1 that a seed names.
pub(super) fn draw(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// The way for each precision, and the rejected ways.
pub(in crate::flex) struct Choice {
    pub fp32: Way,
    pub bf16: Way,
    /// Names of supported ways that gave wrong products.
    pub refused: Vec<&'static str>,
}

impl Choice {
    /// This machine's.
    pub fn here() -> &'static Self {
        static HERE: LazyLock<Choice> =
            LazyLock::new(|| Choice::new(|way, precision| way.is_right(precision)));
        &HERE
    }

    fn new(is_right: impl Fn(Way, Precision) -> bool) -> Self {
        let mut refused = Vec::new();
        let [fp32, bf16] = [Precision::Fp32, Precision::Bf16].map(|precision| {
            let there = Way::candidates(precision).iter().copied().filter(|way| way.is_there() && way.pays());
            for way in there {
                // Nothing is left to take the last one's place.
                if way == Way::Anywhere || is_right(way, precision) {
                    return way;
                }
                refused.push(way.name(precision));
            }
            Way::Anywhere
        });
        Self { fp32, bf16, refused }
    }

    pub fn way(&self, precision: Precision) -> Way {
        match precision {
            Precision::Fp32 | Precision::Fp16 => self.fp32,
            Precision::Bf16 => self.bf16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_the_machine_is_right() {
        for precision in [Precision::Fp32, Precision::Bf16] {
            for way in Way::candidates(precision).iter().filter(|way| way.is_there()) {
                assert!(way.is_right(precision), "{}", way.name(precision));
            }
        }
        assert!(Choice::here().refused.is_empty());
    }

    #[test]
    fn a_wrong_way_is_named_and_not_taken() {
        let best = Choice::new(|_, _| true);
        let without = Choice::new(|way, precision| precision == Precision::Fp32 || way != best.bf16);
        assert_eq!(without.fp32, best.fp32);
        if best.bf16 == Way::Anywhere {
            println!("skipped: the machine has no kernel to be wrong");
            return;
        }
        assert_ne!(without.bf16, best.bf16);
        assert_eq!(without.refused, [best.bf16.name(Precision::Bf16)]);
        let none = Choice::new(|_, _| false);
        assert_eq!([none.fp32, none.bf16], [Way::Anywhere; 2]);
    }

    #[test]
    fn a_product_of_other_numbers_is_wrong() {
        // SAFETY: `is_right` makes products of its own memory.
        let run = |product: Product| unsafe { product.run_anywhere() };
        let in_fp32 = |product: Product| run(Product { precision: Precision::Fp32, ..product });
        assert!(is_right(Precision::Fp32, run) && is_right(Precision::Bf16, run));
        assert!(!is_right(Precision::Bf16, in_fp32));
        assert!(!is_right(Precision::Fp32, |_| ()));
    }
}
