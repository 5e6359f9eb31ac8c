//! Attention of recurrent models: scores of a query and a memory, with one interface.
//!
//! | score | of query `q` and memory state `h` | source |
//! | --- | --- | --- |
//! | [`AdditiveScore`] | `v·tanh(W q + U h)` | Bahdanau et al. 2015, §A.1.2 |
//! | [`DotScore`] | `q·h`, or `q·h / √d` | Luong et al. 2015, eq. 8; Vaswani et al. 2017, eq. 1 |
//! | [`GeneralScore`] | `q·W h` | Luong et al. 2015, eq. 8 |
//! | [`LocationScore`] | the row of `W q` for the state's position | Luong et al. 2015, eq. 8 |
//! | [`AnyScore`] | whichever of these a [`ScoreKind`] names | |
//!
//! A custom score implements [`Score`], for use with [`attend`]. [`AttentionPooling`] pools a sequence into
//! one vector by a trained query.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use cloze_model::ParamInit;
//! use cloze_model::ops::Packing;
//! use cloze_model::scores::{GeneralScore, Memory, attend};
//!
//! let device = Device::flex();
//! let score = GeneralScore::new(4, 6, &mut ParamInit::new(&device, 42));
//! // Two sources, of three tokens and of one.
//! let memory = Memory::new(&score, Tensor::<2>::ones([4, 6], &device), &Packing::new([3, 1]));
//! let attended = attend(&score, Tensor::<3>::ones([2, 1, 4], &device), &memory);
//! assert_eq!(attended.context.dims(), [2, 1, 6]);
//! let weights: Vec<f32> = attended.weights.into_data().iter().collect();
//! assert_eq!(weights[3..], [1.0, 0.0, 0.0]);
//! ```

mod additive;
mod any;
mod attend;
mod dot;
mod general;
mod location;
mod pooling;

pub use additive::AdditiveScore;
pub use any::{AnyScore, ScoreConfig, ScoreKind};
pub use attend::{Attended, Memory, Score, attend};
pub use dot::DotScore;
pub use general::GeneralScore;
pub use location::LocationScore;
pub use pooling::AttentionPooling;
