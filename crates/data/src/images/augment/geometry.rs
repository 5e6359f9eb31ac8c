//! Affine changes, with the nearest pixel, as Pillow computes them.

use crate::images::Image;

/// The image whose pixel at `(x, y)` is the nearest to `(a·x + b·y + c, d·x + e·y + f)` in the old one, or black outside
/// of it: in fixed point of 16 bits (`affine_fixed` of `src/libImaging/Geometry.c`).
pub(super) fn affine(image: &Image, [a, b, c, d, e, f]: [f64; 6]) -> Image {
    let fixed = |value: f64| (value * 65_536.0 + 0.5).floor() as i64;
    let start = [fixed(c + a * 0.5 + b * 0.5), fixed(f + d * 0.5 + e * 0.5)];
    let (right, down) = ([fixed(a), fixed(d)], [fixed(b), fixed(e)]);
    let at = |axis: usize, x: usize, y: usize| {
        let place = start[axis] + right[axis] * x as i64 + down[axis] * y as i64;
        usize::try_from(place >> 16).ok()
    };
    Image::from_fn(image.width(), image.height(), |x, y| match (at(0, x, y), at(1, x, y)) {
        (Some(column), Some(row)) if column < image.width() && row < image.height() => {
            image.pixel(column, row)
        }
        _ => [0; 3],
    })
}

pub(super) fn rotate(image: &Image, degrees: f64) -> Image {
    let (sin, cos) = (-degrees.to_radians()).sin_cos();
    let (x, y) = (image.width() as f64 / 2.0, image.height() as f64 / 2.0);
    // About the centre.
    affine(image, [cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y])
}
