//! BERT in the Hugging Face format: `config.json` and `model.safetensors`.
//!
//! The only place where that format's spellings live.

mod bert;
mod safetensors_file;

pub use bert::{LoadReport, load_bert, save_bert};
pub use safetensors_file::{read_tensors, write_tensors};
