use crate::{image_windows, linear};
use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use crate::{Precision, flex};

/// A convolution of images with channels last: the product of each place's [window](image_windows) with the weight, without a bias.
///
/// In FP32 on flex neither pass makes the windows. In other precisions and elsewhere it is a [`linear`] map of them.
///
/// # Shapes
/// - `x`: `[batch, rows, columns, channels]`
/// - `weight`: `[width · width · channels, channels_out]`, a window's places row by row
/// - returns `[batch, ⌈rows / stride⌉, ⌈columns / stride⌉, channels_out]`
///
/// # Panics
/// If `width` is even, `stride` is 0, or the weight has another number of rows.
pub fn image_convolution(x: Tensor<4>, weight: Tensor<2>, width: usize, stride: usize) -> Tensor<4> {
    let [.., channels] = x.dims();
    assert!(width % 2 == 1, "a window of {width} places has no middle");
    assert!(stride > 0, "windows that do not move see one place");
    assert_eq!(weight.dims()[0], width * width * channels, "a row of the weight for each number of a window");
    #[cfg(feature = "flex")]
    if flex::takes(&x) && Precision::current() == Precision::Fp32 {
        return flex::convolution::image_convolution(x, weight, width, stride);
    }
    composed(x, weight, width, stride)
}

fn composed(x: Tensor<4>, weight: Tensor<2>, width: usize, stride: usize) -> Tensor<4> {
    linear(image_windows(x, width, stride), weight, None)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::module::conv2d;
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Device, Distribution, TensorData, Tolerance};

    type Form = fn(Tensor<4>, Tensor<2>, usize, usize) -> Tensor<4>;

    /// burn's own, which sums in yet another way.
    fn direct(x: Tensor<4>, weight: Tensor<2>, width: usize, stride: usize) -> Tensor<4> {
        let [channels, channels_out] = [x.dims()[3], weight.dims()[1]];
        // From rows, columns, in, out to out, in, rows, columns.
        let weight = weight.reshape([width, width, channels, channels_out]).permute([3, 2, 0, 1]);
        let options = ConvOptions::new([stride; 2], [(width - 1) / 2; 2], [1; 2], 1);
        conv2d(x.permute([0, 3, 1, 2]), weight, None, options).permute([0, 2, 3, 1])
    }

    /// By its definition, a product at a time.
    fn naive(
        x: &[f32],
        [batch, rows, columns, channels]: [usize; 4],
        weight: &[f32],
        n: usize,
        width: usize,
        stride: usize,
    ) -> Vec<f32> {
        let edge = (width - 1) / 2;
        let mut y = Vec::new();
        for image in 0..batch {
            for row in (0..rows).step_by(stride) {
                for column in (0..columns).step_by(stride) {
                    for out in 0..n {
                        let mut sum = 0.0;
                        for (i, j) in (0..width).flat_map(|i| (0..width).map(move |j| (i, j))) {
                            let (Some(r), Some(c)) =
                                ((row + i).checked_sub(edge), (column + j).checked_sub(edge))
                            else {
                                continue;
                            };
                            if r >= rows || c >= columns {
                                continue;
                            }
                            for channel in 0..channels {
                                let x = x[((image * rows + r) * columns + c) * channels + channel];
                                sum += x * weight[((i * width + j) * channels + channel) * n + out];
                            }
                        }
                        y.push(sum);
                    }
                }
            }
        }
        y
    }

    /// Batch, rows, columns, channels, channels of the output, width, stride.
    const CASES: [[usize; 7]; 12] = [
        [1, 1, 1, 1, 1, 1, 1],
        [2, 5, 7, 3, 4, 3, 1],
        [9, 8, 8, 16, 16, 3, 1],
        [5, 8, 8, 16, 32, 3, 2],
        [2, 5, 7, 3, 33, 3, 2],
        [3, 6, 9, 2, 5, 1, 2],
        [2, 4, 4, 1, 17, 5, 1],
        [2, 7, 5, 2, 3, 5, 3],
        [1, 2, 3, 20, 40, 1, 1],
        [2, 2, 2, 4, 4, 7, 1],
        [1, 19, 33, 5, 64, 3, 1],
        [0, 4, 4, 2, 3, 3, 1],
    ];

    #[test]
    fn forms_agree_forward_and_backward() {
        let device = Device::flex().autodiff();
        for [batch, rows, columns, channels, n, width, stride] in CASES {
            let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Default, &device) - 0.5;
            let x = random([batch, rows, columns, channels]).require_grad();
            let weight = random([1, 1, width * width * channels, n]).reshape([-1, n as i32]).require_grad();
            let scales = random([batch, rows.div_ceil(stride), columns.div_ceil(stride), n]);
            let run = |form: Form| {
                let y = form(x.clone(), weight.clone(), width, stride);
                let grads = (y.clone() * scales.clone()).sum().backward();
                let (x, weight) = (x.grad(&grads).unwrap(), weight.grad(&grads).unwrap());
                [y.into_data(), x.into_data(), weight.into_data()]
            };
            let fused = run(image_convolution);
            let tolerance = Tolerance::<f32>::rel_abs(1e-4, 1e-4);
            let values = |x: TensorData| x.iter::<f32>().collect::<Vec<f32>>();
            let by_hand = naive(&values(x.to_data()), x.dims(), &values(weight.to_data()), n, width, stride);
            fused[0].assert_approx_eq(&TensorData::new(by_hand, scales.dims()), tolerance);
            if batch == 0 {
                continue;
            }
            for form in [composed as Form, direct] {
                for (found, expected) in fused.iter().zip(run(form)) {
                    found.assert_approx_eq(&expected, tolerance);
                }
            }
        }
    }

    #[test]
    fn what_is_frozen_gets_no_gradient_and_changes_no_other() {
        let device = Device::flex().autodiff();
        let x = Tensor::<4>::random([3, 5, 6, 4], Distribution::Default, &device);
        let weight = Tensor::<2>::random([36, 8], Distribution::Default, &device);
        let run = |x: Tensor<4>, weight: Tensor<2>| {
            let grads = image_convolution(x.clone(), weight.clone(), 3, 1).powi_scalar(2).sum().backward();
            (x.grad(&grads).map(Tensor::into_data), weight.grad(&grads).map(Tensor::into_data))
        };
        let both = run(x.clone().require_grad(), weight.clone().require_grad());
        assert!(both.0.is_some() && both.1.is_some());
        assert_eq!(run(x.clone().require_grad(), weight.clone()), (both.0, None));
        assert_eq!(run(x, weight.require_grad()), (None, both.1));
    }

    #[test]
    fn threads_change_no_bit() {
        let device = Device::flex().autodiff();
        let x = Tensor::<4>::random([11, 9, 7, 5], Distribution::Default, &device).require_grad();
        let weight = Tensor::<2>::random([45, 20], Distribution::Default, &device).require_grad();
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let y = image_convolution(x.clone(), weight.clone(), 3, 2);
                let grads = y.clone().powi_scalar(2).sum().backward();
                [y.into_data(), x.grad(&grads).unwrap().into_data(), weight.grad(&grads).unwrap().into_data()]
            })
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(3));
    }
}
