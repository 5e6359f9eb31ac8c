//! Word level: every word of the vocabulary is one piece; any other is unknown.

use super::{Piece, Vocab};

/// A word-level model.
#[derive(Debug, Clone)]
pub struct WordLevel {
    vocab: Vocab,
    unk_token: String,
    unk_id: Option<u32>,
}

impl WordLevel {
    /// A model from its words. If `unk_token` is not among them, other words are dropped (the reference
    /// fails).
    ///
    /// ```
    /// use cloze_tokenizer::{Model, PreTokenizer, Tokenizer, Vocab, WordLevel};
    ///
    /// let vocab = Vocab::from_tokens(["[UNK]", "red", "roses", "are"])?;
    /// let tokenizer = Tokenizer::new(Model::WordLevel(WordLevel::new(vocab, "[UNK]")))
    ///     .with_pre_tokenizer(PreTokenizer::Whitespace);
    /// assert_eq!(tokenizer.encode("roses are blue", false)?.tokens, ["roses", "are", "[UNK]"]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn new(vocab: Vocab, unk_token: &str) -> Self {
        let unk_id = vocab.id(unk_token);
        Self { vocab, unk_token: unk_token.to_owned(), unk_id }
    }

    /// The words and their ids.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The token for other words.
    pub fn unk_token(&self) -> &str {
        &self.unk_token
    }

    pub(crate) fn pieces(&self, word: &str, out: &mut Vec<Piece>) {
        let id = self.vocab.id(word).or(self.unk_id);
        out.extend(id.map(|id| Piece { id, end: word.len() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown() {
        let run = |unk, word| {
            let model = WordLevel::new(Vocab::from_tokens(["a", "b"]).unwrap(), unk);
            let mut out = Vec::new();
            model.pieces(word, &mut out);
            out
        };
        assert_eq!(run("a", "b"), [Piece { id: 1, end: 1 }]);
        assert_eq!(run("a", "xyz"), [Piece { id: 0, end: 3 }]);
        assert_eq!(run("?", "xyz"), []);
    }
}
