//! Models in the Hugging Face format: `config.json`, weights, and the extra files of sentence-transformers.
//!
//! [`PretrainedFolder`] reads a folder of any [`Family`] and loads its tensors into a model, [`save_pretrained`] writes
//! one that transformers loads, and [`convert`] converts a folder from one format to another. This module is the only
//! place with that format's spellings: those of each family are in its own file, and those of custom models in their
//! [`TensorRules`].

mod adapters;
mod any_model;
mod apply_rules;
mod architecture;
mod classes;
mod config;
mod convert;
mod dense;
mod families;
mod fields;
mod finite;
mod float_type;
mod folder;
mod generation;
mod gguf;
mod integer_only;
mod json_file;
mod keys;
mod labels;
mod layout;
mod mapped_file;
mod names;
mod pretrained_folder;
mod problem_type;
mod published;
mod quantization;
mod reduce;
mod reports;
mod rules;
mod safetensors_file;
mod save;
mod sentence;
mod text_file;
mod torch;
mod transfer;
mod unknown_keys;

pub use adapters::{load_adapters, read_adapter_config, save_adapters};
pub use architecture::Architecture;
pub use config::PretrainedConfig;
pub use convert::{ConvertConfig, ConvertReport, convert, convert_config};
pub use dense::Dense;
pub use families::Family;
pub use float_type::FloatType;
pub use folder::{MAX_SHARD_SIZE, save_tensors, tensors_of};
pub use generation::{DecodeOptions, read_decode_settings};
pub use integer_only::check_integer_only;
pub use pretrained_folder::PretrainedFolder;
pub use problem_type::ProblemType;
pub use published::{
    Format, Published, check_published, load_published, load_published_as, model_type, read_published,
    save_published,
};
pub(crate) use quantization::Integers;
pub use quantization::{
    QuantizedParameters, QuantizedReport, QuantizedTensor, check_floats, save_quantized_as,
};
pub use reduce::ReducedFolder;
pub use reports::{LoadReport, SaveReport};
pub use rules::{TensorRule, TensorRules};
pub use safetensors_file::{
    MappedTensors, map_tensors, read_tensors, with_owned_weights, write_from_device, write_tensors,
};
pub use save::{SaveConfig, save_pretrained};
pub use sentence::SentenceConfig;
pub use unknown_keys::unknown_settings;
