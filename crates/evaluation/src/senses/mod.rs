//! Word senses: inventories, and evaluation of word sense disambiguation.
//!
//! ```text
//! inventory  lemma and part of speech → senses with counts, as labelled text has them; the most frequent sense
//! score      precision, recall and F1 of several systems, by part of speech and by how often training saw a word
//! ```
//!
//! The figures are those of Raganato et al. 2017: precision is the share of a system's answers that are
//! correct, recall the share of all words answered correctly. A system that always answers has equal
//! precision, recall and F1.

mod inventory;
mod score;

pub use inventory::{CountedSense, Inventory, PartOfSpeech, SenseCounter};
pub use score::{Group, Instance, SenseScore, SenseScores};
