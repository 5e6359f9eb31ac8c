use crate::image_windows;
use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use crate::flex;

/// Every `stride`-th place of an image's rows and columns, with zeros for new channels: the way past a residual block that halves an image,
/// which has no parameters (He et al. 2016, §4.2, option A).
///
/// # Shapes
/// - `x`: `[batch, rows, columns, d]`; returns `[batch, ⌈rows / stride⌉, ⌈columns / stride⌉, channels]`
///
/// # Panics
/// If there are fewer `channels` than `x` has, or `stride` is 0.
pub fn subsampled(x: Tensor<4>, stride: usize, channels: usize) -> Tensor<4> {
    let [.., d] = x.dims();
    assert!(channels >= d, "{channels} channels have no room for {d}");
    assert!(stride > 0, "places that are no places apart");
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::subsampled::subsampled(x, stride, channels);
    }
    composed(x, stride, channels)
}

fn composed(x: Tensor<4>, stride: usize, channels: usize) -> Tensor<4> {
    let options = (&x.device(), x.dtype());
    let places = image_windows(x, 1, stride);
    let [batch, rows, columns, d] = places.dims();
    if channels == d {
        return places;
    }
    let zeros = Tensor::zeros([batch, rows, columns, channels - d], options);
    Tensor::cat(vec![places, zeros], 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn by_hand_forward_and_backward() {
        let device = Device::flex().autodiff();
        let x = Tensor::<4>::from_data(
            [[[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0], [9.0, 10.0], [11.0, 12.0]]]],
            &device,
        );
        for form in [subsampled, composed] {
            let x = x.clone().require_grad();
            let y = form(x.clone(), 2, 3);
            assert_eq!(y.to_data(), TensorData::from([[[[1f32, 2.0, 0.0], [5.0, 6.0, 0.0]]]]));
            let scales = Tensor::<4>::from_data([[[[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]]], &device);
            let gradient = x.grad(&(y * scales).sum().backward()).unwrap().into_data();
            let zero = [0f32, 0.0];
            assert_eq!(gradient, TensorData::from([[[[2.0, 3.0], zero, [5.0, 6.0]], [zero, zero, zero]]]));
            assert_eq!(form(x.clone(), 1, 2).to_data(), x.to_data());
            assert_eq!(form(x.clone(), 3, 2).to_data(), TensorData::from([[[[1f32, 2.0]]]]));
        }
    }
}
