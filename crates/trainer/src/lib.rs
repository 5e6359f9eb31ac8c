//! Optimisation, schedules, checkpoints, metrics and the training loop.
//!
//! A run is a value: [`config::RunConfig`] says all of it, [`run::pretrain`] carries it out. Below that,
//! [`step::step`] makes one optimisation step of any [`objective::Objective`], of which
//! [`pretraining::BertPretraining`] is one.

pub mod checkpoint;
pub mod config;
pub mod embed;
mod error;
pub mod evaluation;
pub mod fill_mask;
pub mod finetune;
mod fit;
pub mod gradients;
mod initial_model;
mod kernels;
pub mod layer_decay;
pub mod memory;
pub mod metrics;
pub mod objective;
pub mod optimizer;
mod origin;
pub mod pretraining;
mod recompute;
pub mod run;
pub mod run_folder;
pub mod schedule;
pub mod step;
mod training;

pub use error::{Place, Result, TrainerError};
