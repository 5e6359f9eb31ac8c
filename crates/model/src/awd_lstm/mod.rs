//! AWD-LSTM, a left-to-right LSTM language model with dropout everywhere (Merity et al. 2018), and its
//! classifier (Howard & Ruder 2018, "ULMFiT").
//!
//! ```
//! use burn::tensor::Device;
//! use cloze_model::awd_lstm::AwdLstmConfig;
//! use cloze_model::{ParamInit, Sequences};
//!
//! let device = Device::flex();
//! let config = AwdLstmConfig { d_embedding: 8, d_hidden: 12, n_layers: 2, ..AwdLstmConfig::new(50) };
//! let model = config.init(&mut ParamInit::new(&device, 42));
//! // Two stretches of three tokens, each with what follows its tokens.
//! let stretches: Sequences = [&[3, 4, 5][..], &[6, 7, 8]].into_iter().collect();
//! let output = model.forward(&stretches, None, &device);
//! assert_eq!(model.losses(output.dropped, &[4, 5, 9, 7, 8, 9]).dims(), [6]);
//! // What comes next is read with what the model remembers.
//! let more: Sequences = [&[9, 10][..], &[9, 11]].into_iter().collect();
//! assert_eq!(model.forward(&more, Some(output.last), &device).states.dims(), [4, 8]);
//! ```

mod classifier;
mod config;
mod decoding;
mod encoder;
mod language_model;
mod memory;

pub use classifier::{AwdLstmClassifierConfig, AwdLstmForSequenceClassification, ConcatPoolingHead};
pub use config::{AwdLstmConfig, AwdLstmDropout};
pub use decoding::AwdLstmState;
pub use encoder::{AwdLstmEncoder, AwdLstmOutput};
pub use language_model::{AwdLstm, activation_squares, temporal_squares};
pub use memory::{StreamMemory, StreamedAwdLstm};
