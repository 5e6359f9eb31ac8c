use std::io;
use std::path::{Path, PathBuf};

/// A file or folder that could not be written. The other crates make their own error of it, which has the same fields.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    /// What was tried, as a verb: `"write"`, `"flush"`.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The system's reason.
    pub source: io::Error,
}

impl FileError {
    /// An error for `path`, as a closure for `map_err`.
    pub(crate) fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { action, path: path.into(), source }
    }
}
