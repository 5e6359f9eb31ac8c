//! Captions: models that describe images in words.
//!
//! | decoder | what it is |
//! | --- | --- |
//! | [`RecurrentCaptionDecoder`] | "Show, Attend and Tell" (Xu et al. 2015), with soft, hard or no attention |
//! | [`TransformerCaptionDecoder`] | GPT-2 with attention to the image, as in transformers' `VisionEncoderDecoderModel` |
//!
//! A [`Captioner`] puts one on any [`ImageEncoder`](crate::vision::ImageEncoder). A decoder of one's own implements
//! [`CaptionDecoder`].
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use cloze_model::captions::{Captioner, RecurrentCaptionConfig};
//! use cloze_model::vision::VitConfig;
//! use cloze_model::{ParamInit, Sequences};
//!
//! let device = Device::flex();
//! let init = &mut ParamInit::new(&device, 42);
//! let encoder = VitConfig::new(32, 8, 2, 64).init(init);
//! let model = Captioner::new(encoder, RecurrentCaptionConfig::new(100, 64, 32, 48).init(init));
//! // Two images, three captions: two of the first image.
//! let captions: Sequences = [&[1, 7, 9][..], &[1, 8], &[1, 7, 6, 5]].into_iter().collect();
//! let taught = model.teach(Tensor::zeros([2, 3, 32, 32], &device), &captions, &[0, 0, 1], None);
//! assert_eq!(taught.logits.dims(), [9, 100]);
//! // 4 × 4 places.
//! assert_eq!(taught.attention.unwrap().dims(), [9, 16]);
//! ```

mod any;
mod captioner;
mod decoder;
mod loss;
mod recurrent;
mod recurrent_config;
#[cfg(test)]
mod tests;
mod transformer;
mod transformer_config;

pub use any::{AnyCaptionDecoder, AnyCaptionDecoderConfig, AnyCaptioning, CaptionerConfig};
pub use captioner::Captioner;
pub use decoder::{CaptionDecoder, DrawnPlaces, Draws, Taught};
pub use loss::{HardAttentionLoss, doubly_stochastic_penalty, sums};
pub use recurrent::{RecurrentCaptionDecoder, RecurrentCaptioning};
pub use recurrent_config::{Looking, RecurrentCaptionConfig};
pub use transformer::{TransformerCaptionDecoder, TransformerCaptioning};
pub use transformer_config::TransformerCaptionConfig;
