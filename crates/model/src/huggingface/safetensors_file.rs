use crate::weights::NamedTensors;
use crate::{ModelError, Result};
use burn::tensor::{DType, TensorData};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Reads every float tensor of a safetensors file as FP32; half precisions are widened, integer
/// tensors (such as old checkpoints' `position_ids`) are left out.
pub fn read_tensors(path: &Path) -> Result<NamedTensors> {
    let bytes = fs::read(path).map_err(|source| ModelError::Io { path: path.into(), source })?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|source| ModelError::Safetensors { path: path.into(), source })?;
    let mut tensors = NamedTensors::new();
    for (name, view) in file.iter() {
        let values = match view.dtype() {
            Dtype::F32 => widen(view.data(), f32::from_le_bytes),
            Dtype::F16 => widen(view.data(), |b| burn::tensor::f16::from_le_bytes(b).to_f32()),
            Dtype::BF16 => widen(view.data(), |b| burn::tensor::bf16::from_le_bytes(b).to_f32()),
            Dtype::I64 | Dtype::I32 | Dtype::U8 | Dtype::BOOL => continue,
            other => {
                return Err(ModelError::Dtype {
                    path: path.into(),
                    name: name.to_string(),
                    found: format!("{other:?}"),
                });
            }
        };
        tensors.insert(name.to_string(), TensorData::new(values, view.shape().to_vec()));
    }
    Ok(tensors)
}

/// Writes FP32 tensors, sorted by name so that equal tensors give equal bytes, with `metadata`.
///
/// The file is written in place: write into a temporary folder and rename where a reader may look.
pub fn write_tensors(path: &Path, tensors: &NamedTensors, metadata: &[(&str, &str)]) -> Result<()> {
    let views: Vec<(&str, TensorView<'_>)> = tensors
        .iter()
        .map(|(name, data)| {
            assert_eq!(data.dtype(), DType::F32, "`{name}`: only FP32 parameters are written");
            let view = TensorView::new(Dtype::F32, data.shape().to_vec(), data.as_bytes());
            (name.as_str(), view.expect("a tensor's bytes fill its shape"))
        })
        .collect();
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    safetensors::serialize_to_file(views, Some(metadata), path)
        .map_err(|source| ModelError::Safetensors { path: path.into(), source })
}

fn widen<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (values, _) = bytes.as_chunks::<N>();
    values.iter().map(|value| convert(*value)).collect()
}
