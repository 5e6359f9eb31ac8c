//! The score of a sentence.

use serde::Serialize;

/// The score of a piece.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PieceScore {
    /// The piece as in the vocabulary.
    pub token: String,
    /// Its id.
    pub id: u32,
    /// Where it is in the sentence, in bytes; `(0, 0)` for a special piece, such as the end of a target.
    pub offsets: (usize, usize),
    /// Whether it stands for a word that the vocabulary lacks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unknown: bool,
    /// Its log-probability, in nats.
    pub log_prob: f64,
}

/// The score of a sentence: the log-probabilities of its predicted pieces.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SentenceScore {
    /// The predicted pieces, in order.
    pub pieces: Vec<PieceScore>,
    /// The sentence's words, separated by white space.
    pub words: usize,
    /// The sentence's bytes.
    pub bytes: usize,
}

impl SentenceScore {
    /// The sum over the pieces, in nats: the log-probability of the sentence by a left-to-right model, else the
    /// pseudo-log-likelihood.
    pub fn sum(&self) -> f64 {
        self.pieces.iter().map(|piece| piece.log_prob).sum()
    }

    /// The mean over the pieces, in nats. It hardly depends on the sentence's length.
    pub fn mean(&self) -> f64 {
        self.sum() / self.pieces.len() as f64
    }

    /// The sum divided by the number of words: comparable across vocabularies.
    pub fn per_word(&self) -> f64 {
        self.sum() / self.words as f64
    }

    /// The sum divided by the number of bytes: comparable across vocabularies.
    pub fn per_byte(&self) -> f64 {
        self.sum() / self.bytes as f64
    }

    /// The number of pieces that stand for words which the vocabulary lacks.
    pub fn unknown(&self) -> usize {
        self.pieces.iter().filter(|piece| piece.is_unknown).count()
    }
}
