//! Atomic file writes: complete or absent, even if the writer is killed.

use std::fs::{self, File};
use std::path::Path;

use crate::{EvaluationError, Result};

/// Extension of a file being written.
pub const PARTIAL: &str = "partial";

/// Writes a file atomically: to a temporary file in the same folder, flushed and renamed.
///
/// # Errors
/// [`EvaluationError::Io`]; the file is then unchanged.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = path.with_extension(PARTIAL);
    let written = fs::write(&partial, bytes).map_err(EvaluationError::io("write", path));
    written
        .and_then(|()| flush(&partial))
        .and_then(|()| fs::rename(&partial, path).map_err(EvaluationError::io("write", path)))
        // On a full disk, what is there of it would only stand in the way.
        .inspect_err(|_| drop(fs::remove_file(&partial)))
}

/// Flushes a file or folder to disk, so that it survives a power failure, not only a killed
/// process.
///
/// # Errors
/// [`EvaluationError::Io`].
pub fn flush(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(EvaluationError::io("flush", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        // A folder stands where the file is to be: it stays, and nothing half-written is left beside it.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = write_atomic(&taken, b"three").unwrap_err();
        assert_eq!(error.to_string(), format!("cannot write {}", taken.display()));
        assert!(taken.is_dir() && !taken.with_extension(PARTIAL).exists());
    }
}
