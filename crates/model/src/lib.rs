//! Transformers on burn: blocks, complete models, heads, and their file formats.
//!
//! Everything takes a [`Device`](burn::tensor::Device) and runs on whatever backend the program was built
//! with; this crate enables none. A model is assembled from [`blocks`], which use [`ops`] for heavy
//! arithmetic; [`bert`] is such an assembly, [`tasks`] puts heads on it, [`xlnet`] has its own attention,
//! [`awd_lstm`] and [`elmo`] are recurrent, [`captions`] describe images, and [`huggingface`] reads and writes them in Hugging Face's
//! format.
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use cloze_model::{ParamInit, bert::{BertConfig, BertInput}};
//!
//! let device = Device::flex();
//! let config = BertConfig::tiny(1_000);
//! let model = config.init(&mut ParamInit::new(&device, 42));
//! let input_ids = Tensor::<2, Int>::from_data([[2, 17, 4, 3]], &device);
//! let output = model.bert.forward(BertInput::new(input_ids));
//! assert_eq!(output.last_hidden_state.dims(), [1, 4, 128]);
//! ```
//!
//! # Legend of dimensions
//! `batch` sequences of `len` tokens; `d_model` features; `n_heads` heads with `d_k` features per
//! key and `d_v` per value; `d_ff` features inside a feed-forward block; `vocab_size` pieces;
//! `n_masked` masked positions over the whole batch.

pub mod awd_lstm;
mod backbone;
pub mod bert;
pub mod blocks;
pub mod captions;
pub mod distillation;
pub mod elmo;
mod error;
mod freeze;
pub mod generate;
pub mod gpt;
pub mod huggingface;
mod init;
mod nearest;
mod patterns;
pub mod probes;
pub mod recurrent;
pub mod scores;
pub mod seq2seq;
mod sequences;
mod sizes;
pub mod tasks;
pub mod vision;
pub mod weights;
mod with_fields;
pub mod xlnet;

pub use backbone::{Backbone, BackboneShape, HasBackbone};
pub use cloze_ops as ops;
pub use error::{ModelError, Result};
pub use freeze::{first_layers, freeze};
pub use init::ParamInit;
pub use nearest::nearest;
pub use sequences::Sequences;

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
