//! Changes of an image, without randomness.

use super::{colour, geometry, tone};
use crate::images::Image;

/// A change of an image, equal to Pillow's of the same parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ImageOperation {
    /// Blended with black: 0 is black, 1 the image, more is brighter (`ImageEnhance.Brightness`).
    Brightness(f64),
    /// Blended with its mean grey (`ImageEnhance.Contrast`).
    Contrast(f64),
    /// Blended with its grey version (`ImageEnhance.Color`).
    Saturation(f64),
    /// Blended with its smoothed version (`ImageEnhance.Sharpness`).
    Sharpness(f64),
    /// The hue turned, in turns (torchvision's `adjust_hue`, in Pillow's 8-bit HSV).
    Hue(f64),
    /// Only so many high bits are kept, from 1 to 8 (`ImageOps.posterize`).
    Posterize(u32),
    /// Values from this one on are inverted (`ImageOps.solarize`).
    Solarize(f64),
    /// Each colour stretched to 0 to 255 (`ImageOps.autocontrast`).
    AutoContrast,
    /// Each colour's histogram made even (`ImageOps.equalize`).
    Equalize,
    /// Rows moved, each by this many pixels more to the left than the one above it.
    ShearX(f64),
    /// Columns moved up, each by this many pixels more than the one to its left.
    ShearY(f64),
    /// Moved to the right, in pixels.
    TranslateX(i32),
    /// Moved down, in pixels.
    TranslateY(i32),
    /// Turned counter-clockwise about the centre, in degrees (`Image.rotate`).
    Rotate(f64),
}

impl ImageOperation {
    /// The changed image, of the same size.
    pub fn apply(self, image: &Image) -> Image {
        match self {
            Self::Brightness(factor) => colour::brightness(image, factor),
            Self::Contrast(factor) => colour::contrast(image, factor),
            Self::Saturation(factor) => colour::saturation(image, factor),
            Self::Sharpness(factor) => colour::sharpness(image, factor),
            Self::Hue(turns) => colour::hue(image, turns),
            Self::Posterize(bits) => tone::posterize(image, bits),
            Self::Solarize(threshold) => tone::solarize(image, threshold),
            Self::AutoContrast => tone::auto_contrast(image),
            Self::Equalize => tone::equalize(image),
            Self::ShearX(level) => geometry::affine(image, [1.0, level, 0.0, 0.0, 1.0, 0.0]),
            Self::ShearY(level) => geometry::affine(image, [1.0, 0.0, 0.0, level, 1.0, 0.0]),
            Self::TranslateX(pixels) => {
                image.crop(-(pixels as isize), 0, image.width(), image.height(), [0; 3])
            }
            Self::TranslateY(pixels) => {
                image.crop(0, -(pixels as isize), image.width(), image.height(), [0; 3])
            }
            Self::Rotate(degrees) => geometry::rotate(image, degrees),
        }
    }
}
