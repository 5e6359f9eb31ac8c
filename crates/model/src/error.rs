use std::path::PathBuf;

/// What can go wrong with what a user supplies: configurations and weight files.
///
/// Tensor shapes that a programmer gets wrong panic instead; each function says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A configuration whose values do not fit together.
    #[error("model configuration: {0}")]
    Config(String),

    /// A pattern of paths in the model that does not parse, or that nothing matches.
    #[error("pattern `{pattern}`: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A file that could not be read or written.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },

    /// A JSON file that does not parse or lacks what is needed.
    #[error("{}: not a usable model configuration", path.display())]
    Json {
        /// The file.
        path: PathBuf,
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

/// The crate's result.
pub type Result<T> = std::result::Result<T, ModelError>;
