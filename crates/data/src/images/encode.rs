//! Images as files.

use super::{Filter, Image, resize};
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

impl Image {
    /// The image as a PNG file.
    pub fn to_png(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (width, height) = (self.width() as u32, self.height() as u32);
        PngEncoder::new(&mut bytes)
            .write_image(self.pixels(), width, height, ExtendedColorType::Rgb8)
            .expect("memory takes all bytes, and an image has as many as its size says");
        bytes
    }

    /// The image itself if no side is longer than `side`; otherwise a smaller one with the same ratio.
    pub fn thumbnail(&self, side: usize) -> Self {
        let (width, height) = (self.width(), self.height());
        let longest = width.max(height);
        if longest <= side {
            return self.clone();
        }
        let scaled = |length: usize| (length * side / longest).max(1);
        resize(self, scaled(width), scaled(height), Filter::Box)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::{DecodeLimits, decode_image};

    #[test]
    fn a_file_is_the_image() {
        let image = Image::from_fn(7, 3, |x, y| [(30 * x) as u8, (80 * y) as u8, 5]);
        assert_eq!(decode_image(&image.to_png(), &DecodeLimits::default()).unwrap(), image);
        let small = Image::filled(300, 20, [9, 8, 7]).thumbnail(60);
        assert_eq!(small, Image::filled(60, 4, [9, 8, 7]));
        assert_eq!(Image::filled(900, 1, [1; 3]).thumbnail(90), Image::filled(90, 1, [1; 3]));
        assert_eq!(image.thumbnail(7), image);
    }
}
