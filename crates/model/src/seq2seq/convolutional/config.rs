use super::{ConvolutionalDecoderLayer, ConvolutionalEncoderDecoder};
use crate::blocks::{AdaptiveSoftmaxConfig, Embedding, GatedConvolution, NormedLinear};
use crate::seq2seq::{SpecialTokens, TiedEmbeddings};
use crate::sizes::check_sizes;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// The configuration of a convolutional encoder–decoder.
///
/// ```
/// # use burn::tensor::Device;
/// # use cloze_model::{ParamInit, Sequences};
/// use cloze_model::seq2seq::{ConvolutionalEncoderDecoderConfig, EncoderDecoder};
///
/// let config = ConvolutionalEncoderDecoderConfig::new(100, 32, 64).with_layers(3, 2).with_kernels(3, 5);
/// let device = Device::flex();
/// let model = config.init(&mut ParamInit::new(&device, 1));
/// let source: Sequences = [&[5, 6, 7, 2][..], &[8, 2]].into_iter().collect();
/// let target: Sequences = [&[2, 9][..], &[2, 10, 11]].into_iter().collect();
/// assert_eq!(model.logits(&source, &target, &device).dims(), [5, 100]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ConvolutionalEncoderDecoderConfig {
    /// Pieces in the target's vocabulary, and in the source's unless that has [its own](Self::source_vocab_size).
    pub vocab_size: usize,
    /// Pieces in the source's vocabulary if it differs from the target's; `None`: one joint vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_vocab_size: Option<usize>,
    /// Which of source embeddings, target embeddings and output layer share a table.
    pub tied: TiedEmbeddings,
    /// Features of an embedding, of the encoder's outputs, of queries and of the output layer's input.
    pub d_embedding: usize,
    /// Features of a state between layers.
    pub d_model: usize,
    /// Encoder layers.
    pub n_encoder_layers: usize,
    /// Decoder layers, each with attention.
    pub n_decoder_layers: usize,
    /// Window size of encoder layers, in tokens.
    pub encoder_kernel: usize,
    /// Window size of decoder layers, in tokens, ending with the current one.
    pub decoder_kernel: usize,
    /// The longest source and the longest target, in tokens.
    pub max_positions: usize,
    /// Dropout on the embeddings, on the convolutions' inputs, and before the output layer.
    pub dropout: f64,
    /// An adaptive softmax, for large vocabularies, in place of the projection onto the vocabulary, which is then not tied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<AdaptiveSoftmaxConfig>,
    /// The ids of special tokens.
    pub tokens: SpecialTokens,
}

impl ConvolutionalEncoderDecoderConfig {
    /// Four encoder and three decoder layers with windows of three tokens, with a joint vocabulary and one
    /// table for source, target and output. (fairseq's `fconv` for IWSLT'14 has four and three layers of 256
    /// features.)
    pub fn new(vocab_size: usize, d_embedding: usize, d_model: usize) -> Self {
        Self {
            vocab_size,
            source_vocab_size: None,
            tied: TiedEmbeddings::All,
            d_embedding,
            d_model,
            n_encoder_layers: 4,
            n_decoder_layers: 3,
            encoder_kernel: 3,
            decoder_kernel: 3,
            max_positions: 1024,
            dropout: 0.1,
            output: None,
            tokens: SpecialTokens::new(0, 2),
        }
    }

    /// Sets the numbers of layers.
    pub fn with_layers(mut self, n_encoder_layers: usize, n_decoder_layers: usize) -> Self {
        (self.n_encoder_layers, self.n_decoder_layers) = (n_encoder_layers, n_decoder_layers);
        self
    }

    /// Sets the window sizes, in tokens.
    pub fn with_kernels(mut self, encoder_kernel: usize, decoder_kernel: usize) -> Self {
        (self.encoder_kernel, self.decoder_kernel) = (encoder_kernel, decoder_kernel);
        self
    }

    /// Sets a separate source vocabulary. Source and target then have separate tables.
    pub fn with_source_vocab(mut self, source_vocab_size: usize) -> Self {
        self.source_vocab_size = Some(source_vocab_size);
        self.tied = match self.tied.joins_output() {
            true => TiedEmbeddings::TargetOutput,
            false => TiedEmbeddings::None,
        };
        self
    }

    /// Sets which embeddings share a table.
    pub fn with_tied(mut self, tied: TiedEmbeddings) -> Self {
        self.tied = tied;
        self
    }

    /// Sets the maximum length.
    pub fn with_max_positions(mut self, max_positions: usize) -> Self {
        self.max_positions = max_positions;
        self
    }

    /// Sets the dropout.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// Sets an adaptive softmax as the output layer, which shares no table.
    pub fn with_output(mut self, output: AdaptiveSoftmaxConfig) -> Self {
        (self.output, self.tied) = (Some(output), self.tied.without_output());
        self
    }

    /// Sets the ids of special tokens.
    pub fn with_tokens(mut self, tokens: SpecialTokens) -> Self {
        self.tokens = tokens;
        self
    }

    /// Pieces in the source's vocabulary.
    pub fn source_vocabulary(&self) -> usize {
        self.source_vocab_size.unwrap_or(self.vocab_size)
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_sizes([
            ("vocab_size", self.vocab_size),
            ("source_vocab_size", self.source_vocabulary()),
            ("d_embedding", self.d_embedding),
            ("d_model", self.d_model),
            ("n_encoder_layers", self.n_encoder_layers),
            ("n_decoder_layers", self.n_decoder_layers),
            ("encoder_kernel", self.encoder_kernel),
            ("decoder_kernel", self.decoder_kernel),
            ("max_positions", self.max_positions),
        ])?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ModelError::setting("dropout", self.dropout, "0 or more and below 1"));
        }
        if self.tied.joins_source() && self.source_vocab_size.is_some_and(|size| size != self.vocab_size) {
            let expected = "`target-output` or `none`: source and target have a vocabulary each";
            return Err(ModelError::setting("tied", format!("{:?}", self.tied), expected));
        }
        self.tied.check_output(self.output.as_ref(), self.vocab_size, self.d_embedding)?;
        self.tokens.validate(self.vocab_size)
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> ConvolutionalEncoderDecoder {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let (d_embedding, d, keep) = (self.d_embedding, self.d_model, 1.0 - self.dropout);
        let table =
            |n: usize, init: &mut ParamInit| Embedding::from_weight(init.normal([n, d_embedding], 0.1));
        let target_embedding = table(self.vocab_size, init);
        let source_embedding = (!self.tied.joins_source()).then(|| table(self.source_vocabulary(), init));
        let [source_positions, target_positions] = [(); 2].map(|()| table(self.max_positions, init));
        let encoder_input = NormedLinear::new(d_embedding, d, keep, init);
        let encoder = (0..self.n_encoder_layers)
            .map(|_| GatedConvolution::new(d, d, self.encoder_kernel, false, keep, init))
            .collect();
        let encoder_output = NormedLinear::new(d, d_embedding, 1.0, init);
        let decoder_input = NormedLinear::new(d_embedding, d, keep, init);
        let decoder = (0..self.n_decoder_layers)
            .map(|_| ConvolutionalDecoderLayer::new(d, d_embedding, self.decoder_kernel, keep, init))
            .collect();
        let readout = NormedLinear::new(d, d_embedding, 1.0, init);
        let tied = self.tied.joins_output();
        ConvolutionalEncoderDecoder {
            source_embedding,
            target_embedding,
            source_positions,
            target_positions,
            encoder_input,
            encoder,
            encoder_output,
            decoder_input,
            decoder,
            readout,
            output: (!tied && self.output.is_none())
                .then(|| NormedLinear::new(d_embedding, self.vocab_size, keep, init)),
            adaptive: self.output.as_ref().map(|output| output.init(self.vocab_size, d_embedding, init)),
            output_bias: tied.then(|| init.zeros([self.vocab_size])),
            dropout: self.dropout,
            inference_table: None,
        }
    }
}
