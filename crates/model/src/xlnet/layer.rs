use super::{RelativeAttention, XlnetConfig};
use crate::blocks::{FeedForward, FeedForwardConfig, LayerNorm};
use crate::ops::{RelativeMask, Residual};
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

/// A layer: relative attention and a feed-forward network, each with dropout, a residual connection and
/// subsequent layer normalisation. Both streams use the same parameters.
#[derive(Module, Debug)]
pub struct XlnetLayer {
    /// The first sub-layer.
    pub attention: RelativeAttention,
    /// Normalises the first sub-layer's sum.
    pub attention_norm: LayerNorm,
    /// The second sub-layer.
    pub feed_forward: FeedForward,
    /// Normalises the second sub-layer's sum.
    pub feed_forward_norm: LayerNorm,
    dropout: f64,
}

linear_maps!(XlnetLayer { attention, feed_forward });

impl XlnetLayer {
    pub(super) fn new(config: &XlnetConfig, init: &mut ParamInit) -> Self {
        let XlnetConfig { d_model, n_heads, d_ff, activation, dropout, norm_eps, .. } = *config;
        Self {
            attention: RelativeAttention::new(d_model, n_heads, dropout, init),
            attention_norm: LayerNorm::new(d_model, norm_eps, init),
            feed_forward: FeedForwardConfig::new(d_model, d_ff, activation).with_dropout(dropout).init(init),
            feed_forward_norm: LayerNorm::new(d_model, norm_eps, init),
            dropout,
        }
    }

    /// The states of the queries above the layer; see [`RelativeAttention::forward`].
    pub(super) fn forward(
        &self,
        x: Tensor<2>,
        mask: &RelativeMask,
        keys: Tensor<3>,
        positions: Tensor<2>,
    ) -> Tensor<2> {
        let residual = |input: Tensor<2>| Residual { input, dropout: self.dropout };
        let attended = self.attention.forward(x.clone(), mask, keys, positions);
        let x = self.attention_norm.add_forward(attended, residual(x));
        self.feed_forward_norm.add_forward(self.feed_forward.forward(x.clone()), residual(x))
    }
}
