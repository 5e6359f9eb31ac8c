//! Q8_0: 32 integers of 8 bits and an FP16 scale, 34 bytes.
//!
//! The arithmetic is that of ggml's `quantize_row_q8_0_ref`: `d = max|x| / 127`, `q = round(x / d)` with halves away from
//! zero, and a value is `d · q` with `d` in FP16. The integers are computed with `d` before it is rounded.

use half::f16;

/// The number of values in a block.
pub const BLOCK: usize = 32;
/// The size of a block: the scale, then the integers in order.
pub const BYTES: usize = 2 + BLOCK;

/// The scale and the integers of a block of finite values.
pub fn quantize(values: &[f32; BLOCK]) -> (f16, [i8; BLOCK]) {
    let greatest = values.iter().fold(0f32, |greatest, x| greatest.max(x.abs()));
    let scale = greatest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    (f16::from_f32(scale), values.map(|x| (x * inverse).round() as i8))
}

/// The values of a block.
pub fn dequantize(scale: f16, integers: &[i8; BLOCK]) -> [f32; BLOCK] {
    let scale = scale.to_f32();
    integers.map(|q| f32::from(q) * scale)
}

/// Appends the blocks of a row.
///
/// # Panics
/// If the row is not a whole number of blocks.
pub fn quantize_row(row: &[f32], to: &mut Vec<u8>) {
    let (blocks, rest) = row.as_chunks();
    assert!(rest.is_empty(), "a row of {} values is not a whole number of blocks", row.len());
    to.reserve(blocks.len() * BYTES);
    for block in blocks {
        let (scale, integers) = quantize(block);
        to.extend(scale.to_le_bytes());
        to.extend(integers.map(|q| q as u8));
    }
}

/// The values of a row.
///
/// # Panics
/// If the row is not a whole number of blocks.
pub fn dequantize_row(row: &[u8]) -> Vec<f32> {
    let (blocks, rest) = row.as_chunks::<BYTES>();
    assert!(rest.is_empty(), "a row of {} bytes is not a whole number of blocks", row.len());
    let mut values = Vec::with_capacity(blocks.len() * BLOCK);
    for block in blocks {
        let scale = f16::from_le_bytes([block[0], block[1]]);
        let integers = std::array::from_fn(|i| block[2 + i] as i8);
        values.extend(dequantize(scale, &integers));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_its_scale_and_integers() {
        let mut block = [0f32; BLOCK];
        (block[0], block[1], block[2], block[31]) = (127.0, -63.5, 0.49, -127.0);
        let (scale, integers) = quantize(&block);
        assert_eq!((scale.to_f32(), integers[0], integers[31]), (1.0, 127, -127));
        // Halves away from zero.
        assert_eq!((integers[1], integers[2]), (-64, 0));
        assert_eq!(dequantize(scale, &integers)[1], -64.0);
        assert_eq!(quantize(&[0.0; BLOCK]), (f16::ZERO, [0; BLOCK]));
    }

    #[test]
    fn rows_are_blocks_one_after_the_other() {
        let row: Vec<f32> = (0..96).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut bytes = Vec::new();
        quantize_row(&row, &mut bytes);
        assert_eq!(bytes.len(), 3 * BYTES);
        let values = dequantize_row(&bytes);
        assert!(row.iter().zip(&values).all(|(a, b)| (a - b).abs() <= 1.0 / 254.0 + 1e-3), "{values:?}");
    }
}
