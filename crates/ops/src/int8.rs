use burn::tensor::{DType, Tensor, TensorData};

#[cfg(feature = "flex")]
use crate::flex;
#[cfg(feature = "flex")]
use std::sync::Arc;

/// The matrix of a linear map in 8 bits, packed for the machine's instructions.
///
/// Each output channel (column) has its own scale, its maximum magnitude / 127 (/ 64 if the flex backend has
/// only AVX2, so that two products fit in 16 bits), and no zero point. A zero column has scale 0; a
/// non-finite one makes its outputs NaN.
#[derive(Debug, Clone)]
pub struct Int8Weight {
    dims: [usize; 2],
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    #[cfg(feature = "flex")]
    Packed(Arc<flex::int8::PackedWeight>),
    /// The dequantised numbers.
    Composed(Box<Tensor<2>>),
}

/// A matrix in 8 bits, row by row.
pub(crate) struct Quantized {
    pub dims: [usize; 2],
    pub values: Vec<i8>,
    /// The scale of each column.
    pub scales: Vec<f32>,
}

impl Quantized {
    /// Quantises to integers from `-greatest` to `greatest`.
    fn new(weight: Tensor<2>, greatest: i8) -> Self {
        let dims = weight.dims();
        let data = weight.into_data().convert_dtype(DType::F32);
        let weight = data.as_slice::<f32>().expect("just converted");
        let width = dims[1].max(1);
        let mut scales = vec![0f32; dims[1]];
        for row in weight.chunks_exact(width) {
            for (scale, w) in scales.iter_mut().zip(row) {
                let lost = scale.is_nan() || !w.is_finite();
                *scale = if lost { f32::NAN } else { scale.max(w.abs()) };
            }
        }
        scales.iter_mut().for_each(|scale| *scale /= f32::from(greatest));
        let values = weight.chunks_exact(width).flat_map(|row| row.iter().zip(&scales));
        let values =
            values.map(|(w, scale)| if *scale > 0.0 { (w / scale).round_ties_even() as i8 } else { 0 });
        Self { dims, values: values.collect(), scales }
    }

    fn dequantized(&self) -> TensorData {
        let values = self.values.iter().enumerate();
        let values = values.map(|(i, w)| f32::from(*w) * self.scales[i % self.dims[1]]);
        TensorData::new(values.collect::<Vec<f32>>(), self.dims)
    }
}

impl Int8Weight {
    /// Quantises a matrix `[d_in, d_out]` with any strides; any gradient is dropped.
    ///
    /// # Panics
    /// If `d_in` is more than 65,536, since sums could overflow 32 bits.
    pub fn quantize(weight: Tensor<2>) -> Self {
        assert!(weight.dims()[0] <= 65_536, "sums of {} products overflow", weight.dims()[0]);
        let (dims, device) = (weight.dims(), weight.device().inner());
        #[cfg(feature = "flex")]
        if flex::takes(&weight) {
            let packed =
                flex::int8::PackedWeight::new(&Quantized::new(weight, flex::int8::greatest_weight()));
            return Self { dims, form: Form::Packed(Arc::new(packed)) };
        }
        let dequantized = Quantized::new(weight, i8::MAX).dequantized();
        Self { dims, form: Form::Composed(Box::new(Tensor::from_data(dequantized, &device))) }
    }

    /// `[d_in, d_out]`
    pub fn dims(&self) -> [usize; 2] {
        self.dims
    }
}

/// `x·W + b` over the last axis, multiplied in 8 bits: for inference.
///
/// Each token is quantised to 256 steps between its minimum and maximum (including zero), as ONNX Runtime's
/// and PyTorch's dynamic quantisation do per tensor; products are summed in 32-bit integers and finally
/// scaled to FP32. A token's result does not depend on the others. Non-finite tokens give NaN.
///
/// On the flex backend the products use AMX, AVX512-VNNI or AVX2 if available. Other devices multiply the
/// rounded numbers in FP32.
///
/// # Shapes
/// - `x`: `[..., d_in]`; `weight`: `[d_in, d_out]`; `bias`: `[d_out]`; returns `[..., d_out]`
///
/// # Panics
/// If `x` is on a device with autodiff (rounding has no gradient; use the model's `valid()`), or if it is on
/// another device than the weight was.
pub fn linear_int8<const D: usize>(x: Tensor<D>, weight: &Int8Weight, bias: Option<Tensor<1>>) -> Tensor<D> {
    assert!(!x.device().is_autodiff(), "a product in 8 bits has no gradient");
    assert_eq!(x.dims()[D - 1], weight.dims[0], "the weight takes another width than x has");
    match &weight.form {
        #[cfg(feature = "flex")]
        Form::Packed(packed) => {
            assert!(flex::takes(&x), "32-bit floats on the weight's device");
            flex::int8::linear(x, packed, bias)
        }
        Form::Composed(weight) => composed(x, Tensor::clone(weight), bias),
    }
}

fn composed<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let (mut shape, [d_in, d_out]) = (x.dims(), weight.dims());
    let n_tokens = shape.iter().product::<usize>() / d_in.max(1);
    let x = rounded(x.reshape([n_tokens, d_in]));
    let y = burn::tensor::module::linear(x, weight, bias);
    shape[D - 1] = d_out;
    y.reshape(shape)
}

/// Tokens after quantisation and dequantisation.
fn rounded(x: Tensor<2>) -> Tensor<2> {
    let least = x.clone().min_dim(1).clamp_max(0.0);
    let scale = (x.clone().max_dim(1).clamp_min(0.0) - least.clone()).div_scalar(255.0);
    let inverse = scale.clone().recip().mask_fill(scale.clone().equal_elem(0.0), 0.0);
    let zero = (least.neg() * inverse.clone()).round();
    let steps = ((x * inverse).round() + zero.clone()).clamp(0.0, 255.0);
    (steps - zero) * scale
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    fn values(n: usize, phase: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.37 + phase).sin() * (1.0 + (i % 7) as f32)).collect()
    }

    fn tensor<const D: usize>(shape: [usize; D], phase: f32) -> Tensor<D> {
        let n = shape.iter().product();
        Tensor::from_data(TensorData::new(values(n, phase), shape), &Device::flex())
    }

    /// A weight after quantisation and dequantisation on this machine.
    fn dequantized(weight: Tensor<2>) -> Tensor<2> {
        let device = weight.device();
        Tensor::from_data(Quantized::new(weight, flex::int8::greatest_weight()).dequantized(), &device)
    }

    #[test]
    fn fused_and_composed_agree() {
        for (batch, len, d_in, d_out) in [(1, 1, 1, 1), (2, 3, 5, 7), (3, 5, 32, 48), (4, 33, 66, 37)] {
            for (shift, with_bias, transposed) in [(0.0, true, false), (4.0, false, true), (-9.0, true, true)]
            {
                // A view with gaps in its rows.
                let x = tensor([len, batch, d_in], 0.1).swap_dims(0, 1).add_scalar(shift);
                let weight = match transposed {
                    true => tensor([d_out, d_in], 2.0).transpose(),
                    false => tensor([d_in, d_out], 2.0),
                };
                let bias = with_bias.then(|| tensor([d_out], 3.0));
                let fused = linear_int8(x.clone(), &Int8Weight::quantize(weight.clone()), bias.clone());
                let composed = composed(x, dequantized(weight), bias);
                fused
                    .into_data()
                    .assert_approx_eq::<f32>(&composed.into_data(), Tolerance::rel_abs(1e-4, 2e-3));
            }
        }
    }

    #[test]
    fn the_error_is_within_half_a_step_of_each_operand() {
        let (n_tokens, d_in, d_out) = (29, 131, 45);
        let (x, weight) = (values(n_tokens * d_in, 0.5), values(d_in * d_out, 1.5));
        let y = linear_int8(
            tensor([n_tokens, d_in], 0.5),
            &Int8Weight::quantize(tensor([d_in, d_out], 1.5)),
            None,
        );
        let y = y.into_data();
        let y = y.as_slice::<f32>().unwrap();
        for i in 0..n_tokens {
            let row = &x[i * d_in..][..d_in];
            let range = row.iter().copied().fold(0f32, f32::max) - row.iter().copied().fold(0f32, f32::min);
            // Twice half a step: the zero point is rounded, too, and the ends are cut.
            let step = f64::from(range) / 255.0;
            for j in 0..d_out {
                let column = || (0..d_in).map(|l| f64::from(weight[l * d_out + j]));
                let steps = f64::from(flex::int8::greatest_weight());
                let half = column().fold(0.0, |max, w| w.abs().max(max)) / steps / 2.0;
                let exact: f64 = column().zip(row).map(|(w, x)| w * f64::from(*x)).sum();
                let bound: f64 =
                    column().zip(row).map(|(w, x)| w.abs() * step + half * (f64::from(x.abs()) + step)).sum();
                let error = (f64::from(y[i * d_out + j]) - exact).abs();
                assert!(error <= bound, "{error} is more than {bound}");
            }
        }
    }

    #[test]
    fn the_error_is_small_beside_the_result() {
        let (x, weight) = (tensor([40, 384], 0.5), tensor([384, 96], 1.5));
        let exact = x.clone().matmul(weight.clone());
        let error = linear_int8(x, &Int8Weight::quantize(weight), None) - exact.clone();
        let norm = |x: Tensor<2>| x.powf_scalar(2.0).sum().sqrt().into_scalar::<f32>();
        let relative = norm(error) / norm(exact);
        assert!(relative < 0.02 && relative > 0.0, "{relative}");
    }

    #[test]
    fn zeros_and_numbers_out_of_range() {
        let device = Device::flex();
        let x =
            Tensor::<2>::from_data([[0.0, 0.0], [1.0, f32::NAN], [1.0, f32::INFINITY], [1.0, 2.0]], &device);
        let weight = Tensor::<2>::from_data([[0.0, 1.0, f32::NAN], [0.0, -1.0, 1.0]], &device);
        let bias = Tensor::<1>::from_data([5.0, 6.0, 7.0], &device);
        let fused = linear_int8(x.clone(), &Int8Weight::quantize(weight.clone()), Some(bias.clone()));
        for y in [fused, composed(x, dequantized(weight), Some(bias))] {
            let y = y.into_data();
            let y = y.as_slice::<f32>().unwrap();
            assert_eq!(y[..2], [5.0, 6.0]);
            assert!(y[3..9].iter().all(|y| y.is_nan()), "{y:?}");
            assert_eq!(y[9], 5.0);
            assert!((y[10] - 5.0).abs() < 0.02, "{y:?}");
            assert!(y[2].is_nan() && y[11].is_nan(), "{y:?}");
        }
    }

    #[test]
    #[should_panic(expected = "has no gradient")]
    fn autodiff_is_refused() {
        let device = Device::flex().autodiff();
        let weight = Tensor::<2>::ones([2, 2], &device);
        linear_int8(Tensor::<2>::ones([1, 2], &device), &Int8Weight::quantize(weight), None);
    }
}
