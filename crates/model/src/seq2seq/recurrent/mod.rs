//! The recurrent encoder–decoder: one layer or several of LSTM or GRU on both sides, with attention or without.

mod bridge;
mod config;
mod model;
mod step;
#[cfg(test)]
mod tests;
mod time_major;

pub use bridge::{Bridge, BridgeKind};
pub use config::{RecurrentEncoderDecoderConfig, Wiring};
pub use model::RecurrentEncoderDecoder;
pub use step::RecurrentDecoding;
