use super::inspected::attend;
use super::part_type::{PartKind, PartType};
use super::sub_layer::SubLayer;
use super::{Attention, AttentionInput, EncoderLayerConfig, FeedForward, KeyValueCache, Norm, NormPlacement};
use crate::ops::AttentionMask;
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

impl EncoderLayerConfig {
    /// A decoder layer around two attentions: to the target's own tokens, and to the memory.
    pub fn init_decoder<A: Attention, C: Attention>(
        &self,
        attention: A,
        cross_attention: C,
        init: &mut ParamInit,
    ) -> DecoderLayer<A, C> {
        DecoderLayer {
            attention,
            attention_norm: self.new_norm(init),
            cross_attention,
            cross_attention_norm: self.new_norm(init),
            feed_forward: self.feed_forward.init(init),
            feed_forward_norm: self.new_norm(init),
            attention_output_dropout: self.attention_output_dropout,
            feed_forward_output_dropout: self.feed_forward_output_dropout,
            norm: self.norm,
            attention_type: PartType::new(PartKind::Attention),
            cross_attention_type: PartType::new(PartKind::Attention),
        }
    }
}

/// A Transformer decoder layer: attention to the target's own tokens, attention to the encoder's states, and a
/// feed-forward network, each with dropout, a residual connection and a normalisation (Vaswani et al. 2017, §3.1).
///
/// The mask decides whether the first attention sees later tokens.
#[derive(Module, Debug)]
pub struct DecoderLayer<A: Attention, C: Attention = A> {
    /// The first sub-layer: attention to the target's own tokens.
    pub attention: A,
    /// The normalisation of the first sub-layer, pre-norm or post-norm.
    pub attention_norm: Norm,
    /// The second sub-layer: attention to the memory.
    pub cross_attention: C,
    /// The normalisation of the second sub-layer, pre-norm or post-norm.
    pub cross_attention_norm: Norm,
    /// The third sub-layer.
    pub feed_forward: FeedForward,
    /// The normalisation of the third sub-layer, pre-norm or post-norm.
    pub feed_forward_norm: Norm,
    attention_output_dropout: f64,
    feed_forward_output_dropout: f64,
    #[module(skip)]
    norm: NormPlacement,
    attention_type: PartType<A>,
    cross_attention_type: PartType<C>,
}

linear_maps!(DecoderLayer<A: Attention, C: Attention> { attention, cross_attention, feed_forward });

/// The input of a decoder layer.
#[derive(Debug)]
#[non_exhaustive]
pub struct DecoderLayerInput<'a> {
    /// The target's states, `[batch, q_len, d_model]`.
    pub x: Tensor<3>,
    /// What they see of each other; with a cache, the mask covers all tokens so far.
    pub mask: &'a AttentionMask,
    /// The encoder's states, `[batch, k_len, d_model]`; none if the cache has their keys and values.
    pub memory: Option<Tensor<3>>,
    /// What the target sees of the memory: with query [`Counts`](crate::ops::Queries::Counts) if both are
    /// packed.
    pub memory_mask: &'a AttentionMask,
    /// The layer's keys and values of earlier calls.
    pub cache: Option<&'a mut LayerCache>,
    /// Whether the probabilities of the attention to the memory are wanted as well.
    pub need_weights: bool,
}

impl<'a> DecoderLayerInput<'a> {
    /// All tokens of the target, without a cache.
    pub fn new(
        x: Tensor<3>,
        mask: &'a AttentionMask,
        memory: Option<Tensor<3>>,
        memory_mask: &'a AttentionMask,
    ) -> Self {
        Self { x, mask, memory, memory_mask, cache: None, need_weights: false }
    }

    /// Keeps keys and values in `cache` for later calls.
    pub fn with_cache(self, cache: Option<&'a mut LayerCache>) -> Self {
        Self { cache, ..self }
    }

    /// Asks for the attention to the memory as well.
    pub fn with_weights(self, need_weights: bool) -> Self {
        Self { need_weights, ..self }
    }
}

/// The output of a decoder layer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DecoderLayerOutput {
    /// `[batch, q_len, d_model]`
    pub x: Tensor<3>,
    /// The probabilities of the attention to the memory, `[batch, n_heads, q_len, k_len]`, if asked for.
    pub weights: Option<Tensor<4>>,
}

/// The keys and values of a decoder layer.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LayerCache {
    /// Those of the target's tokens so far, which grow.
    pub own: KeyValueCache,
    /// Those of the memory, computed by the first call if missing.
    pub memory: KeyValueCache,
}

impl LayerCache {
    /// The keys and values of a memory, with no target tokens yet.
    pub fn new(memory: KeyValueCache) -> Self {
        Self { own: KeyValueCache::of_rows(memory.lengths().len()), memory }
    }

    /// Row `i` continues row `rows[i]`. A row may be named several times, or not at all.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn select(&mut self, rows: &[usize]) {
        self.own.select(rows);
        self.memory.select(rows);
    }

    /// Appends another cache's rows, of any lengths.
    ///
    /// # Panics
    /// If the other cache is of a layer with other heads or widths.
    pub fn join(&mut self, other: Self) {
        self.own.join(other.own);
        self.memory.join(other.memory);
    }
}

impl<A: Attention, C: Attention> DecoderLayer<A, C> {
    /// The layer's output, with the weights of its attention to the memory if requested.
    pub fn forward(&self, input: DecoderLayerInput<'_>) -> DecoderLayerOutput {
        let DecoderLayerInput { x, mask, memory, memory_mask, cache, need_weights } = input;
        let (own, held) = match cache {
            Some(LayerCache { own, memory }) => (Some(own), Some(memory)),
            None => (None, None),
        };
        let around = |norm, dropout| SubLayer { placement: self.norm, norm: Some(norm), dropout };
        let x = around(&self.attention_norm, self.attention_output_dropout).forward(x, None, |queries| {
            let input = AttentionInput { cache: own, ..AttentionInput::new(queries, mask) };
            attend(&self.attention, input).context
        });
        let mut weights = None;
        let x =
            around(&self.cross_attention_norm, self.attention_output_dropout).forward(x, None, |queries| {
                let input = AttentionInput::new(queries, memory_mask);
                let input = AttentionInput { memory, cache: held, need_weights, ..input };
                let attended = attend(&self.cross_attention, input);
                weights = attended.weights;
                attended.context
            });
        let x = around(&self.feed_forward_norm, self.feed_forward_output_dropout)
            .forward(x, None, |x| self.feed_forward.forward(x));
        DecoderLayerOutput { x, weights }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{
        Activation, FeedForwardConfig, Linear, MultiHeadAttention, MultiHeadAttentionConfig, NormKind,
    };
    use burn::module::Param;
    use burn::tensor::Device;

    type Layer = DecoderLayer<MultiHeadAttention>;

    fn layer(dropouts: [f64; 3], norm: NormPlacement, device: &Device) -> Layer {
        let init = &mut ParamInit::new(device, 1).with_std(0.3);
        let feed_forward = FeedForwardConfig::new(16, 24, Activation::Relu).with_dropout(dropouts[2]);
        let config = EncoderLayerConfig {
            feed_forward,
            attention_output_dropout: dropouts[0],
            feed_forward_output_dropout: dropouts[1],
            norm,
            norm_kind: NormKind::Layer,
            layer_norm_eps: 1e-5,
        };
        let attention = MultiHeadAttentionConfig::new(16, 4);
        let (own, cross) = (attention.init(init), attention.init(init));
        config.init_decoder(own, cross, init)
    }

    /// Zeros stay zero under dropout.
    fn silence(map: &mut Linear) {
        map.weight = Param::from_tensor(map.weight.val().zeros_like());
    }

    #[test]
    fn each_dropout_acts_in_its_own_place() {
        let device = Device::flex().autodiff();
        let is_random = |dropouts, norm, silenced: fn(&mut Layer) -> Vec<&mut Linear>| {
            let mut layer = layer(dropouts, norm, &device);
            silenced(&mut layer).into_iter().for_each(silence);
            let init = &mut ParamInit::new(&device, 2).with_std(1.0);
            let x = init.truncated_normal([2, 5, 16]).val();
            let memory = init.truncated_normal([2, 3, 16]).val();
            let (mask, seen) = (AttentionMask::default().with_causal(), AttentionMask::default());
            let run = || {
                let input = DecoderLayerInput::new(x.clone(), &mask, Some(memory.clone()), &seen);
                layer.forward(input).x.into_data()
            };
            run() != run()
        };
        for norm in [NormPlacement::Post, NormPlacement::Pre] {
            fn cross(layer: &mut Layer) -> Vec<&mut Linear> {
                vec![&mut layer.attention.output, &mut layer.feed_forward.down]
            }
            fn fed(layer: &mut Layer) -> Vec<&mut Linear> {
                vec![&mut layer.attention.output, &mut layer.cross_attention.output]
            }
            fn own(layer: &mut Layer) -> Vec<&mut Linear> {
                vec![&mut layer.cross_attention.output, &mut layer.feed_forward.down]
            }
            // Both attentions' outputs have the first dropout.
            assert!(is_random([0.5, 0.0, 0.0], norm, own));
            assert!(is_random([0.5, 0.0, 0.0], norm, cross));
            assert!(!is_random([0.5, 0.0, 0.0], norm, fed));
            // The feed-forward network's output has the second, its inside the third.
            assert!(!is_random([0.0, 0.5, 0.5], norm, own));
            assert!(!is_random([0.0, 0.5, 0.5], norm, cross));
            assert!(is_random([0.0, 0.5, 0.0], norm, fed));
            assert!(is_random([0.0, 0.0, 0.5], norm, fed));
        }
    }
}
