use super::fields::Fields;
use super::names::{name_of, of_name};
use crate::Result;
use burn::tensor::{DType, TensorData};

/// The float type that weights are stored as. In memory they are FP32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FloatType {
    /// `float32`
    #[default]
    F32,
    /// `float16`
    F16,
    /// `bfloat16`
    Bf16,
}

impl FloatType {
    const NAMES: [(Self, &str); 3] =
        [(Self::F32, "float32"), (Self::F16, "float16"), (Self::Bf16, "bfloat16")];

    /// PyTorch's name of the type.
    pub fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }

    /// The type that a `config.json` names; FP32 if it names none, or one that this crate does not know.
    pub(super) fn read(fields: &Fields) -> Result<Self> {
        let key = if fields.value("dtype").is_some() { "dtype" } else { "torch_dtype" };
        Ok(fields.text(key)?.and_then(|name| of_name(&Self::NAMES, name)).unwrap_or_default())
    }
}

/// FP32 `data` as it is stored.
pub(super) fn stored_as(data: &TensorData, dtype: FloatType) -> TensorData {
    match dtype {
        FloatType::F32 => data.clone(),
        FloatType::F16 => data.clone().convert_dtype(DType::F16),
        FloatType::Bf16 => data.clone().convert_dtype(DType::BF16),
    }
}

/// The type that FP32 tensors are stored as without the loss of a bit: the declared one if it can, else FP32.
pub(super) fn lossless<'a>(
    declared: FloatType,
    tensors: impl IntoIterator<Item = &'a TensorData>,
) -> FloatType {
    let keeps = |data: &TensorData| same_bits(data, &stored_as(data, declared));
    if tensors.into_iter().all(keeps) { declared } else { FloatType::F32 }
}

/// Whether widening `stored` gives the values of `data`, which are FP32; all NaNs count as equal.
fn same_bits(data: &TensorData, stored: &TensorData) -> bool {
    let mut pairs = data.iter::<f32>().zip(stored.iter::<f32>());
    pairs.all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
}

/// Whether a number became infinite when `data` was [stored](stored_as).
pub(super) fn overflows(data: &TensorData, stored: &TensorData) -> bool {
    data.iter::<f32>().zip(stored.iter::<f32>()).any(|(a, b)| a.is_finite() && !b.is_finite())
}
