//! Recurrent layers over packed sequences: LSTM and GRU, one direction or both, in stacks.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use cloze_model::ParamInit;
//! use cloze_model::ops::Packing;
//! use cloze_model::recurrent::{Cell, Reading, RecurrentConfig};
//!
//! let device = Device::flex();
//! let config = RecurrentConfig::new(Cell::Lstm, 8, 16).with_reading(Reading::Both);
//! let encoder = config.init(&mut ParamInit::new(&device, 42));
//! // Two sequences, of three tokens and of one.
//! let output = encoder.forward(Tensor::<2>::ones([4, 8], &device), &Packing::new([3, 1]), None);
//! assert_eq!(output.states.dims(), [4, 32]);
//! assert_eq!(output.last[0].hidden.dims(), [2, 32]);
//! ```

mod cell;
mod layer;
mod padding;
mod stack;

pub use cell::{Cell, RecurrentState};
pub use layer::{LayerOutput, RecurrentLayer};
pub(crate) use padding::{pad_mask, padded, unpadded};
pub(crate) use stack::between_layers;
pub use stack::{Directions, Reading, Recurrent, RecurrentConfig, RecurrentOutput};
