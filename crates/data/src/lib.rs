//! From text on disk to pretraining batches: corpora, prepared corpora, examples, corruptions; from labelled data to
//! batches for fine-tuning: [`labelled`]; from sentences with their translations to batches of pairs: [`parallel`]; and from
//! image files to pixels: `images`, with the feature of that name.
//!
//! There are no tensors here: a batch is plain vectors. Everything random is a function of a seed, an
//! epoch and an example's place in it, so a run's data position is two numbers, a [`Cursor`].
//!
//! ```text
//! files ─ corpus ─► documents ─ sentences, tokenizer ─► PreparedCorpus ─ split ─► Documents
//!   ─ ExampleSampler ─► Plan (an epoch's examples) ─ Corruption ─► a batch, of a TokenBatch and labels
//!   ─ Loader ─► Batches, ahead of time and in order
//! ```
//!
//! Four parts can be custom, each passed to a constructor: an [`ExampleSampler`] cuts documents into
//! examples, a [`Corruption`] replaces tokens, a [`Noise`] changes a text to be restored, and an [`Assemble`]
//! is what a [`Loader`] makes batches from.

mod blocks;
mod checksum;
mod corpus;
mod corruption;
mod crew;
mod denoising;
mod error;
mod examples;
#[cfg(feature = "images")]
pub mod images;
pub mod knowledge;
pub mod labelled;
mod languages;
mod loader;
mod not_utf8;
mod ordered;
mod pairs;
mod panics;
pub mod parallel;
pub mod passages;
mod permutation;
mod plan;
mod prepared;
mod pretraining;
mod random;
mod sampler;
mod seed;
mod sentences;
mod sight;
mod skipped;
mod special;
mod split;
mod spreadsheet;
mod store;
mod streams;
mod tokens;
mod unigram;

pub use blocks::{BlockBatch, BlockConfig, BlockDocuments, BlockOrder, RunningText, TextBlocks};
pub use checksum::{corpus_checksum, file_checksum};
pub use corpus::{
    CorpusConfig, Document, DocumentStream, Format, LanguageFiles, OnError, documents, input_files,
};
pub use corruption::noise::{
    Deletion, Infilling, Insertion, Noise, NoiseCounts, NoisyText, Reordering, Rotation, SentencePermutation,
    Sentinels, SpanCorruption, Substitution, TokenMasking,
};
pub use corruption::{
    Corrupted, Corruption, Edits, MaskStats, MaskUnit, MaskingConfig, Original, RandomFrom, ReplacedSpan,
    ReplacementCounts,
};
pub use crew::{Alone, Crew};
pub use denoising::{DenoisedPair, DenoisingConfig, DenoisingData, DenoisingStats, NoiseConfig};
pub use error::{DataError, Result};
pub use examples::{CorpusExamples, ExampleTokens};
pub use languages::{
    LanguageSampling, LanguageStream, MultilingualData, MultilingualPlan, TranslationFiles, Translations,
    check_languages, sampled_texts,
};
pub use loader::{Assemble, Batches, Cursor, Groups, Loader, Placed};
pub use not_utf8::not_utf8;
pub use ordered::{OrderConfig, OrderedBatch, OrderedBlocks};
pub use pairs::PairConfig;
pub use panics::{caught, panic_becomes_error, panic_message};
pub use permutation::Permutation;
pub use plan::Plan;
pub use prepared::{Preparation, PrepareReport, PreparedCorpus};
pub use pretraining::{BatchStats, ExampleConfig, PretrainingBatch, PretrainingData};
pub use random::Random;
pub use sampler::{Example, ExampleSampler, Room};
pub use seed::derive_seed;
pub use sentences::sentences;
pub use sight::{AttentionConfig, AttentionStats, Sight};
pub use skipped::{MAX_SKIPPED, SkipReport};
pub use special::SpecialPieces;
pub use split::{Documents, Split};
pub use spreadsheet::check_no_spreadsheet;
pub use streams::{StreamBatch, StreamConfig, TextStreams};
pub use tokens::{Padded, TokenBatch, TokenSequence};
pub use unigram::UnigramCounts;

/// Receives progress while a corpus is prepared.
pub trait Progress {
    /// `read` of the files' `total` bytes have been read so far, yielding `tokens` tokens.
    fn prepared(&self, read: u64, total: u64, tokens: u64);
}

/// Shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn prepared(&self, _read: u64, _total: u64, _tokens: u64) {}
}

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
