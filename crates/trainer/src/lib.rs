//! Optimisation, schedules, checkpoints, metrics and the training loop.

pub mod adamw;
pub mod config;
mod error;
pub mod gradients;
pub mod metrics;
pub mod schedule;

pub use error::{Place, Result, TrainerError};
