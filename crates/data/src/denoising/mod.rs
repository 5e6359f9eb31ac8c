//! Denoising: noisy texts and their targets, from a prepared corpus to batches of pairs (Lewis et al. 2020;
//! Raffel et al. 2020).
//!
//! ```text
//! Documents ─ CorpusExamples ─► an example ─ noises, or span corruption ─► source and target ─ a Loader ─► PairBatch
//! ```

mod config;
mod data;
mod stats;

pub use config::{DenoisingConfig, NoiseConfig};
pub use data::{DenoisedPair, DenoisingData};
pub use stats::DenoisingStats;
