use super::Linear;
use crate::{ParamInit, linear_maps, ops};
use burn::module::Module;
use burn::tensor::Tensor;

/// A convolution of images, channels last: the [windows](ops::image_windows) of the places through a linear map. What holds of linear
/// maps (precision, integers, adapters, observation) holds of it; a plain map's windows are not made
/// ([`ops::image_convolution`]).
#[derive(Module, Debug)]
pub struct ImageConvolution {
    /// `[width · width · d_in, d_out]`: a window's places row by row.
    pub map: Linear,
    width: usize,
    stride: usize,
}

linear_maps!(ImageConvolution { map });

impl ImageConvolution {
    /// A new convolution without bias, from windows of `width × width` places, `stride` places apart. Weights start from
    /// `N(0, √(2 / (width² · d_in)))`: the variance stays where a ReLU follows (He et al. 2015, eq. 10).
    ///
    /// # Panics
    /// If `width` is even, or `stride` is 0.
    pub fn new(d_in: usize, d_out: usize, width: usize, stride: usize, init: &mut ParamInit) -> Self {
        assert!(width % 2 == 1 && stride > 0, "a window of {width} places, {stride} apart");
        let n = width * width * d_in;
        let weight = init.normal([n, d_out], (2.0 / n as f64).sqrt());
        Self { map: Linear::from_parts(weight, None), width, stride }
    }

    /// # Shapes
    /// - `x`: `[batch, rows, columns, d_in]`; returns `[batch, ⌈rows / stride⌉, ⌈columns / stride⌉, d_out]`
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        match self.map.plain_weight() {
            Some(weight) => ops::image_convolution(x, weight, self.width, self.stride),
            None => self.map.forward(ops::image_windows(x, self.width, self.stride)),
        }
    }
}
