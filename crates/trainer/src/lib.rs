//! Training and using models: the training engine, pretraining, fine-tuning, and predictors.
//!
//! A run is a value: [`config::RunConfig`] describes a pretraining run and [`pretraining::pretrain`] runs it;
//! [`finetune`] is the equivalent for labelled data. Both are recipes of the [`engine`], which trains any
//! [`engine::Recipe`]: steps, metrics, evaluations, checkpoints, early stopping, the exported model.

pub mod augment;
pub mod awd_lstm;
pub mod captions;
mod classes;
pub mod config;
mod cutting;
pub mod denoising;
pub mod device_failure;
pub mod distillation;
pub mod elmo;
pub mod embed;
pub mod engine;
mod error;
pub mod fill_mask;
pub mod finetune;
mod fit;
pub mod generate;
pub mod glue;
pub mod gradual_unfreezing;
pub mod images;
mod initial_model;
pub mod input;
pub mod inspect;
pub mod language_model;
pub mod layer_decay;
pub mod lexicon;
pub mod likelihood;
pub mod memory;
pub mod metrics;
pub mod mining;
mod pairs;
mod periodic_notes;
pub mod permutation;
pub mod perplexity;
pub mod pretraining;
pub mod probing;
pub mod pruning;
pub mod quantization;
mod recompute;
pub mod requests;
pub mod running_text;
pub mod runs;
pub mod senses;
pub mod token_vectors;
pub mod transfer;
pub mod translate;
pub mod translation;

pub use error::{Place, Result, TrainerError};

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
