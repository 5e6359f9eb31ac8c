use super::attention_type::AttentionType;
use super::{AttentionOutput, FeedForward, FeedForwardConfig, LayerNorm, Selection, SelfAttention};
use crate::ParamInit;
use crate::ops::{self, AttentionMask, Residual};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Where the layer normalisation of a sub-layer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// `LN(x + f(x))`: the original Transformer's and BERT's.
    #[default]
    Post,
    /// `x + f(LN(x))` (Xiong et al. 2020): trains without warm-up; the encoder then ends with a
    /// normalisation of its own.
    Pre,
}

/// Configuration of an [`EncoderLayer`] around an attention.
#[derive(Debug, Clone)]
pub struct EncoderLayerConfig {
    /// The feed-forward network.
    pub feed_forward: FeedForwardConfig,
    /// Dropout on the attention's output.
    pub attention_output_dropout: f64,
    /// Dropout on the feed-forward network's output.
    pub feed_forward_output_dropout: f64,
    /// Before or after the sub-layers.
    pub norm: NormPlacement,
    /// Added to the variance in the normalisations.
    pub layer_norm_eps: f64,
}

impl EncoderLayerConfig {
    /// A layer around `attention`, which is any block that implements [`SelfAttention`].
    pub fn init<A: SelfAttention>(&self, attention: A, init: &mut ParamInit) -> EncoderLayer<A> {
        let d_model = self.feed_forward.d_model;
        EncoderLayer {
            attention,
            attention_norm: LayerNorm::new(d_model, self.layer_norm_eps, init),
            feed_forward: self.feed_forward.init(init),
            feed_forward_norm: LayerNorm::new(d_model, self.layer_norm_eps, init),
            attention_output_dropout: self.attention_output_dropout,
            feed_forward_output_dropout: self.feed_forward_output_dropout,
            norm: self.norm,
            attention_type: AttentionType::new(),
        }
    }
}

/// A Transformer encoder layer: self-attention and a feed-forward network, each with dropout, a
/// residual connection and a normalisation (Vaswani et al. 2017, §3.1).
#[derive(Module, Debug)]
pub struct EncoderLayer<A: SelfAttention> {
    /// The first sub-layer.
    pub attention: A,
    /// The normalisation of the first sub-layer, in either placement.
    pub attention_norm: LayerNorm,
    /// The second sub-layer.
    pub feed_forward: FeedForward,
    /// The normalisation of the second sub-layer, in either placement.
    pub feed_forward_norm: LayerNorm,
    attention_output_dropout: f64,
    feed_forward_output_dropout: f64,
    #[module(skip)]
    norm: NormPlacement,
    attention_type: AttentionType<A>,
}

impl<A: SelfAttention> EncoderLayer<A> {
    /// The layer's output in place of the context, with the attention's weights where asked for.
    ///
    /// With `tokens` it is the output of these alone, without weights. The others are attended to; all else, five
    /// sixths of a layer's work, they are spared.
    ///
    /// # Shapes
    /// - `x`: `[batch, len, d_model]`; the output likewise, or `[1, n, d_model]` of `n` tokens
    pub fn forward(
        &self,
        x: Tensor<3>,
        mask: &AttentionMask,
        need_weights: bool,
        tokens: Option<&Selection>,
    ) -> AttentionOutput {
        let attend = |x: Tensor<3>| match tokens {
            Some(tokens) => {
                AttentionOutput { context: self.attention.forward_some(x, mask, tokens), weights: None }
            }
            None => self.attention.forward(x, mask, need_weights),
        };
        let wanted = |x: Tensor<3>| match tokens {
            Some(tokens) => tokens.of(x),
            None => x,
        };
        let (context, weights) = match self.norm {
            NormPlacement::Post => {
                let attended = attend(x.clone());
                let residual = Residual { input: wanted(x), dropout: self.attention_output_dropout };
                let x = self.attention_norm.add_forward(attended.context, residual);
                let y = self.feed_forward.forward(x.clone());
                let residual = Residual { input: x, dropout: self.feed_forward_output_dropout };
                (self.feed_forward_norm.add_forward(y, residual), attended.weights)
            }
            NormPlacement::Pre => {
                let attended = attend(self.attention_norm.forward(x.clone()));
                let x = ops::dropout_add(attended.context, wanted(x), self.attention_output_dropout);
                let y = self.feed_forward.forward(self.feed_forward_norm.forward(x.clone()));
                (ops::dropout_add(y, x, self.feed_forward_output_dropout), attended.weights)
            }
        };
        AttentionOutput { context, weights }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{Activation, Linear, MultiHeadAttentionConfig};
    use burn::module::Param;
    use burn::tensor::Device;

    #[test]
    fn each_dropout_acts_on_its_own_sub_layer() {
        let device = Device::flex().autodiff();
        let is_random = |attended: f64, fed: f64, silence: fn(&mut EncoderLayer<_>) -> &mut Linear, norm| {
            let init = &mut ParamInit::new(&device, 1);
            let config = EncoderLayerConfig {
                feed_forward: FeedForwardConfig { d_model: 16, d_ff: 24, activation: Activation::Gelu },
                attention_output_dropout: attended,
                feed_forward_output_dropout: fed,
                norm,
                layer_norm_eps: 1e-12,
            };
            let attention = MultiHeadAttentionConfig::new(16, 4).init(init);
            let mut layer = config.init(attention, init);
            let silenced = silence(&mut layer);
            silenced.weight = Param::from_tensor(silenced.weight.val().zeros_like());
            let x = init.truncated_normal([2, 5, 16]).val();
            let run = || layer.forward(x.clone(), &AttentionMask::default(), false, None).context.into_data();
            run() != run()
        };
        for norm in [NormPlacement::Post, NormPlacement::Pre] {
            // What is zero stays zero under dropout.
            assert!(is_random(0.5, 0.0, |layer| &mut layer.feed_forward.down, norm));
            assert!(!is_random(0.0, 0.5, |layer| &mut layer.feed_forward.down, norm));
            assert!(is_random(0.0, 0.5, |layer| &mut layer.attention.output, norm));
            assert!(!is_random(0.5, 0.0, |layer| &mut layer.attention.output, norm));
        }
    }
}
