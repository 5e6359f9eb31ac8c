//! Images as tokens: a patch is a token, and the encoder is that of texts.
//!
//! | model | what it is |
//! | --- | --- |
//! | [`Vit`] | the Vision Transformer (Dosovitskiy et al. 2021), DeiT's too (Touvron et al. 2021) |
//! | [`ResNet`] | a residual network, whose grid of states is a small image's (He et al. 2016) |
//! | [`Mae`] | the masked autoencoder that pretrains it (He et al. 2022) |
//! | [`SimClr`] | any encoder that learns from pairs of views (Chen et al. 2020) |
//! | [`ImageClassifier`] | any [`ImageEncoder`] with a head, or two of DeiT's |
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use cloze_model::ParamInit;
//! use cloze_model::vision::{ImageEncoder, VitConfig};
//!
//! let device = Device::flex();
//! let config = VitConfig::new(32, 4, 6, 192);
//! let classifier = config.init_classifier(10, &mut ParamInit::new(&device, 42));
//! let pixels = Tensor::<4>::zeros([2, 3, 32, 32], &device);
//! assert_eq!(classifier.forward(pixels.clone()).dims(), [2, 10]);
//! // An image of another size has other patches; positions are resized.
//! assert_eq!(classifier.encoder.forward(Tensor::zeros([1, 3, 24, 40], &device)).grid, [6, 10]);
//! ```

mod any;
mod classifier;
mod image_encoder;
mod mae;
mod patch_embeddings;
mod patch_positions;
mod resnet;
mod simclr;
mod vit;
mod vit_config;

pub use any::{AnyImageClassifierConfig, AnyImageEncoder, AnyImageEncoderConfig};
pub use classifier::{ImageClassifier, ImageClassifierConfig};
pub use image_encoder::{ImageEncoder, ImageStates, Summaries};
pub use mae::{Mae, MaeConfig, MaeDecoder, MaeDecoderConfig, MaskedPatches};
pub use patch_embeddings::{PatchEmbeddings, patches};
pub use patch_positions::PatchPositions;
pub use resnet::{ConvolutionalStem, ResNet, ResNetClassifierConfig, ResNetConfig, ResidualBlock};
pub use simclr::{SimClr, nt_xent};
pub use vit::Vit;
pub use vit_config::{ImagePooling, VitConfig};
