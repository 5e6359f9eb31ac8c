//! Images as data: files to pixels, pixels to a model's input, and random changes for training.
//!
//! ```text
//! image_folder, image_rows, digits ─► ImageExample (an ImageSource, a class); captioned_images ─► CaptionedImage
//!   ─ decode ─► Image (8-bit RGB) ─ Preprocessing (resize, crop), AugmentConfig ─► Image
//!   ─ Preprocessing (rescale, normalise) ─► PixelValues [3, height, width] ─ MixConfig ─► mixed with another's
//!   ─ ImageData, on the workers of a Loader ─► ImageBatch
//! ```
//!
//! [`scenes`] is a free data set with captions, drawn when it is needed.
//!
//! There are no tensors here: an [`Image`] is bytes, and a model's input a vector of numbers. Everything random is a
//! function of a seed, an epoch and an example's place, so it does not depend on the number of workers.

mod augment;
mod batches;
mod decode;
mod digits;
mod encode;
mod error;
mod example;
mod folder;
mod image;
mod jpeg;
mod orientation;
mod preprocess;
mod resize;
pub mod scenes;
mod source;

pub use crate::labelled::{CaptionedImage, captioned_images, image_rows};
pub use augment::{
    AugmentConfig, CropConfig, DrawKey, ErasingConfig, ImageOperation, JitterConfig, MixConfig, Mixing,
    RandAugmentConfig,
};
pub use batches::{ImageBatch, ImageData};
pub use decode::{DecodeLimits, decode_image, read_image};
pub use digits::digits;
pub use error::ImageError;
pub use example::{ImageExample, ImageSource, without_bad_images};
pub use folder::{has_image_extension, image_files, image_folder};
pub use image::Image;
pub use preprocess::{Normalisation, PixelValues, Preprocessing, TargetSize};
pub use resize::{Filter, resize};
pub use source::labelled_images;
