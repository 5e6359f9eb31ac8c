use cloze_files::FileError;
use std::path::{Path, PathBuf};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, SearchError>;

/// Errors in an index, its rows and its queries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// A file or folder could not be read, written or created.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },

    /// A folder without an index.
    #[error("{} is no index: it has no file `manifest`; make one with `cloze search index`", folder.display())]
    NoIndex {
        /// The folder.
        folder: PathBuf,
    },

    /// A folder that has an index, or other files.
    #[error("{} {found}: a new index needs a folder of its own", folder.display())]
    Taken {
        /// The folder.
        folder: PathBuf,
        /// What is in it.
        found: &'static str,
    },

    /// Another process is writing the index.
    #[error("another process is writing the index {}: try again when it is done", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },

    /// A damaged file.
    #[error("{}: {problem}; the index is damaged: restore it from a copy, or make it anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },

    /// An invalid setting.
    #[error("{setting} is {found}; expected {expected}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What it is.
        found: String,
        /// What was expected.
        expected: String,
    },

    /// The model differs from the one that made the index's vectors.
    #[error("the index was made with another model: its {part} is {expected}, that of this model is {found}")]
    OtherModel {
        /// What differs.
        part: &'static str,
        /// What it is in the index.
        expected: String,
        /// What it is in the model.
        found: String,
    },

    /// A vector that cannot be used.
    #[error("{what} {place}: {problem}")]
    Vector {
        /// `query` or `row`.
        what: &'static str,
        /// Its place among those given, from 0.
        place: usize,
        /// What is wrong, and what was expected.
        problem: String,
    },

    /// An id that already exists, or is repeated among the new ones.
    #[error("row {place}: the id {id:?} {found}; ids are unique")]
    DuplicateId {
        /// The row's place among those given, from 0.
        place: usize,
        /// The id.
        id: String,
        /// Where else it is.
        found: &'static str,
    },

    /// A field with lists and objects nested too deeply to be read back.
    #[error(
        "row {place}: the field {field:?} has lists or objects more than {most} deep within one another; expected {most} at most"
    )]
    Nested {
        /// The row's place among those given, from 0.
        place: usize,
        /// The field.
        field: String,
        /// The maximum depth.
        most: usize,
    },

    /// An unknown id.
    #[error("the index has no row with the id {id:?}")]
    UnknownId {
        /// The id.
        id: String,
    },

    /// A condition on a field that no row has.
    #[error("no row of the index has a field {field:?}: {known}")]
    UnknownField {
        /// The field.
        field: String,
        /// Which ones there are.
        known: String,
    },

    /// More rows than an index can have.
    #[error("a part of an index has at most {most} rows")]
    TooMany {
        /// The most.
        most: usize,
    },
}

impl From<FileError> for SearchError {
    fn from(FileError { action, path, source }: FileError) -> Self {
        Self::Io { action, path, source }
    }
}

impl SearchError {
    /// Makes an [`Io`](Self::Io) error from a system error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn damaged(path: &Path, problem: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), problem: problem.into() }
    }

    /// Whether the caller made an invalid request, as opposed to a failure.
    pub fn is_wrong_usage(&self) -> bool {
        matches!(
            self,
            Self::Setting { .. } | Self::Taken { .. } | Self::NoIndex { .. } | Self::UnknownField { .. }
        )
    }
}
