//! Random changes of images in training, each a function of the seed, the epoch and the example.

mod colour;
mod crop;
mod erasing;
mod geometry;
mod jitter;
mod mix;
mod operation;
mod rand_augment;
mod tone;

pub use crop::CropConfig;
pub use erasing::ErasingConfig;
pub use jitter::JitterConfig;
pub use mix::{MixConfig, Mixing};
pub use operation::ImageOperation;
pub use rand_augment::RandAugmentConfig;

use super::{Image, ImageError, Preprocessing};
use crate::{DataError, Random, Result};
use serde::{Deserialize, Serialize};

/// What the random numbers of an image's changes are derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DrawKey {
    /// The run's seed.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The example, such as its place in the data.
    pub example: u64,
    /// The view of the example, from 0, if it has several.
    pub view: u64,
}

/// A kind of change. Each has its own random numbers: those of one do not depend on the others.
#[derive(Debug, Clone, Copy)]
enum Stream {
    Crop = 0x1A6E_0001,
    Flip = 0x1A6E_0002,
    Jitter = 0x1A6E_0003,
    RandAugment = 0x1A6E_0004,
    Erasing = 0x1A6E_0005,
    Mix = 0x1A6E_0006,
}

impl DrawKey {
    fn random(self, stream: Stream) -> Random {
        Random::derive(self.seed, &[stream as u64, self.epoch, self.example, self.view])
    }
}

/// The random changes of each image, in this order. Default none.
///
/// # Examples
/// ```
/// use cloze_data::images::{AugmentConfig, DrawKey, Image, Preprocessing};
///
/// let config: AugmentConfig =
///     serde_json::from_str(r#"{"crop": {"kind": "padded", "padding": 2}, "flip": 0.5, "erasing": {}}"#)?;
/// let preprocessing = Preprocessing::from_json(r#"{"size": 8}"#).unwrap();
/// let image = Image::from_fn(9, 9, |x, y| [x as u8, y as u8, 0]);
/// let key = DrawKey { seed: 42, epoch: 3, example: 17, view: 0 };
/// let changed = config.apply(&image, &preprocessing, key).unwrap();
/// assert_eq!((changed.width(), changed.height()), (8, 8));
/// // The same on every call.
/// assert_eq!(changed, config.apply(&image, &preprocessing, key).unwrap());
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AugmentConfig {
    /// A random part of the image. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crop: Option<CropConfig>,
    /// The probability of a mirrored image. Default 0.
    pub flip: f64,
    /// Random colours. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterConfig>,
    /// RandAugment. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rand_augment: Option<RandAugmentConfig>,
    /// A random rectangle is erased. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erasing: Option<ErasingConfig>,
}

impl AugmentConfig {
    /// Checks that values are in range.
    ///
    /// # Errors
    /// [`DataError::AugmentSetting`] with the key.
    pub fn check(&self) -> Result<()> {
        probability("flip", self.flip)?;
        self.crop.iter().try_for_each(CropConfig::check)?;
        self.jitter.iter().try_for_each(JitterConfig::check)?;
        self.rand_augment.iter().try_for_each(RandAugmentConfig::check)?;
        self.erasing.iter().try_for_each(ErasingConfig::check)
    }

    /// The image as the model may see it in training: resized and cropped as `preprocessing` says or, with a resized
    /// crop, a random part in the size of its inputs; then changed. [`Preprocessing::values`] makes the input of it.
    ///
    /// # Errors
    /// Those of [`Preprocessing::fit`].
    pub fn apply(
        &self,
        image: &Image,
        preprocessing: &Preprocessing,
        key: DrawKey,
    ) -> std::result::Result<Image, ImageError> {
        let mut changed = match &self.crop {
            Some(CropConfig::Resized { scale, ratio }) => {
                let part = crop::random_part(image, *scale, *ratio, &mut key.random(Stream::Crop));
                crop::in_size(&part, preprocessing)?
            }
            Some(CropConfig::Padded { padding }) => {
                crop::shifted(&preprocessing.fit(image)?, *padding, &mut key.random(Stream::Crop))
            }
            None => preprocessing.fit(image)?,
        };
        if key.random(Stream::Flip).chance(self.flip) {
            changed = changed.flipped();
        }
        if let Some(jitter) = &self.jitter {
            changed = jitter.apply(changed, &mut key.random(Stream::Jitter));
        }
        if let Some(rand_augment) = &self.rand_augment {
            changed = rand_augment.apply(changed, &mut key.random(Stream::RandAugment));
        }
        if let Some(erasing) = &self.erasing {
            erasing.apply(&mut changed, &mut key.random(Stream::Erasing));
        }
        Ok(changed)
    }
}

/// A uniform number from `low` to `high`.
fn uniform(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low) * random.unit()
}

/// A part of an image, in pixels: left, top, width and height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
}

/// A random part with a share of the area, and a ratio of width to height, in these ranges; `None` if ten draws do not
/// fit into the image (Szegedy et al. 2015; torchvision's `RandomResizedCrop`).
fn draw_part(image: &Image, scale: [f64; 2], ratio: [f64; 2], random: &mut Random) -> Option<Part> {
    let (width, height) = (image.width(), image.height());
    for _ in 0..10 {
        let area = (width * height) as f64 * uniform(random, scale[0], scale[1]);
        let ratio = uniform(random, ratio[0].ln(), ratio[1].ln()).exp();
        // Casts end at 0 and at the largest number.
        let part = (area * ratio).sqrt().round_ties_even() as usize;
        let rows = (area / ratio).sqrt().round_ties_even() as usize;
        if (1..=width).contains(&part) && (1..=height).contains(&rows) {
            let top = random.below((height - rows + 1) as u64) as usize;
            let left = random.below((width - part + 1) as u64) as usize;
            return Some(Part { left, top, width: part, height: rows });
        }
    }
    None
}

fn invalid(key: &str, found: impl std::fmt::Debug, expected: &'static str) -> DataError {
    DataError::AugmentSetting { key: key.into(), found: format!("{found:?}"), expected }
}

fn probability(key: &str, found: f64) -> Result<()> {
    match (0.0..=1.0).contains(&found) {
        true => Ok(()),
        false => Err(invalid(key, found, "a probability from 0 to 1")),
    }
}

/// Checks a range of numbers above 0.
fn positive_range(key: &str, found: [f64; 2], largest: f64, expected: &'static str) -> Result<()> {
    match 0.0 < found[0] && found[0] <= found[1] && found[1] <= largest {
        true => Ok(()),
        false => Err(invalid(key, found, expected)),
    }
}
