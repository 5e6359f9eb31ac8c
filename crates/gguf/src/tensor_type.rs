//! The types of tensors: floats, and blocks of integers with a scale.

use crate::{q4_0, q8_0};
use half::{bf16, f16};

/// A type of tensor that this crate reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TensorType {
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// 16-bit floats with the range of 32.
    Bf16,
    /// Blocks of 32 integers of 8 bits with a scale, see [`q8_0`].
    Q8_0,
    /// Blocks of 32 integers of 4 bits with a scale, see [`q4_0`].
    Q4_0,
}

/// ggml's names of types by their numbers in files.
const NAMES: [&str; 40] = [
    "F32",
    "F16",
    "Q4_0",
    "Q4_1",
    "Q4_2",
    "Q4_3",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q8_1",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "Q8_K",
    "IQ2_XXS",
    "IQ2_XS",
    "IQ3_XXS",
    "IQ1_S",
    "IQ4_NL",
    "IQ3_S",
    "IQ2_S",
    "IQ4_XS",
    "I8",
    "I16",
    "I32",
    "I64",
    "F64",
    "IQ1_M",
    "BF16",
    "Q4_0_4_4",
    "Q4_0_4_8",
    "Q4_0_8_8",
    "TQ1_0",
    "TQ2_0",
    "IQ4_NL_4_4",
    "IQ4_NL_4_8",
    "IQ4_NL_8_8",
    "MXFP4",
];

/// The name of any type, for errors.
pub(crate) fn name_of(id: u32) -> String {
    match NAMES.get(id as usize) {
        Some(name) => (*name).to_owned(),
        None => format!("number {id}"),
    }
}

impl TensorType {
    /// All types.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Q8_0, Self::Q4_0];

    /// ggml's name.
    pub fn name(self) -> &'static str {
        NAMES[self.id() as usize]
    }

    /// The number that stands for the type in a file.
    pub fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q8_0 => 8,
            Self::Bf16 => 30,
        }
    }

    /// The type with this number.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    /// The number of values in a block, which divides the length of a row.
    pub fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 => q8_0::BLOCK,
            Self::Q4_0 => q4_0::BLOCK,
        }
    }

    /// The size of a block in bytes.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => q8_0::BYTES,
            Self::Q4_0 => q4_0::BYTES,
        }
    }

    /// The size in bytes of `n_values`; none if they do not fill their blocks, or no memory could hold them.
    pub fn n_bytes(self, n_values: usize) -> Option<usize> {
        let fills = n_values.is_multiple_of(self.block_len());
        fills.then(|| (n_values / self.block_len()).checked_mul(self.block_bytes())).flatten()
    }

    /// The values of whole blocks.
    ///
    /// # Panics
    /// If `bytes` is not a whole number of blocks.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let (blocks, rest) = bytes.as_chunks::<2>();
        match self {
            Self::F32 => {
                let (words, rest) = bytes.as_chunks::<4>();
                assert!(rest.is_empty(), "a whole number of values");
                words.iter().map(|word| f32::from_le_bytes(*word)).collect()
            }
            Self::F16 => {
                assert!(rest.is_empty(), "a whole number of values");
                blocks.iter().map(|word| f16::from_le_bytes(*word).to_f32()).collect()
            }
            Self::Bf16 => {
                assert!(rest.is_empty(), "a whole number of values");
                blocks.iter().map(|word| bf16::from_le_bytes(*word).to_f32()).collect()
            }
            Self::Q8_0 => q8_0::dequantize_row(bytes),
            Self::Q4_0 => q4_0::dequantize_row(bytes),
        }
    }

    /// Appends the blocks of `values`, which should be finite.
    ///
    /// # Panics
    /// If the values do not fill their blocks.
    pub fn encode(self, values: &[f32], to: &mut Vec<u8>) {
        match self {
            Self::F32 => to.extend(values.iter().flat_map(|x| x.to_le_bytes())),
            Self::F16 => to.extend(values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes())),
            Self::Bf16 => to.extend(values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes())),
            Self::Q8_0 => q8_0::quantize_row(values, to),
            Self::Q4_0 => q4_0::quantize_row(values, to),
        }
    }

    /// The greatest magnitude that is still finite when encoded: the limit of the 16-bit values or scales.
    pub fn greatest(self) -> f32 {
        // Halfway to the next power of two, where rounding goes to infinity.
        const F16: f32 = 65_520.0;
        match self {
            Self::F32 => f32::MAX,
            Self::Bf16 => bf16::MAX.to_f32(),
            Self::F16 => f16::MAX.to_f32(),
            Self::Q8_0 => F16 * 127.0 * 0.999,
            Self::Q4_0 => F16 * 8.0 * 0.999,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_ggml() {
        let ids = TensorType::ALL.map(|kind| (kind.id(), kind.name()));
        assert_eq!(ids, [(0, "F32"), (1, "F16"), (30, "BF16"), (8, "Q8_0"), (2, "Q4_0")]);
        assert_eq!(TensorType::ALL.map(|kind| TensorType::from_id(kind.id())), TensorType::ALL.map(Some));
        assert_eq!(
            (TensorType::from_id(14), name_of(14), name_of(77)),
            (None, "Q6_K".into(), "number 77".into())
        );
    }

    #[test]
    fn sizes_are_those_of_whole_blocks() {
        assert_eq!(TensorType::Q4_0.n_bytes(64), Some(36));
        assert_eq!(TensorType::Q8_0.n_bytes(64), Some(68));
        assert_eq!(TensorType::Q8_0.n_bytes(65), None);
        assert_eq!(TensorType::F32.n_bytes(usize::MAX), None);
    }

    #[test]
    fn floats_survive_and_the_greatest_stays_finite() {
        let values = [0.0, -0.0, 1.5, -2.25, 1024.0, f32::MIN_POSITIVE];
        let coded = |kind: TensorType, values: &[f32]| {
            let mut bytes = Vec::new();
            kind.encode(values, &mut bytes);
            kind.decode(&bytes)
        };
        assert_eq!(coded(TensorType::F32, &values), values);
        for kind in [TensorType::F16, TensorType::Bf16] {
            assert_eq!(coded(kind, &values[..5]), values[..5]);
        }
        for kind in TensorType::ALL {
            assert!(coded(kind, &[kind.greatest(); 32]).iter().all(|x| x.is_finite()), "{kind:?}");
        }
    }
}
