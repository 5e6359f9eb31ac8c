//! Images with their classes, before they are decoded.

use super::scenes::Scene;
use super::{DecodeLimits, Image, decode_image, read_image};
use crate::labelled::{Loaded, OnBadRow, Places, Target};
use crate::{DataError, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rayon::prelude::*;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where an image is.
#[derive(Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// A file.
    File(PathBuf),
    /// A file's bytes.
    Bytes {
        /// The bytes.
        bytes: Arc<[u8]>,
        /// Where they are from, for messages: a file with a line or row.
        place: String,
    },
    /// Grey values.
    Grey {
        /// Pixels in a row.
        width: usize,
        /// One byte for each pixel, row by row.
        values: Arc<[u8]>,
    },
    /// A scene, drawn each time it is decoded.
    Scene {
        /// The scene.
        scene: Arc<Scene>,
        /// The side of its image in pixels, from 1 to 16,384. [`SIDE`](super::scenes::SIDE) is the usual one.
        side: usize,
    },
}

/// An image and its class.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageExample {
    /// Where the image is.
    pub image: ImageSource,
    /// Its class, or [`Target::None`].
    pub target: Target,
}

impl ImageSource {
    /// An image that a text names: a path, relative to `base`, or its bytes, `data:image/png;base64,…`, which are said to
    /// be from `place`.
    ///
    /// # Errors
    /// What is wrong with the text: there is no such file, or the bytes are not in base64.
    pub fn of_text(text: &str, base: &Path, place: &str) -> std::result::Result<Self, String> {
        match text.strip_prefix("data:") {
            None => Self::of_path(text, base),
            Some(uri) => match uri.split_once(";base64,") {
                Some((_, encoded)) => Self::of_base64(encoded, place),
                None => Err("a data URI without `;base64,`".into()),
            },
        }
    }

    pub(crate) fn of_path(path: &str, base: &Path) -> std::result::Result<Self, String> {
        if path.is_empty() {
            return Err("empty, expected a path".into());
        }
        let path = base.join(path);
        match path.is_file() {
            true => Ok(Self::File(path)),
            false => Err(format!("there is no file {}", path.display())),
        }
    }

    pub(crate) fn of_base64(encoded: &str, place: &str) -> std::result::Result<Self, String> {
        let bytes = BASE64_STANDARD.decode(encoded).map_err(|error| format!("not base64: {error}"))?;
        Ok(Self::Bytes { bytes: bytes.into(), place: place.into() })
    }

    /// Reads and decodes the image. What a worker thread does.
    ///
    /// # Errors
    /// [`DataError::Io`] or [`DataError::Image`], with the image's place.
    ///
    /// # Panics
    /// If a scene's side is out of range.
    pub fn decode(&self, limits: &DecodeLimits) -> Result<Image> {
        match self {
            Self::File(path) => read_image(path, limits),
            Self::Bytes { bytes, place } => decode_image(bytes, limits)
                .map_err(|problem| DataError::Image { image: place.clone(), problem }),
            Self::Grey { width, values } => Ok(Image::from_grey(*width, values.len() / width, values)),
            Self::Scene { scene, side } => Ok(scene.draw(*side)),
        }
    }
}

/// Its place.
impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Bytes { place, .. } => f.write_str(place),
            Self::Grey { width, values } => write!(f, "grey values, {width} × {}", values.len() / width),
            Self::Scene { scene, side } => {
                let things: Vec<String> =
                    scene.things().iter().map(|thing| format!("a {}", thing.description)).collect();
                write!(f, "a scene of {side} × {side} pixels with {}", things.join(", "))
            }
        }
    }
}

/// Its place: bytes would fill the screen.
impl fmt::Debug for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageSource({self})")
    }
}

/// The examples whose images decode. Each is decoded once, with all cores, so that the number of examples is known
/// before training.
///
/// # Errors
/// With [`OnBadRow::Error`], that of the first image that does not decode; with [`OnBadRow::Skip`] such images are left
/// out and counted by [`ImageError::kind`](super::ImageError::kind), and it is an error if none is left.
pub fn without_bad_images(
    mut loaded: Loaded<ImageExample>,
    limits: &DecodeLimits,
    on_bad_image: OnBadRow,
) -> Result<Loaded<ImageExample>> {
    let problems: Vec<Option<DataError>> =
        loaded.examples.par_iter().map(|example| example.image.decode(limits).err()).collect();
    let mut first = None;
    let mut kept = Vec::with_capacity(loaded.examples.len());
    for (example, problem) in loaded.examples.into_iter().zip(problems) {
        let Some(problem) = problem else {
            kept.push(example);
            continue;
        };
        match (&problem, on_bad_image) {
            (_, OnBadRow::Error) => return Err(problem),
            (DataError::Image { image, problem }, OnBadRow::Skip) => {
                loaded.skipped.count_at(problem.kind(), || (image.clone(), problem.to_string()));
            }
            (_, OnBadRow::Skip) => loaded.skipped.count("unreadable image"),
        }
        first.get_or_insert(problem);
    }
    match first {
        Some(problem) if kept.is_empty() => Err(problem),
        _ => Ok(Loaded { examples: kept, places: Places::default(), skipped: loaded.skipped }),
    }
}
