//! WordPiece encoding: the longest piece that fits, from left to right (Schuster & Nakajima 2012, as
//! in BERT's `WordpieceTokenizer`).

use super::{
    Piece, Vocab,
    trie::{NONE, Trie},
};
use crate::{Error, Result};

/// A WordPiece model.
#[derive(Debug, Clone)]
pub struct WordPiece {
    vocab: Vocab,
    unk_token: String,
    unk_id: u32,
    continuing_subword_prefix: String,
    max_input_chars_per_word: usize,
    /// The pieces by their bytes.
    trie: Trie,
    /// The node of the prefix, where pieces inside a word begin.
    inside: Option<u32>,
}

impl WordPiece {
    /// BERT's settings: `[UNK]`, `##`, words of at most 100 characters.
    ///
    /// # Errors
    /// `[UNK]` is not in the vocabulary.
    pub fn new(vocab: Vocab) -> Result<Self> {
        Self::with(vocab, "[UNK]", "##", 100)
    }

    /// A model with these settings. A word of more than `max_input_chars_per_word` characters, or
    /// one that the vocabulary cannot spell, becomes `unk_token`.
    ///
    /// # Errors
    /// `unk_token` is not in the vocabulary.
    pub fn with(
        vocab: Vocab,
        unk_token: &str,
        continuing_subword_prefix: &str,
        max_input_chars_per_word: usize,
    ) -> Result<Self> {
        let unk_id = vocab.id(unk_token).ok_or_else(|| {
            Error::invalid(
                "model.unk_token",
                format!("{unk_token:?} is not in the vocabulary; add it or name another piece"),
            )
        })?;
        let trie = Trie::new(vocab.iter().map(|(id, token)| (token.as_bytes(), id)).collect());
        let mut prefix = continuing_subword_prefix.bytes();
        let inside = prefix.try_fold(Trie::ROOT, |node, byte| trie.child(node, byte.into()));
        Ok(Self {
            vocab,
            unk_token: unk_token.to_owned(),
            unk_id,
            continuing_subword_prefix: continuing_subword_prefix.to_owned(),
            max_input_chars_per_word,
            trie,
            inside,
        })
    }

    /// The pieces and their ids.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The piece for words that cannot be spelt.
    pub fn unk_token(&self) -> &str {
        &self.unk_token
    }

    /// What pieces inside a word begin with.
    pub fn continuing_subword_prefix(&self) -> &str {
        &self.continuing_subword_prefix
    }

    /// Longer words become the unknown token.
    pub fn max_input_chars_per_word(&self) -> usize {
        self.max_input_chars_per_word
    }

    pub(crate) fn pieces(&self, word: &str, out: &mut Vec<Piece>) {
        let before = out.len();
        let short = word.len() <= self.max_input_chars_per_word
            || word.chars().nth(self.max_input_chars_per_word).is_none();
        if short && self.spell(word, out) {
            return;
        }
        out.truncate(before);
        out.push(Piece { id: self.unk_id, end: word.len() });
    }

    /// Appends the pieces of `word` as far as possible; returns whether they cover it.
    fn spell(&self, word: &str, out: &mut Vec<Piece>) -> bool {
        let bytes = word.as_bytes();
        let mut start = 0;
        let mut node = Trie::ROOT;
        while start < bytes.len() {
            let mut piece = None;
            for (i, &byte) in bytes.iter().enumerate().skip(start) {
                match self.trie.child(node, byte.into()) {
                    Some(child) => node = child,
                    None => break,
                }
                match self.trie.value(node) {
                    NONE => {}
                    id => piece = Some(Piece { id, end: i + 1 }),
                }
            }
            let Some(piece) = piece else {
                return false;
            };
            out.push(piece);
            start = piece.end;
            match self.inside {
                Some(inside) => node = inside,
                // No piece begins with the prefix: this was the only one.
                None => return start == bytes.len(),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(word: &str) -> Vec<(u32, usize)> {
        let vocab = ["[UNK]", "un", "##aff", "##able", "una", "##é", "##ff", "#"];
        let model = WordPiece::with(Vocab::from_tokens(vocab).unwrap(), "[UNK]", "##", 8).unwrap();
        let mut out = Vec::new();
        model.pieces(word, &mut out);
        out.iter().map(|p| (p.id, p.end)).collect()
    }

    #[test]
    fn longest_match_first() {
        // The greedy `una` and not `un` + `##aff`.
        assert_eq!(pieces("unaff"), [(4, 3), (6, 5)]);
        assert_eq!(pieces("uné"), [(1, 2), (5, 4)]);
        assert_eq!(pieces("unx"), [(0, 3)]);
        assert_eq!(pieces("unaffable"), [(0, 9)], "nine characters are too many");
    }

    #[test]
    fn unknown_token_must_exist() {
        let error = WordPiece::new(Vocab::from_tokens(["a"]).unwrap()).unwrap_err();
        assert!(error.to_string().contains("\"[UNK]\" is not in the vocabulary"));
    }
}
