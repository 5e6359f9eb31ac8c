//! The third stage: words to pieces with ids.

mod bpe;
mod vocab;
mod wordpiece;

pub use bpe::{Bpe, BpeConfig};
pub(crate) use vocab::MAX_ID;
pub use vocab::Vocab;
pub use wordpiece::WordPiece;

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

    /// Appends the pieces of `word`.
    pub(crate) fn pieces(&self, word: &str, out: &mut Vec<Piece>) {
        match self {
            Self::WordPiece(model) => model.pieces(word, out),
            Self::Bpe(model) => model.pieces(word, out),
        }
    }
}
