//! Files that are written completely or not at all.

use crate::{ModelError, Result};
use std::fs;
use std::path::Path;

/// Writes a file under a temporary name and renames it. If writing fails, nothing is left.
pub(super) fn write_atomic(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let partial = path.with_extension("partial");
    let written =
        write(&partial).and_then(|()| fs::rename(&partial, path).map_err(ModelError::io("write", path)));
    if written.is_err() {
        // The caller should see the first error.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// [`write_atomic`] for a text.
pub(super) fn write_text(path: &Path, text: &str) -> Result<()> {
    write_atomic(path, |partial| fs::write(partial, text).map_err(ModelError::io("write", path)))
}
