use super::{MappedTensors, map_tensors};
use crate::Result;
use std::path::Path;

/// All tensors of a model's folder, see [`map_tensors`].
pub fn tensors_of(folder: &Path) -> Result<MappedTensors> {
    map_tensors(&folder.join("model.safetensors"))
}
