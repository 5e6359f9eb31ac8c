//! Changes of each colour's values by a table, as Pillow's `ImageOps` does them.

use crate::images::Image;

/// Each value of a colour by that colour's table.
fn mapped(image: &Image, tables: [[u8; 256]; 3]) -> Image {
    let mut changed = image.clone();
    for pixel in changed.pixels_mut().chunks_exact_mut(3) {
        for (value, table) in pixel.iter_mut().zip(&tables) {
            *value = table[usize::from(*value)];
        }
    }
    changed
}

/// How often each value of each colour occurs.
fn histograms(image: &Image) -> [[usize; 256]; 3] {
    let mut histograms = [[0; 256]; 3];
    for pixel in image.pixels().chunks_exact(3) {
        for (histogram, value) in histograms.iter_mut().zip(pixel) {
            histogram[usize::from(*value)] += 1;
        }
    }
    histograms
}

fn identity() -> [u8; 256] {
    std::array::from_fn(|value| value as u8)
}

pub(super) fn posterize(image: &Image, bits: u32) -> Image {
    let mask = !(0xFFu32 >> bits.min(8)) as u8;
    mapped(image, [identity().map(|value| value & mask); 3])
}

pub(super) fn solarize(image: &Image, threshold: f64) -> Image {
    let of = |value: u8| if f64::from(value) < threshold { value } else { 255 - value };
    mapped(image, [identity().map(of); 3])
}

pub(super) fn auto_contrast(image: &Image) -> Image {
    let table = |histogram: [usize; 256]| {
        let lowest = histogram.iter().position(|n| *n > 0).unwrap_or_default();
        let highest = histogram.iter().rposition(|n| *n > 0).unwrap_or_default();
        if highest <= lowest {
            return identity();
        }
        let scale = 255.0 / (highest - lowest) as f64;
        let offset = -(lowest as f64) * scale;
        identity().map(|value| (f64::from(value) * scale + offset) as u8)
    };
    mapped(image, histograms(image).map(table))
}

pub(super) fn equalize(image: &Image) -> Image {
    let table = |histogram: [usize; 256]| {
        let last = histogram.iter().rposition(|n| *n > 0).unwrap_or_default();
        let step = histogram[..last].iter().sum::<usize>() / 255;
        if step == 0 {
            return identity();
        }
        let mut below = step / 2;
        histogram.map(|n| {
            let value = (below / step).min(255) as u8;
            below += n;
            value
        })
    };
    mapped(image, histograms(image).map(table))
}
