use super::inspected::attend;
use super::part_type::{PartKind, PartType};
use super::stochastic_depth::stochastic_depth;
use super::sub_layer::SubLayer;
use super::{
    Attention, AttentionInput, AttentionOutput, FeedForward, FeedForwardConfig, Norm, NormKind,
    NormPlacement, ResidualConvolution,
};
use crate::{ParamInit, linear_maps};
use burn::module::Module;

/// Configuration of an [`EncoderLayer`] around an attention.
#[derive(Debug, Clone)]
pub struct EncoderLayerConfig {
    /// The feed-forward network.
    pub feed_forward: FeedForwardConfig,
    /// Dropout on the attention's output.
    pub attention_output_dropout: f64,
    /// Dropout on the feed-forward network's output.
    pub feed_forward_output_dropout: f64,
    /// Where the sub-layers normalise.
    pub norm: NormPlacement,
    /// The kind of normalisation.
    pub norm_kind: NormKind,
    /// Added to the variance, or to the mean square, in the normalisations.
    pub layer_norm_eps: f64,
}

impl EncoderLayerConfig {
    /// A layer around `attention`, any block that implements [`Attention`].
    pub fn init<A: Attention>(&self, attention: A, init: &mut ParamInit) -> EncoderLayer<A> {
        EncoderLayer {
            attention,
            attention_norm: Some(self.new_norm(init)),
            feed_forward: self.feed_forward.init(init),
            feed_forward_norm: self.new_norm(init),
            convolution: None,
            attention_output_dropout: self.attention_output_dropout,
            feed_forward_output_dropout: self.feed_forward_output_dropout,
            stochastic_depth: 0.0,
            norm: self.norm,
            attention_type: PartType::new(PartKind::Attention),
        }
    }

    pub(super) fn new_norm(&self, init: &mut ParamInit) -> Norm {
        Norm::new(self.norm_kind, self.feed_forward.d_model, self.layer_norm_eps, init)
    }
}

/// A Transformer encoder layer: self-attention and a feed-forward network, each with dropout, a
/// residual connection and a normalisation (Vaswani et al. 2017, §3.1).
#[derive(Module, Debug)]
pub struct EncoderLayer<A: Attention> {
    /// The first sub-layer.
    pub attention: A,
    /// The normalisation of the first sub-layer, pre-norm or post-norm; none in the first layer of ModernBERT, whose
    /// embeddings are normalised.
    pub attention_norm: Option<Norm>,
    /// The second sub-layer.
    pub feed_forward: FeedForward,
    /// The normalisation of the second sub-layer, pre-norm or post-norm.
    pub feed_forward_norm: Norm,
    /// A convolution of the layer's input, added to its output: in the first layer of DeBERTa v2.
    pub convolution: Option<ResidualConvolution>,
    attention_output_dropout: f64,
    feed_forward_output_dropout: f64,
    stochastic_depth: f64,
    #[module(skip)]
    norm: NormPlacement,
    attention_type: PartType<A>,
}

linear_maps!(EncoderLayer<A: Attention> { attention, feed_forward });

impl<A: Attention> EncoderLayer<A> {
    /// Sets the probability that a sub-layer is left out for a sequence in training (Huang et al. 2016).
    pub fn with_stochastic_depth(mut self, probability: f64) -> Self {
        self.stochastic_depth = probability;
        self
    }

    /// Returns the layer's output as the context, with the attention probabilities if requested.
    ///
    /// If only some tokens are wanted, the output holds only these: the attention may still look at the others, but the
    /// rest of the layer, five sixths of its work, skips them. This function does not normalise the memory of
    /// cross-attention.
    ///
    /// # Shapes
    /// - returns `[batch, q_len, d_model]`, or `[1, n, d_model]` for `n` wanted tokens
    pub fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
        let (x, wanted, mask) = (input.queries.clone(), input.wanted, input.mask);
        let [batch, len, _] = x.dims();
        let kept = |y| stochastic_depth(y, self.stochastic_depth, [batch, len], mask, wanted);
        let convolved = self.convolution.as_ref().map(|convolution| (convolution, x.clone()));
        let around = |norm, dropout| SubLayer { placement: self.norm, norm, dropout };
        let mut weights = None;
        let x = around(self.attention_norm.as_ref(), self.attention_output_dropout).forward(
            x,
            wanted,
            |queries| {
                let attended = attend(&self.attention, AttentionInput { queries, ..input });
                weights = attended.weights;
                kept(attended.context)
            },
        );
        let context =
            around(Some(&self.feed_forward_norm), self.feed_forward_output_dropout)
                .forward(x, None, |x| kept(self.feed_forward.forward(x)));
        let context = match convolved {
            Some((convolution, x)) => convolution.forward(x, context, mask, wanted),
            None => context,
        };
        AttentionOutput { context, weights }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{Activation, Linear, MultiHeadAttentionConfig};
    use crate::ops::AttentionMask;
    use burn::module::Param;
    use burn::tensor::Device;

    #[test]
    fn each_dropout_acts_on_its_own_sub_layer() {
        let device = Device::flex().autodiff();
        let is_random = |attended: f64, fed: f64, silence: fn(&mut EncoderLayer<_>) -> &mut Linear, norm| {
            let init = &mut ParamInit::new(&device, 1);
            let config = EncoderLayerConfig {
                feed_forward: FeedForwardConfig::new(16, 24, Activation::Gelu),
                attention_output_dropout: attended,
                feed_forward_output_dropout: fed,
                norm,
                norm_kind: NormKind::Layer,
                layer_norm_eps: 1e-12,
            };
            let attention = MultiHeadAttentionConfig::new(16, 4).init(init);
            let mut layer = config.init(attention, init);
            let silenced = silence(&mut layer);
            silenced.weight = Param::from_tensor(silenced.weight.val().zeros_like());
            let x = init.truncated_normal([2, 5, 16]).val();
            let run = || {
                layer.forward(AttentionInput::new(x.clone(), &AttentionMask::default())).context.into_data()
            };
            run() != run()
        };
        for norm in [NormPlacement::Post, NormPlacement::Pre] {
            // Zeros stay zero under dropout.
            assert!(is_random(0.5, 0.0, |layer| &mut layer.feed_forward.down, norm));
            assert!(!is_random(0.0, 0.5, |layer| &mut layer.feed_forward.down, norm));
            assert!(is_random(0.0, 0.5, |layer| &mut layer.attention.output, norm));
            assert!(!is_random(0.5, 0.0, |layer| &mut layer.attention.output, norm));
        }
    }
}
