use crate::SkipReport;
use cloze_files::FileError;
use std::path::{Path, PathBuf};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, DataError>;

/// Errors in a corpus, its preparation or its examples, and in labelled data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
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

    /// A malformed pattern of the corpus.
    #[error("corpus file pattern `{pattern}` is not valid: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A corpus path or pattern that matches no file.
    #[error("the corpus has no file `{pattern}` (looked in {}): correct `corpus.files`", folder(base))]
    NoFiles {
        /// The path or pattern.
        pattern: String,
        /// The folder that it is relative to.
        base: PathBuf,
    },

    /// A language's path or pattern that matches no file.
    #[error(
        "the corpus of \"{language}\" has no file `{pattern}` (looked in {}): correct its `files` in `corpus.languages`, or \
         leave the language out",
        folder(base)
    )]
    NoLanguageFiles {
        /// The language.
        language: String,
        /// The path or pattern.
        pattern: String,
        /// The folder that it is relative to.
        base: PathBuf,
    },

    /// One of several languages has no text to learn from.
    #[error(
        "\"{language}\" of `corpus.languages` has no text: {reason}; give it files with text, or leave the language out"
    )]
    NoLanguageText {
        /// The language.
        language: String,
        /// What is missing.
        reason: String,
    },

    /// A setting of a corpus that has no effect, or an invalid value.
    #[error("`corpus.{key}`: {problem}")]
    CorpusSetting {
        /// The key.
        key: &'static str,
        /// What is wrong, and what was expected.
        problem: &'static str,
    },

    /// An unusable part of the corpus, if the config says to fail.
    #[error(
        "{}{}: {problem}; correct it, or set `corpus.on_error = \"skip\"` to skip such parts",
        path.display(),
        line.map_or(String::new(), |line| format!(":{line}"))
    )]
    Input {
        /// The file.
        path: PathBuf,
        /// The line, or the row of a Parquet file, from 1.
        line: Option<u64>,
        /// What is wrong.
        problem: String,
    },

    /// A labelled-data path or pattern that matches no file.
    #[error("no file matches `{pattern}` (looked in {}): correct the path or pattern", folder(base))]
    NoLabelledFiles {
        /// The path or pattern.
        pattern: String,
        /// The folder that it is relative to.
        base: PathBuf,
    },

    /// A spreadsheet, where text is expected.
    #[error(
        "{}: a spreadsheet's own format cannot be read; export the sheet as CSV (in Excel: \"CSV UTF-8\") and give that \
         file",
        path.display()
    )]
    Spreadsheet {
        /// The file.
        path: PathBuf,
    },

    /// A table in columns, where a corpus is expected.
    #[error(
        "{}: a corpus is text, JSON lines or Parquet, not a table in columns; write the column of the texts to a file in JSON \
         lines, one object such as {{\"text\": \"…\"}} a line, or {setting} to read whole lines as text",
        path.display()
    )]
    TableAsText {
        /// The file.
        path: PathBuf,
        /// What to do to read it as text.
        setting: &'static str,
    },

    /// A setting of labelled data that does not suit the task or the format.
    #[error("`{key}` of the labelled data: {problem}")]
    LabelledSetting {
        /// The key.
        key: String,
        /// What is wrong, and what was expected.
        problem: String,
    },

    /// More unusable parts of the data than may be left out.
    #[error(
        "{found}, and at most {} % may be left out: correct them, or raise {setting}",
        crate::skipped::percent(*share)
    )]
    ManySkipped {
        /// What is wrong with the first one and where it is, where the next ones are, and how many there are.
        found: String,
        /// The share that may be left out, from 0 to 1.
        share: f64,
        /// The setting that allows more, such as `` `max_skipped` ``.
        setting: String,
    },

    /// A file of labelled data that is unusable as a whole.
    #[error("{}{}: {problem}", path.display(), line.map_or(String::new(), |line| format!(":{line}")))]
    LabelledFile {
        /// The file.
        path: PathBuf,
        /// Line where reading stopped, from 1.
        line: Option<u64>,
        /// What is wrong, and what was expected.
        problem: String,
    },

    /// An unusable row of labelled data, if the source says to fail.
    #[error(
        "{}{}: {problem}; correct it, or set `on_bad_row = \"skip\"` to skip such rows",
        path.display(),
        line.map_or(String::new(), |line| format!(":{line}"))
    )]
    BadRow {
        /// The file.
        path: PathBuf,
        /// The line, or the row of a Parquet file, from 1; `None` for SQuAD's JSON, where `problem` has the
        /// path.
        line: Option<u64>,
        /// What is wrong, in which column, and what was expected.
        problem: String,
    },

    /// A parallel-data path or pattern that matches no file.
    #[error("there is no file `{pattern}` of parallel data (looked in {}): correct its path", folder(base))]
    NoParallelFiles {
        /// The path or pattern.
        pattern: String,
        /// The folder that it is relative to.
        base: PathBuf,
    },

    /// Settings of parallel data that contradict each other.
    #[error("`{key}` of the parallel data: {problem}")]
    ParallelSetting {
        /// The key.
        key: String,
        /// What is wrong, and what was expected.
        problem: String,
    },

    /// A file of parallel data that is unusable as a whole.
    #[error("{}{}: {problem}", path.display(), line.map_or(String::new(), |line| format!(":{line}")))]
    ParallelFile {
        /// The file.
        path: PathBuf,
        /// Line where reading stopped, from 1.
        line: Option<u64>,
        /// What is wrong, and what was expected.
        problem: String,
    },

    /// An unusable pair of sentences, if the config says to fail.
    #[error(
        "{}{}: {problem}; correct it, or set `parallel.on_bad_pair = \"skip\"` to skip such pairs",
        path.display(),
        line.map_or(String::new(), |line| format!(":{line}"))
    )]
    BadPair {
        /// The file.
        path: PathBuf,
        /// The line, or the row of a Parquet file, from 1.
        line: Option<u64>,
        /// What is wrong, and what was expected.
        problem: String,
    },

    /// Parallel data without a usable pair.
    #[error(
        "there is no pair of sentences in {}{}",
        files.join(", "),
        if skipped.is_empty() { String::new() } else { format!("; left out: {skipped}") }
    )]
    NoPairs {
        /// Its (source) files.
        files: Vec<String>,
        /// What was skipped, if the config allows skipping.
        skipped: SkipReport,
    },

    /// An invalid set of labels: without labels, or with an empty or repeated one.
    #[error("invalid set of labels: {problem}")]
    Labels {
        /// What is wrong.
        problem: String,
    },

    /// Tags of a sentence that their scheme does not allow.
    #[error("tag {place} `{tag}` is not valid in {scheme} here: {problem}")]
    Tag {
        /// The word's number in its sentence, from 1.
        place: usize,
        /// The tag.
        tag: String,
        /// The scheme.
        scheme: &'static str,
        /// What is wrong.
        problem: &'static str,
    },

    /// A tag outside the task's set.
    #[error("sentence {sentence}, word {word}: tag `{tag}`, expected one of {labels}")]
    UnknownTag {
        /// The sentence's number among the examples, from 1.
        sentence: usize,
        /// The word's number in it, from 1.
        word: usize,
        /// The tag.
        tag: String,
        /// The task's tags.
        labels: String,
    },

    /// Length settings that leave no room in a task's sequences.
    #[error("invalid `{key}` = {value}: {problem}")]
    FeatureLength {
        /// The key.
        key: &'static str,
        /// Its value, in tokens.
        value: usize,
        /// What is wrong, and which values are possible.
        problem: String,
    },

    /// A tokenizer that is unsuitable for labelled data.
    #[error("the tokenizer cannot be used for labelled data")]
    Tokenizer(#[from] cloze_tokenizer::Error),

    /// The tokenizer failed on an example.
    #[error("example {number}")]
    Example {
        /// The example's number, from 1.
        number: usize,
        /// What is wrong.
        source: cloze_tokenizer::Error,
    },

    /// The tokenizer failed on a document.
    #[error("document {number} of the corpus, which begins with {beginning:?}")]
    Document {
        /// The document's number, from 1.
        number: u64,
        /// The beginning of its text.
        beginning: String,
        /// What is wrong.
        source: cloze_tokenizer::Error,
    },

    /// A corpus without any text.
    #[error(
        "the corpus ({}) has no text{}",
        files.join(", "),
        if skipped.is_empty() { String::new() } else { format!("; left out: {skipped}") }
    )]
    EmptyCorpus {
        /// Its files as configured.
        files: Vec<String>,
        /// What was skipped, if the config allows skipping.
        skipped: SkipReport,
    },

    /// Another process that prepares the same data cannot be reached, or has other data.
    #[error("data cannot be prepared with other processes: {problem}")]
    Crew {
        /// What is wrong.
        problem: String,
    },

    /// A prepared corpus that cannot be opened right after it was written.
    #[error("the prepared corpus {} cannot be read back: is the disk full?", path.display())]
    Prepared {
        /// Its folder.
        path: PathBuf,
    },

    /// A split without documents.
    #[error(
        "the {split} part is empty: the corpus has {documents} documents and `eval.heldout_fraction` is \
         {heldout_fraction}; documents are separated by blank lines"
    )]
    EmptySplit {
        /// Which part.
        split: &'static str,
        /// Documents in the corpus.
        documents: u64,
        /// The share held out.
        heldout_fraction: f64,
    },

    /// Next-sentence pairs from one document only.
    #[error(
        "next-sentence pairs need a second document to draw random sentences from, and there is one: separate \
         documents by blank lines, or choose another `examples.pairs`"
    )]
    OneDocument,

    /// A corpus whose documents yield no examples.
    #[error("the corpus has no examples: its documents are too short for `examples.pairs`")]
    NoExamples,

    /// Examples too short for their special tokens.
    #[error(
        "`examples.seq_len` = {seq_len} leaves no room beside the special tokens: set it to {least} or more"
    )]
    SeqLen {
        /// The length as configured, in tokens.
        seq_len: usize,
        /// The smallest valid value.
        least: usize,
    },

    /// Running text that is too short to predict any token.
    #[error(
        "the text has {tokens} token{}, but a language model needs at least {needed}",
        if *tokens == 1 { "" } else { "s" }
    )]
    ShortText {
        /// Its tokens.
        tokens: u64,
        /// The minimum.
        needed: u64,
    },

    /// A tokenizer whose ids are not `0..vocab_size`.
    #[error(
        "the tokenizer has {vocab_size} pieces but none with id {missing}: models need consecutive ids from 0"
    )]
    VocabHole {
        /// Pieces in the vocabulary.
        vocab_size: usize,
        /// The first id below that number without a piece.
        missing: u32,
    },

    /// A tokenizer that lacks a special piece that examples need.
    #[error("the tokenizer has no {name}, which examples need")]
    NoSpecial {
        /// The piece's role and usual spellings.
        name: &'static str,
    },

    /// A value of [`DenoisingConfig`](crate::DenoisingConfig) is out of range.
    #[error("`denoising.{key}` is {found}; expected {expected}")]
    DenoisingSetting {
        /// The key, below `denoising`.
        key: String,
        /// Its value.
        found: String,
        /// What is possible.
        expected: &'static str,
    },

    /// A tokenizer with fewer sentinels than span corruption needs.
    #[error(
        "the tokenizer has {found} of the pieces <extra_id_0>, <extra_id_1> and so on, but `denoising.kind` = \"t5\" needs \
         {needed} of them with `examples.seq_len` = {seq_len}: add them to the tokenizer, lower `examples.seq_len` or \
         `denoising.density`, or raise `denoising.mean_span`"
    )]
    Sentinels {
        /// Number of consecutive sentinels, from the first.
        found: usize,
        /// The most that an example needs.
        needed: usize,
        /// The longest example, in tokens.
        seq_len: usize,
    },

    /// The config names a special piece that the tokenizer lacks.
    #[error("the tokenizer has no piece `{name}`, which `examples.{key}` names")]
    NoPiece {
        /// The key: `begin` or `end`.
        key: &'static str,
        /// The piece.
        name: String,
    },

    /// An epoch of an [`Assemble`](crate::Assemble) without examples.
    #[error("epoch {epoch} of the data has no examples")]
    EmptyEpoch {
        /// The epoch, from 0.
        epoch: u64,
    },

    /// An image that cannot be used.
    #[cfg(feature = "images")]
    #[error("{image}: {problem}")]
    Image {
        /// The file, with the line or row where one holds several.
        image: String,
        /// What is wrong, and what was expected.
        problem: crate::images::ImageError,
    },

    /// A folder or file of images that is unusable as a whole.
    #[cfg(feature = "images")]
    #[error("{}: {problem}", path.display())]
    ImageFolder {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong, and what was expected.
        problem: String,
    },

    /// Images of a batch that would have different sizes.
    #[cfg(feature = "images")]
    #[error(
        "images are resized to a shortest edge, so their sizes differ; expected a size of height and width, or a centre crop"
    )]
    ImageSizes,

    /// A value of an [`AugmentConfig`](crate::images::AugmentConfig) or [`MixConfig`](crate::images::MixConfig) is out of
    /// range.
    #[cfg(feature = "images")]
    #[error("`{key}` of the augmentation is {found}; expected {expected}")]
    AugmentSetting {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What is possible.
        expected: &'static str,
    },

    /// A setting of a `preprocessor_config.json` that is not supported, or has an invalid value.
    #[cfg(feature = "images")]
    #[error("`{key}` of preprocessor_config.json: {problem}")]
    ImageSetting {
        /// The key.
        key: String,
        /// Its value, and what was expected.
        problem: String,
    },

    /// An error of code outside this crate: of a custom example sampler or assembler.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),

    /// The work is no longer needed.
    #[error("the data workers were stopped")]
    Stopped,

    /// A bug: a worker thread panicked.
    #[error("a data worker failed: {message}")]
    Worker {
        /// The panic's message.
        message: String,
    },
}

impl DataError {
    /// A tokenizer error in a chunk of examples preceded by `before` others, as a closure for `map_err`.
    pub fn example(before: usize) -> impl FnOnce(cloze_tokenizer::Error) -> Self {
        move |error| match error {
            cloze_tokenizer::Error::Batch { index, source, .. } => {
                Self::Example { number: before + index + 1, source: *source }
            }
            error => Self::Tokenizer(error),
        }
    }

    /// An error of code outside this crate.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// A [`DataError::Io`] for `path`, as a closure for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl From<FileError> for DataError {
    fn from(FileError { action, path, source }: FileError) -> Self {
        Self::Io { action, path, source }
    }
}

/// A folder's name; for an empty path, that of the current folder.
fn folder(base: &Path) -> String {
    match base.as_os_str().is_empty() {
        true => "the current folder".into(),
        false => base.display().to_string(),
    }
}
