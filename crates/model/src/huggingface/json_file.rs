use crate::{ModelError, Result};
use serde::de::DeserializeOwned;
use std::path::Path;

/// Reads a JSON file that should be `what`; errors name both.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path, what: &'static str) -> Result<T> {
    let text = cloze_files::read_text(path).map_err(ModelError::io("read", path))?;
    serde_json::from_str(&text).map_err(|source| ModelError::Json { path: path.into(), what, source })
}
