#![doc = include_str!("../README.md")]

mod architecture;
mod blocks;
mod cursor;
mod error;
mod export;
mod file;
mod folder;
pub mod q4_0;
pub mod q8_0;
mod tensor_type;
mod tokenizer;
mod value;
mod write;

pub use architecture::{Architecture, Layout, Place, Sizes};
pub use blocks::Blocks;
pub use error::{GgufError, Result};
pub use export::{FolderTensor, Model, Pooling, Report, Sentence, Values, export};
pub use file::{GgufFile, TensorInfo};
pub use folder::{ModelFile, WEIGHTS, unpack};
pub use tensor_type::TensorType;
pub use value::{Array, Value};
pub use write::{Contents, NewTensor, write};
