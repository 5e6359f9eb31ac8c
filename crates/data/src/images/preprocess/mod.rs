//! From an image to a model's input: resized, cropped, rescaled and normalised.

mod config;

use super::{Filter, Image, ImageError, resize};
use serde::{Deserialize, Serialize};

/// How an image becomes a model's input, in this order; `preprocessor_config.json` of ViT, DeiT and MAE.
///
/// # Examples
/// ```
/// use cloze_data::images::{Image, Preprocessing};
///
/// let settings = r#"{"size": 4, "resample": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}"#;
/// let preprocessing = Preprocessing::from_json(settings)?;
/// let input = preprocessing.apply(&Image::filled(9, 7, [255, 0, 255])).unwrap();
/// assert_eq!((input.height, input.width), (4, 4));
/// assert_eq!((input.values[0], input.values[16]), (1.0, -1.0));
/// # Ok::<_, cloze_data::DataError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessing {
    /// The size that the image is resized to, and by which filter.
    pub resize: Option<(TargetSize, Filter)>,
    /// Height and width, in pixels, of the part that is cut out of the centre. A smaller image is padded with black.
    pub centre_crop: Option<(usize, usize)>,
    /// The factor of the 8-bit values, such as 1/255.
    pub rescale: Option<f64>,
    /// What the values' mean and deviation are set by.
    pub normalise: Option<Normalisation>,
}

/// The size that an image is resized to, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetSize {
    /// This size; the sides' ratio may change.
    Exact {
        /// Rows.
        height: usize,
        /// Pixels in a row.
        width: usize,
    },
    /// The shorter side has this length; the sides keep their ratio.
    ShortestEdge(usize),
}

/// `(x − mean) / std` of red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Normalisation {
    /// The means, of rescaled values.
    pub mean: [f32; 3],
    /// The standard deviations, of rescaled values.
    pub std: [f32; 3],
}

/// A model's input.
#[derive(Debug, Clone, PartialEq)]
pub struct PixelValues {
    /// Rows.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
    /// `[3, height, width]`: all of red, then green, then blue.
    pub values: Vec<f32>,
}

/// The longest side after a resize, in pixels: an image of one row must not grow to gigabytes.
const MAX_SIDE: usize = 16_384;

impl TargetSize {
    /// Height and width of an image of this size, as transformers computes them: the longer side is rounded down.
    fn of(self, image: &Image) -> Result<(usize, usize), ImageError> {
        let (width, height) = (image.width(), image.height());
        let edge = match self {
            Self::Exact { height, width } => return Ok((height, width)),
            Self::ShortestEdge(edge) => edge,
        };
        // In double precision, with its rounding.
        let long = (edge as f64 * width.max(height) as f64 / width.min(height) as f64) as usize;
        match (long > MAX_SIDE, width <= height) {
            (true, _) => Err(ImageError::TooNarrow { width, height, edge, max_side: MAX_SIDE }),
            (false, true) => Ok((long, edge)),
            (false, false) => Ok((edge, long)),
        }
    }
}

impl Preprocessing {
    /// That of `ViTImageProcessor` where nothing else is said: resized bilinearly to this size, with values from −1 to 1.
    pub fn to_size(height: usize, width: usize) -> Self {
        Self {
            resize: Some((TargetSize::Exact { height, width }, Filter::Bilinear)),
            centre_crop: None,
            rescale: Some(1.0 / 255.0),
            normalise: Some(Normalisation { mean: [0.5; 3], std: [0.5; 3] }),
        }
    }

    /// The model's input for an image.
    ///
    /// # Errors
    /// [`ImageError::TooNarrow`] if a side would become too long.
    pub fn apply(&self, image: &Image) -> Result<PixelValues, ImageError> {
        Ok(self.values(&self.fit(image)?))
    }

    /// Whether an image can be resized as asked.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    pub fn check(&self, image: &Image) -> Result<(), ImageError> {
        self.resize.map_or(Ok(()), |(size, _)| size.of(image).map(drop))
    }

    /// The resized and cropped image. Random changes come after this, or replace it.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    pub fn fit(&self, image: &Image) -> Result<Image, ImageError> {
        let mut fitted = match self.resize {
            None => image.clone(),
            Some((size, filter)) => {
                let (height, width) = size.of(image)?;
                resize(image, width, height, filter)
            }
        };
        if let Some((height, width)) = self.centre_crop {
            // Rounded down, also below zero.
            let offset = |from: usize, to: usize| (from as isize - to as isize).div_euclid(2);
            let (left, top) = (offset(fitted.width(), width), offset(fitted.height(), height));
            fitted = fitted.crop(left, top, width, height, [0; 3]);
        }
        Ok(fitted)
    }

    /// The rescaled and normalised values of a fitted image.
    pub fn values(&self, image: &Image) -> PixelValues {
        let mut values = Vec::with_capacity(image.pixels().len());
        for channel in 0..3 {
            // All 256 of them.
            let table: [f32; 256] = std::array::from_fn(|byte| self.value(byte as u8, channel));
            values
                .extend(image.pixels().iter().skip(channel).step_by(3).map(|byte| table[usize::from(*byte)]));
        }
        PixelValues { height: image.height(), width: image.width(), values }
    }

    /// The image that values of this size were made of, or would have been: rounded, and from 0 to 255.
    ///
    /// # Panics
    /// If there are not `3 · height · width` values.
    pub fn image(&self, values: &[f32], height: usize, width: usize) -> Image {
        assert_eq!(values.len(), 3 * height * width, "values of an image of {width} × {height} pixels");
        Image::from_fn(width, height, |x, y| {
            std::array::from_fn(|channel| {
                let value = values[(channel * height + y) * width + x];
                let value = self.normalise.map_or(value, |of| value * of.std[channel] + of.mean[channel]);
                // A cast ends at 0 and 255.
                (f64::from(value) / self.rescale.unwrap_or(1.0)).round() as u8
            })
        })
    }

    /// In the precisions of transformers: the factor in double, the rest in single.
    fn value(&self, byte: u8, channel: usize) -> f32 {
        let value = match self.rescale {
            Some(factor) => (f64::from(byte) * factor) as f32,
            None => f32::from(byte),
        };
        match &self.normalise {
            Some(Normalisation { mean, std }) => (value - mean[channel]) / std[channel],
            None => value,
        }
    }

    /// Height and width of every input, in pixels; `None` if they depend on the image.
    pub fn input_size(&self) -> Option<(usize, usize)> {
        self.centre_crop.or(match self.resize {
            Some((TargetSize::Exact { height, width }, _)) => Some((height, width)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_turned_back_into_the_image() {
        let image = Image::from_fn(5, 3, |x, y| [(50 * x) as u8, (100 * y) as u8, 255]);
        let preprocessing = Preprocessing::to_size(3, 5);
        let values = preprocessing.values(&image);
        assert_eq!(preprocessing.image(&values.values, 3, 5), image);
    }

    #[test]
    fn an_edge_keeps_the_ratio_and_has_a_limit() {
        let size = |width, height| TargetSize::ShortestEdge(7).of(&Image::filled(width, height, [0; 3]));
        assert_eq!(size(10, 10), Ok((7, 7)));
        assert_eq!(size(13, 10), Ok((7, 9)));
        assert_eq!(size(10, 13), Ok((9, 7)));
        assert_eq!(
            size(1, 9_000).unwrap_err().to_string(),
            "the image has 1 × 9000 pixels: with a shorter side of 7, the longer one would exceed 16384; crop it"
        );
    }
}
