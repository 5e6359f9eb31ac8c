//! The training engine, common to every kind of run.
//!
//! A [`Recipe`] defines what is trained: the model and losses, as an [`Objective`], the batches of each step,
//! evaluation, and the saved format. [`train`] runs it: steps, metrics, evaluations, checkpoints that resume
//! bit-identically, early stopping, the learning curve, the exported model. The engine is independent of the
//! model, and a recipe needs no code of its own for any of this.
//!
//! At a lower level, [`step::step`] makes one optimisation step of any objective; [`optimizer`], [`schedule`],
//! [`checkpoint`] and [`run_folder`] are components that custom loops can use too.

mod average;
mod balance;
mod best_model;
mod by_rows;
pub mod checkpoint;
mod crew;
mod disk;
mod extension;
mod failure;
pub mod folder_config;
pub mod gradients;
mod kernels;
pub mod loss_scale;
pub(crate) mod messages;
mod model_format;
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
pub(crate) mod shared_state;
mod shared_work;
mod slices;
pub mod step;
mod team;
mod term;
mod training;
mod tree_sum;

pub use average::Averaging;
pub(crate) use by_rows::in_parts;
pub use by_rows::{ByRows, gradients_by_rows, in_chunks, in_shards};
pub use extension::{Extension, Extensions, KeptState, Rewind};
pub use failure::Kept;
pub use folder_config::{Difference, FolderConfig};
pub use model_format::{ModelFormat, OwnParameters};
pub use objective::Objective;
pub use recipe::{
    Advance, Exported, Measured, Position, Recipe, SplitFigures, StepBatches, load_parameters,
    save_parameters,
};
pub(crate) use run::watched;
pub use run::{Outcome, RunOptions, train, train_in};
pub use seeds::{OverSeeds, Plan, train_seeds};
pub use settings::{
    Cadence, CheckpointSection, Epochs, Exchange, Export, LogSection, NonFinite, OptimizerSection, Precision,
    RankKernels, RanksSection, Rounds, RunSettings,
};
pub use shared_work::share_out;
pub use term::Term;
