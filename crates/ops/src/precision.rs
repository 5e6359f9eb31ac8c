//! The precision of matrix products.

use burn::tensor::{DType, Device, Tensor};
use std::cell::Cell;

/// The precision of products in [`linear`](crate::linear) and [`attention`](crate::attention). Weights,
/// inputs and outputs stay FP32 in memory either way. The GPU attention kernels of the feature `cube` always
/// multiply in FP32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// FP32 products.
    #[default]
    Fp32,
    /// Operands are rounded to bf16, to nearest, ties to even; products are summed in FP32. Weights and their
    /// gradients keep FP32 precision (Micikevicius et al. 2018, with Kalamkar et al. 2019's bf16, which needs
    /// no loss scaling).
    Bf16,
    /// Operands and results are rounded to FP16, on devices with FP16 tensors. For devices without bf16:
    /// gradients below 6·10⁻⁸ underflow in FP16, so training needs loss scaling (Micikevicius et al. 2018,
    /// §3.2). On fused flex, and on devices without FP16, products are computed in FP32.
    Fp16,
}

thread_local! {
    static CURRENT: Cell<Precision> = const { Cell::new(Precision::Fp32) };
}

impl Precision {
    /// The precision of the innermost enclosing [`with_precision`], else FP32.
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// Whether products on a device use this precision rather than falling back to FP32.
    pub fn is_made_on(self, device: &Device) -> bool {
        match self {
            Self::Fp32 => true,
            Self::Bf16 => crate::is_fused(device) || device.supports_dtype(DType::BF16),
            Self::Fp16 => !crate::is_fused(device) && device.supports_dtype(DType::F16),
        }
    }

    /// The type to which the scope's operands are rounded; `None` for FP32.
    fn operands(self) -> Option<DType> {
        match self {
            Self::Fp32 => None,
            Self::Bf16 => Some(DType::BF16),
            Self::Fp16 => Some(DType::F16),
        }
    }
}

/// burn's matrix product in the precision of the scope: 32-bit operands are cast before it, and the result
/// after it. The casts are in the graph, so the backward pass multiplies in the same precision; everything
/// else, including weights and their gradients, stays 32-bit.
///
/// FP32 depends on the backend: on NVIDIA GPUs, CubeCL's fastest kernel for a shape may multiply in TF32.
pub(crate) fn product<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    let is_low = |dtype: &DType| a.dtype() == DType::F32 && a.device().supports_dtype(*dtype);
    match Precision::current().operands().filter(is_low) {
        Some(dtype) => a.cast(dtype).matmul(b.cast(dtype)).cast(DType::F32),
        None => a.matmul(b),
    }
}

/// Runs `work` with the products of linear maps and attention in a precision; scopes nest, and apply only to
/// the calling thread.
///
/// A backward pass uses the precision of its forward pass, wherever it runs.
///
/// On the flex backend this applies to 32-bit tensors. bf16 products run at several times the FP32 rate with
/// AMX, and at nearly twice with AMD's AVX512-BF16; elsewhere operands are rounded and multiplied in FP32.
/// [`kernels`](crate::kernels()) reports which. Results are the same up to the order of sums, except that AMX
/// also flushes subnormal sums to zero. Below about 32 tokens, rounding costs what the products save. Other
/// devices with tensors of the precision cast the operands and the result, which is thus also rounded; the
/// rest multiply in FP32: see [`Precision::is_made_on`].
///
/// ```
/// use cloze_ops::{Precision, with_precision};
///
/// let inside = with_precision(Precision::Bf16, Precision::current);
/// assert_eq!((inside, Precision::current()), (Precision::Bf16, Precision::Fp32));
/// ```
pub fn with_precision<T>(precision: Precision, work: impl FnOnce() -> T) -> T {
    /// Restores the previous precision, even after a panic.
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

    #[cfg(feature = "flex")]
    #[test]
    fn a_device_says_what_it_multiplies_in() {
        let flex = Device::flex();
        let made = [Precision::Fp32, Precision::Bf16, Precision::Fp16].map(|of| of.is_made_on(&flex));
        assert_eq!(made, [true, true, false]);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn a_product_rounds_its_operands_and_keeps_32_bits_around_them() {
        // Through flex's own tensors of 16 bits, which the fused operations do without.
        let device = Device::flex().autodiff();
        for (precision, dtype) in [(Precision::Bf16, DType::BF16), (Precision::Fp16, DType::F16)] {
            let a = Tensor::<2>::from_data([[1.0009766, 3.0], [0.1, 2.0]], &device).require_grad();
            let b = Tensor::<2>::from_data([[0.3, 1.7], [2.5, 0.7]], &device).require_grad();
            let y = with_precision(precision, || product(a.clone(), b.clone()));
            let rounded = |x: &Tensor<2>| x.clone().inner().cast(dtype).cast(DType::F32);
            let expected = rounded(&rounded(&a).matmul(rounded(&b)));
            assert_eq!(y.dtype(), DType::F32);
            let close = burn::tensor::Tolerance::relative(1e-2);
            y.clone().into_data().assert_approx_eq::<f32>(&expected.into_data(), close);
            // The pass back is in the precision too, and ends in 32 bits.
            let gradients = y.sum().backward();
            let gradient = a.grad(&gradients).expect("a gradient");
            assert_eq!(gradient.dtype(), DType::F32);
            let ones = Tensor::<2>::ones([2, 2], &Device::flex());
            let expected = ones.matmul(rounded(&b).transpose());
            gradient.into_data().assert_approx_eq::<f32>(&expected.into_data(), close);
        }
    }

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
