//! The third stage: words to pieces with ids.

mod bpe;
mod trie;
mod vocab;
mod wordpiece;

pub use bpe::{Bpe, BpeConfig};
pub(crate) use vocab::MAX_ID;
pub use vocab::Vocab;
pub use wordpiece::WordPiece;

use rand_pcg::rand_core::Rng;

/// One piece of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub id: u32,
    /// Where the piece ends in the word, in bytes; it begins where the one before ends.
    pub end: usize,
}

/// A vocabulary and the rule that cuts words into its pieces.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Model {
    /// Longest match first (Schuster & Nakajima 2012; BERT).
    WordPiece(WordPiece),
    /// Merges in the order they were learnt (Sennrich et al. 2016).
    Bpe(Bpe),
}

impl Model {
    /// The `type`s that exist here.
    pub(crate) const TYPES: &[&str] = &["WordPiece", "BPE"];

    /// The pieces and their ids.
    pub fn vocab(&self) -> &Vocab {
        match self {
            Self::WordPiece(model) => model.vocab(),
            Self::Bpe(model) => model.vocab(),
        }
    }

    /// The piece that stands for what the vocabulary cannot spell.
    pub fn unk_token(&self) -> Option<&str> {
        match self {
            Self::WordPiece(model) => Some(model.unk_token()),
            Self::Bpe(model) => model.config().unk_token.as_deref(),
        }
    }

    /// Whether a word may become other pieces each time.
    pub(crate) fn is_random(&self) -> bool {
        match self {
            Self::Bpe(model) => model.dropout().is_some(),
            _ => false,
        }
    }

    /// Whether [`byte_pieces`](Self::byte_pieces) works.
    pub(crate) fn spells_bytes(&self) -> bool {
        matches!(self, Self::Bpe(model) if model.spells_bytes())
    }

    /// Appends the pieces of `word` written in the characters for bytes, with ends in `word` itself.
    pub(crate) fn byte_pieces(&self, word: &str, rng: Option<&mut dyn Rng>, out: &mut Vec<Piece>) {
        if let Self::Bpe(model) = self {
            model.byte_pieces(word, rng, out);
        }
    }

    /// Appends the pieces of `word`; with a generator, those of a random model are drawn from it.
    pub(crate) fn pieces(&self, word: &str, rng: Option<&mut dyn Rng>, out: &mut Vec<Piece>) {
        match self {
            Self::WordPiece(model) => model.pieces(word, out),
            Self::Bpe(model) => model.pieces(word, rng, out),
        }
    }
}
