#![doc = include_str!("../README.md")]

pub mod captions;
pub mod chart;
pub mod confusion;
pub mod correlation;
pub mod embeddings;
pub mod entities;
mod error;
pub mod figures;
pub mod inspection;
pub mod knowledge;
pub mod lexicon;
pub mod probing;
pub mod report;
pub mod scores;
pub mod seeds;
pub mod segmentation;
pub mod senses;
pub mod similarity;
pub mod squad;
pub mod table;
pub mod tags;
#[cfg(test)]
mod testing;
pub mod translation;
pub mod vectors;

pub use error::{EvaluationError, Result};
