//! From text on disk to pretraining batches: corpora, prepared corpora, sentence pairs, masking; and from
//! labelled data to batches for fine-tuning: [`labelled`].
//!
//! Tensors do not occur here: a batch is plain vectors. Everything random is a function of a seed, an
//! epoch and an example's place in it, so a run's data position is two numbers, a [`Cursor`].
//!
//! ```text
//! files ─ corpus ─► documents ─ sentences, tokenizer ─► PreparedCorpus ─ split ─► Documents
//!   ─ pairs ─► Plan (an epoch's examples) ─ masking, batch ─► PretrainingBatch ─ loader ─► Batches
//! ```

mod batch;
mod checksum;
mod corpus;
mod error;
pub mod labelled;
mod loader;
mod masking;
mod not_utf8;
mod pairs;
mod permutation;
mod plan;
mod prepared;
mod seed;
mod sentences;
mod split;
mod unigram;

pub use batch::{BatchStats, Cursor, ExampleConfig, PretrainingBatch, PretrainingData};
pub use checksum::{corpus_checksum, file_checksum};
pub use corpus::{
    CorpusConfig, Document, Documents as DocumentStream, Format, OnError, SkipReport, documents, input_files,
};
pub use error::{DataError, Result};
pub use loader::Batches;
pub use masking::{MaskStats, MaskUnit, Masked, MaskingConfig, MaskingStrategy, Prediction, RandomFrom};
pub use not_utf8::not_utf8;
pub use pairs::{Example, PairConfig, PairSampler};
pub use permutation::Permutation;
pub use prepared::{PrepareReport, PreparedCorpus};
pub use seed::{derive_rng, derive_seed};
pub use sentences::sentences;
pub use split::{Documents, Split};
pub use unigram::UnigramCounts;

/// Sees the progress of preparing a corpus.
pub trait Progress {
    /// So much of the files is read, `read` of `total` bytes, and so many tokens came of it.
    fn prepared(&self, read: u64, total: u64, tokens: u64);
}

/// Shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn prepared(&self, _read: u64, _total: u64, _tokens: u64) {}
}
