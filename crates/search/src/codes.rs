//! Short codes of vectors: 8-bit numbers, and signs.

/// Writes `vector` as numbers from −127 to 127, and returns the scale that converts them back to floats. A
/// zero vector gives zeros and scale 0.
pub(crate) fn encode_int8(vector: &[f32], codes: &mut [i8]) -> f32 {
    let greatest = vector.iter().fold(0f32, |greatest, x| greatest.max(x.abs()));
    let scale = greatest / 127.0;
    // Of numbers so small that the scale is no normal one nothing is left.
    if scale < f32::MIN_POSITIVE {
        codes.fill(0);
        return 0.0;
    }
    for (code, x) in codes.iter_mut().zip(vector) {
        *code = (x / scale).round().clamp(-127.0, 127.0) as i8;
    }
    scale
}

/// The signs of `vector`, 64 to a word: a bit is set where a feature is above 0.
pub(crate) fn encode_binary(vector: &[f32]) -> Vec<u64> {
    let word = |features: &[f32]| {
        features.iter().enumerate().fold(0, |word, (bit, x)| word | u64::from(*x > 0.0) << bit)
    };
    vector.chunks(64).map(word).collect()
}

/// The upper half of a float, rounded to nearest, ties to even.
pub(crate) fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn eight_bits_are_off_by_half_a_step(vector in prop::collection::vec(-1e6f32..1e6, 1..40)) {
            let mut codes = vec![0; vector.len()];
            let scale = encode_int8(&vector, &mut codes);
            for (code, x) in codes.iter().zip(&vector) {
                prop_assert!((f32::from(*code) * scale - x).abs() <= scale * 0.501);
            }
        }

        #[test]
        fn sixteen_bits_are_the_nearest(x in -1e30f32..1e30) {
            let rounded = f32::from_bits(u32::from(bf16(x)) << 16);
            prop_assert!((rounded - x).abs() <= x.abs() / 256.0);
            prop_assert_eq!(bf16(rounded), (rounded.to_bits() >> 16) as u16);
        }
    }

    #[test]
    fn small_and_odd_vectors_have_codes() {
        let mut codes = [1; 2];
        assert_eq!((encode_int8(&[0.0, 0.0], &mut codes), codes), (0.0, [0, 0]));
        assert_eq!((encode_int8(&[1e-40, 0.0], &mut codes), codes), (0.0, [0, 0]));
        encode_int8(&[-2.0, 1.0], &mut codes);
        assert_eq!(codes, [-127, 64]);
        let mut vector = vec![-1.0; 70];
        (vector[1], vector[64]) = (0.5, 2.0);
        assert_eq!(encode_binary(&vector), [2, 1]);
    }
}
