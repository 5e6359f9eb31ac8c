use burn::tensor::Tensor;

/// Each place's window of `width × width` places of its image: `[x_(i−p, j−p); …; x_(i−p+width−1, j−p+width−1)]` row by row, with
/// `p = (width − 1) / 2` and zeros beyond the image's edges. Windows stand `stride` places apart, from the first place on.
///
/// A convolution of images is one product with the windows: [`linear`](crate::linear()) with a weight of
/// `[width · width · channels, channels_out]`.
///
/// # Shapes
/// - `x`: `[batch, rows, columns, channels]`; returns
///   `[batch, ⌈rows / stride⌉, ⌈columns / stride⌉, width · width · channels]`
///
/// # Panics
/// If `width` is even, or `stride` is 0.
pub fn image_windows(x: Tensor<4>, width: usize, stride: usize) -> Tensor<4> {
    assert!(width % 2 == 1, "a window of {width} places has no middle");
    assert!(stride > 0, "windows that do not move see one place");
    let [batch, rows, columns, channels] = x.dims();
    let (height, width_out) = (rows.div_ceil(stride), columns.div_ceil(stride));
    if width == 1 && stride == 1 {
        return x;
    }
    let edge = (width - 1) / 2;
    // What the last window sees, rounded up to whole strides so that a window's places are a reshape apart.
    let (padded_rows, padded_columns) = (height * stride + width - 1, width_out * stride + width - 1);
    let options = (&x.device(), x.dtype());
    let padded = Tensor::<4>::zeros([batch, padded_rows, padded_columns, channels], options)
        .slice_assign([0..batch, edge..edge + rows, edge..edge + columns, 0..channels], x);
    let place = |row: usize, column: usize| {
        let seen = padded.clone().narrow(1, row, height * stride).narrow(2, column, width_out * stride);
        let strided = seen.reshape([batch, height, stride, width_out, stride * channels]);
        strided.narrow(2, 0, 1).narrow(4, 0, channels).reshape([batch, height, width_out, channels])
    };
    let places = (0..width).flat_map(|row| (0..width).map(move |column| (row, column)));
    Tensor::cat(places.map(|(row, column)| place(row, column)).collect(), 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::module::conv2d;
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn a_product_with_windows_is_a_convolution() {
        let device = Device::flex().autodiff();
        for (rows, columns, channels, width, stride) in [
            (5, 7, 3, 3, 1),
            (8, 8, 2, 3, 2),
            (5, 7, 3, 3, 2),
            (6, 9, 2, 1, 2),
            (4, 4, 1, 5, 1),
            (7, 5, 2, 5, 3),
        ] {
            let x = Tensor::<4>::random([2, rows, columns, channels], Distribution::Default, &device);
            let weight = Tensor::<2>::random([width * width * channels, 4], Distribution::Default, &device);
            let (x, weight) = (x.require_grad(), weight.require_grad());
            let windows = image_windows(x.clone(), width, stride);
            let [batch, height, width_out, n] = windows.dims();
            let found = windows.reshape([batch * height * width_out, n]).matmul(weight.clone());
            let found = found.reshape([batch, height, width_out, 4]);
            // OHWI to OIHW.
            let turned = weight.clone().reshape([width, width, channels, 4]).permute([3, 2, 0, 1]);
            let edge = (width - 1) / 2;
            let options = ConvOptions::new([stride; 2], [edge; 2], [1; 2], 1);
            let expected =
                conv2d(x.clone().permute([0, 3, 1, 2]), turned, None, options).permute([0, 2, 3, 1]);
            let close = |found: Tensor<4>, expected: Tensor<4>| {
                let tolerance = Tolerance::<f32>::absolute(1e-4);
                found.into_data().assert_approx_eq(&expected.into_data(), tolerance);
            };
            close(found.clone(), expected.clone());
            let scales = Tensor::<4>::random(found.dims(), Distribution::Default, &device);
            let [found, expected] = [found, expected].map(|y| (y * scales.clone()).sum().backward());
            close(x.grad(&found).unwrap(), x.grad(&expected).unwrap());
            let of = |gradients| weight.grad(gradients).unwrap().unsqueeze::<4>();
            close(of(&found), of(&expected));
        }
    }
}
