//! RandAugment.

use super::invalid;
use super::operation::ImageOperation;
use crate::images::Image;
use crate::{Random, Result};
use serde::{Deserialize, Serialize};

/// Some operations of one strength (Cubuk et al. 2020), as torchvision's `RandAugment` with its 31 strengths: without
/// interpolation, with black where nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandAugmentConfig {
    /// Number of operations. Default 2.
    pub n_operations: usize,
    /// Their strength, from 0 to 30. Default 9.
    pub magnitude: u32,
}

impl Default for RandAugmentConfig {
    fn default() -> Self {
        Self { n_operations: 2, magnitude: 9 }
    }
}

/// The strongest magnitude.
const MOST: u32 = 30;

impl RandAugmentConfig {
    pub(super) fn check(&self) -> Result<()> {
        if self.magnitude > MOST {
            return Err(invalid("rand_augment.magnitude", self.magnitude, "a number from 0 to 30"));
        }
        match self.n_operations {
            1..=16 => Ok(()),
            n => Err(invalid("rand_augment.n_operations", n, "a number from 1 to 16")),
        }
    }

    pub(super) fn apply(&self, mut image: Image, random: &mut Random) -> Image {
        for _ in 0..self.n_operations {
            if let Some(operation) = self.draw(&image, random) {
                image = operation.apply(&image);
            }
        }
        image
    }

    /// One of 14 operations; `None` is that which changes nothing.
    fn draw(&self, image: &Image, random: &mut Random) -> Option<ImageOperation> {
        use ImageOperation::*;
        let strength = f64::from(self.magnitude.min(MOST)) / f64::from(MOST);
        let kind = random.below(14);
        let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
        // Sizes are those of the paper's images, of 331 pixels.
        let pixels = |side: usize| (sign * strength * 150.0 / 331.0 * side as f64) as i32;
        let factor = 1.0 + sign * 0.9 * strength;
        Some(match kind {
            0 => ShearX(sign * 0.3 * strength),
            1 => ShearY(sign * 0.3 * strength),
            2 => TranslateX(pixels(image.width())),
            3 => TranslateY(pixels(image.height())),
            4 => Rotate(sign * 30.0 * strength),
            5 => Brightness(factor),
            6 => Saturation(factor),
            7 => Contrast(factor),
            8 => Sharpness(factor),
            9 => Posterize((8.0 - (4.0 * strength).round_ties_even()) as u32),
            10 => Solarize(255.0 * (1.0 - strength)),
            11 => AutoContrast,
            12 => Equalize,
            _ => return None,
        })
    }
}
