//! What can go wrong, with the place in the file or the setting that caused it.

use std::path::PathBuf;

/// Everything that can go wrong in this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A folder that holds no tokenizer file.
    #[error(
        "no tokenizer in {}: expected tokenizer.json, vocab.txt, vocab.json and merges.txt, or a \
         SentencePiece .model",
        path.display()
    )]
    NotFound {
        /// The folder.
        path: PathBuf,
    },
    /// An error inside a named file.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        #[source]
        source: Box<Error>,
    },
    /// Text that is not JSON, or not of the expected shape.
    #[error("not a valid {what}, line {line}, column {column}: {message}")]
    Json {
        /// What was being read.
        what: &'static str,
        /// 1-based line.
        line: usize,
        /// 1-based column.
        column: usize,
        /// The parser's complaint.
        message: String,
    },
    /// A component of a `tokenizer.json` that this crate does not have.
    #[error("{at}: \"{found}\" is not supported; supported here: {}", supported.join(", "))]
    Unsupported {
        /// JSON path, such as `pre_tokenizer.pretokenizers[1]`.
        at: String,
        /// The component's `type`.
        found: String,
        /// The types that may stand there.
        supported: Vec<&'static str>,
    },
    /// A component or setting with an unusable value.
    #[error("{at}: {message}")]
    Invalid {
        /// JSON path or name of the setting.
        at: String,
        /// What is wrong and what was expected.
        message: String,
    },
    /// A line of a vocabulary or merges file.
    #[error("line {line}: {message}")]
    Line {
        /// 1-based line.
        line: usize,
        /// What is wrong and what was expected.
        message: String,
    },
    /// The corpus given to a trainer failed; the source says where.
    #[error("reading the training text, item {item}")]
    Corpus {
        /// 0-based number of the item that failed.
        item: u64,
        /// The iterator's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn invalid(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { at: at.into(), message: message.into() }
    }

    pub(crate) fn json(what: &'static str, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        // serde_json appends the position that is reported here in its own fields.
        let message = match text.rfind(" at line ") {
            Some(end) => text[..end].to_owned(),
            None => text,
        };
        Self::Json { what, line: error.line(), column: error.column(), message }
    }

    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        Self::File { path: path.to_owned(), source: Box::new(self) }
    }
}
