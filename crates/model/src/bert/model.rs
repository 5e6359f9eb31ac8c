use super::{BertEmbeddings, Pooler};
use crate::blocks::{Encoder, EncoderTrace, MultiHeadAttention, SelfAttention};
use crate::ops::AttentionMask;
use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor};

/// A batch of token sequences as BERT takes it.
#[derive(Debug, Clone)]
pub struct BertInput {
    /// `[batch, len]`
    pub input_ids: Tensor<2, Int>,
    /// `[batch, len]`: 0 in the first segment and 1 in the second.
    pub token_type_ids: Tensor<2, Int>,
    /// `[batch, len]`, `true` = ignored; none where there is no padding.
    pub pad_mask: Option<Tensor<2, Bool>>,
    /// What to keep besides the last states.
    pub trace: EncoderTrace,
}

impl BertInput {
    /// One segment without padding.
    pub fn new(input_ids: Tensor<2, Int>) -> Self {
        let token_type_ids = input_ids.zeros_like();
        Self { input_ids, token_type_ids, pad_mask: None, trace: EncoderTrace::default() }
    }

    /// Other token types.
    pub fn with_token_types(mut self, token_type_ids: Tensor<2, Int>) -> Self {
        self.token_type_ids = token_type_ids;
        self
    }

    /// Padding, `true` = ignored.
    pub fn with_pad_mask(mut self, pad_mask: Tensor<2, Bool>) -> Self {
        self.pad_mask = Some(pad_mask);
        self
    }

    /// Keeps every layer's states or attention.
    pub fn with_trace(mut self, trace: EncoderTrace) -> Self {
        self.trace = trace;
        self
    }
}

/// What BERT returns: the encoder's output.
pub type BertOutput = crate::blocks::EncoderOutput;

/// The BERT encoder: embeddings, layers, pooler.
#[derive(Module, Debug)]
pub struct Bert<A: SelfAttention = MultiHeadAttention> {
    /// Pieces, segments and positions to vectors.
    pub embeddings: BertEmbeddings,
    /// The layers.
    pub encoder: Encoder<A>,
    /// The first position's summary.
    pub pooler: Pooler,
}

impl<A: SelfAttention> Bert<A> {
    /// Contextual vectors of every position.
    ///
    /// # Panics
    /// If a sequence is longer than `max_positions`.
    pub fn forward(&self, input: BertInput) -> BertOutput {
        let hidden = self.embeddings.forward(input.input_ids, input.token_type_ids);
        let mask = AttentionMask { pad_mask: input.pad_mask, causal: false };
        self.encoder.forward(hidden, &mask, input.trace)
    }
}
