use cloze_files::FileError;
use cloze_model::ModelError;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, OnnxError>;

/// Errors of an export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// A model, or a setting of one, that has no ONNX form here.
    #[error("{what} cannot be exported to ONNX; {expected}")]
    Unsupported {
        /// What the model has.
        what: String,
        /// What can be exported.
        expected: String,
    },

    /// The folder of the model.
    #[error(transparent)]
    Model(#[from] ModelError),

    /// A file that cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl OnnxError {
    /// [`Unsupported`](Self::Unsupported).
    pub(crate) fn unsupported(what: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), expected: expected.into() }
    }
}
