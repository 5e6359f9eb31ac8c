//! Matrices of blocks that were rounded elsewhere.

use crate::{TensorType, q4_0, q8_0};
use half::f16;

/// A matrix of integers in blocks of 32 with FP16 scales, which goes into a file as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blocks<'a> {
    kind: TensorType,
    integers: &'a [u8],
    scales: &'a [f32],
}

impl<'a> Blocks<'a> {
    /// Blocks with these integers, row by row: of [`TensorType::Q8_0`] signed bytes, of [`TensorType::Q4_0`] `q + 8`, two in
    /// a byte, the first in the low half. `scales` has one for each block.
    ///
    /// None if a scale is no number of FP16, if the lengths do not fit, or for another type: GGUF has no such blocks.
    pub fn new(kind: TensorType, integers: &'a [u8], scales: &'a [f32]) -> Option<Self> {
        let block_bytes = match kind {
            TensorType::Q8_0 => q8_0::BLOCK,
            TensorType::Q4_0 => q4_0::BLOCK / 2,
            TensorType::F32 | TensorType::F16 | TensorType::Bf16 => return None,
        };
        let fits = integers.len() == scales.len() * block_bytes;
        let exact = |scale: &f32| scale.is_finite() && f16::from_f32(*scale).to_f32() == *scale;
        (fits && scales.iter().all(exact)).then_some(Self { kind, integers, scales })
    }

    /// The type in a file.
    pub fn kind(&self) -> TensorType {
        self.kind
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.scales.len() * self.kind.block_len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.scales.is_empty()
    }

    /// The bytes in a file.
    pub(crate) fn coded(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(self.scales.len() * self.kind.block_bytes());
        let scales = self.scales.iter().map(|scale| f16::from_f32(*scale).to_le_bytes());
        match self.kind {
            TensorType::Q4_0 => {
                let blocks = self.integers.as_chunks::<{ q4_0::BLOCK / 2 }>().0;
                for (scale, pairs) in scales.zip(blocks) {
                    let integers = std::array::from_fn(|i| pairs[i / 2] >> (4 * (i % 2)) & 15);
                    to.extend(scale);
                    to.extend(q4_0::pack(&integers));
                }
            }
            _ => {
                for (scale, integers) in scales.zip(self.integers.as_chunks::<{ q8_0::BLOCK }>().0) {
                    to.extend(scale);
                    to.extend(integers);
                }
            }
        }
        to
    }

    /// The values.
    pub(crate) fn values(&self) -> Vec<f32> {
        self.kind.decode(&self.coded())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_file() {
        let numbers: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut expected = Vec::new();
        q4_0::quantize_row(&numbers, &mut expected);
        let (mut pairs, mut scales) = (Vec::new(), Vec::new());
        for block in numbers.as_chunks::<32>().0 {
            let (scale, integers) = q4_0::quantize(block);
            scales.push(scale.to_f32());
            pairs.extend(integers.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4));
        }
        let blocks = Blocks::new(TensorType::Q4_0, &pairs, &scales).unwrap();
        assert_eq!((blocks.coded(), blocks.len()), (expected.clone(), 64));
        assert_eq!(blocks.values(), q4_0::dequantize_row(&expected));

        expected.clear();
        q8_0::quantize_row(&numbers, &mut expected);
        let (mut bytes, mut scales) = (Vec::new(), Vec::new());
        for block in numbers.as_chunks::<32>().0 {
            let (scale, integers) = q8_0::quantize(block);
            scales.push(scale.to_f32());
            bytes.extend(integers.map(i8::cast_unsigned));
        }
        let blocks = Blocks::new(TensorType::Q8_0, &bytes, &scales).unwrap();
        assert_eq!((blocks.coded(), blocks.kind()), (expected, TensorType::Q8_0));
    }

    #[test]
    fn what_gguf_has_no_blocks_for_is_none() {
        let (bytes, pairs) = ([0; 32], [0; 16]);
        assert!(Blocks::new(TensorType::Q8_0, &bytes, &[0.5]).is_some());
        for (kind, integers, scale) in [
            (TensorType::Q8_0, &bytes[..], 0.1),
            (TensorType::Q8_0, &bytes[..], 1e6),
            (TensorType::Q8_0, &bytes[..], f32::NAN),
            (TensorType::Q4_0, &bytes[..], 0.5),
            (TensorType::Q8_0, &pairs[..], 0.5),
            (TensorType::F16, &bytes[..], 0.5),
        ] {
            assert_eq!(Blocks::new(kind, integers, &[scale]), None, "{kind:?} {scale}");
        }
    }
}
