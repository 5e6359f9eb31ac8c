use std::io;
use std::path::{Path, PathBuf};

/// Errors in user input: configurations and weight files.
///
/// Wrong tensor shapes are a programmer's mistake and panic; each function documents when.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A configuration with inconsistent values.
    #[error("model configuration: {0}")]
    Config(String),

    /// An invalid value in a model's configuration.
    #[error("model configuration: `{key}` is {found}, expected {expected}")]
    Setting {
        /// The field of [`BertConfig`](crate::bert::BertConfig).
        key: &'static str,
        /// The value found.
        found: String,
        /// What was expected.
        expected: String,
    },

    /// An attention or positions without a counterpart in transformers. Saved in its format, the folder would
    /// load as a different model.
    #[error(
        "the {kind} `{part}` has no counterpart in transformers, whose readers would take the folder for a \
         model with {expected}; save the parameters with `weights::collect` and `huggingface::write_tensors`"
    )]
    ForeignPart {
        /// The kind of part.
        kind: &'static str,
        /// What transformers' models have instead.
        expected: &'static str,
        /// The part's type.
        part: String,
    },

    /// The input is longer than the model allows.
    #[error("{tokens} tokens are too many: the model takes at most {max}")]
    InputTooLong {
        /// Tokens in the input.
        tokens: usize,
        /// The greatest number allowed.
        max: usize,
    },

    /// Non-finite logits, so that no token can be chosen.
    #[error("the model's output is not finite")]
    OutputNotFinite,

    /// Decoding settings that allow no token.
    #[error("every token is forbidden by {settings}, expected settings that allow at least one")]
    EveryTokenForbidden {
        /// The settings that forbid tokens.
        settings: String,
    },

    /// A pattern of parameter paths that is malformed or matches nothing.
    #[error("pattern `{pattern}`: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A file or folder that could not be read, written or created.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action, as a verb: `"read"`, `"write"`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },

    /// A JSON file that is malformed or lacks a required value.
    #[error("{}: cannot be read as {what}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What was expected in it.
        what: &'static str,
        /// The parser's message, with line and column.
        #[source]
        source: serde_json::Error,
    },

    /// A weight file that is damaged or not in the safetensors format.
    #[error("{}: not a readable safetensors file", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// The reader's message.
        #[source]
        source: safetensors::SafeTensorError,
    },

    /// A file in PyTorch's own format that is damaged or holds anything but named tensors.
    #[error("{}, byte {offset}: {reason}", path.display())]
    Torch {
        /// The file.
        path: PathBuf,
        /// The offset in the file, in bytes.
        offset: usize,
        /// What was found at the offset.
        reason: String,
    },

    /// A GGUF file that is damaged, or of a model that is not supported.
    #[error(transparent)]
    Gguf(cloze_gguf::GgufError),

    /// A folder without weights, or whose index of shards does not match them.
    #[error("{}: {reason}", path.display())]
    Weights {
        /// The folder, or its index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// Tensors that the model needs and the file lacks.
    #[error("{}: {} tensors are missing, the first is `{}`, for the parameter `{parameter}`{}", path.display(), names.len(), names[0], in_their_place(others))]
    MissingTensors {
        /// The folder.
        path: PathBuf,
        /// All missing names as they are in files, sorted; never empty.
        names: Vec<String>,
        /// The path of the parameter that the first missing tensor belongs to.
        parameter: String,
        /// Names of tensors that the file has and the model does not need, sorted.
        others: Vec<String>,
    },

    /// Tensors in the file that match no parameter of the model.
    #[error("{}: {} tensors have no place in the model, the first is `{}`", path.display(), names.len(), names[0])]
    UnexpectedTensors {
        /// The file.
        path: PathBuf,
        /// All the unexpected names, sorted; never empty.
        names: Vec<String>,
    },

    /// A tensor whose shape differs from the configuration's.
    #[error("{}: tensor `{name}` has shape {found:?}, the configuration asks for {expected:?}", path.display())]
    Shape {
        /// The folder.
        path: PathBuf,
        /// The tensor's name in the file.
        name: String,
        /// The shape the model has.
        expected: Vec<usize>,
        /// The shape the file has.
        found: Vec<usize>,
    },

    /// A tensor whose element type cannot be that of a weight.
    #[error("{}: tensor `{name}` holds {found}, expected F32, F16 or BF16", path.display())]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The tensor's name in the file.
        name: String,
        /// The element type found.
        found: String,
    },

    /// A weight that is NaN or infinite, from a damaged file or from training that diverged.
    #[error(
        "{}: tensor `{name}` is {value} at {index:?}, expected finite numbers: the file is damaged, or the model's \
         training diverged",
        path.display()
    )]
    NonFinite {
        /// The file that holds the tensor, or the folder that it was to be saved in.
        path: PathBuf,
        /// The tensor's name in the file.
        name: String,
        /// The index of the first such number, one component per axis.
        index: Vec<usize>,
        /// The number.
        value: f32,
    },

    /// A folder with weights of integers, where floats are needed.
    #[error(
        "{}: the weights are integers, which can be neither trained nor changed; `cloze convert` writes them as floats",
        path.display()
    )]
    Integers {
        /// The folder.
        path: PathBuf,
    },

    /// A tensor with values that the float type they are to be stored as cannot represent.
    #[error("{}: tensor `{name}` has values that {dtype} cannot hold", path.display())]
    Narrowed {
        /// The folder.
        path: PathBuf,
        /// The tensor's name in the file.
        name: String,
        /// The float type.
        dtype: &'static str,
    },
}

impl ModelError {
    /// A [`ModelError::Setting`].
    pub(crate) fn setting(key: &'static str, found: impl ToString, expected: impl Into<String>) -> Self {
        Self::Setting { key, found: found.to_string(), expected: expected.into() }
    }

    /// A [`ModelError::Io`] for `path`, as a closure for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, ModelError>;

/// A few of the names that a file has instead of the missing ones.
fn in_their_place(others: &[String]) -> String {
    const SHOWN: usize = 3;
    if others.is_empty() {
        return String::new();
    }
    let names: Vec<String> =
        others.iter().take(SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    let more =
        if others.len() > SHOWN { format!(" and {} more", others.len() - SHOWN) } else { String::new() };
    format!("; the model does not know {}{more}, which the file has", names.join(", "))
}
