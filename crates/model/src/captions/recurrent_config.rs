use super::RecurrentCaptionDecoder;
use crate::sizes::check_recurrent_sizes;
use crate::with_fields::with_fields;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// How a decoder looks at an image for its next word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Looking {
    /// Not at all: it knows only the mean of all places, with which it begins.
    None,
    /// At all places, by the weights `α`: `z_t = Σ_i α_ti·a_i` (Xu et al. 2015, §4.2).
    #[default]
    Soft,
    /// At one place, drawn by the weights `α` in training and the likeliest when decoding (Xu et al. 2015, §4.1).
    Hard,
}

/// The configuration of a [`RecurrentCaptionDecoder`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecurrentCaptionConfig {
    /// Pieces in the vocabulary.
    pub vocab_size: usize,
    /// Features of the image encoder's states.
    pub d_image: usize,
    /// Features of an embedding.
    pub d_embedding: usize,
    /// Features of the LSTM's state.
    pub d_model: usize,
    /// The number of features in which state and place are compared.
    pub d_attention: usize,
    /// How it looks at the image.
    pub looking: Looking,
    /// Whether the state decides how much of the image is let through, by the gate `β_t = σ(w·h_(t−1) + b)` (Xu et al. 2015,
    /// §4.2.1).
    pub gate: bool,
    /// Whether sines and cosines of a place's column and row are added to its state (Carion et al. 2020, appendix A.4).
    #[serde(default)]
    pub positions: bool,
    /// Whether the sum that the output layer sees passes a `tanh`, as in the authors' code. The paper has none (eq. 7), and
    /// models learn much faster without it: it saturates while the grammar is learned, before anything of the image is.
    #[serde(default = "in_older_folders")]
    pub output_tanh: bool,
    /// Dropout of the embeddings, and of what the output layer sees.
    pub dropout: f64,
}

with_fields!(RecurrentCaptionConfig {
    with_d_attention => d_attention: usize,
    with_looking => looking: Looking,
    with_gate => gate: bool,
    with_positions => positions: bool,
    with_output_tanh => output_tanh: bool,
    with_dropout => dropout: f64,
});

/// Folders from before there was a choice have the `tanh`.
fn in_older_folders() -> bool {
    true
}

/// Checks that states of `d_image` features can have positions, if they are to have some: sines and cosines of two coordinates.
pub(super) fn check_positions(positions: bool, d_image: usize) -> Result<()> {
    match positions && !d_image.is_multiple_of(4) {
        true => Err(ModelError::setting("d_image", d_image, "a multiple of 4, for positions")),
        false => Ok(()),
    }
}

impl RecurrentCaptionConfig {
    /// Soft attention with a gate, without positions or dropout.
    pub fn new(vocab_size: usize, d_image: usize, d_embedding: usize, d_model: usize) -> Self {
        Self {
            vocab_size,
            d_image,
            d_embedding,
            d_model,
            d_attention: d_model,
            looking: Looking::Soft,
            gate: true,
            positions: false,
            output_tanh: false,
            dropout: 0.0,
        }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_recurrent_sizes([
            ("vocab_size", self.vocab_size),
            ("d_image", self.d_image),
            ("d_embedding", self.d_embedding),
            ("d_model", self.d_model),
            ("d_attention", self.d_attention),
        ])?;
        if self.positions && self.looking == Looking::None {
            let expected = "false: without attention, the mean of the places is all that it sees";
            return Err(ModelError::setting("positions", true, expected));
        }
        check_positions(self.positions, self.d_image)?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ModelError::setting("dropout", self.dropout, "0 or more and below 1"));
        }
        Ok(())
    }

    /// A new decoder.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> RecurrentCaptionDecoder {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        RecurrentCaptionDecoder::new(self, init)
    }
}
