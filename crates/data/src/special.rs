//! The special pieces of examples, found in a tokenizer or named.

use crate::{DataError, Result};
use cloze_tokenizer::Tokenizer;

/// The piece that begins and ends a document in GPT-2's vocabulary (Radford et al. 2019).
const END_OF_TEXT: &str = "<|endoftext|>";

/// The special pieces that surround or replace the text of an example.
///
/// BERT begins an example with `[CLS]` and ends each segment with `[SEP]`; RoBERTa, BART and T5 have `<s>`
/// and `</s>`; GPT-2 has `<|endoftext|>` for both. Pieces that are `None` are omitted: a left-to-right
/// language model on packed text keeps only the separator.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SpecialPieces {
    /// Begins an example.
    pub begin: Option<u32>,
    /// Ends each segment.
    pub end: Option<u32>,
    /// Separates two documents in one segment.
    pub separator: Option<u32>,
    /// Hides a piece.
    pub mask: Option<u32>,
    /// Pads short sequences. Models ignore it, so any id works if there is none.
    pub pad: Option<u32>,
    /// Whether each piece of the vocabulary is special in the tokenizer.
    is_special: Vec<bool>,
}

impl SpecialPieces {
    /// The pieces that the tokenizer declares, else those with the usual names, see
    /// [`SpecialIds`](cloze_tokenizer::SpecialIds); `<|endoftext|>` is the fallback for begin and end. The
    /// separator is the end piece.
    pub fn find(tokenizer: &Tokenizer) -> Self {
        let ids = tokenizer.special_ids();
        let end_of_text = || tokenizer.token_to_id(END_OF_TEXT);
        let end = ids.sep.or_else(end_of_text);
        let vocab_size = tokenizer.vocab_size() as u32;
        Self {
            begin: ids.cls.or_else(end_of_text),
            end,
            separator: end,
            mask: ids.mask,
            pad: ids.pad,
            is_special: (0..vocab_size).map(|id| tokenizer.is_special(id)).collect(),
        }
    }

    /// Begins examples with the piece of this name.
    ///
    /// # Errors
    /// [`DataError::NoPiece`] if the tokenizer has no such piece.
    pub fn with_begin(mut self, tokenizer: &Tokenizer, name: &str) -> Result<Self> {
        self.begin = Some(named(tokenizer, "begin", name)?);
        Ok(self)
    }

    /// Ends segments, and separates documents, with the piece of this name.
    ///
    /// # Errors
    /// [`DataError::NoPiece`] if the tokenizer has no such piece.
    pub fn with_end(mut self, tokenizer: &Tokenizer, name: &str) -> Result<Self> {
        self.end = Some(named(tokenizer, "end", name)?);
        self.separator = self.end;
        Ok(self)
    }

    /// Pieces in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.is_special.len()
    }

    /// Whether a piece is special, in the tokenizer or as one of these, and so neither masked nor predicted.
    pub fn is_special(&self, id: u32) -> bool {
        [self.begin, self.end, self.separator, self.mask, self.pad].contains(&Some(id))
            || self.is_special.get(id as usize).copied().unwrap_or(false)
    }

    /// All special pieces, ascending.
    pub fn all(&self) -> Vec<u32> {
        (0..self.vocab_size() as u32).filter(|id| self.is_special(*id)).collect()
    }

    /// Number of special tokens in an example of this many segments.
    pub fn around(&self, segments: usize) -> usize {
        usize::from(self.begin.is_some()) + segments * usize::from(self.end.is_some())
    }
}

fn named(tokenizer: &Tokenizer, key: &'static str, name: &str) -> Result<u32> {
    tokenizer.token_to_id(name).ok_or_else(|| DataError::NoPiece { key, name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_tokenizer::Vocab;
    use cloze_tokenizer::train::BpeTrainer;

    #[test]
    fn pieces_are_found_by_their_usual_names() {
        let bert =
            Tokenizer::bert(Vocab::from_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]).unwrap(), true);
        let pieces = SpecialPieces::find(&bert.unwrap());
        assert_eq!((pieces.begin, pieces.end, pieces.mask, pieces.pad), (Some(2), Some(3), None, Some(0)));
        assert_eq!(pieces.all(), [0, 1, 2, 3]);
        assert_eq!((pieces.around(1), pieces.around(2), pieces.vocab_size()), (2, 3, 5));
        for (special, begin, end) in
            [(&["</s>", "<s>"][..], "<s>", "</s>"), (&["<|endoftext|>"], END_OF_TEXT, END_OF_TEXT)]
        {
            let special_tokens = special.iter().copied().map(String::from).collect();
            let trainer = BpeTrainer { vocab_size: 270, special_tokens, ..Default::default() };
            let tokenizer = trainer.train(["a b"]).unwrap();
            let pieces = SpecialPieces::find(&tokenizer);
            let name = |id: Option<u32>| tokenizer.id_to_token(id.unwrap()).unwrap();
            assert_eq!((name(pieces.begin), name(pieces.end)), (begin, end));
        }
    }

    #[test]
    fn a_piece_that_is_named_is_special() {
        let special_tokens = Vec::new();
        let trainer = BpeTrainer { vocab_size: 260, special_tokens, ..Default::default() };
        let tokenizer = trainer.train(["a b"]).unwrap();
        let pieces = SpecialPieces::find(&tokenizer);
        assert_eq!((pieces.begin, pieces.around(2), pieces.all()), (None, 0, vec![]));
        let named = pieces.with_begin(&tokenizer, "!").unwrap().with_end(&tokenizer, "%").unwrap();
        let ids = ["!", "%"].map(|name| tokenizer.token_to_id(name).unwrap());
        assert_eq!((named.around(2), named.all()), (3, ids.to_vec()));
        let message = named.with_end(&tokenizer, "<end>").unwrap_err().to_string();
        assert_eq!(message, "the tokenizer has no piece `<end>`, which `examples.end` names");
    }
}
