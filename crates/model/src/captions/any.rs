//! Any of this crate's captioners, chosen at run time.

use super::{
    CaptionDecoder, Captioner, Draws, RecurrentCaptionConfig, RecurrentCaptionDecoder, RecurrentCaptioning,
    Taught, TransformerCaptionConfig, TransformerCaptionDecoder, TransformerCaptioning,
};
use crate::blocks::{Embedding, LinearMap, LinearMaps};
use crate::generate::{NextToken, StepOutput};
use crate::seq2seq::{DecodeOptions, SpecialTokens};
use crate::vision::{AnyImageEncoder, AnyImageEncoderConfig, ImageStates};
use crate::{ModelError, ParamInit, Result, Sequences};
use burn::module::Module;

/// A caption decoder of any kind in this crate.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one decoder, and no list")]
pub enum AnyCaptionDecoder {
    /// "Show, Attend and Tell".
    Recurrent(RecurrentCaptionDecoder),
    /// A GPT-2 with attention to the image.
    Transformer(TransformerCaptionDecoder),
}

/// The configuration of an [`AnyCaptionDecoder`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AnyCaptionDecoderConfig {
    /// That of "Show, Attend and Tell".
    Recurrent(RecurrentCaptionConfig),
    /// That of a GPT-2 with attention to the image.
    Transformer(Box<TransformerCaptionConfig>),
}

impl From<RecurrentCaptionConfig> for AnyCaptionDecoderConfig {
    fn from(config: RecurrentCaptionConfig) -> Self {
        Self::Recurrent(config)
    }
}

impl From<TransformerCaptionConfig> for AnyCaptionDecoderConfig {
    fn from(config: TransformerCaptionConfig) -> Self {
        Self::Transformer(Box::new(config))
    }
}

impl AnyCaptionDecoderConfig {
    /// Pieces in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Recurrent(config) => config.vocab_size,
            Self::Transformer(config) => config.gpt.vocab_size,
        }
    }

    /// Features of the states that it takes of an image.
    pub fn d_image(&self) -> usize {
        match self {
            Self::Recurrent(config) => config.d_image,
            Self::Transformer(config) => config.d_image,
        }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Recurrent(config) => config.validate(),
            Self::Transformer(config) => config.validate(),
        }
    }

    /// A new decoder.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> AnyCaptionDecoder {
        match self {
            Self::Recurrent(config) => AnyCaptionDecoder::Recurrent(config.init(init)),
            Self::Transformer(config) => AnyCaptionDecoder::Transformer(config.init(init)),
        }
    }
}

/// The configuration of a [`Captioner`] that is saved in a folder.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CaptionerConfig {
    /// The encoder's.
    pub encoder: AnyImageEncoderConfig,
    /// The decoder's.
    pub decoder: AnyCaptionDecoderConfig,
    /// The ids of special tokens.
    pub tokens: SpecialTokens,
}

impl CaptionerConfig {
    /// A decoder on an encoder.
    pub fn new(
        encoder: impl Into<AnyImageEncoderConfig>,
        decoder: impl Into<AnyCaptionDecoderConfig>,
        tokens: SpecialTokens,
    ) -> Self {
        Self { encoder: encoder.into(), decoder: decoder.into(), tokens }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        self.encoder.validate()?;
        self.decoder.validate()?;
        let (found, expected) = (self.decoder.d_image(), self.encoder.d_model());
        if found != expected {
            let expected = format!("{expected}, the width of the encoder's states");
            return Err(ModelError::setting("d_image", found, expected));
        }
        self.tokens.validate(self.decoder.vocab_size())
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> Captioner<AnyImageEncoder, AnyCaptionDecoder> {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        Captioner::new(self.encoder.init(init), self.decoder.init(init))
    }
}

impl LinearMaps for AnyCaptionDecoder {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        match self {
            Self::Recurrent(decoder) => decoder.linear_maps_mut(),
            Self::Transformer(decoder) => decoder.linear_maps_mut(),
        }
    }

    fn tables_mut(&mut self) -> Vec<(&'static str, &mut Embedding)> {
        match self {
            Self::Recurrent(decoder) => decoder.tables_mut(),
            Self::Transformer(decoder) => decoder.tables_mut(),
        }
    }
}

/// The decoding state of an [`AnyCaptionDecoder`].
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one state, and no list")]
pub enum AnyCaptioning {
    /// That of "Show, Attend and Tell".
    Recurrent(RecurrentCaptioning),
    /// That of a GPT-2 with attention to the image.
    Transformer(TransformerCaptioning),
}

impl CaptionDecoder for AnyCaptionDecoder {
    fn teach(&self, images: &ImageStates, captions: &Sequences, draws: Option<&Draws>) -> Taught {
        match self {
            Self::Recurrent(decoder) => decoder.teach(images, captions, draws),
            Self::Transformer(decoder) => decoder.teach(images, captions, draws),
        }
    }

    fn begin(&self, images: &ImageStates, options: DecodeOptions) -> AnyCaptioning {
        match self {
            Self::Recurrent(decoder) => AnyCaptioning::Recurrent(decoder.begin(images, options)),
            Self::Transformer(decoder) => AnyCaptioning::Transformer(decoder.begin(images, options)),
        }
    }

    fn draws(&self) -> bool {
        match self {
            Self::Recurrent(decoder) => decoder.draws(),
            Self::Transformer(decoder) => decoder.draws(),
        }
    }
}

/// The panic message for a state of a different kind of decoder.
const ANOTHER: &str = "the state belongs to a different kind of decoder";

impl NextToken for AnyCaptionDecoder {
    type State = AnyCaptioning;

    fn step(&self, tokens: &[i32], state: &mut AnyCaptioning) -> StepOutput {
        match (self, state) {
            (Self::Recurrent(decoder), AnyCaptioning::Recurrent(state)) => decoder.step(tokens, state),
            (Self::Transformer(decoder), AnyCaptioning::Transformer(state)) => decoder.step(tokens, state),
            _ => panic!("{ANOTHER}"),
        }
    }

    fn select(&self, state: &mut AnyCaptioning, rows: &[usize]) {
        match (self, state) {
            (Self::Recurrent(decoder), AnyCaptioning::Recurrent(state)) => decoder.select(state, rows),
            (Self::Transformer(decoder), AnyCaptioning::Transformer(state)) => decoder.select(state, rows),
            _ => panic!("{ANOTHER}"),
        }
    }

    fn join(&self, state: &mut AnyCaptioning, other: AnyCaptioning) {
        match (self, state, other) {
            (Self::Recurrent(decoder), AnyCaptioning::Recurrent(state), AnyCaptioning::Recurrent(other)) => {
                decoder.join(state, other);
            }
            (
                Self::Transformer(decoder),
                AnyCaptioning::Transformer(state),
                AnyCaptioning::Transformer(other),
            ) => decoder.join(state, other),
            _ => panic!("{ANOTHER}"),
        }
    }

    fn max_tokens(&self) -> Option<usize> {
        match self {
            Self::Recurrent(decoder) => decoder.max_tokens(),
            Self::Transformer(decoder) => decoder.max_tokens(),
        }
    }
}
