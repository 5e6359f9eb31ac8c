//! Random parts of an image.

use super::{Part, draw_part, positive_range};
use crate::images::{Filter, Image, ImageError, Preprocessing, resize};
use crate::{Random, Result};
use serde::{Deserialize, Serialize};

/// Which part of an image is seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum CropConfig {
    /// A part of random size and shape, resized to the model's input (Szegedy et al. 2015; torchvision's
    /// `RandomResizedCrop`).
    Resized {
        /// The part's share of the area: the least and the most. Default `[0.08, 1]`.
        #[serde(default = "scale")]
        scale: [f64; 2],
        /// The ratio of width to height: the least and the most. Default `[0.75, 1.3333333333333333]`.
        #[serde(default = "ratio")]
        ratio: [f64; 2],
    },
    /// The fitted image, moved by up to `padding` pixels along each side, with black behind it (He et al. 2016,
    /// section 4.2).
    Padded {
        /// The most pixels by which it is moved.
        padding: usize,
    },
}

fn scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl CropConfig {
    pub(super) fn check(&self) -> Result<()> {
        match *self {
            Self::Resized { scale, ratio } => {
                positive_range("crop.scale", scale, 1.0, "two shares above 0 and up to 1, the least first")?;
                positive_range("crop.ratio", ratio, 1e3, "two ratios above 0 and up to 1000, the least first")
            }
            Self::Padded { padding: 0..=1024 } => Ok(()),
            Self::Padded { padding } => Err(super::invalid("crop.padding", padding, "at most 1024 pixels")),
        }
    }
}

/// A random part; if none fits, the largest in the centre whose ratio is in range.
pub(super) fn random_part(image: &Image, scale: [f64; 2], ratio: [f64; 2], random: &mut Random) -> Image {
    let (width, height) = (image.width(), image.height());
    let Part { left, top, width, height } = draw_part(image, scale, ratio, random).unwrap_or_else(|| {
        let whole = width as f64 / height as f64;
        let rounded = |side: f64, most: usize| (side.round_ties_even() as usize).clamp(1, most);
        let (part, rows) = match whole {
            whole if whole < ratio[0] => (width, rounded(width as f64 / ratio[0], height)),
            whole if whole > ratio[1] => (rounded(height as f64 * ratio[1], width), height),
            _ => (width, height),
        };
        Part { left: (width - part) / 2, top: (height - rows) / 2, width: part, height: rows }
    });
    image.crop(left as isize, top as isize, width, height, [0; 3])
}

/// A part in the size of the model's inputs.
pub(super) fn in_size(part: &Image, preprocessing: &Preprocessing) -> std::result::Result<Image, ImageError> {
    match preprocessing.input_size() {
        Some((height, width)) => {
            let filter = preprocessing.resize.map_or(Filter::Bilinear, |(_, filter)| filter);
            Ok(resize(part, width, height, filter))
        }
        None => preprocessing.fit(part),
    }
}

pub(super) fn shifted(image: &Image, padding: usize, random: &mut Random) -> Image {
    let mut offset = || random.below(2 * padding as u64 + 1) as isize - padding as isize;
    let (left, top) = (offset(), offset());
    image.crop(left, top, image.width(), image.height(), [0; 3])
}
