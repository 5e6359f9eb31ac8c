use crate::Sequences;
use crate::blocks::{SampledSoftmax, cross_entropy};
use crate::generate::NextToken;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

/// A model that reads a source and writes a target, left to right: `P(y | x) = Π_t P(y_t | y_<t, x)`. Recurrent,
/// convolutional and Transformer models are all trained and decoded through it.
///
/// Its supertrait [`NextToken`] decodes: [`begin`](Self::begin) reads the sources, one per row, and each step
/// writes a token.
pub trait EncoderDecoder: Module + NextToken {
    /// The logits of the token after each target token, given the target tokens so far (teacher forcing).
    ///
    /// Targets begin with the start token of decoding, and lack the last token, which is only predicted.
    ///
    /// # Shapes
    /// - returns `[n_target_tokens, vocab_size]`, in the order of [`Sequences::ids`]
    ///
    /// # Panics
    /// If the numbers of sources and targets differ, or one is longer than the model's positions.
    fn logits(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2>;

    /// The cross-entropy of the token after each target token, `−log P(y_t | y_<t, x)`, in nats; with `sampled`, among pieces
    /// drawn for the batch, for training with a large vocabulary.
    ///
    /// Computes all [`logits`](Self::logits). A model overrides it if its output layer needs fewer of them, which is what saves
    /// time.
    ///
    /// # Shapes
    /// - `next`: the id after each target token, in the order of [`Sequences::ids`]; returns `[n_target_tokens]`
    ///
    /// # Panics
    /// Those of [`logits`](Self::logits); if the numbers of ids and target tokens differ, or `sampled` is not
    /// [valid](SampledSoftmax::validate) or does not suit the output layer.
    fn losses(
        &self,
        source: &Sequences,
        target: &Sequences,
        next: &[i32],
        sampled: Option<SampledSoftmax>,
        device: &Device,
    ) -> Tensor<1> {
        let logits = self.logits(source, target, device);
        match sampled {
            Some(sampled) => sampled.losses_of(logits, next),
            None => cross_entropy(logits, next),
        }
    }

    /// Reads the sources and returns a state of one row each, before any token is written.
    ///
    /// # Panics
    /// If there is no source, or one is longer than the model's positions.
    fn begin(&self, source: &Sequences, options: DecodeOptions, device: &Device) -> Self::State;

    /// The maximum number of tokens in a source; none if there is no limit.
    fn max_source_tokens(&self) -> Option<usize> {
        None
    }
}

/// What decoding keeps besides the logits.
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
