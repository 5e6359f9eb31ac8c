//! `[model]` of a translation run: the available networks, and their models for a vocabulary.

use super::vocabulary::{TargetPieces, VocabularySizes};
use crate::TrainerError;
use crate::config::OutputSection;
use crate::config::validate::{Check, Complaint, at_least, below_one, ensure, rotated_in_pairs};
use cloze_model::ModelError;
use cloze_model::blocks::{Activation, NormPlacement, PositionKind};
use cloze_model::recurrent::{Cell, Reading};
use cloze_model::scores::ScoreKind;
use cloze_model::seq2seq::{
    AnyEncoderDecoderConfig, BridgeKind, ConvolutionalEncoderDecoderConfig, RecurrentEncoderDecoderConfig,
    SpecialTokens, TiedEmbeddings, TransformerConfig, Wiring,
};
use serde::{Deserialize, Serialize};

/// `[model]`: a new network. Its vocabularies are the tokenizers'.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TranslationModel {
    /// An encoder and a decoder of attention layers (Vaswani et al. 2017).
    Transformer(TransformerSection),
    /// Recurrent layers, by default with attention between them (Sutskever et al. 2014; Bahdanau et al. 2015).
    Recurrent(RecurrentSection),
    /// Convolutional layers, with attention in each of the decoder's (Gehring et al. 2017).
    Convolutional(ConvolutionalSection),
}

/// A Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TransformerSection {
    /// Encoder layers, and decoder layers unless set separately.
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
    /// How positions are represented, in the encoder and in the decoder. Default `"sinusoidal"`.
    #[serde(default = "defaults::sinusoidal", skip_serializing_if = "is_sinusoidal")]
    pub positions: PositionKind,
    /// Dropout of embeddings and of each sublayer's output. Default 0.1.
    #[serde(default = "defaults::dropout")]
    pub dropout: f64,
    /// Dropout of the attention probabilities. Default 0.
    #[serde(default)]
    pub attention_dropout: f64,
    /// Dropout after the feed-forward's activation. Default 0.
    #[serde(default)]
    pub activation_dropout: f64,
    /// The feed-forward's activation. Default `"relu"`.
    #[serde(default = "defaults::relu")]
    pub activation: Activation,
    /// Position of the layer norms. Default `"post"`.
    #[serde(default)]
    pub norm: NormPlacement,
    /// Whether the output layer shares the target's embedding table, and with a shared vocabulary the source's
    /// too; an adaptive `output` has weights of its own. Default true.
    #[serde(default = "defaults::yes")]
    pub tied: bool,
    /// How the next piece is predicted. Default by a softmax over the whole vocabulary.
    #[serde(default, skip_serializing_if = "OutputSection::is_whole")]
    pub output: OutputSection,
}

/// Lets runs from before this option existed resume.
fn is_sinusoidal(kind: &PositionKind) -> bool {
    *kind == PositionKind::Sinusoidal
}

/// A recurrent model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecurrentSection {
    /// Encoder layers, and decoder layers unless set separately. Default 1.
    #[serde(default = "defaults::one")]
    pub n_layers: usize,
    /// Decoder layers. Default `n_layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_decoder_layers: Option<usize>,
    /// Width of the embeddings.
    pub d_embedding: usize,
    /// Width of the decoder's states, and of the encoder's, split evenly if there are two directions.
    pub d_model: usize,
    /// The kind of recurrent cell. Default `"lstm"`.
    #[serde(default)]
    pub cell: Cell,
    /// The encoder's reading direction. Default `"both"`.
    #[serde(default = "defaults::both")]
    pub reading: Reading,
    /// The decoder's initial state. Default `"linear"`.
    #[serde(default = "defaults::linear")]
    pub bridge: BridgeKind,
    /// Where the decoder attends to the encoder's states. Default `"bahdanau"`.
    #[serde(default)]
    pub attention: Wiring,
    /// The attention's score of a query `q` and an encoder state `h`. Default `"additive"`.
    #[serde(default)]
    pub score: ScoreKind,
    /// Dropout of the embeddings, between layers and before the output. Default 0.2.
    #[serde(default = "defaults::recurrent_dropout")]
    pub dropout: f64,
    /// Whether the output layer shares the target's embedding table, and with a shared vocabulary the source's
    /// too; an adaptive `output` has weights of its own. Default true.
    #[serde(default = "defaults::yes")]
    pub tied: bool,
    /// How the next piece is predicted. Default by a softmax over the whole vocabulary.
    #[serde(default, skip_serializing_if = "OutputSection::is_whole")]
    pub output: OutputSection,
}

/// A convolutional model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ConvolutionalSection {
    /// Encoder layers, and decoder layers unless set separately.
    pub n_layers: usize,
    /// Decoder layers. Default `n_layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_decoder_layers: Option<usize>,
    /// Width of the embeddings.
    pub d_embedding: usize,
    /// Width of the states.
    pub d_model: usize,
    /// Kernel width: the number of tokens that a layer of the encoder sees at a time, and of the decoder
    /// unless set separately. Default 3.
    #[serde(default = "defaults::kernel")]
    pub kernel: usize,
    /// Kernel width of the decoder's causal layers, in tokens, the current one last. Default `kernel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder_kernel: Option<usize>,
    /// Dropout of the embeddings, of the convolutions' inputs, and before the output. Default 0.2.
    #[serde(default = "defaults::convolutional_dropout")]
    pub dropout: f64,
    /// Whether the output layer shares the target's embedding table, and with a shared vocabulary the source's
    /// too; an adaptive `output` has weights of its own. Default true.
    #[serde(default = "defaults::yes")]
    pub tied: bool,
    /// How the next piece is predicted. Default by a softmax over the whole vocabulary.
    #[serde(default, skip_serializing_if = "OutputSection::is_whole")]
    pub output: OutputSection,
}

impl TranslationModel {
    /// The model for vocabularies of these sizes, of sequences of at most this many tokens.
    pub fn config(&self, vocabulary: VocabularySizes, max_len: usize) -> AnyEncoderDecoderConfig {
        match self {
            Self::Transformer(section) => section.config(vocabulary, max_len).into(),
            Self::Recurrent(section) => section.config(vocabulary, max_len).into(),
            Self::Convolutional(section) => section.config(vocabulary, max_len).into(),
        }
    }

    /// How the next piece is predicted.
    pub fn output(&self) -> &OutputSection {
        match self {
            Self::Transformer(section) => &section.output,
            Self::Recurrent(section) => &section.output,
            Self::Convolutional(section) => &section.output,
        }
    }

    /// Whether its values are consistent, for any vocabularies.
    pub(crate) fn check(&self, is_joint: bool, max_len: usize) -> Check {
        if let Self::Transformer(section) = self {
            section.check()?;
        }
        self.output().check()?;
        self.config(VocabularySizes::unknown(is_joint, self.output()), max_len).check().map_err(complaint)
    }
}

/// A model error as a complaint about its key in `[model]`.
pub(crate) fn complaint(error: ModelError) -> Complaint {
    match error {
        ModelError::Setting { key, found, expected } => {
            Complaint { key: format!("model.{}", key_of(key)), found, expected }
        }
        other => Complaint {
            key: "model".into(),
            found: "impossible to build".into(),
            expected: other.to_string(),
        },
    }
}

/// A model error of a run that has its vocabulary, about its key in `[model]`.
pub(crate) fn refusal(error: ModelError) -> TrainerError {
    match error {
        ModelError::Setting { .. } => {
            let Complaint { key, found, expected } = complaint(error);
            TrainerError::Setting { key, found, expected }
        }
        other => other.into(),
    }
}

/// The key in `[model]` of a model setting.
fn key_of(setting: &str) -> &str {
    match setting {
        "n_encoder_layers" => "n_layers",
        "encoder_kernel" => "kernel",
        "positions.n_buckets" => "n_buckets",
        "positions.max_distance" => "max_distance",
        other => other,
    }
}

/// The ids of special tokens.
pub(crate) fn tokens(special: TargetPieces) -> SpecialTokens {
    let tokens = SpecialTokens::new(special.pad as usize, special.end as usize);
    let tokens = match special.bos {
        Some(bos) => tokens.with_bos(bos as usize),
        None => tokens,
    };
    tokens.with_decoder_start(special.begin as usize)
}

impl TransformerSection {
    fn config(&self, vocabulary: VocabularySizes, max_len: usize) -> TransformerConfig {
        let config = TransformerConfig::new(vocabulary.target, self.n_layers, self.d_model)
            .with_layers(self.n_layers, self.n_decoder_layers.unwrap_or(self.n_layers))
            .with_heads(self.n_heads)
            .with_d_ff(self.d_ff)
            .with_max_positions(max_len)
            .with_dropout(self.dropout)
            .with_inner_dropouts(self.attention_dropout, self.activation_dropout)
            .with_activation(self.activation)
            .with_norm(self.norm)
            .with_tokens(tokens(vocabulary.special));
        // The default's sines stand first, as in Marian's folders.
        let config = match self.positions {
            PositionKind::Sinusoidal => config,
            kind => config.with_positions(kind.into()),
        };
        let config = match vocabulary.source {
            Some(source) => config.with_source_vocab(source),
            None => config,
        };
        let config = config.with_tied(tied(self.tied, vocabulary.source.is_none()));
        match self.output.adaptive() {
            Some(output) => config.with_output(output),
            None => config,
        }
    }

    fn check(&self) -> Check {
        at_least(1, "model.n_layers", self.n_layers)?;
        at_least(1, "model.n_decoder_layers", self.n_decoder_layers.unwrap_or(1))?;
        at_least(1, "model.d_model", self.d_model)?;
        at_least(1, "model.n_heads", self.n_heads)?;
        at_least(1, "model.d_ff", self.d_ff)?;
        let expected = format!("a divisor of `model.d_model`, which is {}", self.d_model);
        ensure(self.d_model.is_multiple_of(self.n_heads), "model.n_heads", self.n_heads, expected)?;
        rotated_in_pairs(self.positions, self.d_model, self.n_heads)?;
        below_one("model.dropout", self.dropout)?;
        below_one("model.attention_dropout", self.attention_dropout)?;
        below_one("model.activation_dropout", self.activation_dropout)
    }
}

impl RecurrentSection {
    fn config(&self, vocabulary: VocabularySizes, max_len: usize) -> RecurrentEncoderDecoderConfig {
        let by_place = self.attention != Wiring::None && self.score == ScoreKind::Location;
        let config = RecurrentEncoderDecoderConfig {
            source_vocab_size: vocabulary.source,
            tied: tied(self.tied, vocabulary.source.is_none()),
            cell: self.cell,
            n_encoder_layers: self.n_layers,
            n_decoder_layers: self.n_decoder_layers.unwrap_or(self.n_layers),
            reading: self.reading,
            bridge: self.bridge,
            wiring: self.attention,
            score: self.score,
            max_source_tokens: by_place.then_some(max_len),
            dropout: self.dropout,
            tokens: tokens(vocabulary.special),
            ..RecurrentEncoderDecoderConfig::new(vocabulary.target, self.d_embedding, self.d_model)
        };
        match self.output.adaptive() {
            Some(output) => config.with_output(output),
            None => config,
        }
    }
}

impl ConvolutionalSection {
    fn config(&self, vocabulary: VocabularySizes, max_len: usize) -> ConvolutionalEncoderDecoderConfig {
        let config =
            ConvolutionalEncoderDecoderConfig::new(vocabulary.target, self.d_embedding, self.d_model)
                .with_layers(self.n_layers, self.n_decoder_layers.unwrap_or(self.n_layers))
                .with_kernels(self.kernel, self.decoder_kernel.unwrap_or(self.kernel))
                .with_max_positions(max_len)
                .with_dropout(self.dropout)
                .with_tokens(tokens(vocabulary.special));
        let config = match vocabulary.source {
            Some(source) => config.with_source_vocab(source),
            None => config,
        };
        let config = config.with_tied(tied(self.tied, vocabulary.source.is_none()));
        match self.output.adaptive() {
            Some(output) => config.with_output(output),
            None => config,
        }
    }
}

/// Which embedding tables are tied.
fn tied(is_tied: bool, is_joint: bool) -> TiedEmbeddings {
    match (is_tied, is_joint) {
        (false, _) => TiedEmbeddings::None,
        (true, true) => TiedEmbeddings::All,
        (true, false) => TiedEmbeddings::TargetOutput,
    }
}

/// The defaults of sections that also have required keys.
mod defaults {
    use cloze_model::blocks::{Activation, PositionKind};
    use cloze_model::recurrent::Reading;
    use cloze_model::seq2seq::BridgeKind;

    pub fn one() -> usize {
        1
    }

    pub fn both() -> Reading {
        Reading::Both
    }

    pub fn linear() -> BridgeKind {
        BridgeKind::Linear
    }

    pub fn dropout() -> f64 {
        0.1
    }

    pub fn sinusoidal() -> PositionKind {
        PositionKind::Sinusoidal
    }

    pub fn relu() -> Activation {
        Activation::Relu
    }

    pub fn recurrent_dropout() -> f64 {
        0.2
    }

    pub fn convolutional_dropout() -> f64 {
        0.2
    }

    pub fn kernel() -> usize {
        3
    }

    pub fn yes() -> bool {
        true
    }
}
