use crate::bert::BertConfig;
use crate::blocks::{Activation, LayerNorm, Linear};
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

/// The part of ModernBERT's heads before the output layer: a dense layer, a non-linearity, and a
/// normalisation.
#[derive(Module, Debug)]
pub struct HeadTransform {
    /// `[d_model, d_model]`
    pub dense: Linear,
    /// The normalisation.
    pub norm: LayerNorm,
    #[module(skip)]
    activation: Activation,
}

linear_maps!(HeadTransform { dense });

impl HeadTransform {
    /// A new transform, with the activation of the encoder's masked-LM head.
    pub fn new(encoder: &BertConfig, init: &mut ParamInit) -> Self {
        let d_model = encoder.d_model;
        Self {
            dense: Linear::with_bias(encoder.head_bias, d_model, d_model, init),
            norm: LayerNorm::new(d_model, encoder.layer_norm_eps, init).with_bias(encoder.norm_bias),
            activation: encoder.mlm_activation.unwrap_or(encoder.activation),
        }
    }

    /// # Shapes
    /// - `states`: `[..., d_model]`; returns the same
    pub fn forward<const D: usize>(&self, states: Tensor<D>) -> Tensor<D> {
        self.norm.forward(self.activation.forward(self.dense.forward(states)))
    }

    /// The states after the transform, if there is one.
    pub(super) fn apply<const D: usize>(transform: Option<&Self>, states: Tensor<D>) -> Tensor<D> {
        match transform {
            Some(transform) => transform.forward(states),
            None => states,
        }
    }
}
