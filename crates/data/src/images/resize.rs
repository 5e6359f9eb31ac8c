//! Resizing as Pillow does it, to the byte.

use super::Image;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The filter of a [`resize`]. Each is widened by the factor by which the image shrinks ("antialiased").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// The mean of the pixels below a new one.
    Box,
    /// A triangle of one pixel to each side.
    Bilinear,
    /// Keys' cubic with `a = −0.5` (1981), of two pixels to each side.
    Bicubic,
}

impl Filter {
    /// Pixels to each side that have a weight.
    fn support(self) -> f64 {
        match self {
            Self::Box => 0.5,
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
        }
    }

    /// The weight of a pixel at a distance. The order of operations is Pillow's: the last bit counts.
    fn weight(self, distance: f64) -> f64 {
        const A: f64 = -0.5;
        let x = distance.abs();
        match self {
            Self::Box => f64::from(distance > -0.5 && distance <= 0.5),
            Self::Bilinear if x < 1.0 => 1.0 - x,
            Self::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            _ => 0.0,
        }
    }
}

/// The image in another size: equal to Pillow's `Image.resize((width, height), filter)` on 8-bit RGB, byte for byte.
///
/// Its algorithm (`src/libImaging/Resample.c`): one pass over rows and one over columns, with weights in fixed point and
/// 8-bit values between the two. The order is that of Pillow 13, which shrinks columns first if they lose more than twice
/// as many pixels as rows do. Pillow 12 always begins with rows; then a value differs by 1 at most.
///
/// # Panics
/// If a side is 0.
pub fn resize(image: &Image, width: usize, height: usize, filter: Filter) -> Image {
    assert!(width > 0 && height > 0, "a size of {width} × {height} pixels");
    let lost = |from: usize, to: usize| from as i64 - to as i64;
    let (columns, rows) = (lost(image.height(), height), lost(image.width(), width));
    match columns > 0 && columns > 2 * rows {
        true => with_width(with_height(Cow::Borrowed(image), height, filter), width, filter),
        false => with_height(with_width(Cow::Borrowed(image), width, filter), height, filter),
    }
    .into_owned()
}

fn with_width(image: Cow<'_, Image>, width: usize, filter: Filter) -> Cow<'_, Image> {
    if image.width() == width {
        return image;
    }
    let weights = Weights::new(image.width(), width, filter);
    let pixels = resized_rows(image.pixels(), image.width(), &weights);
    Cow::Owned(Image::new(width, image.height(), pixels))
}

fn with_height(image: Cow<'_, Image>, height: usize, filter: Filter) -> Cow<'_, Image> {
    if image.height() == height {
        return image;
    }
    let weights = Weights::new(image.height(), height, filter);
    let pixels = resized_columns(image.pixels(), 3 * image.width(), &weights);
    Cow::Owned(Image::new(image.width(), height, pixels))
}

/// Bits of a weight behind the point: 8 are the pixel's, and 2 leave room for a sum and its sign.
const PRECISION_BITS: u32 = 32 - 8 - 2;

/// For each new pixel of a row or column, the first old pixel that counts, and the weights from it on.
struct Weights {
    first: Vec<usize>,
    /// Ends of each pixel's weights in `weights`.
    ends: Vec<usize>,
    weights: Vec<i32>,
}

impl Weights {
    fn new(from: usize, to: usize, filter: Filter) -> Self {
        let scale = from as f64 / to as f64;
        let filter_scale = scale.max(1.0);
        let support = filter.support() * filter_scale;
        let inverse = 1.0 / filter_scale;
        let mut all = Self { first: Vec::new(), ends: Vec::new(), weights: Vec::new() };
        for place in 0..to {
            let centre = (place as f64 + 0.5) * scale;
            // Casts cut off the fraction, and negative numbers.
            let first = (centre - support + 0.5) as usize;
            let end = ((centre + support + 0.5) as usize).min(from);
            let weights: Vec<f64> = (0..end - first)
                .map(|x| filter.weight(((x + first) as f64 - centre + 0.5) * inverse))
                .collect();
            let sum: f64 = weights.iter().sum();
            all.weights.extend(weights.iter().map(|weight| {
                let share = if sum != 0.0 { weight / sum } else { *weight };
                let scaled = share * f64::from(1u32 << PRECISION_BITS);
                (scaled + if share < 0.0 { -0.5 } else { 0.5 }) as i32
            }));
            all.first.push(first);
            all.ends.push(all.weights.len());
        }
        all
    }

    /// The first old pixel and the weights of each new one.
    fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.first
            .iter()
            .zip(starts.zip(&self.ends))
            .map(|(first, (start, end))| (*first, &self.weights[start..*end]))
    }
}

/// Half of a unit: sums are rounded.
const HALF: i32 = 1 << (PRECISION_BITS - 1);

fn clipped(sum: i32) -> u8 {
    (sum >> PRECISION_BITS).clamp(0, 255) as u8
}

fn resized_rows(pixels: &[u8], width: usize, weights: &Weights) -> Vec<u8> {
    let rows = pixels.len() / (3 * width);
    let mut resized = Vec::with_capacity(3 * rows * weights.first.len());
    for row in pixels.chunks_exact(3 * width) {
        for (first, weights) in weights.iter() {
            let mut sums = [HALF; 3];
            for (pixel, weight) in row[3 * first..].chunks_exact(3).zip(weights) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*value) * weight;
                }
            }
            resized.extend(sums.map(clipped));
        }
    }
    resized
}

/// `stride` is a row's length in bytes.
fn resized_columns(pixels: &[u8], stride: usize, weights: &Weights) -> Vec<u8> {
    let mut resized = Vec::with_capacity(stride * weights.first.len());
    let mut sums = vec![HALF; stride];
    for (first, weights) in weights.iter() {
        sums.fill(HALF);
        for (row, weight) in pixels[first * stride..].chunks_exact(stride).zip(weights) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += i32::from(*value) * weight;
            }
        }
        resized.extend(sums.iter().map(|sum| clipped(*sum)));
    }
    resized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_image_stays_so() {
        for filter in [Filter::Box, Filter::Bilinear, Filter::Bicubic] {
            for (width, height) in [(1, 1), (7, 3), (64, 1), (5, 90)] {
                let image = Image::filled(13, 8, [0, 128, 255]);
                let expected = Image::filled(width, height, [0, 128, 255]);
                assert_eq!(resize(&image, width, height, filter), expected, "{filter:?}");
            }
        }
    }

    #[test]
    fn box_halves_by_means() {
        let image = Image::from_fn(4, 2, |x, y| [10 * x as u8, 100 * y as u8, 7]);
        assert_eq!(resize(&image, 2, 1, Filter::Box).pixels(), [5, 50, 7, 25, 50, 7]);
    }
}
