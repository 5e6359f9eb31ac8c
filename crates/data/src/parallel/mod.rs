//! Parallel data: sentences and their translations, from files to batches of pairs.
//!
//! ```text
//! ParallelFiles ─ pairs of texts ─ two tokenizers ─► PreparedPairs ─ ParallelData, a Loader ─► PairBatch
//! ```
//!
//! The training pairs are tokenised once, in parallel, and then memory-mapped. [`load_pairs`] instead reads a
//! small split into memory, such as a development set, whose texts serve as references.

mod batches;
mod files;
mod prepared;

pub use batches::{PairBatch, ParallelData, TokenLists, batches_of};
pub use files::{OnBadPair, PairColumns, ParallelFiles, TextPair, read_pairs, sides};
pub use prepared::{LoadedPairs, PairReport, PairSettings, PreparedPairs, load_pairs};
