//! Probing the layers of an encoder: classification probes on words, a structural probe of dependency trees,
//! and the geometry of its vectors.
//!
//! ```text
//! CoNLL-U ─ sentences ─► words, classes, trees ─ states ─► each layer's vectors, once
//!   ├─ classes      linear and MLP probes, control tasks, online codes, the mean over layers that a probe weighs
//!   ├─ structure    distances and depths of trees
//!   └─ geometry     cosines of words; what corrections of vectors do to the similarity of sentences
//! ```
//!
//! The encoder is frozen, and its states are computed once. The result is a page and a file of metrics by layer
//! ([`LayersReport`]). The same config, seed and device give bit-identical metrics.

pub(crate) mod classes;
mod config;
mod geometry;
mod run;
mod sentences;
mod states;
mod structure;

pub use cloze_evaluation::report::LayersReport;
pub use config::{
    GeometrySection, ProbeConfig, ProbeData, ProbeModel, ProbeSection, ProbeTask, StructureSection,
};
pub use run::{ProbeResult, probe};
pub(crate) use states::{LayerEncoder, Reading};
