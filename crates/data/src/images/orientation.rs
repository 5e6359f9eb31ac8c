//! Turning an image as a camera's note says.

use super::Image;
use image::metadata::Orientation;

/// The image turned and mirrored as its EXIF orientation says, so that its top is up.
pub fn upright(image: Image, orientation: Orientation) -> Image {
    let (width, height) = (image.width(), image.height());
    let (right, bottom) = (width - 1, height - 1);
    match orientation {
        Orientation::NoTransforms => image,
        Orientation::FlipHorizontal => image.flipped(),
        Orientation::Rotate180 => Image::from_fn(width, height, |x, y| image.pixel(right - x, bottom - y)),
        Orientation::FlipVertical => Image::from_fn(width, height, |x, y| image.pixel(x, bottom - y)),
        // The sides change places.
        Orientation::Rotate90 => Image::from_fn(height, width, |x, y| image.pixel(y, bottom - x)),
        Orientation::Rotate270 => Image::from_fn(height, width, |x, y| image.pixel(right - y, x)),
        Orientation::Rotate90FlipH => Image::from_fn(height, width, |x, y| image.pixel(y, x)),
        Orientation::Rotate270FlipH => {
            Image::from_fn(height, width, |x, y| image.pixel(right - y, bottom - x))
        }
    }
}
