use std::path::PathBuf;

use cloze_gguf::GgufError;
#[cfg(feature = "hub")]
use cloze_hub::HubError;
use cloze_trainer::TrainerError;

use crate::device::DeviceName;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Errors in loading and using a model on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device whose backend this build lacks.
    #[error(
        "device `{device}` is not in this build: add the feature `{feature}` to the dependency `cloze` in Cargo.toml"
    )]
    NotBuiltIn {
        /// The device.
        device: DeviceName,
        /// The Cargo feature that builds the backend in.
        feature: &'static str,
    },

    /// A device that the machine lacks.
    #[error("this machine has no device `{device}`, which needs {needs}; `cloze devices` lists those it has")]
    NoSuchDevice {
        /// The device.
        device: DeviceName,
        /// What it needs.
        needs: &'static str,
    },

    /// A build without any backend.
    #[error(
        "this build has no device: add a backend's feature, such as `flex`, to the dependency `cloze` in Cargo.toml"
    )]
    NoDevice,

    /// A folder that does not exist.
    #[error("there is no folder {:?}{hint}", folder.display().to_string())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
        /// A hint at what may have been meant.
        hint: &'static str,
    },

    /// A GGUF file that does not exist.
    #[error("there is no file {:?}", path.display().to_string())]
    NoFile {
        /// The file.
        path: PathBuf,
    },

    /// A GGUF file that is damaged, or of a model that is not supported.
    #[error(transparent)]
    Gguf(#[from] GgufError),

    /// The folder of a training run instead of its model's.
    #[error("{} is a run's folder: its model is in {}", folder.display(), model.display())]
    RunFolder {
        /// The run's folder.
        folder: PathBuf,
        /// The model's folder.
        model: PathBuf,
    },

    /// Text that is neither a folder nor a model's name.
    #[cfg(feature = "hub")]
    #[error("there is no folder {name:?}")]
    BadName {
        /// The text.
        name: String,
        /// Why it is not a name.
        source: HubError,
    },

    /// A name for which no model was found.
    #[cfg(feature = "hub")]
    #[error("there is no folder {name:?}, and no model of this name was found")]
    NoModel {
        /// The name.
        name: String,
        /// The reason, from the hub or its cache.
        source: Box<Error>,
    },

    /// No folder to cache models in.
    #[error("there is no home folder to store models in: set HF_HOME")]
    NoHome,

    /// A model that was trained for another task.
    #[error("the model is for {found}; expected one for {expected}")]
    WrongTask {
        /// The model's task, as in a configuration's `task.kind`.
        found: String,
        /// The tasks that were expected.
        expected: &'static str,
    },

    /// An input that the model or its tokenizer cannot read.
    #[error("input {place}")]
    Input {
        /// Its index among the inputs.
        place: usize,
        /// What is wrong with it.
        source: TrainerError,
    },

    /// A model's answer with missing parts.
    #[error("the model's answer cannot be parsed")]
    Answer(#[source] serde_json::Error),

    /// An error of the hub or its cache.
    #[cfg(feature = "hub")]
    #[error(transparent)]
    Hub(#[from] HubError),

    /// An error in a model's folder or its computation.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
}

impl Error {
    /// Whether the request was invalid, as opposed to failing; the program then exits with status 2.
    pub fn is_wrong_usage(&self) -> bool {
        match self {
            Self::NotBuiltIn { .. } | Self::NoSuchDevice { .. } | Self::NoDevice | Self::RunFolder { .. } => {
                true
            }
            #[cfg(feature = "hub")]
            Self::BadName { .. } => true,
            Self::Trainer(error) => error.is_of_config(),
            _ => false,
        }
    }
}
