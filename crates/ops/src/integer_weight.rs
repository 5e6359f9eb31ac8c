//! Linear maps with weights of integers, for inference.

use crate::IntegerMatrix;
#[cfg(feature = "flex")]
use crate::flex;
use burn::tensor::{DType, Device, Tensor, TensorData};
#[cfg(feature = "flex")]
use std::sync::Arc;

/// The matrix of a linear map in integers, packed for the machine's instructions.
#[derive(Debug, Clone)]
pub struct IntegerWeight {
    dims: [usize; 2],
    tokens: TokenRounding,
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    #[cfg(feature = "flex")]
    Packed(Arc<flex::integer::PackedWeight>),
    /// The dequantised numbers.
    Composed(Box<Tensor<2>>),
}

/// How tokens are rounded to 8 bits before they are multiplied.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenRounding {
    /// A factor for each input feature, applied before rounding; none for 1. The weight has been divided by them
    /// (SmoothQuant, Xiao et al. 2023).
    pub factors: Option<Vec<f32>>,
    /// Whether a token's own range has 0 in its middle.
    pub symmetric: bool,
    /// The range of all tokens, which was measured on texts; none to give each token its own.
    pub range: Option<TokenRange>,
}

/// A range of numbers in 256 steps: `x ≈ scale · (q − zero)`, with `q` from 0 to 255. What is outside becomes its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenRange {
    /// The size of a step.
    pub scale: f32,
    /// The step that stands for 0.
    pub zero: u8,
}

impl TokenRange {
    /// The range that holds everything from `least` to `most`, and 0.
    pub fn of(least: f32, most: f32) -> Self {
        let (least, most) = (least.min(0.0), most.max(0.0));
        let scale = (most - least) / 255.0;
        let zero = if scale > 0.0 { (-least / scale).round_ties_even() } else { 0.0 };
        Self { scale, zero: zero as u8 }
    }
}

impl IntegerWeight {
    /// Quantises a matrix `[d_in, d_out]` with any strides to 8 bits; any gradient is dropped.
    ///
    /// Each output channel (column) has its own scale, its maximum magnitude / 127 (/ 64 if the flex backend has only
    /// AVX2, so that two products fit in 16 bits), and no zero point. A zero column has scale 0; a non-finite one makes
    /// its outputs NaN.
    ///
    /// # Panics
    /// If `d_in` is more than 65,536, since sums could overflow 32 bits.
    pub fn quantize(weight: Tensor<2>) -> Self {
        #[cfg(feature = "flex")]
        let greatest = if flex::takes(&weight) { flex::integer::greatest_weight() } else { i8::MAX };
        #[cfg(not(feature = "flex"))]
        let greatest = i8::MAX;
        Self::to_greatest(weight, greatest)
    }

    fn to_greatest(weight: Tensor<2>, greatest: i8) -> Self {
        let ([d_in, d_out], device) = (weight.dims(), weight.device().inner());
        let data = weight.transpose().into_data().convert_dtype(DType::F32);
        let mut numbers = data.try_into_vec::<f32>().expect("just converted");
        // Their outputs become NaN by their biases.
        let lost: Vec<bool> =
            numbers.chunks_exact(d_in.max(1)).map(|row| !row.iter().all(|x| x.is_finite())).collect();
        for (row, _) in numbers.chunks_exact_mut(d_in.max(1)).zip(&lost).filter(|(_, lost)| **lost) {
            row.fill(0.0);
        }
        let matrix = IntegerMatrix::int8(&numbers, [d_out, d_in], greatest).expect("finite numbers");
        Self::packed(&matrix, TokenRounding::default(), &device, &lost)
    }

    /// The weight whose rows of outputs are those of `matrix`, `[d_out, d_in]`: its integers are multiplied as they are.
    ///
    /// # Panics
    /// If `d_in` is more than 65,536, since sums could overflow 32 bits; if there are not as many factors.
    pub fn new(matrix: &IntegerMatrix, tokens: TokenRounding, device: &Device) -> Self {
        Self::packed(matrix, tokens, device, &[])
    }

    fn packed(matrix: &IntegerMatrix, tokens: TokenRounding, device: &Device, lost: &[bool]) -> Self {
        let [d_out, d_in] = matrix.dims();
        assert!(d_in <= 65_536, "sums of {d_in} products overflow");
        assert!(
            tokens.factors.as_ref().is_none_or(|factors| factors.len() == d_in),
            "a factor for each feature"
        );
        let dims = [d_in, d_out];
        #[cfg(feature = "flex")]
        if flex::is_flex(device) {
            let packed = flex::integer::PackedWeight::new(matrix, lost);
            return Self { dims, tokens, form: Form::Packed(Arc::new(packed)) };
        }
        let mut numbers = matrix.dequantized();
        for (row, _) in numbers.chunks_exact_mut(d_in.max(1)).zip(lost).filter(|(_, lost)| **lost) {
            row.fill(f32::NAN);
        }
        let weight = Tensor::<2>::from_data(TensorData::new(numbers, [d_out, d_in]), device).transpose();
        Self { dims, tokens, form: Form::Composed(Box::new(weight)) }
    }

    /// `[d_in, d_out]`
    pub fn dims(&self) -> [usize; 2] {
        self.dims
    }
}

/// `x·W + b` over the last axis, multiplied in integers: for inference.
///
/// Each token is quantised to 256 steps between its minimum and maximum (including zero), as ONNX Runtime's
/// and PyTorch's dynamic quantisation do per tensor, unless the weight's [`TokenRounding`] has a range; products are
/// summed in 32-bit integers, for each block of a scale, and finally scaled to FP32. A token's result does not depend on
/// the others. Non-finite tokens give NaN.
///
/// On the flex backend the products use AMX, AVX512-VNNI or AVX2 if available, with the same bits: sums are exact, and
/// those of blocks are added in their order. Other devices multiply the rounded numbers in FP32.
///
/// # Shapes
/// - `x`: `[..., d_in]`; `weight`: `[d_in, d_out]`; `bias`: `[d_out]`; returns `[..., d_out]`
///
/// # Panics
/// If `x` is on a device with autodiff (rounding has no gradient; use the model's `valid()`), or if it is on
/// another device than the weight was.
pub fn linear_integer<const D: usize>(
    x: Tensor<D>,
    weight: &IntegerWeight,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    assert!(!x.device().is_autodiff(), "a product of integers has no gradient");
    assert_eq!(x.dims()[D - 1], weight.dims[0], "the weight takes another width than x has");
    match &weight.form {
        #[cfg(feature = "flex")]
        Form::Packed(packed) => {
            assert!(flex::takes(&x), "32-bit floats on the weight's device");
            flex::integer::linear(x, packed, &weight.tokens, bias)
        }
        Form::Composed(matrix) => composed(x, &weight.tokens, Tensor::clone(matrix), bias),
    }
}

fn composed<const D: usize>(
    x: Tensor<D>,
    tokens: &TokenRounding,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let (mut shape, [d_in, d_out]) = (x.dims(), weight.dims());
    let n_tokens = shape.iter().product::<usize>() / d_in.max(1);
    let x = rounded(x.reshape([n_tokens, d_in]), tokens);
    let y = burn::tensor::module::linear(x, weight, bias);
    shape[D - 1] = d_out;
    y.reshape(shape)
}

/// Tokens after quantisation and dequantisation.
fn rounded(x: Tensor<2>, tokens: &TokenRounding) -> Tensor<2> {
    let x = match &tokens.factors {
        Some(factors) => {
            let factors = TensorData::new(factors.clone(), [1, factors.len()]);
            x.clone() * Tensor::from_data(factors, &x.device())
        }
        None => x,
    };
    if let Some(TokenRange { scale, zero }) = tokens.range {
        let (inverse, zero) = (if scale > 0.0 { 1.0 / scale } else { 0.0 }, f32::from(zero));
        let steps = (x.clone().mul_scalar(inverse).round() + zero).clamp(0.0, 255.0);
        // NaN stays NaN.
        return (steps - zero) * scale + x * 0.0;
    }
    let (least, most) = match tokens.symmetric {
        true => {
            let most = x.clone().abs().max_dim(1);
            (most.clone().neg(), most)
        }
        false => (x.clone().min_dim(1).clamp_max(0.0), x.clone().max_dim(1).clamp_min(0.0)),
    };
    let scale = (most - least.clone()).div_scalar(255.0);
    let inverse = scale.clone().recip().mask_fill(scale.clone().equal_elem(0.0), 0.0);
    let zero = match tokens.symmetric {
        true => least.zeros_like() + 128.0,
        false => (least.neg() * inverse.clone()).round(),
    };
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
        let ([d_in, d_out], device) = (weight.dims(), weight.device());
        let mut numbers = weight.transpose().into_data().try_into_vec::<f32>().expect("FP32");
        for row in numbers.chunks_exact_mut(d_in) {
            match IntegerMatrix::int8(row, [1, d_in], flex::integer::greatest_weight()) {
                Ok(matrix) => matrix.dequantize_row(0, row),
                Err(_) => row.fill(f32::NAN),
            }
        }
        Tensor::<2>::from_data(TensorData::new(numbers, [d_out, d_in]), &device).transpose()
    }

    fn plain() -> TokenRounding {
        TokenRounding::default()
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
                let fused = linear_integer(x.clone(), &IntegerWeight::quantize(weight.clone()), bias.clone());
                let composed = composed(x, &plain(), dequantized(weight), bias);
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
        let y = linear_integer(
            tensor([n_tokens, d_in], 0.5),
            &IntegerWeight::quantize(tensor([d_in, d_out], 1.5)),
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
                let steps = f64::from(flex::integer::greatest_weight());
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
        let error = linear_integer(x, &IntegerWeight::quantize(weight), None) - exact.clone();
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
        let fused = linear_integer(x.clone(), &IntegerWeight::quantize(weight.clone()), Some(bias.clone()));
        for y in [fused, composed(x, &plain(), dequantized(weight), Some(bias))] {
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
    fn integers_of_a_file_give_the_same_fused_and_composed() {
        let numbers = values(37 * 64, 2.0);
        let dims = [37, 64];
        let range = TokenRange::of(-5.0, 6.0);
        let factors: Vec<f32> = (0..64).map(|i| 1.0 + (i % 3) as f32).collect();
        for matrix in [
            IntegerMatrix::int8(&numbers, dims, 127),
            IntegerMatrix::q8_0(&numbers, dims),
            IntegerMatrix::q4_0(&numbers, dims),
        ] {
            let matrix = matrix.unwrap();
            for tokens in [
                plain(),
                TokenRounding { range: Some(range), ..plain() },
                TokenRounding { factors: Some(factors.clone()), ..plain() },
                TokenRounding { symmetric: true, ..plain() },
            ] {
                let (x, bias) = (tensor([3, 7, 64], 0.1), tensor([37], 3.0));
                let weight = IntegerWeight::new(&matrix, tokens.clone(), &Device::flex());
                let fused = linear_integer(x.clone(), &weight, Some(bias.clone()));
                let floats = TensorData::new(matrix.dequantized(), dims);
                let floats = Tensor::<2>::from_data(floats, &Device::flex()).transpose();
                let composed = composed(x, &tokens, floats, Some(bias));
                fused
                    .into_data()
                    .assert_approx_eq::<f32>(&composed.into_data(), Tolerance::rel_abs(1e-4, 2e-2));
            }
        }
    }

    #[test]
    #[should_panic(expected = "has no gradient")]
    fn autodiff_is_refused() {
        let device = Device::flex().autodiff();
        let weight = Tensor::<2>::ones([2, 2], &device);
        linear_integer(Tensor::<2>::ones([1, 2], &device), &IntegerWeight::quantize(weight), None);
    }
}
