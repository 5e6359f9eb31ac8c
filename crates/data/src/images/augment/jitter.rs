//! Random brightness, contrast, saturation and hue.

use super::operation::ImageOperation;
use super::{invalid, probability, uniform};
use crate::images::Image;
use crate::{Random, Result};
use serde::{Deserialize, Serialize};

/// Random colours, in a random order, as torchvision's `ColorJitter`; with `grey`, those of SimCLR (Chen et al. 2020,
/// appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JitterConfig {
    /// The factor of brightness is from `max(0, 1 − x)` to `1 + x`. Default 0.
    pub brightness: f64,
    /// The same of contrast. Default 0.
    pub contrast: f64,
    /// The same of saturation. Default 0.
    pub saturation: f64,
    /// The most by which the hue is turned, in turns, up to 0.5. Default 0.
    pub hue: f64,
    /// The probability of these changes. Default 1.
    pub probability: f64,
    /// The probability of a grey image. Default 0.
    pub grey: f64,
}

impl Default for JitterConfig {
    fn default() -> Self {
        Self { brightness: 0.0, contrast: 0.0, saturation: 0.0, hue: 0.0, probability: 1.0, grey: 0.0 }
    }
}

impl JitterConfig {
    pub(super) fn check(&self) -> Result<()> {
        let parts =
            [("brightness", self.brightness), ("contrast", self.contrast), ("saturation", self.saturation)];
        for (key, value) in parts {
            if !(0.0..=10.0).contains(&value) {
                return Err(invalid(&format!("jitter.{key}"), value, "a number from 0 to 10"));
            }
        }
        if !(0.0..=0.5).contains(&self.hue) {
            return Err(invalid("jitter.hue", self.hue, "a number from 0 to 0.5"));
        }
        probability("jitter.probability", self.probability)?;
        probability("jitter.grey", self.grey)
    }

    pub(super) fn apply(&self, mut image: Image, random: &mut Random) -> Image {
        if random.chance(self.probability) {
            let mut factor = |most: f64| uniform(random, (1.0 - most).max(0.0), 1.0 + most);
            let mut operations = [
                (self.brightness, ImageOperation::Brightness(factor(self.brightness))),
                (self.contrast, ImageOperation::Contrast(factor(self.contrast))),
                (self.saturation, ImageOperation::Saturation(factor(self.saturation))),
                (self.hue, ImageOperation::Hue(uniform(random, -self.hue, self.hue))),
            ];
            for last in (1..operations.len()).rev() {
                operations.swap(last, random.below(last as u64 + 1) as usize);
            }
            for (_, operation) in operations.iter().filter(|(most, _)| *most > 0.0) {
                image = operation.apply(&image);
            }
        }
        match random.chance(self.grey) {
            true => ImageOperation::Saturation(0.0).apply(&image),
            false => image,
        }
    }
}
