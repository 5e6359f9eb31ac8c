use std::io;
use std::path::PathBuf;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, GgufError>;

/// Errors in GGUF files, and in models that cannot be written as one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// A file or folder could not be read, written or created.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },

    /// A file that is damaged, or not a GGUF file of a version that this crate reads.
    #[error("{}, byte {offset}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset in the file, in bytes.
        offset: usize,
        /// What was found at the offset, and what was expected.
        reason: String,
    },

    /// A metadata value that is missing, or that this crate does not support.
    #[error("{}: `{}` is {found}; expected {expected}", path.display(), key.escape_debug())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The value found.
        found: String,
        /// What was expected.
        expected: String,
    },

    /// A tensor with a type that this crate does not read, or a place in no model.
    #[error("{}: tensor `{}` {reason}", path.display(), name.escape_debug())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A part of the tokenizer that this crate does not support.
    #[error("{}: tokenizer: {reason}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A model that GGUF has no name for, or whose settings llama.cpp does not compute with.
    #[error("the model cannot be written as GGUF: {0}")]
    Export(String),
}

impl GgufError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
