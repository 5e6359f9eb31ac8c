use super::InferenceWeight;
use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};

/// A linear map of the last axis whose weight is [normalised](ops::weight_norm), `x·(g · V / ‖V‖) + b`:
/// each output feature has a direction and a length (Salimans & Kingma 2016, "Weight Normalization", eq.
/// 2).
#[derive(Module, Debug)]
pub struct NormedLinear {
    /// `[d_in, d_out]`: each column is an output feature's direction; its norm is irrelevant.
    pub v: Param<Tensor<2>>,
    /// `[d_out]`: the lengths.
    pub g: Param<Tensor<1>>,
    /// `[d_out]`
    pub bias: Param<Tensor<1>>,
    /// The weight for inference, if it is [quantised](super::quantize_int8) or [packed](super::pack_weights).
    #[module(skip)]
    pub(super) inference: Option<InferenceWeight>,
}

impl NormedLinear {
    /// A new map from `d_in` to `d_out` features that multiplies the variance of its inputs by `gain`: its
    /// directions are drawn from `N(0, √(gain / d_in))`. The lengths are all `√gain`, the expected column
    /// norm; fairseq uses each column's actual norm, which differs by about `1 / √(2 · d_in)`. Biases are
    /// zero.
    pub fn new(d_in: usize, d_out: usize, gain: f64, init: &mut ParamInit) -> Self {
        let v = init.normal([d_in, d_out], (gain / d_in.max(1) as f64).sqrt());
        let length = gain.sqrt() as f32;
        let g = init.param([d_out], move |_| length);
        Self { v, g, bias: init.zeros([d_out]), inference: None }
    }

    /// The weight from directions and lengths, `[d_in, d_out]`.
    pub fn weight(&self) -> Tensor<2> {
        ops::weight_norm(self.v.val(), self.g.val())
    }

    /// The weights of these output features, one a row; no others are normalised.
    ///
    /// # Shapes
    /// - `outputs`: `[n]`; returns `[n, d_in]`
    pub(crate) fn rows(&self, outputs: Tensor<1, Int>) -> Tensor<2> {
        ops::weight_norm(self.v.val().select(1, outputs.clone()), self.g.val().select(0, outputs)).transpose()
    }

    /// # Shapes
    /// - `x`: `[..., d_in]`; returns `[..., d_out]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let bias = Some(self.bias.val());
        match &self.inference {
            Some(weight) => weight.forward(x, bias),
            None => ops::linear(x, self.weight(), bias),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{pack_weights, quantize_int8};
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn a_new_map_multiplies_the_variance() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 1);
        let map = NormedLinear::new(200, 300, 4.0, init);
        let lengths = map.weight().powi_scalar(2).sum_dim(0).sqrt().into_data();
        assert!(lengths.iter::<f32>().all(|length| (length - 2.0).abs() < 1e-4));
        let y = map.forward(init.normal([50, 200], 1.0).val()).into_data();
        let variance = y.iter::<f64>().map(|y| y * y).sum::<f64>() / y.num_elements() as f64;
        assert!((variance - 4.0).abs() < 0.3, "{variance}");
    }

    #[test]
    fn weights_are_made_once_for_inference() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 1);
        let mut map = NormedLinear::new(24, 10, 1.0, init);
        map.bias = init.uniform([10], 1.0);
        let x = init.normal([4, 24], 1.0).val();
        let expected = map.forward(x.clone()).into_data();
        pack_weights(&mut map);
        for _ in 0..3 {
            map.forward(x.clone()).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
        quantize_int8(&mut map);
        map.forward(x).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(0.1));
    }
}
