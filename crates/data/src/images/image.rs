//! A decoded image.

/// An image of 8-bit RGB pixels.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Image {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Image {
    /// An image of these pixels: row by row from the top, each from the left, with three bytes for each pixel.
    ///
    /// # Panics
    /// If a side is 0, or the number of bytes is not `3 · width · height`.
    pub fn new(width: usize, height: usize, pixels: Vec<u8>) -> Self {
        assert!(width > 0 && height > 0, "an image of {width} × {height} pixels");
        assert_eq!(pixels.len(), 3 * width * height, "bytes of an image of {width} × {height} pixels");
        Self { width, height, pixels }
    }

    /// An image of one colour.
    ///
    /// # Panics
    /// If a side is 0.
    pub fn filled(width: usize, height: usize, colour: [u8; 3]) -> Self {
        Self::new(width, height, colour.repeat(width * height))
    }

    /// An image whose pixel at each place `(x, y)` is `pixel(x, y)`.
    ///
    /// # Panics
    /// If a side is 0.
    pub fn from_fn(width: usize, height: usize, mut pixel: impl FnMut(usize, usize) -> [u8; 3]) -> Self {
        let mut pixels = Vec::with_capacity(3 * width * height);
        for y in 0..height {
            for x in 0..width {
                pixels.extend(pixel(x, y));
            }
        }
        Self::new(width, height, pixels)
    }

    /// An image of grey values, one a pixel.
    ///
    /// # Panics
    /// If a side is 0, or the number of values is not `width · height`.
    pub fn from_grey(width: usize, height: usize, grey: &[u8]) -> Self {
        Self::new(width, height, grey.iter().flat_map(|value| [*value; 3]).collect())
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Red, green and blue of each pixel, row by row.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The same, to change.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.pixels
    }

    /// Red, green and blue of the pixel in column `x` and row `y`, from 0.
    ///
    /// # Panics
    /// If there is none.
    pub fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        assert!(x < self.width && y < self.height, "pixel ({x}, {y}) of {} × {}", self.width, self.height);
        let at = 3 * (y * self.width + x);
        [self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]]
    }

    /// The part of `width` × `height` pixels whose upper left corner is in column `left` and row `top`. Where it
    /// reaches outside, it is filled with `colour`.
    ///
    /// # Panics
    /// If a side is 0.
    pub fn crop(&self, left: isize, top: isize, width: usize, height: usize, colour: [u8; 3]) -> Self {
        let mut cropped = Self::filled(width, height, colour);
        // The columns of the part that are inside.
        let first = left.min(0).unsigned_abs().min(width);
        let from = left.max(0).unsigned_abs();
        let n = self.width.saturating_sub(from).min(width - first);
        for y in 0..height {
            let Ok(row) = usize::try_from(top.saturating_add_unsigned(y)) else { continue };
            if row >= self.height || n == 0 {
                continue;
            }
            let (to, at) = (3 * (y * width + first), 3 * (row * self.width + from));
            cropped.pixels[to..to + 3 * n].copy_from_slice(&self.pixels[at..at + 3 * n]);
        }
        cropped
    }

    /// The image mirrored from left to right.
    pub fn flipped(&self) -> Self {
        let mut pixels = Vec::with_capacity(self.pixels.len());
        for row in self.pixels.chunks_exact(3 * self.width) {
            row.rchunks_exact(3).for_each(|pixel| pixels.extend_from_slice(pixel));
        }
        Self { pixels, ..*self }
    }
}

/// Only the size: pixels would fill the screen.
impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} × {})", self.width, self.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crop_reaches_outside() {
        let image = Image::from_fn(3, 2, |x, y| [x as u8, y as u8, 9]);
        let crop = image.crop(-1, 1, 5, 2, [7, 7, 7]);
        let outside = [7, 7, 7];
        let expected = [outside, [0, 1, 9], [1, 1, 9], [2, 1, 9], outside];
        assert_eq!(crop.pixels(), [expected, [outside; 5]].concat().concat());
        for (left, top) in [(9, 0), (-9, 0), (0, 9), (0, -9), (isize::MAX, isize::MIN)] {
            assert_eq!(image.crop(left, top, 2, 2, outside), Image::filled(2, 2, outside));
        }
        assert_eq!(image.crop(1, 0, 2, 2, outside), Image::from_fn(2, 2, |x, y| [x as u8 + 1, y as u8, 9]));
    }

    #[test]
    fn a_flip_reverses_rows() {
        let image = Image::from_fn(3, 2, |x, y| [x as u8, y as u8, 9]);
        assert_eq!(image.flipped(), Image::from_fn(3, 2, |x, y| [2 - x as u8, y as u8, 9]));
    }
}
