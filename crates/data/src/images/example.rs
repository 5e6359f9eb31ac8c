//! Images with their classes, before they are decoded.

use super::{DecodeLimits, Image, decode_image, read_image};
use crate::labelled::{Loaded, OnBadRow, Target};
use crate::{DataError, Result};
use rayon::prelude::*;
use std::fmt;
use std::path::PathBuf;
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
    /// Reads and decodes the image. What a worker thread does.
    ///
    /// # Errors
    /// [`DataError::Io`] or [`DataError::Image`], with the image's place.
    pub fn decode(&self, limits: &DecodeLimits) -> Result<Image> {
        match self {
            Self::File(path) => read_image(path, limits),
            Self::Bytes { bytes, place } => decode_image(bytes, limits)
                .map_err(|problem| DataError::Image { image: place.clone(), problem }),
            Self::Grey { width, values } => Ok(Image::from_grey(*width, values.len() / width, values)),
        }
    }
}

/// Its place: bytes would fill the screen.
impl fmt::Debug for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "File({})", path.display()),
            Self::Bytes { place, .. } => write!(f, "Bytes({place})"),
            Self::Grey { width, values } => write!(f, "Grey({width} × {})", values.len() / width),
        }
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
            (DataError::Image { problem, .. }, OnBadRow::Skip) => loaded.skipped.count(problem.kind()),
            (_, OnBadRow::Skip) => loaded.skipped.count("unreadable image"),
        }
        first.get_or_insert(problem);
    }
    match first {
        Some(problem) if kept.is_empty() => Err(problem),
        _ => Ok(Loaded { examples: kept, skipped: loaded.skipped }),
    }
}
