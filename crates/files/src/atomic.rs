use crate::FileError;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// The ending of a file that is being written.
pub const PARTIAL: &str = "partial";

/// Puts a file in the place of another, or of none: `write` makes it beside its place, and it is renamed. If that fails, nothing
/// is left of it, and the file is what it was before.
///
/// A file that has to survive a power cut, and not only a killed process, is [flushed](flush) by `write`.
///
/// # Errors
/// That of `write`, or what `failed` makes of the system's reason if the file cannot be renamed.
pub fn replace<E>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
    failed: impl FnOnce(io::Error) -> E,
) -> Result<(), E> {
    let partial = path.with_extension(PARTIAL);
    write(&partial)
        .and_then(|()| fs::rename(&partial, path).map_err(failed))
        // On a full disk, what is there of it would only stand in the way. The caller should see the first error.
        .inspect_err(|_| drop(fs::remove_file(&partial)))
}

/// [`replace`]s a file by one with these contents, and flushes it.
///
/// # Errors
/// [`FileError`]; then the file is what it was before.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let write = |partial: &Path| {
        fs::write(partial, bytes).map_err(FileError::of("write", path))?;
        flush(partial)
    };
    replace(path, write, FileError::of("write", path))
}

/// Makes what was written to a file or a folder survive a power cut, not only a killed process.
///
/// # Errors
/// [`FileError`] if the system cannot do it.
pub fn flush(path: &Path) -> Result<(), FileError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(FileError::of("flush", path))
}

/// [`flush`]es a folder's list of files, where the system can: new names in it survive a power cut then.
///
/// # Errors
/// Those of [`flush`].
pub fn flush_folder(folder: &Path) -> Result<(), FileError> {
    // Only some systems have a folder's list of files flushed, or even opened.
    if cfg!(unix) { flush(folder) } else { Ok(()) }
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

    #[test]
    fn of_a_file_that_could_not_be_made_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.bin");
        fs::write(&path, "old").unwrap();
        let write = |partial: &Path| {
            fs::write(partial, "ne").unwrap();
            Err(io::Error::other("a full disk"))
        };
        assert!(replace(&path, write, |error| error).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
