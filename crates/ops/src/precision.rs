//! The precision of matrix products.

use burn::tensor::{DType, Device, Tensor};
use std::cell::Cell;

/// In what precision [`linear`](crate::linear) and [`attention`](crate::attention) multiply. Weights, and what goes into and
/// comes out of an operation, stay FP32 in memory either way. The kernels of attention on graphics processors, by the feature
/// `cube`, multiply in FP32 in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// FP32 products.
    #[default]
    Fp32,
    /// The operands of a product are rounded to bf16, to the nearest, ties to even; the products are summed
    /// in FP32. So weights and their gradients keep FP32's digits (Micikevicius et al. 2018, with Kalamkar et
    /// al. 2019's bf16, which needs no loss scaling).
    Bf16,
    /// The operands of a product are rounded to FP16, and its result too, on a device that has FP16 tensors. For those
    /// without bf16: of gradients below 6·10⁻⁸ nothing is left in FP16, so a training multiplies its loss first
    /// (Micikevicius et al. 2018, §3.2). Where operations are fused for flex, and on devices without FP16, products are
    /// made in FP32.
    Fp16,
}

thread_local! {
    static CURRENT: Cell<Precision> = const { Cell::new(Precision::Fp32) };
}

impl Precision {
    /// That of the innermost [`with_precision`] around the caller, FP32 outside of any.
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// Whether products on a device are made in this precision, and not in FP32 in its place.
    pub fn is_made_on(self, device: &Device) -> bool {
        match self {
            Self::Fp32 => true,
            Self::Bf16 => crate::is_fused(device) || device.supports_dtype(DType::BF16),
            Self::Fp16 => !crate::is_fused(device) && device.supports_dtype(DType::F16),
        }
    }

    /// The type that the scope's operands are rounded to; none for FP32.
    fn operands(self) -> Option<DType> {
        match self {
            Self::Fp32 => None,
            Self::Bf16 => Some(DType::BF16),
            Self::Fp16 => Some(DType::F16),
        }
    }
}

/// A product of burn's in the precision of the scope: operands of 32 bits are cast before it, and the result after it. The
/// casts are in the graph, so that the backward pass multiplies in the same precision, and all else, weights and their
/// gradients among it, has 32 bits.
///
/// FP32 means what the backend makes of it: on NVIDIA's GPUs CubeCL's fastest kernel for a shape may multiply in TF32.
pub(crate) fn product<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    let is_low = |dtype: &DType| a.dtype() == DType::F32 && a.device().supports_dtype(*dtype);
    match Precision::current().operands().filter(is_low) {
        Some(dtype) => a.cast(dtype).matmul(b.cast(dtype)).cast(DType::F32),
        None => a.matmul(b),
    }
}

/// Runs `work` with the products of its linear maps and of its attention in a precision; scopes nest, and hold for the calling
/// thread only.
///
/// A backward pass multiplies as its forward pass did, wherever it runs.
///
/// On the flex backend this concerns 32-bit tensors. Products run with AMX at several times FP32's rate, with AMD's
/// AVX512-BF16 at nearly twice; elsewhere the operands are rounded and multiplied in FP32.
/// [`kernels`](crate::kernels()) says which it is. The results are the same up to the order of the sums, but that
/// AMX takes subnormal sums for zeros, too. Of fewer than some 32 tokens the rounding takes what the products save.
/// Another device that has tensors of the precision casts the operands and the product's result, which is then rounded too;
/// one that has none multiplies in FP32: [`Precision::is_made_on`] tells.
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
