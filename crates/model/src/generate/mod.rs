//! Text generation, token by token: greedy, with a beam, or by sampling.
//!
//! [`NextToken`] is what a model implements. [`Decoding`] decodes requests that come and go, each with its own settings;
//! [`translate`] and [`continue_prompts`] decode a list of them with the same settings, in order. Several models write one text
//! together as an [ensemble](Decoding::ensemble).

mod active;
mod beam;
mod config;
mod decoding;
mod ensemble;
mod hypothesis;
mod in_order;
mod next_token;
mod penalty;
mod random;
mod read_input;
mod sample;
mod settings;
#[cfg(test)]
mod tests;

pub use config::{BeamSearch, DecodeConfig, EarlyStopping, Sampling, Search};
pub use decoding::{Decoding, Finished, WrittenToken};
pub use ensemble::EnsembleMean;
pub use hypothesis::{Hypothesis, Request, TokenScore};
pub use in_order::{InOrder, continue_prompts, translate};
pub use next_token::{LanguageModel, NextToken, StepOutput};
pub use penalty::LengthPenalty;
pub use settings::DecodeSettings;
