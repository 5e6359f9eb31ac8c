use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Refuses a pipe, a socket or a device in the place of a file: reading it may never end.
pub(super) fn regular_file(path: &Path) -> Result<()> {
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
        let message = regular_file("/dev/zero".as_ref()).unwrap_err().to_string();
        assert!(message.contains("a device; expected a file"), "{message}");
        let folder = tempfile::tempdir().unwrap();
        regular_file(folder.path()).unwrap();
        regular_file(&folder.path().join("nothing")).unwrap();
    }
}
