use super::{BridgeKind, RecurrentEncoderDecoder};
use crate::blocks::AdaptiveSoftmaxConfig;
use crate::recurrent::{Cell, Reading, RecurrentConfig};
use crate::scores::{ScoreConfig, ScoreKind};
use crate::seq2seq::{SpecialTokens, TiedEmbeddings};
use crate::sizes::check_recurrent_sizes;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// Where the decoder attends to the encoder's states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Wiring {
    /// No attention: the decoder starts from the encoder's last states and sees nothing else of the source
    /// (Sutskever et al. 2014; Cho et al. 2014).
    None,
    /// The query is the lowest layer's previous state. The context is an input of that layer, together with the token
    /// (Bahdanau et al. 2015, §3.1), and of all layers above (Wu et al. 2016, §3.1).
    #[default]
    Bahdanau,
    /// The query is the highest layer's new state, and the context goes into the output (Luong et al. 2015, §3.1).
    Luong,
    /// Like [`Luong`](Self::Luong), and the output layer's input is also an input of the lowest layer in the
    /// next step (Luong et al. 2015, §3.3).
    LuongInputFeeding,
}

/// The configuration of a recurrent model that reads a source and writes a target.
///
/// ```
/// # use burn::tensor::Device;
/// # use cloze_model::{ParamInit, Sequences};
/// use cloze_model::recurrent::Cell;
/// use cloze_model::seq2seq::{EncoderDecoder, RecurrentEncoderDecoderConfig};
///
/// let config = RecurrentEncoderDecoderConfig { cell: Cell::Gru, ..RecurrentEncoderDecoderConfig::new(100, 32, 64) };
/// let device = Device::flex();
/// let model = config.init(&mut ParamInit::new(&device, 1));
/// let source: Sequences = [&[5, 6, 7, 2][..], &[8, 2]].into_iter().collect();
/// let target: Sequences = [&[2, 9][..], &[2, 10, 11]].into_iter().collect();
/// assert_eq!(model.logits(&source, &target, &device).dims(), [5, 100]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentEncoderDecoderConfig {
    /// Pieces in the target's vocabulary, and in the source's unless that has [its own](Self::source_vocab_size).
    pub vocab_size: usize,
    /// Pieces in the source's vocabulary if it differs from the target's; none: one joint vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_vocab_size: Option<usize>,
    /// Which of source embeddings, target embeddings and output layer share a table.
    pub tied: TiedEmbeddings,
    /// LSTM or GRU.
    pub cell: Cell,
    /// Features of an embedding.
    pub d_embedding: usize,
    /// Features of a decoder's state, and of an encoder's: half of them for each direction if there are two.
    pub d_model: usize,
    /// Encoder layers.
    pub n_encoder_layers: usize,
    /// Decoder layers.
    pub n_decoder_layers: usize,
    /// The direction in which the encoder reads.
    pub reading: Reading,
    /// How the decoder's first states are made.
    pub bridge: BridgeKind,
    /// Where the decoder attends.
    pub wiring: Wiring,
    /// How the attention scores; without attention it has no effect.
    pub score: ScoreKind,
    /// The number of features in which an additive score compares; `None`: that of a state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_attention: Option<usize>,
    /// The longest source, in tokens. Only a location score has it, since it has a weight for each position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_source_tokens: Option<usize>,
    /// Dropout on the embeddings, between layers, and before the output.
    pub dropout: f64,
    /// An adaptive softmax, for large vocabularies, in place of the projection onto the vocabulary, which is then not tied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<AdaptiveSoftmaxConfig>,
    /// The ids of special tokens.
    pub tokens: SpecialTokens,
}

impl RecurrentEncoderDecoderConfig {
    /// The plainest form of the model of Bahdanau et al. 2015: LSTMs, one bidirectional encoder layer, and one decoder
    /// layer with additive attention. Source and target have a joint vocabulary and share their embeddings.
    pub fn new(vocab_size: usize, d_embedding: usize, d_model: usize) -> Self {
        Self {
            vocab_size,
            source_vocab_size: None,
            tied: TiedEmbeddings::All,
            cell: Cell::Lstm,
            d_embedding,
            d_model,
            n_encoder_layers: 1,
            n_decoder_layers: 1,
            reading: Reading::Both,
            bridge: BridgeKind::Linear,
            wiring: Wiring::Bahdanau,
            score: ScoreKind::Additive,
            d_attention: None,
            max_source_tokens: None,
            dropout: 0.2,
            output: None,
            tokens: SpecialTokens::new(0, 2),
        }
    }

    /// Sets an adaptive softmax as the output layer, which shares no table.
    pub fn with_output(mut self, output: AdaptiveSoftmaxConfig) -> Self {
        (self.output, self.tied) = (Some(output), self.tied.without_output());
        self
    }

    /// The encoder.
    pub(super) fn encoder(&self) -> RecurrentConfig {
        let d = self.d_model / self.reading.directions();
        RecurrentConfig::new(self.cell, self.d_embedding, d)
            .with_layers(self.n_encoder_layers)
            .with_reading(self.reading)
            .with_dropout(self.dropout)
    }

    /// The attention's score; none without attention.
    pub(super) fn attention(&self) -> Option<ScoreConfig> {
        (self.wiring != Wiring::None).then(|| ScoreConfig {
            kind: self.score,
            d_query: self.d_model,
            d_memory: self.d_model,
            d: self.d_attention.unwrap_or(self.d_model),
            max_tokens: self.max_source_tokens.unwrap_or(0),
        })
    }

    /// Features of the output layer's input.
    pub(super) fn d_readout(&self) -> usize {
        if self.tied.joins_output() { self.d_embedding } else { self.d_model }
    }

    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        let sizes = [
            ("vocab_size", Some(self.vocab_size)),
            ("source_vocab_size", self.source_vocab_size),
            ("d_embedding", Some(self.d_embedding)),
            ("d_model", Some(self.d_model)),
            ("n_encoder_layers", Some(self.n_encoder_layers)),
            ("n_decoder_layers", Some(self.n_decoder_layers)),
            ("d_attention", self.d_attention),
            ("max_source_tokens", self.max_source_tokens),
        ];
        check_recurrent_sizes(sizes.into_iter().filter_map(|(key, size)| Some((key, size?))))?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ModelError::setting("dropout", self.dropout, "0 or more and below 1"));
        }
        let directions = self.reading.directions();
        if !self.d_model.is_multiple_of(directions) {
            return Err(ModelError::setting(
                "d_model",
                self.d_model,
                "an even number, half of it for each direction",
            ));
        }
        if self.tied.joins_source() && self.source_vocab_size.is_some_and(|size| size != self.vocab_size) {
            let expected = "`target-output` or `none`: source and target have separate vocabularies";
            return Err(ModelError::setting("tied", format!("{:?}", self.tied), expected));
        }
        self.tied.check_output(self.output.as_ref(), self.vocab_size, self.d_readout())?;
        if self.bridge == BridgeKind::Copy && self.n_encoder_layers != self.n_decoder_layers {
            let expected = "the value of `n_encoder_layers`, whose states are copied";
            return Err(ModelError::setting("n_decoder_layers", self.n_decoder_layers, expected));
        }
        let by_place = self.wiring != Wiring::None && self.score == ScoreKind::Location;
        match self.max_source_tokens {
            None if by_place => Err(ModelError::setting(
                "max_source_tokens",
                "missing",
                "the longest source of a `location` score",
            )),
            Some(most) if !by_place => Err(ModelError::setting(
                "max_source_tokens",
                most,
                "no value: only a `location` score uses it",
            )),
            _ => self.tokens.validate(self.vocab_size),
        }
    }

    /// A new model with one of this crate's scores.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> RecurrentEncoderDecoder {
        self.init_with(self.attention().map(|config| config.init(init)), init)
    }
}
