//! Vectors of integers and bits, which take a quarter or a thirty-second of the memory: the numbers of
//! sentence-transformers' `quantize_embeddings` (6.2.0; before 6 its `int8` rounds negative numbers up, and wraps
//! round beyond the ranges).

/// What a vector is stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorType {
    /// 8 bits with a sign for each feature: `⌊(x − least) / (most − least) · 255⌋ − 128`, within the feature's
    /// range.
    Int8,
    /// The same without the 128.
    Uint8,
    /// A bit for each feature, 1 above 0, the first one highest: eight in a byte, with 128 taken off. Unused bits
    /// are 0.
    Binary,
    /// The same without taking anything off.
    Ubinary,
}

impl VectorType {
    /// Whether it needs the features' [ranges](VectorRanges).
    pub fn needs_ranges(self) -> bool {
        matches!(self, Self::Int8 | Self::Uint8)
    }

    /// Whether its bytes have a sign.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::Int8 | Self::Binary)
    }

    /// The bytes of a vector of this many features.
    pub fn n_bytes(self, n_features: usize) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => n_features,
            Self::Binary | Self::Ubinary => n_features.div_ceil(8),
        }
    }

    /// The vector's bytes, in two's complement if they have a sign. A vector's bytes do not depend on others.
    ///
    /// # Panics
    /// If ranges are needed and there are none, or are those of another number of features.
    pub fn quantize(self, vector: &[f32], ranges: Option<&VectorRanges>) -> Vec<u8> {
        match self {
            Self::Uint8 => ranges.expect("8 bits need the features' ranges").places(vector).collect(),
            Self::Int8 => Self::Uint8.quantize(vector, ranges).iter().map(|byte| byte ^ 0x80).collect(),
            Self::Ubinary => {
                let bit = |(place, x): (usize, &f32)| u8::from(*x > 0.0) << (7 - place);
                vector.chunks(8).map(|eight| eight.iter().enumerate().map(bit).sum()).collect()
            }
            // Less 128, modulo 256, is the highest bit the other way round.
            Self::Binary => Self::Ubinary.quantize(vector, ranges).iter().map(|byte| byte ^ 0x80).collect(),
        }
    }
}

/// The least and the greatest value of each feature in some vectors, such as those of a thousand texts like those
/// to be embedded. Vectors that are compared must have the same ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorRanges {
    least: Vec<f32>,
    most: Vec<f32>,
}

impl VectorRanges {
    /// Those of no vector yet, of this many features.
    pub fn new(n_features: usize) -> Self {
        Self { least: vec![f32::INFINITY; n_features], most: vec![f32::NEG_INFINITY; n_features] }
    }

    /// Widens the ranges by a vector.
    ///
    /// # Panics
    /// If the vector has another number of features.
    pub fn widen(&mut self, vector: &[f32]) {
        assert_eq!(vector.len(), self.least.len(), "features");
        for ((least, most), x) in self.least.iter_mut().zip(&mut self.most).zip(vector) {
            *least = least.min(*x);
            *most = most.max(*x);
        }
    }

    /// The 256th part of its range that each feature is in; a feature whose range is empty is not scaled.
    fn places<'a>(&'a self, vector: &'a [f32]) -> impl Iterator<Item = u8> + 'a {
        assert_eq!(vector.len(), self.least.len(), "features");
        vector.iter().zip(self.least.iter().zip(&self.most)).map(|(x, (least, most))| {
            let step = (most - least) / 255.0;
            let step = if step == 0.0 { 1.0 } else { step };
            ((x - least) / step).floor().clamp(0.0, 255.0) as u8
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by sentence-transformers 6.2.0: `quantize_embeddings(vectors, kind, calibration_embeddings=seen)`. Two
    /// numbers lie outside their ranges, and the third feature has none.
    #[test]
    fn numbers_are_those_of_sentence_transformers() {
        let seen = [
            [-0.5, 0.25, 0.1, 0.7, -1.0, 0.0, 2.0, 3.0, 4.0, 0.3],
            [0.5, -0.25, 0.1, 0.2, 1.0, 1.0, -2.0, 3.5, 5.0, -0.3],
            [0.1, 0.0, 0.1, -0.4, 0.3, -1.0, 0.5, 3.2, 4.4, 0.01],
        ];
        let vectors = [
            [0.123, -0.2, 0.3, 0.0, -0.999, 0.5, 1.5, 3.1, 4.9, -0.1],
            [-0.7, 0.3, 0.1, 0.69, 1.0, 1e-8, -2.0, 2.0, 9.0, 0.29],
        ];
        let mut ranges = VectorRanges::new(10);
        seen.iter().for_each(|vector| ranges.widen(vector));
        let of = |kind: VectorType| vectors.map(|vector| kind.quantize(&vector, Some(&ranges)));
        let signed = |bytes: Vec<u8>| bytes.into_iter().map(|byte| byte as i8).collect::<Vec<_>>();
        assert_eq!(
            of(VectorType::Int8).map(signed),
            [
                [30, -103, -128, -36, -128, 63, 95, -78, 101, -43],
                [-128, 127, -128, 124, 126, -1, -128, -128, 127, 122]
            ]
        );
        assert_eq!(
            of(VectorType::Uint8),
            [[158, 25, 0, 92, 0, 191, 223, 50, 229, 85], [0, 255, 0, 252, 254, 127, 0, 0, 255, 250]]
        );
        assert_eq!(of(VectorType::Binary).map(signed), [[39, 0], [-3, 64]]);
        assert_eq!(of(VectorType::Ubinary), [[167, 128], [125, 192]]);
        assert_eq!((VectorType::Binary.n_bytes(10), VectorType::Int8.n_bytes(10)), (2, 10));
    }
}
