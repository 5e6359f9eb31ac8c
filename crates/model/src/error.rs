use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with what a user supplies: configurations and weight files.
///
/// Tensor shapes that a programmer gets wrong panic instead; each function says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A configuration whose values do not fit together.
    #[error("model configuration: {0}")]
    Config(String),

    /// A value of a model's configuration that does not do.
    #[error("model configuration: `{key}` is {found}, expected {expected}")]
    Setting {
        /// The field of [`BertConfig`](crate::bert::BertConfig).
        key: &'static str,
        /// The value found.
        found: String,
        /// What was expected.
        expected: String,
    },

    /// A model with an attention or positions that no class of transformers has: a folder in their format would load as
    /// another model.
    #[error(
        "the {kind} `{part}` has no counterpart in transformers, whose readers would take the folder for a \
         model with {expected}; save the parameters with `weights::collect` and `huggingface::write_tensors`"
    )]
    ForeignPart {
        /// What the part is.
        kind: &'static str,
        /// What models of transformers have there.
        expected: &'static str,
        /// The part's type.
        part: String,
    },

    /// An input of more tokens than the model takes.
    #[error("{tokens} tokens are more than the model takes, {max}")]
    InputTooLong {
        /// The input's tokens.
        tokens: usize,
        /// The most there may be.
        max: usize,
    },

    /// Logits of which no token can be chosen.
    #[error("the model's output is not finite")]
    OutputNotFinite,

    /// A pattern of paths in the model that does not parse, or that nothing matches.
    #[error("pattern `{pattern}`: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A file or folder that could not be read, written or made.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `"read"`, `"write"`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },

    /// A JSON file that does not parse or lacks what is needed.
    #[error("{}: cannot be read as {what}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What was expected in it.
        what: &'static str,
        /// What the parser said, with line and column.
        #[source]
        source: serde_json::Error,
    },

    /// A weight file that is damaged or not in the safetensors format.
    #[error("{}: not a readable safetensors file", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        #[source]
        source: safetensors::SafeTensorError,
    },

    /// A file in PyTorch's own format that is damaged, or holds anything but tensors by name.
    #[error("{}, byte {offset}: {reason}", path.display())]
    Torch {
        /// The file.
        path: PathBuf,
        /// Where in the file, in bytes.
        offset: usize,
        /// What was found there.
        reason: String,
    },

    /// A folder whose weights are not there, or whose index of shards does not fit them.
    #[error("{}: {reason}", path.display())]
    Weights {
        /// The folder, or its index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// Tensors that the model needs and the file does not have.
    #[error("{}: {} tensors are missing, the first is `{}`, for the parameter `{parameter}`", path.display(), names.len(), names[0])]
    MissingTensors {
        /// The folder.
        path: PathBuf,
        /// All the missing names, as files have them, sorted; never empty.
        names: Vec<String>,
        /// The path in this crate's model of the first.
        parameter: String,
    },

    /// Tensors in the file that the model has no place for.
    #[error("{}: {} tensors have no place in the model, the first is `{}`", path.display(), names.len(), names[0])]
    UnexpectedTensors {
        /// The file.
        path: PathBuf,
        /// All the unexpected names, sorted; never empty.
        names: Vec<String>,
    },

    /// A tensor of another shape than the configuration asks for.
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

    /// A tensor of an element type that cannot be a weight.
    #[error("{}: tensor `{name}` holds {found}, expected F32, F16 or BF16", path.display())]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The tensor's name in the file.
        name: String,
        /// The element type found.
        found: String,
    },

    /// A weight that is NaN or infinite: a damaged file, or training that diverged.
    #[error(
        "{}: tensor `{name}` is {value} at {index:?}, expected finite numbers: the file is damaged, or the model's \
         training diverged",
        path.display()
    )]
    NonFinite {
        /// The file that has it, or the folder that it was to be saved in.
        path: PathBuf,
        /// The tensor's name in the file.
        name: String,
        /// The place of the first such number in the tensor, one index an axis.
        index: Vec<usize>,
        /// The number.
        value: f32,
    },

    /// A tensor whose values do not fit the float type that they are to be stored as.
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
    /// An [`ModelError::Setting`].
    pub(crate) fn setting(key: &'static str, found: impl ToString, expected: impl Into<String>) -> Self {
        Self::Setting { key, found: found.to_string(), expected: expected.into() }
    }

    /// An [`ModelError::Io`] for `path`, as a closure for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, ModelError>;
