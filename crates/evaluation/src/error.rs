//! The crate's errors: each is one line with the location, what was found, and what was expected.

use cloze_files::FileError;
use std::path::{Path, PathBuf};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, EvaluationError>;

/// Errors in user input: tags, metric names, report folders, vectors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A file or folder could not be read, written or created.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The attempted action, as a verb: `"read"`, `"write"`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },

    /// A tag that the tagging scheme does not have.
    #[error(
        "word {position}: the tag {tag:?} is not {scheme}; expected one that starts with {}",
        any_of(letters)
    )]
    BadTag {
        /// The word in its sentence, counted from 0.
        position: usize,
        /// The tag.
        tag: String,
        /// The scheme's name.
        scheme: &'static str,
        /// The letters with which its tags start.
        letters: &'static str,
    },

    /// A metric that the evaluation does not compute.
    #[error("this evaluation has no figure `{name}`; it has {}", known.join(", "))]
    NoFigure {
        /// The name asked for.
        name: String,
        /// The names of the available ones.
        known: Vec<String>,
    },

    /// A vector with a NaN or an infinity.
    #[error("vector {vector} (counted from 0) has a NaN or an infinity; expected finite numbers")]
    NotFinite {
        /// Its place, from 0.
        vector: usize,
    },

    /// A vector whose numbers are all equal.
    #[error(
        "the numbers of vector {vector} (counted from 0) are all equal, so it has no correlation; leave its text out"
    )]
    ConstantVector {
        /// Its place, from 0.
        vector: usize,
    },

    /// Too few vectors.
    #[error("there are too few texts or vectors: {found}; expected {expected} or more")]
    FewVectors {
        /// The minimum.
        expected: usize,
        /// The vectors.
        found: usize,
    },

    /// A perplexity that does not fit the number of vectors.
    #[error(
        "the perplexity is {perplexity}; expected from 1 to {}, a third of the other {} vectors",
        (most * 100.0).floor() / 100.0,
        vectors.saturating_sub(1)
    )]
    Perplexity {
        /// The perplexity.
        perplexity: f64,
        /// The vectors.
        vectors: usize,
        /// The maximum.
        most: f64,
    },

    /// A thread that could not be started.
    #[error("cannot start a thread: {reason}")]
    Thread {
        /// The system's reason.
        reason: String,
    },

    /// More clusters than vectors, or none.
    #[error(
        "cannot make {clusters} clusters of {vectors} vectors; expected from 1 to as many clusters as vectors"
    )]
    ClusterCount {
        /// The clusters asked for.
        clusters: usize,
        /// The vectors.
        vectors: usize,
    },

    /// A class without examples.
    #[error("class {class} has no examples; expected one or more of each class")]
    ClassWithoutExamples {
        /// Its number, from 0.
        class: usize,
    },

    /// Only one class.
    #[error("there is one class only; expected two or more")]
    OneClass,

    /// Translations and another file differ in their number of lines.
    #[error("{found} lines of {what} for {expected} translations; expected one for each")]
    LineCount {
        /// What the other file holds, such as `"references"`.
        what: &'static str,
        /// Its lines.
        found: usize,
        /// Lines of translations.
        expected: usize,
    },

    /// Attention or neurons with a NaN or an infinity.
    #[error(
        "layer {layer}, head {head}: the attention has a NaN or an infinity; expected finite numbers; the model's weights may be damaged"
    )]
    ShareNotFinite {
        /// The layer's number, from 0.
        layer: usize,
        /// The head, from 0.
        head: usize,
    },

    /// A page of more bytes than a browser is to be given.
    #[error("the page would have {} MB; expected {} MB or less; leave out {}", megabytes(size), megabytes(limit), left_out(*neurons, *layers))]
    PageSize {
        /// Its bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
        /// How many of them the neuron view needs.
        neurons: usize,
        /// The layers of attention that it shows.
        layers: usize,
    },

    /// References of more or fewer images than there are captions.
    #[error("references of {found} images for {expected} captions; expected those of one image for each")]
    CaptionCount {
        /// Images with references.
        found: usize,
        /// Captions.
        expected: usize,
    },

    /// A caption without a reference.
    #[error("caption {image} (counted from 0) has no reference; expected one or more")]
    NoReference {
        /// Its number, from 0.
        image: usize,
    },

    /// Attention on more or fewer places than the image has.
    #[error(
        "{image}, word {position} ({word:?}, counted from 0): attention on {found} places; expected {} × {}, or none",
        grid[0],
        grid[1]
    )]
    AttentionSize {
        /// The image's name.
        image: String,
        /// The word's place in the caption, counted from 0.
        position: usize,
        /// The word.
        word: String,
        /// Places with attention.
        found: usize,
        /// Rows and columns of places.
        grid: [usize; 2],
    },

    /// Attention on an image that is no share.
    #[error(
        "{image}, word {position} ({word:?}, counted from 0): the attention has a NaN, an infinity or a negative number; expected shares from 0 to 1; the model's weights may be damaged"
    )]
    AttentionNotShares {
        /// The image's name.
        image: String,
        /// The word's place in the caption, counted from 0.
        position: usize,
        /// The word.
        word: String,
    },

    /// Translations or captions without any line, or without a reference.
    #[error("nothing to score: there are no lines or no references")]
    NoLines,
}

impl EvaluationError {
    /// An [`EvaluationError::Io`] for `path`, as a closure for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl From<FileError> for EvaluationError {
    fn from(FileError { action, path, source }: FileError) -> Self {
        Self::Io { action, path, source }
    }
}

/// Letters to choose from: `I, O or B`.
fn any_of(letters: &str) -> String {
    let letters: Vec<String> = letters.chars().map(String::from).collect();
    match letters.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => letters.concat(),
    }
}

/// Bytes in megabytes, with one digit.
fn megabytes(bytes: &usize) -> String {
    format!("{:.1}", *bytes as f64 / 1e6)
}

/// What makes a page smaller.
fn left_out(neurons: usize, layers: usize) -> String {
    let some = format!("some of the {layers} layers of attention, or read a shorter text");
    match neurons {
        0 => some,
        neurons => format!("the neuron view ({} MB), {some}", megabytes(&neurons)),
    }
}
