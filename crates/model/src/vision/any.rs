//! Any of this crate's encoders of images, chosen at run time.

use super::{
    ImageClassifier, ImageClassifierConfig, ImageEncoder, ImageStates, ResNet, ResNetClassifierConfig,
    ResNetConfig, Summaries, Vit, VitConfig,
};
use crate::blocks::{LinearMap, LinearMaps};
use crate::{Backbone, BackboneShape, HasBackbone, ParamInit, Result};
use burn::module::Module;
use burn::tensor::Tensor;

/// An encoder of images of any kind in this crate.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one model, and no list")]
pub enum AnyImageEncoder {
    /// A Vision Transformer.
    Vit(Vit),
    /// A residual network.
    ResNet(ResNet),
}

/// The configuration of an encoder of images.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AnyImageEncoderConfig {
    /// That of a Vision Transformer.
    Vit(VitConfig),
    /// That of a residual network.
    ResNet(ResNetConfig),
}

/// The configuration of a classifier with an encoder of any kind.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AnyImageClassifierConfig {
    /// That of a Vision Transformer's.
    Vit(ImageClassifierConfig),
    /// That of a residual network's.
    ResNet(ResNetClassifierConfig),
}

impl From<VitConfig> for AnyImageEncoderConfig {
    fn from(config: VitConfig) -> Self {
        Self::Vit(config)
    }
}

impl From<ResNetConfig> for AnyImageEncoderConfig {
    fn from(config: ResNetConfig) -> Self {
        Self::ResNet(config)
    }
}

impl AnyImageEncoder {
    /// The same model for images of this height and width: a Vision Transformer's positions are resized, a residual network has none.
    ///
    /// # Panics
    /// If an image is smaller than a patch.
    pub fn with_image_size(self, image_size: [usize; 2]) -> Self {
        match self {
            Self::Vit(vit) => Self::Vit(vit.with_image_size(image_size)),
            Self::ResNet(_) => self,
        }
    }

    /// Sets whether training recomputes layers in the backward pass.
    pub fn set_recompute(&mut self, wanted: bool) {
        match self {
            Self::Vit(vit) => vit.encoder.recompute = wanted,
            Self::ResNet(resnet) => resnet.recompute = wanted,
        }
    }
}

impl AnyImageEncoderConfig {
    /// Features of a state.
    pub fn d_model(&self) -> usize {
        match self {
            Self::Vit(config) => config.d_model,
            Self::ResNet(config) => config.d_model(),
        }
    }

    /// Height and width of the images, in pixels.
    pub fn image_size(&self) -> [usize; 2] {
        match self {
            Self::Vit(config) => config.image_size,
            Self::ResNet(config) => config.image_size,
        }
    }

    /// Rows and columns of an image's places.
    pub fn grid(&self) -> [usize; 2] {
        match self {
            Self::Vit(config) => config.grid(),
            Self::ResNet(config) => config.grid(),
        }
    }

    /// The states of an image: of its places, and of pieces that stand for none.
    pub fn n_states(&self) -> usize {
        let [rows, columns] = self.grid();
        let n_pieces = match self {
            Self::Vit(config) => config.n_pieces(),
            Self::ResNet(_) => 0,
        };
        rows * columns + n_pieces
    }

    /// The floating-point operations of an image's way through the encoder, with a product and a sum counted as two.
    pub fn flops(&self) -> f64 {
        match self {
            Self::Vit(config) => config.flops(),
            Self::ResNet(config) => config.flops(),
        }
    }

    /// Numbers of a pixel.
    pub fn n_channels(&self) -> usize {
        match self {
            Self::Vit(config) => config.n_channels,
            Self::ResNet(config) => config.n_channels,
        }
    }

    /// The same for images of this height and width.
    pub fn with_image_size(mut self, image_size: [usize; 2]) -> Self {
        match &mut self {
            Self::Vit(config) => config.image_size = image_size,
            Self::ResNet(config) => config.image_size = image_size,
        }
        self
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> AnyImageEncoder {
        match self {
            Self::Vit(config) => AnyImageEncoder::Vit(config.init(init)),
            Self::ResNet(config) => AnyImageEncoder::ResNet(config.init(init)),
        }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`](crate::ModelError::Setting) with the invalid field.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Vit(config) => config.validate(),
            Self::ResNet(config) => config.validate(),
        }
    }
}

impl AnyImageClassifierConfig {
    /// A classifier of these classes.
    pub fn new(encoder: AnyImageEncoderConfig, labels: Vec<String>) -> Self {
        match encoder {
            AnyImageEncoderConfig::Vit(vit) => {
                Self::Vit(ImageClassifierConfig::new(vit, labels.len()).with_labels(labels))
            }
            AnyImageEncoderConfig::ResNet(encoder) => {
                Self::ResNet(ResNetClassifierConfig { encoder, labels })
            }
        }
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> ImageClassifier<AnyImageEncoder> {
        match self {
            Self::Vit(config) => {
                let ImageClassifier { encoder, head, distillation_head } = config.init(init);
                ImageClassifier { encoder: AnyImageEncoder::Vit(encoder), head, distillation_head }
            }
            Self::ResNet(config) => {
                let ImageClassifier { encoder, head, distillation_head } = config.init(init);
                ImageClassifier { encoder: AnyImageEncoder::ResNet(encoder), head, distillation_head }
            }
        }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`](crate::ModelError::Setting) with the invalid field.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Vit(config) => config.validate(),
            Self::ResNet(config) => config.validate(),
        }
    }

    /// The encoder's.
    pub fn encoder(&self) -> AnyImageEncoderConfig {
        match self {
            Self::Vit(config) => config.vit.clone().into(),
            Self::ResNet(config) => config.encoder.clone().into(),
        }
    }

    /// The names of the classes, in the order of the logits.
    pub fn labels(&self) -> &[String] {
        match self {
            Self::Vit(config) => &config.labels,
            Self::ResNet(config) => &config.labels,
        }
    }

    /// Height and width of the images, in pixels.
    pub fn image_size(&self) -> [usize; 2] {
        match self {
            Self::Vit(config) => config.vit.image_size,
            Self::ResNet(config) => config.encoder.image_size,
        }
    }

    /// Numbers of a pixel.
    pub fn n_channels(&self) -> usize {
        match self {
            Self::Vit(config) => config.vit.n_channels,
            Self::ResNet(config) => config.encoder.n_channels,
        }
    }

    /// Whether a second head is on a distillation piece.
    pub fn has_distillation_head(&self) -> bool {
        match self {
            Self::Vit(config) => config.distillation_head,
            Self::ResNet(_) => false,
        }
    }

    /// The same for images of this height and width.
    pub fn with_image_size(mut self, image_size: [usize; 2]) -> Self {
        match &mut self {
            Self::Vit(config) => config.vit.image_size = image_size,
            Self::ResNet(config) => config.encoder.image_size = image_size,
        }
        self
    }
}

impl LinearMaps for AnyImageEncoder {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        match self {
            Self::Vit(vit) => vit.linear_maps_mut(),
            Self::ResNet(resnet) => resnet.linear_maps_mut(),
        }
    }
}

impl ImageEncoder for AnyImageEncoder {
    fn forward(&self, pixels: Tensor<4>) -> ImageStates {
        match self {
            Self::Vit(vit) => ImageEncoder::forward(vit, pixels),
            Self::ResNet(resnet) => resnet.forward(pixels),
        }
    }

    fn summaries(&self, pixels: Tensor<4>) -> Summaries {
        match self {
            Self::Vit(vit) => vit.summaries(pixels),
            Self::ResNet(resnet) => resnet.summaries(pixels),
        }
    }
}

impl Backbone for AnyImageEncoder {
    fn shape(&self) -> BackboneShape {
        match self {
            Self::Vit(vit) => vit.shape(),
            Self::ResNet(resnet) => resnet.shape(),
        }
    }

    fn embeddings_path(&self) -> String {
        match self {
            Self::Vit(vit) => vit.embeddings_path(),
            Self::ResNet(resnet) => resnet.embeddings_path(),
        }
    }

    fn layer_paths(&self) -> Vec<String> {
        match self {
            Self::Vit(vit) => vit.layer_paths(),
            Self::ResNet(resnet) => resnet.layer_paths(),
        }
    }
}

impl HasBackbone for AnyImageEncoder {
    type Backbone = Self;
    const PATH: &'static str = "";

    fn backbone(&self) -> &Self {
        self
    }

    fn backbone_mut(&mut self) -> &mut Self {
        self
    }
}
