//! Brightness, contrast, saturation, sharpness and hue, as Pillow computes them.

use crate::images::Image;

/// Pillow's grey of a pixel: ITU-R 601-2 luma in fixed point (`src/libImaging/Convert.c`).
fn luma(pixel: &[u8]) -> u8 {
    let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
    ((r * 19_595 + g * 38_470 + b * 7_471 + 0x8000) >> 16) as u8
}

/// `from + factor·(to − from)`, cut off, in single precision (`src/libImaging/Blend.c`).
fn blended(from: u8, to: u8, factor: f32) -> u8 {
    // A cast cuts off the fraction, and what is below 0 or above 255.
    (f32::from(from) + factor * (f32::from(to) - f32::from(from))) as u8
}

/// The image blended with another pixel for each of its pixels.
fn blend(image: &Image, factor: f64, mut other: impl FnMut(usize, &[u8]) -> [u8; 3]) -> Image {
    let factor = factor as f32;
    let mut changed = image.clone();
    for (place, pixel) in changed.pixels_mut().chunks_exact_mut(3).enumerate() {
        let from = other(place, pixel);
        for (value, from) in pixel.iter_mut().zip(from) {
            *value = blended(from, *value, factor);
        }
    }
    changed
}

pub(super) fn brightness(image: &Image, factor: f64) -> Image {
    blend(image, factor, |_, _| [0; 3])
}

pub(super) fn contrast(image: &Image, factor: f64) -> Image {
    let sum: u64 = image.pixels().chunks_exact(3).map(|pixel| u64::from(luma(pixel))).sum();
    let mean = sum as f64 / (image.width() * image.height()) as f64;
    let mean = (mean + 0.5) as u8;
    blend(image, factor, |_, _| [mean; 3])
}

pub(super) fn saturation(image: &Image, factor: f64) -> Image {
    blend(image, factor, |_, pixel| [luma(pixel); 3])
}

pub(super) fn sharpness(image: &Image, factor: f64) -> Image {
    let width = image.width();
    blend(image, factor, |place, _| smoothed(image, place % width, place / width))
}

/// The mean of a pixel, five times, and its eight neighbours; at the border, the pixel (`ImageFilter.SMOOTH`).
fn smoothed(image: &Image, x: usize, y: usize) -> [u8; 3] {
    let centre = image.pixel(x, y);
    if x == 0 || y == 0 || x + 1 == image.width() || y + 1 == image.height() {
        return centre;
    }
    let mut sums = centre.map(|value| 4 * u32::from(value));
    for row in y - 1..=y + 1 {
        for column in x - 1..=x + 1 {
            for (sum, value) in sums.iter_mut().zip(image.pixel(column, row)) {
                *sum += u32::from(value);
            }
        }
    }
    // Rounded; a thirteenth is never a half.
    sums.map(|sum| ((2 * sum + 13) / 26) as u8)
}

pub(super) fn hue(image: &Image, turns: f64) -> Image {
    // Towards zero, then modulo 256.
    let shift = (turns * 255.0) as i32 as u8;
    let mut changed = image.clone();
    for pixel in changed.pixels_mut().chunks_exact_mut(3) {
        let [hue, saturation, value] = hsv([pixel[0], pixel[1], pixel[2]]);
        pixel.copy_from_slice(&rgb([hue.wrapping_add(shift), saturation, value]));
    }
    changed
}

/// Hue, saturation and value, each in 8 bits. Precisions are Pillow's.
fn hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let saturation = range / f32::from(most);
    let [to_r, to_g, to_b] = [r, g, b].map(|value| f32::from(most - value) / range);
    let sixths = if r == most {
        to_b - to_g
    } else if g == most {
        (2.0 + f64::from(to_r) - f64::from(to_b)) as f32
    } else {
        (4.0 + f64::from(to_g) - f64::from(to_r)) as f32
    };
    let hue = ((f64::from(sixths) / 6.0 + 1.0) % 1.0) as f32;
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, most]
}

fn rgb([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let sixths = f64::from(hue) * 6.0 / 255.0;
    let part = (sixths - sixths.floor()) as f32;
    let saturation = (f64::from(saturation) / 255.0) as f32;
    let scaled = |by: f64| (f64::from(value) * (1.0 - by)).round() as u8;
    let product = f64::from(saturation * part);
    let p = scaled(f64::from(saturation));
    let q = scaled(product);
    let t = scaled(f64::from(saturation) * (1.0 - f64::from(part)));
    match sixths as u32 % 6 {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}
