use crate::Sequences;
use crate::generate::NextToken;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

/// A model that reads a source and writes a target, left to right: `P(y | x) = Π_t P(y_t | y_<t, x)`. Recurrent,
/// convolutional and Transformer models are trained and decoded by it alike.
///
/// Its [`NextToken`] half decodes: [`begin`](Self::begin) reads the sources, a row each, and the steps write.
pub trait EncoderDecoder: Module + NextToken {
    /// The logits of the token after each target token, given the target tokens before (teacher forcing).
    ///
    /// Targets begin with the token that decoding begins with, and lack the last token, which is only predicted.
    ///
    /// # Shapes
    /// - returns `[n_target_tokens, vocab_size]`, in the order of [`Sequences::ids`]
    ///
    /// # Panics
    /// If there are not as many sources as targets, or one is longer than the model's positions.
    fn logits(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2>;

    /// Reads the sources: a state of one row each, before any token is written.
    ///
    /// # Panics
    /// If there is no source, or one is longer than the model's positions.
    fn begin(&self, source: &Sequences, options: DecodeOptions, device: &Device) -> Self::State;

    /// How many tokens a source may have; none if there is no limit.
    fn max_source_tokens(&self) -> Option<usize> {
        None
    }
}

/// What decoding is to keep besides the logits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Whether [`StepOutput::alignment`](crate::generate::StepOutput::alignment) is wanted.
    pub alignment: bool,
}

impl DecodeOptions {
    /// Asks for the attention to the source.
    pub fn with_alignment(mut self) -> Self {
        self.alignment = true;
        self
    }
}
