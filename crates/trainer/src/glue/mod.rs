//! GLUE (Wang et al. 2019), whole: every task fine-tuned with the engine's recipe, scored as the paper scores it,
//! and answered in the format of gluebenchmark.com.
//!
//! ```text
//! a folder as GLUE distributes it ─ GlueFolder ─► a FineTuneConfig a task ─ train_seeds ─► GlueScores
//!                                                                              │
//!                                       the tests ─ the best seed's model ─► submission.zip
//! ```
//!
//! [`GlueTask`] has what is known of each task; [`run_glue`] runs any of them.

mod average;
mod files;
mod plan;
mod run;
mod submission;
mod tasks;
mod zip;

pub use average::{GlueScores, PartScores, TaskScores};
pub use files::{GlueFolder, TaskFiles, TestFile};
pub use plan::{LearningRates, Override, PUBLISHED_RATES};
pub use run::{GlueOptions, GlueOutcome, run_glue};
pub use tasks::GlueTask;
