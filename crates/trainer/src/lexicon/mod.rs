//! Vectors of words as types, one for each word, from an encoder (Vulić et al. 2020, "Probing Pretrained Language Models
//! for Lexical Semantics").
//!
//! ```text
//! words ─ WordTypeEmbedder::alone ─► vectors
//! sentences ─ WordFinder ─► where the words occur ─ ContextSample ─► some of them ─ WordTypeEmbedder::in_contexts ─ WordMeans ─► vectors
//! ```
//!
//! The vector of an occurrence is the mean over the word's pieces of the mean over layers, or of several layers side by side. [`cloze_evaluation::lexicon`] evaluates
//! the vectors.

mod contexts;
mod embedder;

pub use contexts::{ContextSample, WordFinder, WordMeans};
pub use embedder::{WordContext, WordTypeConfig, WordTypeEmbedder};
