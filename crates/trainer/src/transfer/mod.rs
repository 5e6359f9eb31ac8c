//! Which tasks are alike, and which transfers to which: "CogTaskonomy" (Luo et al. 2022) without its maps to brain scans.
//!
//! ```text
//! a task's encoder ─ the same sentences ─► vectors by layer ─ dissimilarities ─► similarity of tasks
//!                                                                                   │ compared by rank
//! source ─ a few examples of the target ─ fine-tuning ─► scores ─ less the target's own ─► gains
//! ```
//!
//! The arithmetic is that of [`cloze_evaluation::similarity`]; every run is one of the fine-tuning recipe.

mod encoders;
mod matrix;
mod run;

pub use run::{MatrixOptions, SentenceVector, TransferOptions, TransferOutcome, TransferTask, compare_tasks};
