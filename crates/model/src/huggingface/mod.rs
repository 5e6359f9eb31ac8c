//! Models in the Hugging Face format: `config.json`, weights, and the extra files of sentence-transformers.
//!
//! [`PretrainedFolder`] reads a folder of any [`Family`] and loads its tensors into a model, [`save_pretrained`] writes
//! one that transformers loads, and [`convert`] converts a folder from one format to another. This module is the only
//! place with that format's spellings: those of each family are in its own file, and those of custom models in their
//! [`TensorRules`].

mod adapters;
mod architecture;
mod atomic;
mod config;
mod convert;
mod dense;
mod families;
mod fields;
mod finite;
mod folder;
mod generation;
mod keys;
mod labels;
mod layout;
mod pretrained_folder;
mod published;
mod regular_file;
mod rules;
mod safetensors_file;
mod save;
mod sentence;
mod torch;
mod transfer;

pub use adapters::{load_adapters, read_adapter_config, save_adapters};
pub use architecture::Architecture;
pub use config::{FloatType, PretrainedConfig, ProblemType};
pub use convert::{ConvertConfig, ConvertReport, convert};
pub use dense::Dense;
pub use families::Family;
pub use folder::{MAX_SHARD_SIZE, save_tensors, tensors_of};
pub use generation::{DecodeOptions, read_decode_settings};
pub use keys::unknown_settings;
pub use pretrained_folder::{LoadReport, PretrainedFolder};
pub use published::{
    Format, Published, check_published, load_published, load_published_as, model_type, read_published,
    save_published,
};
pub use rules::{TensorRule, TensorRules};
pub use safetensors_file::{MappedTensors, map_tensors, read_tensors, write_from_device, write_tensors};
pub use save::{SaveConfig, SaveReport, save_pretrained};
pub use sentence::SentenceConfig;
