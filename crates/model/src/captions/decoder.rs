use crate::Sequences;
use crate::blocks::LinearMaps;
use crate::generate::NextToken;
use crate::seq2seq::DecodeOptions;
use crate::vision::ImageStates;
use burn::module::{Module, ModuleDisplay};
use burn::tensor::Tensor;

/// A network that describes images in words, left to right: `P(y | a) = Π_t P(y_t | y_<t, a)`, with the places `a` of an
/// image. The trait to implement for a decoder of one's own.
///
/// Its supertrait [`NextToken`] decodes: [`begin`](Self::begin) takes the images, one per row, and each step writes a
/// token.
pub trait CaptionDecoder: Module + LinearMaps + ModuleDisplay + NextToken + Sync + 'static {
    /// The logits of the token after each token of the captions, given the tokens so far (teacher forcing).
    ///
    /// Captions begin with the start token, and lack the last token, which is only predicted. `draws` is for decoders that
    /// [draw places](crate::captions::Looking::Hard) in training; without it they look where they would when decoding.
    ///
    /// # Panics
    /// If the numbers of images and captions differ, or a caption is longer than the model's positions.
    fn teach(&self, images: &ImageStates, captions: &Sequences, draws: Option<&Draws>) -> Taught;

    /// A state of one row for each image, before any token is written.
    ///
    /// # Panics
    /// If there is no image.
    fn begin(&self, images: &ImageStates, options: DecodeOptions) -> Self::State;

    /// Whether training has to pass [`Draws`].
    fn draws(&self) -> bool {
        false
    }
}

/// Random numbers by which a decoder draws places: a function of the seed, the epoch and the example, so that training
/// does not depend on batches or threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Draws {
    /// `[n_tokens]`, in the order of the captions' tokens: numbers from 0 to 1, of which each chooses a place.
    pub places: Vec<f32>,
    /// `[captions]`: whether a caption sees the expectation of all places instead, as half of them do in the paper
    /// (Xu et al. 2015, §4.1).
    pub expected: Vec<bool>,
}

/// The output of [`CaptionDecoder::teach`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Taught {
    /// `[n_tokens, vocab_size]`, in the order of the captions' tokens.
    pub logits: Tensor<2>,
    /// The attention of each token to each place, `[n_tokens, places]`, if there is any.
    pub attention: Option<Tensor<2>>,
    /// What was drawn, if places were.
    pub drawn: Option<DrawnPlaces>,
}

impl Taught {
    /// Logits without attention.
    pub fn new(logits: Tensor<2>) -> Self {
        Self { logits, attention: None, drawn: None }
    }

    /// Sets the attention.
    pub fn with_attention(self, attention: Option<Tensor<2>>) -> Self {
        Self { attention, ..self }
    }

    /// Sets what was drawn.
    pub fn with_drawn(self, drawn: Option<DrawnPlaces>) -> Self {
        Self { drawn, ..self }
    }
}

/// The places that were drawn, for [`HardAttentionLoss`](super::HardAttentionLoss).
#[derive(Debug, Clone)]
pub struct DrawnPlaces {
    /// `[n_tokens]`: the log-probability of each token's place; 0 where a caption sees the expectation.
    pub log_probs: Tensor<1>,
    /// `[n_tokens]`: the entropy of each token's attention, in nats.
    pub entropy: Tensor<1>,
}
