use super::ClassProbe;
use crate::ParamInit;
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};

/// A mean over layers with trained weights: `γ · Σ_l s_l · h_l` with `s = softmax(a)` (Peters et al. 2018, eq. 1; Tenney et al.
/// 2019, §3.1). At first all weights are equal and `γ` is 1.
#[derive(Module, Debug)]
pub struct ScalarMix {
    /// `[n_layers]`: `a`.
    pub scores: Param<Tensor<1>>,
    /// `[1]`: `γ`.
    pub scale: Param<Tensor<1>>,
}

impl ScalarMix {
    /// A mean over `n_layers` layers.
    pub fn new(n_layers: usize, init: &mut ParamInit) -> Self {
        Self { scores: init.zeros([n_layers]), scale: init.ones([1]) }
    }

    /// `[n_layers]`: the layers' shares `s`, whose sum is 1.
    pub fn weights(&self) -> Tensor<1> {
        activation::softmax(self.scores.val(), 0)
    }

    /// The mean.
    ///
    /// # Shapes
    /// - `layers`: `[n, n_layers, d]`; returns `[n, d]`
    pub fn forward(&self, layers: Tensor<3>) -> Tensor<2> {
        let n_layers = layers.dims()[1];
        let mean = (layers * self.weights().reshape([1, n_layers, 1])).sum_dim(1).squeeze_dim::<2>(1);
        mean * self.scale.val().reshape([1, 1])
    }
}

/// A probe for classes of a [`ScalarMix`] of all layers.
#[derive(Module, Debug)]
pub struct MixedProbe {
    /// The mean over layers.
    pub mix: ScalarMix,
    /// What tells classes by it.
    pub probe: ClassProbe,
}

impl MixedProbe {
    /// The logits of each class.
    ///
    /// # Shapes
    /// - `layers`: `[n, n_layers · d]`, each layer's states side by side; returns `[n, n_classes]`
    pub fn forward(&self, layers: Tensor<2>) -> Tensor<2> {
        let [n, features] = layers.dims();
        let n_layers = self.mix.scores.dims()[0];
        self.probe.forward(self.mix.forward(layers.reshape([n, n_layers, features / n_layers])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn layers_are_weighed_and_scaled() {
        let device = Device::flex();
        let layers = Tensor::<3>::from_data([[[1.0, 2.0], [3.0, 6.0]], [[0.0, 4.0], [4.0, 0.0]]], &device);
        let close = |found: Tensor<2>, expected: [[f32; 2]; 2]| {
            found.into_data().assert_approx_eq::<f32>(&expected.into(), Tolerance::absolute(1e-6));
        };
        let mut mix = ScalarMix::new(2, &mut ParamInit::new(&device, 1));
        close(mix.forward(layers.clone()), [[2.0, 4.0], [2.0, 2.0]]);
        // Shares 3/4 and 1/4.
        mix.scores = Param::from_tensor(Tensor::from_data([3_f32.ln(), 0.0], &device));
        mix.scale = Param::from_tensor(Tensor::from_data([2.0], &device));
        close(mix.forward(layers), [[3.0, 6.0], [2.0, 6.0]]);
    }

    #[test]
    fn layers_lie_side_by_side() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 1);
        let probe = MixedProbe { mix: ScalarMix::new(2, init), probe: ClassProbe::new(2, None, 3, init) };
        let found = probe.forward(Tensor::from_data([[1.0, 2.0, 3.0, 6.0]], &device));
        let expected = probe.probe.forward(Tensor::from_data([[2.0, 4.0]], &device)).into_data();
        found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }
}
