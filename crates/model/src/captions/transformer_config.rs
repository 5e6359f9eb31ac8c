use super::TransformerCaptionDecoder;
use super::recurrent_config::check_positions;
use crate::blocks::{
    Decoder, EncoderLayerConfig, FeedForwardConfig, Linear, MultiHeadAttention, MultiHeadAttentionConfig,
    Norm, NormKind, NormPlacement,
};
use crate::gpt::GptConfig;
use crate::sizes::check_sizes;
use crate::with_fields::with_fields;
use crate::{ModelError, ParamInit, Result};

/// The configuration of a [`TransformerCaptionDecoder`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TransformerCaptionConfig {
    /// The layers, embeddings and vocabulary: a [GPT-2](GptConfig::gpt2).
    pub gpt: GptConfig,
    /// Features of the image encoder's states.
    pub d_image: usize,
    /// Whether sines and cosines of a place's column and row are added to its state (Carion et al. 2020, appendix A.4).
    /// transformers' class has none.
    pub image_positions: bool,
}

with_fields!(TransformerCaptionConfig {
    with_image_positions => image_positions: bool,
});

impl TransformerCaptionConfig {
    /// A GPT-2 on states of `d_image` features, without positions.
    pub fn new(gpt: GptConfig, d_image: usize) -> Self {
        Self { gpt, d_image, image_positions: false }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        let gpt = &self.gpt;
        gpt.validate()?;
        check_sizes([("d_image", self.d_image)])?;
        check_positions(self.image_positions, self.d_image)?;
        let only = |key, is_so: bool, found: String, expected: &str| match is_so {
            true => Ok(()),
            false => Err(ModelError::setting(key, found, expected)),
        };
        let whole = gpt.n_heads * gpt.d_head == gpt.d_model && gpt.n_kv_heads == gpt.n_heads;
        only("n_heads", whole, gpt.n_heads.to_string(), "heads that share `d_model` evenly, as GPT-2's do")?;
        let is_gpt2 = gpt.rotary.is_none()
            && gpt.window.is_none()
            && gpt.norm_kind == NormKind::Layer
            && gpt.norm == NormPlacement::Pre
            && !gpt.gated
            && gpt.attention_bias
            && gpt.attention_output_bias
            && gpt.feed_forward_bias
            && gpt.output.is_none();
        only("decoder", is_gpt2, "another left-to-right model".into(), "the switches of GPT-2")
    }

    /// A new decoder.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> TransformerCaptionDecoder {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        TransformerCaptionDecoder::new(self, init)
    }

    /// New layers. As GPT-2's, the maps that add to the residual stream begin smaller.
    pub(super) fn layers(&self, init: &mut ParamInit) -> Decoder<MultiHeadAttention> {
        let gpt = &self.gpt;
        let config = EncoderLayerConfig {
            feed_forward: FeedForwardConfig::new(gpt.d_model, gpt.d_ff, gpt.activation),
            attention_output_dropout: gpt.hidden_dropout,
            feed_forward_output_dropout: gpt.hidden_dropout,
            norm: gpt.norm,
            norm_kind: gpt.norm_kind,
            layer_norm_eps: gpt.norm_eps,
        };
        let attention =
            MultiHeadAttentionConfig::new(gpt.d_model, gpt.n_heads).with_dropout(gpt.attention_dropout);
        let residual = 1.0 / ((2 * gpt.n_layers) as f64).sqrt();
        let layers = (0..gpt.n_layers).map(|_| {
            let (own, cross) = (attention.init(init), attention.init(init));
            let mut layer = config.init_decoder(own, cross, init);
            init.scaled(residual, |init| {
                for map in [
                    &mut layer.attention.output,
                    &mut layer.cross_attention.output,
                    &mut layer.feed_forward.down,
                ] {
                    let [d_in, d_out] = map.weight.lazy_shape().dims();
                    *map = Linear::new(d_in, d_out, init);
                }
            });
            layer
        });
        let layers = layers.collect();
        let final_norm = Some(Norm::new(gpt.norm_kind, gpt.d_model, gpt.norm_eps, init));
        Decoder { layers, final_norm, output_dropout: 0.0 }
    }
}
