//! Weights packed once for inference.

use crate::linear;
#[cfg(feature = "flex")]
use crate::{Precision, flex};
use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use std::sync::{Arc, OnceLock};

/// A constant matrix of a linear map, packed for many products.
///
/// A CPU product packs its operands into the kernel's order, rounding to bf16 if needed. For few tokens,
/// packing takes longer than the product. Here it is done once, at the first use in each precision, and needs
/// as much memory again as the matrix (half in bf16). Results are those of [`linear()`] up to the order of
/// sums.
///
/// If the machine has a kernel of ours, a row's result does not depend on the other rows or their number, so
/// a text gives identical bits in any batch.
#[derive(Debug, Clone)]
pub struct PackedWeight {
    weight: Tensor<2>,
    /// The packed forms in FP32 and bf16; `None` inside if the machine has no kernel of ours.
    #[cfg(feature = "flex")]
    layouts: Arc<[OnceLock<Option<flex::linear::Packed>>; 2]>,
}

impl PackedWeight {
    /// Wraps a matrix `[d_in, d_out]` with any strides; any gradient is dropped.
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

/// [`linear()`] with a packed weight, for inference. On devices other than flex it is the same.
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
        let layout = &weight.layouts[usize::from(precision == Precision::Bf16)];
        let panels = layout.get_or_init(|| flex::linear::packed(&weight.weight, precision)).as_ref();
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
                            // The first time it is packed.
                            for _ in 0..2 {
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
    fn a_row_has_the_same_bits_among_any_others() {
        let device = Device::flex();
        let (n, d_in, d_out) = (300, 1100, 130);
        let tensor = |n: usize, phase: f32| {
            let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
            Tensor::<1>::from_data(values.as_slice(), &device)
        };
        let (x, bias) = (tensor(n * d_in, 0.1).reshape([n, d_in]), tensor(d_out, 1.0));
        let packed = PackedWeight::new(tensor(d_in * d_out, 2.0).reshape([d_in, d_out]));
        for precision in [Precision::Fp32, Precision::Bf16] {
            with_precision(precision, || {
                let all = linear_packed(x.clone(), &packed, Some(bias.clone())).into_data();
                let all: Vec<f32> = all.iter().collect();
                for (from, to) in [(0, 1), (7, 9), (40, 104), (100, 165), (0, 299)] {
                    let some =
                        linear_packed(x.clone().slice([from..to, 0..d_in]), &packed, Some(bias.clone()));
                    let some: Vec<f32> = some.into_data().iter().collect();
                    assert!(some == all[from * d_out..to * d_out], "rows {from} to {to} in {precision:?}");
                }
            });
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
