//! The Transformer of Vaswani et al. 2017, encoder and decoder, and its relatives.
//!
//! Marian's, BART's and T5's models are the same with different switches in [`TransformerConfig`].

mod config;
mod input;
mod model;
mod step;
#[cfg(test)]
mod tests;

pub use config::{InitialWeights, OutputBias, TransformerConfig};
pub use input::StackInput;
pub use model::Transformer;
pub use step::TransformerState;
