//! Random erasing.

use super::{draw_part, positive_range, probability};
use crate::images::Image;
use crate::{Random, Result};
use serde::{Deserialize, Serialize};

/// A random rectangle is erased (Zhong et al. 2020).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ErasingConfig {
    /// The probability that an image has one. Default 0.5.
    pub probability: f64,
    /// Its share of the area: the least and the most. Default `[0.02, 0.33]`.
    pub scale: [f64; 2],
    /// The ratio of its width to its height: the least and the most. Default `[0.3, 3.3]`.
    pub ratio: [f64; 2],
    /// Red, green and blue in its place, from 0 to 255. Default: each value random (the paper's RE-R).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colour: Option<[u8; 3]>,
}

impl Default for ErasingConfig {
    fn default() -> Self {
        Self { probability: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], colour: None }
    }
}

impl ErasingConfig {
    pub(super) fn check(&self) -> Result<()> {
        probability("erasing.probability", self.probability)?;
        positive_range("erasing.scale", self.scale, 1.0, "two shares above 0 and up to 1, the least first")?;
        positive_range("erasing.ratio", self.ratio, 1e3, "two ratios above 0 and up to 1000, the least first")
    }

    pub(super) fn apply(&self, image: &mut Image, random: &mut Random) {
        if !random.chance(self.probability) {
            return;
        }
        let Some(part) = draw_part(image, self.scale, self.ratio, random) else { return };
        let stride = 3 * image.width();
        for row in part.top..part.top + part.height {
            let at = row * stride + 3 * part.left;
            for pixel in image.pixels_mut()[at..at + 3 * part.width].chunks_exact_mut(3) {
                let colour = self.colour.unwrap_or_else(|| {
                    let [r, g, b, ..] = random.next_u64().to_le_bytes();
                    [r, g, b]
                });
                pixel.copy_from_slice(&colour);
            }
        }
    }
}
