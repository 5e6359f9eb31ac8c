//! Training, from configs to saved models: in one binary, as each one has to instantiate burn anew.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

mod asking;
mod awd_lstm;
mod bench;
mod configs;
mod copying;
mod denoising;
mod engine;
mod finetune_answers;
mod finetuning;
mod language_model;
mod languages;
mod masked_lm;
mod multi30k;
mod permutation;
mod recurrent;
mod tagging;
mod training;
mod translation;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// burn has one random generator for all of a process's models on the CPU, and `cargo test` has one process for all
/// tests: each test that trains holds this.
fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}
