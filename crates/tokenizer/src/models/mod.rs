//! The third stage: words to pieces with ids.

mod bpe;
pub(crate) mod lattice;
mod marian;
pub(crate) mod trie;
mod unigram;
mod vocab;
mod word_level;
mod wordpiece;

pub use bpe::{Bpe, BpeConfig};
pub(crate) use marian::Codes;
pub use marian::Marian;
pub use unigram::{Sampling, Segmentation, Unigram};
pub(crate) use vocab::MAX_ID;
pub use vocab::Vocab;
pub use word_level::WordLevel;
pub use wordpiece::WordPiece;

use rand_pcg::rand_core::Rng;

/// One piece of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub id: u32,
    /// Where the piece ends in the word, in bytes; it begins where the previous one ends. Pieces with the
    /// same end all stand for the same bytes.
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
    /// The most probable pieces (Kudo 2018).
    Unigram(Unigram),
    /// Whole words.
    WordLevel(WordLevel),
    /// The most probable pieces, with ids from another vocabulary. Only supported by cloze.
    Marian(Marian),
}

impl Model {
    /// The supported `type`s.
    pub(crate) const TYPES: &[&str] = &["WordPiece", "BPE", "Unigram", "WordLevel", "Marian"];

    /// The pieces and their ids.
    pub fn vocab(&self) -> &Vocab {
        match self {
            Self::WordPiece(model) => model.vocab(),
            Self::Bpe(model) => model.vocab(),
            Self::Unigram(model) => model.vocab(),
            Self::WordLevel(model) => model.vocab(),
            Self::Marian(model) => model.vocab(),
        }
    }

    /// The unknown token.
    pub fn unk_token(&self) -> Option<&str> {
        match self {
            Self::WordPiece(model) => Some(model.unk_token()),
            Self::Bpe(model) => model.config().unk_token.as_deref(),
            Self::Unigram(model) => model.unk_id().and_then(|id| model.vocab().token(id)),
            Self::WordLevel(model) => Some(model.unk_token()),
            Self::Marian(model) => model.vocab().token(model.unk_id()),
        }
    }

    /// Whether encoding a word is random; `drawn` if a generator is given.
    pub(crate) fn is_random(&self, drawn: bool) -> bool {
        match self {
            Self::Bpe(model) => model.dropout().is_some(),
            Self::Unigram(model) => drawn && model.sampling().is_some(),
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
            Self::Unigram(model) => model.pieces(word, rng, out),
            Self::WordLevel(model) => model.pieces(word, out),
            Self::Marian(model) => model.pieces(word, out),
        }
    }

    /// The codes that texts may begin with.
    pub(crate) fn codes(&self) -> Option<Codes> {
        match self {
            Self::Marian(model) => Some(model.codes()),
            _ => None,
        }
    }

    /// The token of a piece that stands for `text`: the vocabulary's, except that for Unigram's and Marian's
    /// unknown token it is the text itself.
    pub(crate) fn token<'a>(&'a self, id: u32, text: &'a str) -> &'a str {
        match self {
            Self::Unigram(model) if model.unk_id() == Some(id) => text,
            Self::Marian(model) if model.unk_id() == id => text,
            _ => self.vocab().token(id).unwrap_or_default(),
        }
    }
}
