//! Weights that are laid out once for the products of inference.

use crate::linear;
#[cfg(feature = "flex")]
use crate::{Precision, flex};
use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "flex")]
use std::sync::{Arc, OnceLock};

/// With AVX-512, FP32 products of more tokens are faster without: the crate `gemm` packs better than we do, and so many
/// tokens share the packing.
#[cfg(feature = "flex")]
const FEW_TOKENS: usize = 64;

/// The matrix of a linear map that many inputs are multiplied with, and that does not change meanwhile.
///
/// A product on the CPU copies its operands into the order in which the kernel reads them, bf16 ones rounded. For few
/// tokens that takes longer than the product. Here it is done once, at the second use in each precision, for a program
/// that embeds one sentence and ends has no second one. It takes as much memory again as the matrix, half of it in
/// bf16. Results are those of [`linear()`] up to the order of sums.
#[derive(Debug, Clone)]
pub struct PackedWeight {
    weight: Tensor<2>,
    /// In FP32 and in bf16.
    #[cfg(feature = "flex")]
    layouts: Arc<[Layout; 2]>,
}

/// The matrix as a kernel reads it.
#[cfg(feature = "flex")]
#[derive(Debug, Default)]
struct Layout {
    was_used: AtomicBool,
    /// None inside where the machine has no kernel of ours.
    panels: OnceLock<Option<flex::linear::Packed>>,
}

#[cfg(feature = "flex")]
impl Layout {
    /// From the second call on.
    fn panels(&self, weight: &Tensor<2>, precision: Precision) -> Option<&flex::linear::Packed> {
        let again = self.was_used.swap(true, Ordering::Relaxed);
        let pack = || flex::linear::packed(weight, precision);
        if again { self.panels.get_or_init(pack).as_ref() } else { None }
    }
}

impl PackedWeight {
    /// Of a matrix `[d_in, d_out]` with any strides; its gradient, where it has one, is left behind.
    pub fn new(weight: Tensor<2>) -> Self {
        Self {
            weight: if weight.device().is_autodiff() { weight.inner() } else { weight },
            #[cfg(feature = "flex")]
            layouts: Arc::default(),
        }
    }

    /// `[d_in, d_out]`
    pub fn dims(&self) -> [usize; 2] {
        self.weight.dims()
    }
}

/// [`linear()`] with a weight that is laid out for it: for inference. On other devices than flex it is the same.
///
/// # Shapes
/// - `x`: `[..., d_in]`; `weight`: `[d_in, d_out]`; `bias`: `[d_out]`; returns `[..., d_out]`
///
/// # Panics
/// If `x` is on a device with autodiff (use the model's `valid()`), or if it is on another device than the weight was.
pub fn linear_packed<const D: usize>(
    x: Tensor<D>,
    weight: &PackedWeight,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    assert!(!x.device().is_autodiff(), "a packed weight has no gradient");
    assert_eq!(x.dims()[D - 1], weight.dims()[0], "the weight takes another width than x has");
    #[cfg(feature = "flex")]
    if flex::takes(&x) && flex::takes(&weight.weight) {
        let precision = Precision::current();
        let n_tokens = x.shape().num_elements() / weight.dims()[0].max(1);
        let layout = &weight.layouts[usize::from(precision == Precision::Bf16)];
        let pays = precision == Precision::Bf16 || n_tokens <= FEW_TOKENS;
        let panels = if pays { layout.panels(&weight.weight, precision) } else { None };
        if let Some(panels) = panels {
            return flex::linear::linear_packed(x, panels, &weight.weight, bias);
        }
    }
    linear(x, weight.weight.clone(), bias)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::with_precision;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn a_packed_weight_gives_what_the_weight_gives() {
        let device = Device::flex();
        let tensor = |n: usize, phase: f32| {
            let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
            Tensor::<1>::from_data(values.as_slice(), &device)
        };
        for (n, d_in, d_out) in
            [(1, 1, 1), (1, 40, 70), (16, 384, 100), (77, 1601, 33), (150, 64, 64), (3200, 9, 40)]
        {
            for transposed in [false, true] {
                let weight = match transposed {
                    true => tensor(d_in * d_out, 2.0).reshape([d_out, d_in]).transpose(),
                    false => tensor(d_in * d_out, 2.0).reshape([d_in, d_out]),
                };
                let (x, bias) = (tensor(n * d_in, 0.1).reshape([n, d_in]), tensor(d_out, 1.0));
                let packed = PackedWeight::new(weight.clone());
                assert_eq!(packed.dims(), [d_in, d_out]);
                for precision in [Precision::Fp32, Precision::Bf16] {
                    for bias in [Some(bias.clone()), None] {
                        with_precision(precision, || {
                            let expected = linear(x.clone(), weight.clone(), bias.clone());
                            // The second time it is packed, the third time it has been before.
                            for _ in 0..3 {
                                let found = linear_packed(x.clone(), &packed, bias.clone());
                                let tolerance = Tolerance::absolute(1e-4 * (d_in as f32).sqrt());
                                found.into_data().assert_approx_eq::<f32>(&expected.to_data(), tolerance);
                            }
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn no_tokens_give_no_outputs() {
        let device = Device::flex();
        let packed = PackedWeight::new(Tensor::ones([4, 3], &device));
        for _ in 0..3 {
            assert_eq!(linear_packed(Tensor::<2>::zeros([0, 4], &device), &packed, None).dims(), [0, 3]);
        }
    }
}
