//! Tensors of a GGUF file, by the names of a folder.

use super::safetensors_file::{MappedTensors, mapped_f32};
use crate::weights::NamedTensors;
use crate::{ModelError, Result};
use burn::tensor::TensorData;
use cloze_gguf::{Layout, ModelFile, TensorType};
use std::path::Path;

/// Maps a GGUF file into memory. FP32 tensors that are laid out as in a folder are not copied; the others are widened, or
/// computed from their blocks. Requirements are those of [`map_tensors`](super::map_tensors).
///
/// # Errors
/// [`ModelError::Gguf`] for a file that is damaged, of a model that is not supported, or with a
/// tensor of another type than F32, F16, BF16, Q8_0 and Q4_0.
pub(super) fn map_gguf(path: &Path) -> Result<MappedTensors> {
    let model = ModelFile::open(path).map_err(ModelError::Gguf)?;
    let mut floats = NamedTensors::new();
    for (tensor, place) in model.tensors().map_err(ModelError::Gguf)? {
        let (kind, bytes) = model.file().bytes(tensor).map_err(ModelError::Gguf)?;
        let shape = place.layout.shape(&place.gguf_shape);
        let in_place = match (kind, place.layout) {
            (TensorType::F32, Layout::Same) => mapped_f32(model.file().map(), bytes, &shape),
            _ => None,
        };
        let data = in_place.unwrap_or_else(|| {
            let values = kind.decode(bytes);
            let values = match place.layout {
                Layout::Same => values,
                layout => layout.to_folder(&values, &place.gguf_shape).into_owned(),
            };
            TensorData::new(values, shape)
        });
        floats.insert(place.name, data);
    }
    Ok(MappedTensors::new(floats, Vec::new()))
}
