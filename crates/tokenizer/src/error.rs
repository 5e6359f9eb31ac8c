//! Errors, with the location in the file or the setting that caused them.

use std::path::PathBuf;

/// The errors of this crate.
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
    /// Text that is not JSON, or has an unexpected structure.
    #[error("not a valid {what}, line {line}, column {column}: {message}")]
    Json {
        /// What was being read.
        what: &'static str,
        /// 1-based line.
        line: usize,
        /// 1-based column.
        column: usize,
        /// The parser's message.
        message: String,
    },
    /// A component of a `tokenizer.json` that this crate does not support.
    #[error("{at}: \"{found}\" is not supported; supported here: {}", supported.join(", "))]
    Unsupported {
        /// JSON path, such as `pre_tokenizer.pretokenizers[1]`.
        at: String,
        /// The component's `type`.
        found: String,
        /// The supported types.
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
    /// A regular expression of the tokenizer gave up on a text, after too many attempts or too deep a
    /// recursion.
    #[error(
        "the tokenizer's pattern {pattern:?} gave up on a text of {bytes} bytes ({problem}): cut the text into \
         shorter ones, or write the pattern without nested repetitions"
    )]
    PatternGaveUp {
        /// The expression, or the beginning of a long one.
        pattern: String,
        /// The length of the searched text.
        bytes: usize,
        /// The engine's message.
        problem: String,
    },
    /// One of several texts encoded together failed.
    #[error("text {} of {texts}", index + 1)]
    Batch {
        /// The text's index among them.
        index: usize,
        /// The number of texts.
        texts: usize,
        /// What is wrong with it.
        #[source]
        source: Box<Error>,
    },
    /// A text yields no tokens for the model.
    #[error("the tokenizer makes no tokens of the text and adds no special ones")]
    NoTokens,
    /// A beginning of a text that does not determine how the text is encoded; see
    /// [`Sequence::Beginning`](crate::Sequence::Beginning).
    #[error(
        "the first {bytes} bytes do not decide how the text is encoded: {}",
        if *truncates {
            "they have too few pieces, or the tokenizer looks further ahead"
        } else {
            "the tokenizer does not cut texts at their ends"
        }
    )]
    Undecided {
        /// The length of the beginning.
        bytes: usize,
        /// Whether the tokenizer truncates texts at their ends, so that a beginning can determine the encoding.
        truncates: bool,
    },
    /// The corpus given to a trainer failed with an error.
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

    pub(crate) fn gave_up(pattern: &str, text: &str, problem: impl std::fmt::Display) -> Self {
        /// Longer patterns are cut.
        const SHOWN: usize = 200;
        let mut shown = pattern[..pattern.floor_char_boundary(SHOWN)].to_owned();
        if shown.len() < pattern.len() {
            shown.push('…');
        }
        Self::PatternGaveUp { pattern: shown, bytes: text.len(), problem: problem.to_string() }
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
