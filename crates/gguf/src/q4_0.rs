//! Q4_0: 32 integers of 4 bits and an FP16 scale, 18 bytes.
//!
//! The arithmetic is that of ggml's `quantize_row_q4_0_ref`: `d = m / -8` where `m` is the value of greatest magnitude, the
//! first of several, so that `m` itself is -8; `q = min(15, ⌊x / d + 8.5⌋)`, and a value is `d · (q - 8)` with `d` in FP16.
//! The integers are computed with `d` before it is rounded. As in the package `gguf`, the product and the sum are not
//! rounded to 32 bits in between, as a processor does that fuses them.

use half::f16;

/// The number of values in a block.
pub const BLOCK: usize = 32;
/// The size of a block: the scale, then 16 bytes, each with a value of the first half in its low bits and the value 16
/// places later in its high bits.
pub const BYTES: usize = 2 + BLOCK / 2;
/// What is stored for zero.
pub const ZERO: u8 = 8;

/// The scale and the integers, 0 to 15, of a block of finite values.
pub fn quantize(values: &[f32; BLOCK]) -> (f16, [u8; BLOCK]) {
    let scale = scale(values);
    (f16::from_f32(scale), values.map(|x| integer(x, scale)))
}

/// The scale of a block of finite values, before it is rounded to FP16.
pub fn scale(values: &[f32; BLOCK]) -> f32 {
    let mut greatest = 0f32;
    for x in values {
        if x.abs() > greatest.abs() {
            greatest = *x;
        }
    }
    greatest / -8.0
}

/// The integer, 0 to 15, of a finite value.
pub fn integer(x: f32, scale: f32) -> u8 {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    ((f64::from(x) * f64::from(inverse) + 8.5) as u8).min(15)
}

/// The values of a block.
pub fn dequantize(scale: f16, integers: &[u8; BLOCK]) -> [f32; BLOCK] {
    let scale = scale.to_f32();
    integers.map(|q| (f32::from(q) - f32::from(ZERO)) * scale)
}

/// Packs the integers of a block, two in a byte.
pub fn pack(integers: &[u8; BLOCK]) -> [u8; BLOCK / 2] {
    std::array::from_fn(|i| integers[i] | integers[i + BLOCK / 2] << 4)
}

/// Unpacks the integers of a block.
pub fn unpack(bytes: &[u8; BLOCK / 2]) -> [u8; BLOCK] {
    std::array::from_fn(|i| if i < BLOCK / 2 { bytes[i] & 15 } else { bytes[i - BLOCK / 2] >> 4 })
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
        to.extend(pack(&integers));
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
        let packed = std::array::from_fn(|i| block[2 + i]);
        values.extend(dequantize(scale, &unpack(&packed)));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_greatest_magnitude_is_kept() {
        let mut block = [0f32; BLOCK];
        (block[3], block[20], block[31]) = (-4.0, 4.0, 3.5);
        let (scale, integers) = quantize(&block);
        // The first of two: -4 is -8 times 0.5, and 4 is cut to 7 times 0.5.
        assert_eq!((scale.to_f32(), integers[3], integers[20], integers[31]), (0.5, 0, 15, 15));
        let values = dequantize(scale, &integers);
        assert_eq!((values[3], values[20], values[0]), (-4.0, 3.5, 0.0));
        assert_eq!(quantize(&[0.0; BLOCK]), (f16::NEG_ZERO, [ZERO; BLOCK]));
    }

    #[test]
    fn halves_of_a_block_share_bytes() {
        let integers: [u8; BLOCK] = std::array::from_fn(|i| (i % 16) as u8);
        let packed = pack(&integers);
        assert_eq!((packed[0], packed[15]), (0x00, 0xFF));
        assert_eq!(unpack(&packed), integers);
    }

    #[test]
    fn rows_are_blocks_one_after_the_other() {
        let row: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut bytes = Vec::new();
        quantize_row(&row, &mut bytes);
        assert_eq!(bytes.len(), 2 * BYTES);
        let values = dequantize_row(&bytes);
        assert!(row.iter().zip(&values).all(|(a, b)| (a - b).abs() <= 0.13), "{values:?}");
    }
}
