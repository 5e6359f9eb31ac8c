//! The run: what every kind of training has in common.
//!
//! A [`Recipe`] says what is trained: its model and losses, as an [`Objective`], the batches of each step, how the
//! model is measured, and what it is saved as. [`train`] carries it out: steps, metrics, evaluations, checkpoints that a
//! run goes on from to the same bits, early stopping, the learning curve, the exported model. Nothing here knows a
//! model, and a recipe needs no code of its own for any of this.
//!
//! Below a run, [`step::step`] makes one optimisation step of any objective; [`optimizer`], [`schedule`],
//! [`checkpoint`] and [`run_folder`] are its parts, which custom loops can use too.

mod average;
mod best_model;
pub mod checkpoint;
mod extension;
mod failure;
pub mod folder_config;
pub mod gradients;
mod kernels;
pub mod loss_scale;
pub mod objective;
pub mod optimizer;
pub mod origin;
mod recipe;
pub mod replicas;
mod run;
pub mod run_folder;
pub mod schedule;
mod seeds;
mod settings;
pub mod step;
mod term;
mod training;

pub use average::Averaging;
pub use extension::{Extension, Extensions, KeptState};
pub use failure::Kept;
pub use folder_config::{Difference, FolderConfig};
pub use objective::Objective;
pub use recipe::{
    Advance, Exported, Position, Recipe, SplitFigures, StepBatches, load_parameters, save_parameters,
};
pub(crate) use run::watched;
pub use run::{Outcome, RunOptions, train, train_in};
pub use seeds::{OverSeeds, Plan, train_seeds};
pub use settings::{
    Cadence, CheckpointSection, Epochs, Export, LogSection, NonFinite, OptimizerSection, Precision,
    RunSettings,
};
pub use term::Term;
