//! The precision of matrix products.

use std::cell::Cell;

/// In what precision [`linear`](crate::linear), and [`attention`](crate::attention) where it is fused, multiply. Tensors stay FP32 in memory either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// FP32 products.
    #[default]
    Fp32,
    /// The operands of a product are rounded to bf16, to the nearest, ties to even; the products are summed
    /// in FP32. So weights and their gradients keep FP32's digits (Micikevicius et al. 2018, with Kalamkar et
    /// al. 2019's bf16, which needs no loss scaling).
    Bf16,
}

thread_local! {
    static CURRENT: Cell<Precision> = const { Cell::new(Precision::Fp32) };
}

impl Precision {
    /// That of the innermost [`with_precision`] around the caller, FP32 outside of any.
    pub fn current() -> Self {
        CURRENT.get()
    }
}

/// Runs `work` with the products of its linear maps and of its fused attention in a precision; scopes nest, and hold for the calling
/// thread only.
///
/// A backward pass multiplies as its forward pass did, wherever it runs.
///
/// On the flex backend this concerns 32-bit tensors. Products run with AMX at several times FP32's rate, with AMD's
/// AVX512-BF16 at nearly twice; elsewhere the operands are rounded and multiplied in FP32.
/// [`kernels`](crate::kernels()) says which it is. The results are the same up to the order of the sums, but that
/// AMX takes subnormal sums for zeros, too. Of fewer than some 32 tokens the rounding takes what the products save.
/// Another device that has bf16 tensors casts the operands and the product's result, which is then rounded too; one
/// that has none multiplies in FP32.
///
/// ```
/// use cloze_ops::{Precision, with_precision};
///
/// let inside = with_precision(Precision::Bf16, Precision::current);
/// assert_eq!((inside, Precision::current()), (Precision::Bf16, Precision::Fp32));
/// ```
pub fn with_precision<T>(precision: Precision, work: impl FnOnce() -> T) -> T {
    /// Sets the former precision again, after a panic too.
    struct Restore(Precision);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _restore = Restore(CURRENT.replace(precision));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_ends_with_a_panic_too() {
        let caught = std::panic::catch_unwind(|| {
            with_precision(Precision::Bf16, || {
                assert_eq!(Precision::current(), Precision::Bf16);
                with_precision(Precision::Fp32, || assert_eq!(Precision::current(), Precision::Fp32));
                assert_eq!(Precision::current(), Precision::Bf16);
                panic!("on purpose");
            })
        });
        assert!(caught.is_err());
        assert_eq!(Precision::current(), Precision::Fp32);
    }

    #[test]
    fn a_scope_holds_for_its_thread() {
        with_precision(Precision::Bf16, || {
            let other = std::thread::spawn(Precision::current).join();
            assert_eq!(other.ok(), Some(Precision::Fp32));
        });
    }
}
