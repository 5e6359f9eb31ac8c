use super::{Bert, BertEmbeddings, BertForPreTraining, MlmHead, NextSentenceHead, Pooler};
use crate::blocks::{
    Activation, Attention, Encoder, EncoderLayerConfig, FeedForwardConfig, LayerNorm,
    MultiHeadAttentionConfig, NormPlacement,
};
use crate::sizes::check_sizes;
use crate::with_fields::with_fields;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// The configuration of a BERT, or of another encoder with the same arithmetic and other switches. The published
/// [family](crate::huggingface::Family) is not part of it: a folder says which one it is.
///
/// The presets are the sizes of Turc et al. 2019 (tiny to medium) and Devlin et al. 2019 (base,
/// large), with heads of 64 features and `d_ff = 4 · d_model`. Each field has a method that changes it:
///
/// ```
/// # use cloze_model::bert::BertConfig;
/// let config = BertConfig::new(30_000, 4, 256).with_max_positions(128).with_hidden_dropout(0.0);
/// assert_eq!((config.d_ff, config.max_positions), (1024, 128));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BertConfig {
    /// Pieces in the vocabulary.
    pub vocab_size: usize,
    /// Encoder layers.
    pub n_layers: usize,
    /// Features of a hidden state.
    pub d_model: usize,
    /// Attention heads; they share `d_model` evenly.
    pub n_heads: usize,
    /// Features inside the feed-forward networks.
    pub d_ff: usize,
    /// The longest sequence, in tokens.
    pub max_positions: usize,
    /// Segments that token types tell apart; 0 for a model without token types. With 1, every token is in that segment,
    /// whatever the input says.
    pub n_token_types: usize,
    /// Dropout on the embeddings and on each sub-layer's output, except for sub-layers that two switches below exclude.
    pub hidden_dropout: f64,
    /// Dropout on the attention probabilities.
    pub attention_dropout: f64,
    /// The non-linearity of the feed-forward networks, and of the masked-LM head unless it has
    /// [its own](Self::mlm_activation).
    pub activation: Activation,
    /// Where the encoder layers normalise.
    pub norm: NormPlacement,
    /// Added to the variance in every layer normalisation.
    pub layer_norm_eps: f64,
    /// Standard deviation of the truncated normal that weights start from.
    pub init_std: f64,
    /// The padding piece's id, which Hugging Face's `config.json` records.
    pub pad_token_id: usize,
    /// Features of the embeddings if they differ from `d_model`: a linear map projects them (ALBERT, Lan et al. 2020,
    /// §3.1). None: as wide as the model, without a projection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_embedding: Option<usize>,
    /// Unused rows at the start of the position table: RoBERTa counts positions from its padding piece's id plus 1.
    #[serde(default)]
    pub position_offset: usize,
    /// Whether all `n_layers` layers share one layer's parameters (ALBERT).
    #[serde(default)]
    pub share_layers: bool,
    /// Whether the encoder has a pooler.
    #[serde(default = "yes")]
    pub pooler: bool,
    /// Whether [`hidden_dropout`](Self::hidden_dropout) acts on the attention's output; in DistilBERT it does not.
    #[serde(default = "yes")]
    pub attention_output_dropout: bool,
    /// Whether [`hidden_dropout`](Self::hidden_dropout) acts on the feed-forward network's output; in ALBERT it does
    /// not.
    #[serde(default = "yes")]
    pub feed_forward_output_dropout: bool,
    /// The masked-LM head's non-linearity if it differs from [`activation`](Self::activation): it is GELU in RoBERTa
    /// and ELECTRA, whatever the layers have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mlm_activation: Option<Activation>,
}

with_fields!(BertConfig {
    with_vocab_size => vocab_size: usize,
    with_n_layers => n_layers: usize,
    with_d_model => d_model: usize,
    with_n_heads => n_heads: usize,
    with_d_ff => d_ff: usize,
    with_max_positions => max_positions: usize,
    with_n_token_types => n_token_types: usize,
    with_hidden_dropout => hidden_dropout: f64,
    with_attention_dropout => attention_dropout: f64,
    with_activation => activation: Activation,
    with_norm => norm: NormPlacement,
    with_layer_norm_eps => layer_norm_eps: f64,
    with_init_std => init_std: f64,
    with_pad_token_id => pad_token_id: usize,
    with_d_embedding => d_embedding: Option<usize>,
    with_position_offset => position_offset: usize,
    with_share_layers => share_layers: bool,
    with_pooler => pooler: bool,
    with_attention_output_dropout => attention_output_dropout: bool,
    with_feed_forward_output_dropout => feed_forward_output_dropout: bool,
    with_mlm_activation => mlm_activation: Option<Activation>,
});

fn yes() -> bool {
    true
}

impl BertConfig {
    /// A BERT of `n_layers` layers of width `d_model`; everything else is as in BERT-base.
    pub fn new(vocab_size: usize, n_layers: usize, d_model: usize) -> Self {
        Self {
            vocab_size,
            n_layers,
            d_model,
            n_heads: (d_model / 64).max(1),
            d_ff: 4 * d_model,
            max_positions: 512,
            n_token_types: 2,
            hidden_dropout: 0.1,
            attention_dropout: 0.1,
            activation: Activation::Gelu,
            norm: NormPlacement::Post,
            layer_norm_eps: 1e-12,
            init_std: 0.02,
            pad_token_id: 0,
            d_embedding: None,
            position_offset: 0,
            share_layers: false,
            pooler: true,
            attention_output_dropout: true,
            feed_forward_output_dropout: true,
            mlm_activation: None,
        }
    }

    /// 2 layers of 128: 4.4 million parameters with BERT's vocabulary.
    pub fn tiny(vocab_size: usize) -> Self {
        Self::new(vocab_size, 2, 128)
    }

    /// 4 layers of 256: 11 million parameters with BERT's vocabulary.
    pub fn mini(vocab_size: usize) -> Self {
        Self::new(vocab_size, 4, 256)
    }

    /// 4 layers of 512: 29 million parameters with BERT's vocabulary.
    pub fn small(vocab_size: usize) -> Self {
        Self::new(vocab_size, 4, 512)
    }

    /// 8 layers of 512: 41 million parameters with BERT's vocabulary.
    pub fn medium(vocab_size: usize) -> Self {
        Self::new(vocab_size, 8, 512)
    }

    /// 12 layers of 768: 110 million parameters with BERT's vocabulary.
    pub fn base(vocab_size: usize) -> Self {
        Self::new(vocab_size, 12, 768)
    }

    /// 24 layers of 1,024: 335 million parameters with BERT's vocabulary.
    pub fn large(vocab_size: usize) -> Self {
        Self::new(vocab_size, 24, 1024)
    }

    /// The preset called `tiny`, `mini`, `small`, `medium`, `base` or `large`.
    pub fn preset(name: &str, vocab_size: usize) -> Result<Self> {
        Ok(match name {
            "tiny" => Self::tiny(vocab_size),
            "mini" => Self::mini(vocab_size),
            "small" => Self::small(vocab_size),
            "medium" => Self::medium(vocab_size),
            "base" => Self::base(vocab_size),
            "large" => Self::large(vocab_size),
            other => {
                return Err(ModelError::Config(format!(
                    "no preset is called `{other}`; there are tiny, mini, small, medium, base, large"
                )));
            }
        })
    }

    /// Features of the embeddings, before the projection if there is one.
    pub fn embedding_width(&self) -> usize {
        self.d_embedding.unwrap_or(self.d_model)
    }

    /// Checks that the values fit together.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_sizes([
            ("vocab_size", self.vocab_size),
            ("n_layers", self.n_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("d_ff", self.d_ff),
            ("max_positions", self.max_positions),
            ("d_embedding", self.embedding_width()),
        ])?;
        let refuse = |key, found: String, expected: String| Err(ModelError::Setting { key, found, expected });
        // These may be 0.
        for (name, size) in [("n_token_types", self.n_token_types), ("position_offset", self.position_offset)]
        {
            let most = i32::MAX as usize;
            if size > most {
                return refuse(name, size.to_string(), format!("at most {most}"));
            }
        }
        if !self.d_model.is_multiple_of(self.n_heads) {
            let expected = format!("a divisor of `d_model`, which is {}", self.d_model);
            return refuse("n_heads", self.n_heads.to_string(), expected);
        }
        if !(self.layer_norm_eps >= 0.0 && self.layer_norm_eps.is_finite()) {
            let expected = "a number of 0 or more, such as 1e-12".into();
            return refuse("layer_norm_eps", self.layer_norm_eps.to_string(), expected);
        }
        for (name, p) in
            [("hidden_dropout", self.hidden_dropout), ("attention_dropout", self.attention_dropout)]
        {
            if !(0.0..1.0).contains(&p) {
                return refuse(name, p.to_string(), "0 or more and below 1".into());
            }
        }
        Ok(())
    }

    /// A new model with its pretraining heads.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate) or has no pooler.
    pub fn init(&self, init: &mut ParamInit) -> BertForPreTraining {
        let bert = self.init_encoder(init);
        self.with_heads(bert, init)
    }

    /// A new model with a custom attention: `attention` makes that of each layer, from first to last.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate) or has no pooler.
    pub fn init_with<A: Attention>(
        &self,
        init: &mut ParamInit,
        attention: impl FnMut(&mut ParamInit) -> A,
    ) -> BertForPreTraining<A> {
        let bert = self.init_encoder_with(init, attention);
        self.with_heads(bert, init)
    }

    /// A new encoder without heads.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_encoder(&self, init: &mut ParamInit) -> Bert {
        let attention =
            || MultiHeadAttentionConfig::new(self.d_model, self.n_heads).with_dropout(self.attention_dropout);
        self.init_encoder_with(init, |init| attention().init(init))
    }

    /// A new encoder without heads and with a custom attention, see [`init_with`](Self::init_with).
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_encoder_with<A: Attention>(
        &self,
        init: &mut ParamInit,
        mut attention: impl FnMut(&mut ParamInit) -> A,
    ) -> Bert<A> {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let dropout = |acts: bool| if acts { self.hidden_dropout } else { 0.0 };
        let layer = EncoderLayerConfig {
            feed_forward: FeedForwardConfig::new(self.d_model, self.d_ff, self.activation),
            attention_output_dropout: dropout(self.attention_output_dropout),
            feed_forward_output_dropout: dropout(self.feed_forward_output_dropout),
            norm: self.norm,
            layer_norm_eps: self.layer_norm_eps,
        };
        let (n_sets, repeats) = if self.share_layers { (1, self.n_layers) } else { (self.n_layers, 1) };
        Bert {
            embeddings: BertEmbeddings::new(self, init),
            encoder: Encoder {
                layers: (0..n_sets)
                    .map(|_| {
                        let attention = attention(init);
                        layer.init(attention, init)
                    })
                    .collect(),
                final_norm: (self.norm == NormPlacement::Pre)
                    .then(|| LayerNorm::new(self.d_model, self.layer_norm_eps, init)),
                repeats,
                recompute: false,
            },
            pooler: self.pooler.then(|| Pooler::new(self.d_model, init)),
        }
    }

    fn with_heads<A: Attention>(&self, bert: Bert<A>, init: &mut ParamInit) -> BertForPreTraining<A> {
        assert!(self.pooler, "the next-sentence head needs a pooler");
        BertForPreTraining {
            bert,
            mlm: MlmHead::new(self, init),
            next_sentence: Some(NextSentenceHead::new(self.d_model, init)),
            span_boundary: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;
    use burn::tensor::Device;

    #[test]
    fn parameter_counts_are_the_published_ones() {
        // transformers' BertForPreTraining(...).num_parameters() of the same shapes.
        let init = &mut ParamInit::new(&Device::flex(), 0);
        assert_eq!(BertConfig::tiny(30_522).init(init).num_params(), 4_433_468);
        assert_eq!(BertConfig::mini(30_522).init(init).num_params(), 11_267_900);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let config = BertConfig { n_heads: 3, ..BertConfig::tiny(10) };
        let message = config.validate().unwrap_err().to_string();
        assert_eq!(
            message,
            "model configuration: `n_heads` is 3, expected a divisor of `d_model`, which is 128"
        );
    }

    #[test]
    fn configurations_of_before_the_switches_still_read() {
        let config = BertConfig::tiny(10);
        let mut json = serde_json::to_value(&config).unwrap();
        let later = ["position_offset", "share_layers", "pooler"];
        for key in later.into_iter().chain(["attention_output_dropout", "feed_forward_output_dropout"]) {
            json.as_object_mut().unwrap().remove(key).unwrap();
        }
        assert_eq!(serde_json::from_value::<BertConfig>(json).unwrap(), config);
    }

    #[test]
    fn shared_layers_are_one_set_of_parameters() {
        let init = &mut ParamInit::new(&Device::flex(), 0);
        let config = BertConfig { d_embedding: Some(32), share_layers: true, ..BertConfig::tiny(100) };
        let albert = config.init_encoder(init);
        assert_eq!(albert.encoder.layers.len(), 1);
        // Tables and their norm of 32, the projection, one layer of 12·d² + 13·d, the pooler.
        let layer = 12 * 128 * 128 + 13 * 128;
        let expected = (100 + 2 + 512 + 2) * 32 + 33 * 128 + layer + 129 * 128;
        assert_eq!(albert.num_params(), expected);
    }
}
