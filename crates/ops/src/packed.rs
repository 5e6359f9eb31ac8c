//! Weights packed once for inference.

use crate::linear;
#[cfg(feature = "flex")]
use crate::{Precision, flex};
use burn::tensor::{Device, Tensor};
#[cfg(feature = "flex")]
use std::sync::OnceLock;
use std::sync::{Arc, Mutex, PoisonError};

/// A constant matrix of a linear map, packed for many products.
///
/// A CPU product packs its operands into the kernel's order, rounding to bf16 if needed. For few tokens,
/// packing takes longer than the product. Here it is done once, at the first use in each precision. In FP32 the packed
/// form then stands in for the matrix, which is let go; in bf16 it needs half as much memory again. Results are those of
/// [`linear()`] up to the order of sums.
///
/// If the machine has a kernel of ours, a row's result does not depend on the other rows or their number, so
/// a text gives identical bits in any batch. Clones share both forms.
#[derive(Debug, Clone)]
pub struct PackedWeight {
    dims: [usize; 2],
    device: Device,
    #[cfg(feature = "flex")]
    is_flex: bool,
    forms: Arc<Forms>,
}

/// The matrix, packed or not.
#[derive(Debug)]
struct Forms {
    /// `None` once the packed form in FP32 is there, which has the same numbers.
    weight: Mutex<Option<Tensor<2>>>,
    /// The packed forms in FP32 and bf16; `None` inside if the machine has no kernel of ours.
    #[cfg(feature = "flex")]
    layouts: [OnceLock<Option<flex::linear::Packed>>; 2],
}

impl PackedWeight {
    /// Wraps a matrix `[d_in, d_out]` with any strides; any gradient is dropped.
    pub fn new(weight: Tensor<2>) -> Self {
        let weight = if weight.device().is_autodiff() { weight.inner() } else { weight };
        Self {
            dims: weight.dims(),
            device: weight.device(),
            #[cfg(feature = "flex")]
            is_flex: flex::takes(&weight),
            forms: Arc::new(Forms {
                weight: Mutex::new(Some(weight)),
                #[cfg(feature = "flex")]
                layouts: Default::default(),
            }),
        }
    }

    /// `[d_in, d_out]`
    pub fn dims(&self) -> [usize; 2] {
        self.dims
    }

    /// The device of the matrix.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// The matrix, which is read from the packed form where that stands in for it.
    pub fn weight(&self) -> Tensor<2> {
        let held = self.forms.weight.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match held {
            Some(weight) => weight,
            #[cfg(feature = "flex")]
            None => {
                let packed = self.forms.layouts[0].wait().as_ref();
                let unpacked =
                    packed.and_then(|packed| flex::linear::unpacked(packed, self.dims, &self.device));
                unpacked.expect("FP32 is not rounded")
            }
            #[cfg(not(feature = "flex"))]
            None => unreachable!("nothing is packed"),
        }
    }

    /// The packed form in the current precision.
    #[cfg(feature = "flex")]
    fn panels(&self) -> Option<&flex::linear::Packed> {
        let precision = Precision::current();
        let is_rounded = precision == Precision::Bf16;
        let pack = || {
            let packed = flex::linear::packed(&self.weight(), precision);
            if packed.is_some() && !is_rounded {
                let held = self.forms.weight.lock().unwrap_or_else(PoisonError::into_inner).take();
                held.into_iter().for_each(flex::linear::let_go);
            }
            packed
        };
        self.forms.layouts[usize::from(is_rounded)].get_or_init(pack).as_ref()
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
    if weight.is_flex
        && flex::takes(&x)
        && let Some(panels) = weight.panels()
    {
        return flex::linear::linear_packed(x, panels, weight.dims, bias);
    }
    linear(x, weight.weight(), bias)
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
    fn the_weight_comes_back_from_its_packed_form() {
        let device = Device::flex();
        for [d_in, d_out] in [[1, 1], [40, 70], [385, 100], [1601, 33]] {
            let values: Vec<f32> = (0..d_in * d_out).map(|i| (i as f32 * 0.37).sin()).collect();
            let weight =
                Tensor::<1>::from_data(values.as_slice(), &device).reshape([d_out, d_in]).transpose();
            let expected = weight.to_data();
            let packed = PackedWeight::new(weight);
            let x = Tensor::<2>::ones([3, d_in], &device);
            for precision in [Precision::Bf16, Precision::Fp32, Precision::Bf16] {
                with_precision(precision, || linear_packed(x.clone(), &packed, None));
                assert_eq!(packed.weight().into_data(), expected, "{d_in} × {d_out}");
            }
            let is_held = packed.forms.weight.lock().unwrap().is_some();
            assert_eq!(is_held, packed.forms.layouts[0].get().unwrap().is_none(), "held twice, or nowhere");
        }
    }

    #[test]
    fn threads_that_pack_at_once_agree() {
        let device = Device::flex();
        for _ in 0..20 {
            let packed = PackedWeight::new(Tensor::ones([64, 48], &device));
            let x = Tensor::<2>::ones([2, 64], &device);
            std::thread::scope(|scope| {
                for precision in [Precision::Fp32, Precision::Bf16, Precision::Fp32] {
                    let (x, packed) = (x.clone(), &packed);
                    scope.spawn(move || {
                        let y = with_precision(precision, || linear_packed(x, packed, None));
                        assert_eq!(y.into_data().iter::<f32>().collect::<Vec<_>>(), [64.0; 96]);
                        assert_eq!(packed.weight().sum().into_scalar::<f32>(), 64.0 * 48.0);
                    });
                }
            });
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
