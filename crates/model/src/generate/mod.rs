//! Text generation, token by token: greedy, with a beam, or by sampling.
//!
//! [`NextToken`] is what a model implements; [`translate`] and [`continue_prompts`] decode any number of inputs with it,
//! several at a time.

mod beam;
mod config;
mod decoding;
mod hypothesis;
mod next_token;
mod penalty;
mod random;
mod sample;
mod settings;

pub use config::{BeamSearch, DecodeConfig, EarlyStopping, Sampling, Search};
pub use decoding::{Continuing, Decoding, ReadInput, Translating, WrittenToken, continue_prompts, translate};
pub use hypothesis::{Hypothesis, Request};
pub use next_token::{LanguageModel, NextToken, StepOutput};
pub use penalty::LengthPenalty;
pub use settings::DecodeSettings;
