use crate::{ModelError, ParamInit, Result};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use serde::{Deserialize, Serialize};

/// The configuration of a [`ScalarMix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScalarMixConfig {
    /// Number of layers to mix.
    pub n_layers: usize,
    /// Whether each layer is normalised before it is weighted.
    pub layer_norm: bool,
}

impl ScalarMixConfig {
    /// A mix of `n_layers` layers without normalisation.
    pub fn new(n_layers: usize) -> Self {
        Self { n_layers, layer_norm: false }
    }

    /// Sets whether layers are normalised.
    pub fn with_layer_norm(self, layer_norm: bool) -> Self {
        Self { layer_norm, ..self }
    }

    /// # Errors
    /// [`ModelError::Setting`] for no layers.
    pub fn validate(&self) -> Result<()> {
        match self.n_layers {
            0 => Err(ModelError::setting("n_layers", 0, "1 or more")),
            _ => Ok(()),
        }
    }

    /// A new mix: the mean of the layers.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> ScalarMix {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        ScalarMix { weights: init.zeros([self.n_layers]), gamma: init.ones([1]), layer_norm: self.layer_norm }
    }
}

/// A weighted mean of an encoder's layers, with learned weights and scale: `γ · Σ_j s_j · h_j` with `s =
/// softmax(w)` (Peters et al. 2018, eq. 1). A task reads an encoder through it.
///
/// The layers may be those of any encoder. The paper's penalty on the weights, `λ‖w‖²`, is weight decay, left
/// to the optimiser.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cloze_model::ParamInit;
/// use cloze_model::blocks::ScalarMixConfig;
///
/// let device = Device::flex();
/// let mix = ScalarMixConfig::new(2).init(&mut ParamInit::new(&device, 42));
/// // Two layers' states of three tokens.
/// let layers = [Tensor::<2>::zeros([3, 4], &device), Tensor::ones([3, 4], &device)];
/// assert_eq!(mix.forward(&layers).max().into_scalar::<f32>(), 0.5);
/// ```
///
/// Deviation: with [`layer_norm`](Self::layer_norm) the features of each token are normalised (Ba et al.
/// 2016), without a scale or a shift. AllenNLP's `ScalarMix` normalises a layer over the whole batch, so a
/// token's vector depends on the other texts.
#[derive(Module, Debug)]
pub struct ScalarMix {
    /// `[n_layers]`: `w`, initially zeros.
    pub weights: Param<Tensor<1>>,
    /// `[1]`: `γ`, initially 1.
    pub gamma: Param<Tensor<1>>,
    /// Whether each layer is normalised first.
    pub layer_norm: bool,
}

/// Added to the variance, as in AllenNLP's.
const EPSILON: f64 = 1e-13;

impl ScalarMix {
    /// # Shapes
    /// - `layers`: `n_layers` tensors of the same shape, `[..., d]`, from the lowest to the highest; returns that shape
    ///
    /// # Panics
    /// If the number of layers differs.
    pub fn forward<const D: usize>(&self, layers: &[Tensor<D>]) -> Tensor<D> {
        assert_eq!(layers.len(), self.weights.val().dims()[0], "as many layers as weights");
        let weights = softmax(self.weights.val(), 0) * self.gamma.val();
        let weighted = layers.iter().enumerate().map(|(number, layer)| {
            let weight = weights.clone().narrow(0, number, 1).reshape([1; D]);
            let layer = if self.layer_norm { normalised(layer.clone()) } else { layer.clone() };
            layer * weight
        });
        weighted.reduce(|sum, layer| sum + layer).expect("a layer at least")
    }

    /// The weight of each layer, `softmax(w)`: how much the task uses it.
    pub fn shares(&self) -> Vec<f32> {
        softmax(self.weights.val(), 0).into_data().iter::<f32>().collect()
    }
}

/// `(x − mean) / √(variance + ε)` over the last axis.
fn normalised<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let x = x.clone() - x.mean_dim(D - 1);
    let variance = x.clone().powi_scalar(2).mean_dim(D - 1);
    x / (variance + EPSILON).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    fn mix(weights: [f32; 3], gamma: f32, layer_norm: bool, device: &Device) -> ScalarMix {
        let mix = ScalarMixConfig::new(3).with_layer_norm(layer_norm);
        let mut mix = mix.init(&mut ParamInit::new(device, 1));
        mix.weights = mix.weights.map(|_| Tensor::from_data(weights, device));
        mix.gamma = mix.gamma.map(|_| Tensor::from_data([gamma], device));
        mix
    }

    fn layers(device: &Device) -> [Tensor<2>; 3] {
        [[[1.0, 3.0], [5.0, 5.0]], [[0.0, 2.0], [4.0, -4.0]], [[2.0, 2.0], [8.0, 0.0]]]
            .map(|values| Tensor::<2>::from_data(values, device))
    }

    #[test]
    fn a_new_mix_is_the_mean() {
        let device = Device::flex();
        let mix = ScalarMixConfig::new(3).init(&mut ParamInit::new(&device, 1));
        let expected = Tensor::<2>::from_data([[1.0, 7.0 / 3.0], [17.0 / 3.0, 1.0 / 3.0]], &device);
        let found = mix.forward(&layers(&device)).into_data();
        found.assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-6));
    }

    #[test]
    fn weights_are_shares_times_the_scale() {
        let device = Device::flex();
        // exp(0), exp(ln 2) and exp(ln 5) are an eighth, a quarter and five eighths of their sum.
        let mix = mix([0.0, 2f32.ln(), 5f32.ln()], 8.0, false, &device);
        let expected = Tensor::<2>::from_data([[11.0, 17.0], [53.0, -3.0]], &device);
        let found = mix.forward(&layers(&device)).into_data();
        found.assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
        assert!((mix.shares()[2] - 0.625).abs() < 1e-6);
    }

    #[test]
    fn each_token_is_normalised_by_itself() {
        let device = Device::flex();
        let mix = mix([0.0, -100.0, -100.0], 1.0, true, &device);
        let found = mix.forward(&layers(&device)).into_data();
        let expected = Tensor::<2>::from_data([[-1.0, 1.0], [0.0, 0.0]], &device);
        found.assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
    }

    #[test]
    fn no_layers_are_refused() {
        let message = ScalarMixConfig::new(0).validate().unwrap_err().to_string();
        assert!(message.contains("`n_layers` is 0, expected 1 or more"), "{message}");
    }
}
