use super::ClassProbe;
use crate::blocks::ScalarMix;
use crate::linear_maps;
use burn::module::Module;
use burn::tensor::Tensor;

/// A classification probe on a weighted mean of all layers, with trained weights (Tenney et al. 2019, §3.1).
#[derive(Module, Debug)]
pub struct MixedProbe {
    /// The mean over layers.
    pub mix: ScalarMix,
    /// The classification probe.
    pub probe: ClassProbe,
}

linear_maps!(MixedProbe { probe });

impl MixedProbe {
    /// The logits of each class.
    ///
    /// # Shapes
    /// - `layers`: `[n, n_layers · d]`, each layer's states, concatenated; returns `[n, n_classes]`
    pub fn forward(&self, layers: Tensor<2>) -> Tensor<2> {
        self.probe.forward(self.mix.forward(&layers.chunk(self.mix.weights.dims()[0], 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::blocks::ScalarMixConfig;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn layers_lie_side_by_side() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 1);
        let mix = ScalarMixConfig::new(2).init(init);
        let probe = MixedProbe { mix, probe: ClassProbe::new(2, None, 3, init) };
        let found = probe.forward(Tensor::from_data([[1.0, 2.0, 3.0, 6.0]], &device));
        let expected = probe.probe.forward(Tensor::from_data([[2.0, 4.0]], &device)).into_data();
        found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }
}
