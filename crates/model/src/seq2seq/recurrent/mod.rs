//! The recurrent encoder–decoder: one or more layers of LSTMs or GRUs on both sides, with or without attention.

mod bridge;
mod config;
mod model;
mod step;
#[cfg(test)]
mod tests;
pub(crate) mod time_major;

pub use bridge::{Bridge, BridgeKind};
pub use config::{RecurrentEncoderDecoderConfig, Wiring};
pub use model::RecurrentEncoderDecoder;
pub use step::RecurrentDecoding;
