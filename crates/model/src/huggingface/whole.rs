//! Files that are found whole or not at all.

use crate::{ModelError, Result};
use std::fs;
use std::path::Path;

/// Writes a file beside its place and renames it. Nothing stays of one that could not be written.
pub(super) fn write_whole(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let partial = path.with_extension("partial");
    let written =
        write(&partial).and_then(|()| fs::rename(&partial, path).map_err(ModelError::io("write", path)));
    if written.is_err() {
        // What went wrong before is what the caller should know of.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// [`write_whole`] of a text.
pub(super) fn write_text(path: &Path, text: &str) -> Result<()> {
    write_whole(path, |partial| fs::write(partial, text).map_err(ModelError::io("write", path)))
}
