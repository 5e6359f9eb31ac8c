//! Word senses: which ones a word has, and how often a system tells them apart.
//!
//! ```text
//! inventory  lemma and part of speech → senses with counts, as labelled text has them; the most frequent sense
//! score      precision, recall and F1 of several systems, by part of speech and by how often training saw a word
//! ```
//!
//! The figures are those of Raganato et al. 2017: precision is the share of a system's answers that are right, recall the
//! share of all words that it has answered right. A system that answers always has the same precision, recall and F1.

mod inventory;
mod score;

pub use inventory::{CountedSense, Inventory, PartOfSpeech, SenseCounter};
pub use score::{Group, Instance, SenseScore, SenseScores};
