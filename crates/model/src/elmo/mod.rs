//! ELMo, a bidirectional LSTM language model over characters whose layers are the input of task models
//! (Peters et al. 2018).
//!
//! Tokens are pieces of a byte-level vocabulary, and the encoder reads their bytes, given by [`PieceBytes`].
//! The paper's tokens are words, and its output layer has the frequent ones. A byte-level vocabulary has no
//! unknown piece: an unseen word is also read by its characters, as several pieces. A [`CharacterEncoder`] by
//! itself reads any word.
//!
//! ```
//! use burn::tensor::Device;
//! use cloze_model::blocks::ScalarMixConfig;
//! use cloze_model::elmo::{CharacterEncoderConfig, ElmoConfig};
//! use cloze_model::{ParamInit, Sequences};
//!
//! let device = Device::flex();
//! let pieces = [&b"a"[..], b" ship", b" sails"].into_iter().collect();
//! let characters =
//!     CharacterEncoderConfig { filters: vec![[2, 8].into()], d_out: 6, ..CharacterEncoderConfig::default() };
//! let config = ElmoConfig { characters, d_hidden: 12, ..ElmoConfig::new(pieces) };
//! let init = &mut ParamInit::new(&device, 42);
//! let model = config.init(init);
//! let text: Sequences = [&[0, 1, 2][..]].into_iter().collect();
//! assert_eq!(model.losses(&text, &device).next.dims(), [2]);
//! // A task reads the mean of the layers, whose weights it trains.
//! let mix = ScalarMixConfig::new(config.n_layers + 1).init(init);
//! assert_eq!(mix.forward(&model.encoder.forward(&text, &device).layers).dims(), [3, 12]);
//! ```

mod characters;
mod config;
mod encoder;
mod language_model;
mod layer;
mod spelling;
mod tasks;

pub use characters::{CharacterEncoder, CharacterEncoderConfig, Filters, Highway};
pub use config::ElmoConfig;
#[cfg(test)]
pub(crate) use encoder::tests::small as small_elmo;
pub use encoder::{ElmoEncoder, ElmoOutput};
pub use language_model::{Elmo, ElmoLosses};
pub use layer::{ElmoLayer, ProjectedLstm};
pub use spelling::{N_CHARACTERS, PieceBytes, spelled};
pub use tasks::{
    ElmoClassifierConfig, ElmoForSequenceClassification, ElmoForTokenClassification, ElmoReader,
    ElmoReaderConfig, ElmoTaggerConfig,
};
