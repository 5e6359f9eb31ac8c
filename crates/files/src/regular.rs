use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Opens a file.
///
/// # Errors
/// The system's reason; [`ErrorKind::InvalidInput`] for a pipe, a socket or a device.
pub fn open(path: &Path) -> Result<File> {
    regular_file(path).and_then(|()| File::open(path))
}

/// Reads a file.
///
/// # Errors
/// Those of [`open`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    regular_file(path).and_then(|()| fs::read(path))
}

/// Reads a file in UTF-8.
///
/// # Errors
/// Those of [`open`]; [`ErrorKind::InvalidData`] for another encoding.
pub fn read_text(path: &Path) -> Result<String> {
    regular_file(path).and_then(|()| fs::read_to_string(path))
}

/// Refuses a pipe, a socket or a device in the place of a file: reading it may never end.
fn regular_file(path: &Path) -> Result<()> {
    match path.metadata() {
        Ok(found) if !found.is_file() && !found.is_dir() => {
            Err(Error::new(ErrorKind::InvalidInput, "it is a pipe, a socket or a device; expected a file"))
        }
        // Whoever opens it tells the rest.
        _ => Ok(()),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_no_file() {
        let device = Path::new("/dev/zero");
        for error in [open(device).err(), read(device).err(), read_text(device).err()] {
            let message = error.unwrap().to_string();
            assert!(message.contains("a device; expected a file"), "{message}");
        }
        let folder = tempfile::tempdir().unwrap();
        regular_file(folder.path()).unwrap();
        regular_file(&folder.path().join("nothing")).unwrap();
        assert_eq!(read(&folder.path().join("nothing")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
