//! `[model]` of a denoising run: BART's network, or one that translates.

use crate::config::validate::{Check, at_least, below_one, ensure, positive};
use crate::translation::model::{complaint, tokens};
use crate::translation::{
    ConvolutionalSection, RecurrentSection, TransformerSection, TranslationModel, VocabularySizes,
};
use cloze_model::blocks::Activation;
use cloze_model::seq2seq::{
    AnyEncoderDecoderConfig, InitialWeights, OutputBias, PositionsConfig, SpecialTokens, TiedEmbeddings,
    TransformerConfig,
};
use serde::{Deserialize, Serialize};

/// `[model]`: a new network. Its vocabulary is the tokenizer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DenoisingModel {
    /// BART's Transformer (Lewis et al. 2020, §2.1), which is saved as transformers' `BartForConditionalGeneration`.
    Bart(BartSection),
    /// The Transformer of a translation run.
    Transformer(TransformerSection),
    /// The recurrent model of a translation run.
    Recurrent(RecurrentSection),
    /// The convolutional model of a translation run.
    Convolutional(ConvolutionalSection),
}

/// A BART: learned positions, layer norms after each sublayer and after the embeddings, GELU, one table for source,
/// target and output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BartSection {
    /// Encoder layers, and decoder layers unless they have a number of their own.
    pub n_layers: usize,
    /// Decoder layers. Default `n_layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_decoder_layers: Option<usize>,
    /// Width of the hidden states.
    pub d_model: usize,
    /// Attention heads; divides `d_model`.
    pub n_heads: usize,
    /// Inner width of the feed-forward.
    pub d_ff: usize,
    /// Longest source and longest target, in tokens. Default 1,024.
    #[serde(default = "max_positions")]
    pub max_positions: usize,
    /// Dropout of embeddings and of each sublayer's output. Default 0.1.
    #[serde(default = "dropout")]
    pub dropout: f64,
    /// Dropout of the attention probabilities. Default 0.
    #[serde(default)]
    pub attention_dropout: f64,
    /// Dropout after the feed-forward's activation. Default 0.
    #[serde(default)]
    pub activation_dropout: f64,
    /// The feed-forward's activation. Default `"gelu"`.
    #[serde(default)]
    pub activation: Activation,
    /// Standard deviation of the truncated normal that weights start from. Default 0.02.
    #[serde(default = "init_std")]
    pub init_std: f64,
}

fn max_positions() -> usize {
    1024
}

fn dropout() -> f64 {
    0.1
}

fn init_std() -> f64 {
    0.02
}

impl DenoisingModel {
    /// The model for a vocabulary, of sequences of at most so many tokens; `begins` tells whether targets begin with the
    /// piece that begins texts.
    pub fn config(
        &self,
        vocabulary: VocabularySizes,
        max_len: usize,
        begins: bool,
    ) -> AnyEncoderDecoderConfig {
        let mut config = match self.translation() {
            Ok(model) => model.config(vocabulary, max_len),
            Err(bart) => bart.config(vocabulary).into(),
        };
        if let AnyEncoderDecoderConfig::Transformer(TransformerConfig { tokens, .. }) = &mut config {
            tokens.forced_bos = tokens.bos.filter(|_| begins);
        }
        config
    }

    /// The same model of a translation run, or a BART, which is none of these.
    fn translation(&self) -> Result<TranslationModel, &BartSection> {
        match self {
            Self::Bart(section) => Err(section),
            Self::Transformer(section) => Ok(TranslationModel::Transformer(section.clone())),
            Self::Recurrent(section) => Ok(TranslationModel::Recurrent(section.clone())),
            Self::Convolutional(section) => Ok(TranslationModel::Convolutional(section.clone())),
        }
    }

    /// Whether its values go together with texts of so many tokens, and sources and targets of at most `max_len`, whatever
    /// the vocabulary.
    pub(crate) fn check(&self, seq_len: usize, max_len: usize) -> Check {
        match self.translation() {
            Ok(model) => model.check(true, max_len),
            Err(bart) => {
                bart.check(seq_len, max_len)?;
                self.config(VocabularySizes::unknown(true), max_len, true).check().map_err(complaint)
            }
        }
    }
}

impl BartSection {
    fn config(&self, vocabulary: VocabularySizes) -> TransformerConfig {
        let special: SpecialTokens = tokens(vocabulary.special);
        let mut config = TransformerConfig::new(vocabulary.target, self.n_layers, self.d_model)
            .with_layers(self.n_layers, self.n_decoder_layers.unwrap_or(self.n_layers))
            .with_heads(self.n_heads)
            .with_d_ff(self.d_ff)
            .with_max_positions(self.max_positions)
            .with_positions(PositionsConfig::Learned { offset: 2 })
            .with_dropout(self.dropout)
            .with_inner_dropouts(self.attention_dropout, self.activation_dropout)
            .with_activation(self.activation)
            .with_initial(InitialWeights::Normal { std: self.init_std })
            .with_output_bias(OutputBias::Fixed)
            .with_tied(TiedEmbeddings::All)
            .with_tokens(special);
        (config.embedding_norm, config.scaled_embeddings) = (true, false);
        config
    }

    fn check(&self, seq_len: usize, max_len: usize) -> Check {
        at_least(1, "model.n_layers", self.n_layers)?;
        at_least(1, "model.n_decoder_layers", self.n_decoder_layers.unwrap_or(1))?;
        at_least(1, "model.d_model", self.d_model)?;
        at_least(1, "model.n_heads", self.n_heads)?;
        at_least(1, "model.d_ff", self.d_ff)?;
        let expected = format!("a divisor of `model.d_model`, which is {}", self.d_model);
        ensure(self.d_model.is_multiple_of(self.n_heads), "model.n_heads", self.n_heads, expected)?;
        below_one("model.dropout", self.dropout)?;
        below_one("model.attention_dropout", self.attention_dropout)?;
        below_one("model.activation_dropout", self.activation_dropout)?;
        positive("model.init_std", self.init_std)?;
        let expected = match max_len > seq_len {
            false => format!("at most {}, which is `model.max_positions`", self.max_positions),
            true => format!(
                "less: its targets may have {max_len} tokens, but `model.max_positions` is {}",
                self.max_positions
            ),
        };
        ensure(max_len <= self.max_positions, "examples.seq_len", seq_len, expected)
    }
}
