use super::{Bert, BertEmbeddings, BertForPreTraining, MlmHead, NextSentenceHead, Pooler};
use crate::blocks::{
    Activation, Encoder, EncoderLayerConfig, FeedForwardConfig, LayerNorm, MultiHeadAttentionConfig,
    NormPlacement, SelfAttention,
};
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// The shape of a BERT.
///
/// The presets are the sizes of Turc et al. 2019 (tiny to medium) and Devlin et al. 2019 (base,
/// large), with heads of 64 features and `d_ff = 4 · d_model`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// Segments that token types tell apart.
    pub n_token_types: usize,
    /// Dropout on the embeddings and on each sub-layer's output.
    pub hidden_dropout: f64,
    /// Dropout on the attention probabilities.
    pub attention_dropout: f64,
    /// The non-linearity of the feed-forward networks and of the masked-LM head.
    pub activation: Activation,
    /// Where the encoder layers normalise.
    pub norm: NormPlacement,
    /// Added to the variance in every layer normalisation.
    pub layer_norm_eps: f64,
    /// Standard deviation of the truncated normal that weights start from.
    pub init_std: f64,
    /// The padding piece's id, which Hugging Face's `config.json` records.
    pub pad_token_id: usize,
}

impl BertConfig {
    /// A BERT of `n_layers` layers of width `d_model`; all else as in BERT-base.
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

    /// Whether the values fit together; each error names the value.
    pub fn validate(&self) -> Result<()> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("n_layers", self.n_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("d_ff", self.d_ff),
            ("max_positions", self.max_positions),
            ("n_token_types", self.n_token_types),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(ModelError::Config(format!("`{name}` is 0, expected at least 1")));
        }
        if !self.d_model.is_multiple_of(self.n_heads) {
            return Err(ModelError::Config(format!(
                "`n_heads` = {} does not divide `d_model` = {}",
                self.n_heads, self.d_model
            )));
        }
        for (name, p) in
            [("hidden_dropout", self.hidden_dropout), ("attention_dropout", self.attention_dropout)]
        {
            if !(0.0..1.0).contains(&p) {
                return Err(ModelError::Config(format!("`{name}` = {p}, expected 0 or more and below 1")));
            }
        }
        Ok(())
    }

    /// A new model with its pretraining heads.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> BertForPreTraining {
        let bert = self.init_encoder(init);
        self.with_heads(bert, init)
    }

    /// A new model with an attention of your own: `attention` makes each layer's, first to last.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_with<A: SelfAttention>(
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

    /// A new encoder without heads and with an attention of your own, see [`init_with`](Self::init_with).
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_encoder_with<A: SelfAttention>(
        &self,
        init: &mut ParamInit,
        mut attention: impl FnMut(&mut ParamInit) -> A,
    ) -> Bert<A> {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let layer = EncoderLayerConfig {
            feed_forward: FeedForwardConfig {
                d_model: self.d_model,
                d_ff: self.d_ff,
                activation: self.activation,
            },
            dropout: self.hidden_dropout,
            norm: self.norm,
            layer_norm_eps: self.layer_norm_eps,
        };
        Bert {
            embeddings: BertEmbeddings::new(self, init),
            encoder: Encoder {
                layers: (0..self.n_layers)
                    .map(|_| {
                        let attention = attention(init);
                        layer.init(attention, init)
                    })
                    .collect(),
                final_norm: (self.norm == NormPlacement::Pre)
                    .then(|| LayerNorm::new(self.d_model, self.layer_norm_eps, init)),
            },
            pooler: Pooler::new(self.d_model, init),
        }
    }

    fn with_heads<A: SelfAttention>(&self, bert: Bert<A>, init: &mut ParamInit) -> BertForPreTraining<A> {
        BertForPreTraining {
            bert,
            mlm: MlmHead::new(self, init),
            next_sentence: NextSentenceHead::new(self.d_model, init),
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
        assert_eq!(message, "model configuration: `n_heads` = 3 does not divide `d_model` = 128");
    }
}
