//! The encoder of I-BERT (Kim et al. 2021): integers from embeddings to logits.

mod calibration;
mod classifier;
mod embeddings;
mod forward;
mod layer;
mod model;
mod norm;
mod parts;

pub use calibration::{FloatHead, FloatMap, IntegerSite, observe_sites};
pub use embeddings::IntegerToken;
pub(super) use forward::forward;
pub(crate) use forward::{logits, pooled};
pub use model::IntegerBert;
pub use parts::{
    IntegerClassifierParts, IntegerLayerParts, IntegerLayerScales, IntegerMap, IntegerNorm, IntegerParts,
    IntegerTable, symmetric_scale,
};
