use crate::{ModelError, Result};
use std::fs;
use std::path::Path;

/// Puts a text in the place of a file, which is found whole or not at all.
pub(super) fn write_text(path: &Path, text: &str) -> Result<()> {
    let write = |partial: &Path| fs::write(partial, text).map_err(ModelError::io("write", path));
    cloze_files::replace(path, write, ModelError::io("write", path))
}
