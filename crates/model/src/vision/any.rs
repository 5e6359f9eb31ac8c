//! Any of this crate's image encoders, chosen at run time.

use super::{ImageEncoder, ImageStates, Summaries, Vit, VitConfig};
use crate::blocks::{Embedding, LinearMap, LinearMaps};
use crate::{Backbone, BackboneShape, ParamInit, Result};
use burn::module::Module;
use burn::tensor::Tensor;

/// An image encoder of any kind in this crate.
#[derive(Module, Debug)]
pub enum AnyImageEncoder {
    /// A Vision Transformer.
    Vit(Vit),
}

/// The configuration of an [`AnyImageEncoder`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AnyImageEncoderConfig {
    /// That of a Vision Transformer.
    Vit(VitConfig),
}

impl From<VitConfig> for AnyImageEncoderConfig {
    fn from(config: VitConfig) -> Self {
        Self::Vit(config)
    }
}

impl AnyImageEncoderConfig {
    /// Features of a state.
    pub fn d_model(&self) -> usize {
        match self {
            Self::Vit(config) => config.d_model,
        }
    }

    /// Height and width of the images that it takes; none if it takes any.
    pub fn image_size(&self) -> Option<[usize; 2]> {
        match self {
            Self::Vit(config) => Some(config.image_size),
        }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`](crate::ModelError::Setting) with the invalid field.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Vit(config) => config.validate(),
        }
    }

    /// A new encoder.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> AnyImageEncoder {
        match self {
            Self::Vit(config) => AnyImageEncoder::Vit(config.init(init)),
        }
    }
}

/// The encoder, whichever it is.
macro_rules! of_any {
    ($any:expr, |$encoder:ident| $call:expr) => {
        match $any {
            AnyImageEncoder::Vit($encoder) => $call,
        }
    };
}

impl LinearMaps for AnyImageEncoder {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        of_any!(self, |encoder| encoder.linear_maps_mut())
    }

    fn tables_mut(&mut self) -> Vec<(&'static str, &mut Embedding)> {
        of_any!(self, |encoder| encoder.tables_mut())
    }
}

impl Backbone for AnyImageEncoder {
    fn shape(&self) -> BackboneShape {
        of_any!(self, |encoder| encoder.shape())
    }

    fn embeddings_path(&self) -> String {
        of_any!(self, |encoder| encoder.embeddings_path())
    }

    fn layer_paths(&self) -> Vec<String> {
        of_any!(self, |encoder| encoder.layer_paths())
    }
}

impl ImageEncoder for AnyImageEncoder {
    fn forward(&self, pixels: Tensor<4>) -> ImageStates {
        of_any!(self, |encoder| encoder.forward(pixels))
    }

    fn summaries(&self, pixels: Tensor<4>) -> Summaries {
        of_any!(self, |encoder| encoder.summaries(pixels))
    }
}
