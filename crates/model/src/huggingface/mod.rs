//! BERT in the Hugging Face format: `config.json` and `model.safetensors`, and what sentence-transformers
//! puts beside them.
//!
//! The only place where that format's spellings live.

mod bert;
mod folder;
mod safetensors_file;
mod sentence;
mod torch;

pub use bert::{LoadReport, load_bert, load_bert_encoder, save_bert};
pub use folder::{MAX_SHARD_SIZE, save_tensors, tensors_of};
pub use safetensors_file::{MappedTensors, map_tensors, read_tensors, write_tensors};
pub use sentence::SentenceConfig;
