//! WordPiece by merge frequency.

use super::{TrainItem, TrainProgress, check_size, count, merges};
use crate::{BertNormalizer, Normalizer, PreTokenizer, Result, Tokenizer, Vocab};

/// Trains a WordPiece vocabulary by joining the most frequent pairs, as `tokenizers` does. (The WordPiece
/// of Schuster & Nakajima 2012 joins the pair that raises the likelihood most.)
///
/// The result is BERT's tokenizer with the special tokens first.
#[derive(Debug, Clone, PartialEq)]
pub struct WordPieceTrainer {
    /// Pieces wanted, the special tokens included. Fewer result if the text has no more pairs.
    pub vocab_size: usize,
    /// Pairs that come less often are not joined.
    pub min_frequency: u64,
    /// The first ids. `[UNK]` must be among them; BERT's five names become special tokens.
    pub special_tokens: Vec<String>,
    /// Keep only so many characters, the most frequent. BERT's pipelines use 1,000.
    pub limit_alphabet: Option<usize>,
    /// Characters to have even if the text does not.
    pub initial_alphabet: Vec<char>,
    /// Lower-case and strip accents, as for bert-base-uncased.
    pub lowercase: bool,
}

impl Default for WordPieceTrainer {
    /// 30,000 pieces, uncased, with BERT's special tokens as ids 0 to 4.
    fn default() -> Self {
        Self {
            vocab_size: 30_000,
            min_frequency: 0,
            special_tokens: ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).into(),
            limit_alphabet: None,
            initial_alphabet: Vec::new(),
            lowercase: true,
        }
    }
}

impl WordPieceTrainer {
    /// Trains on lines of text, or on results of reading them.
    ///
    /// # Errors
    /// An item cannot be read; the size leaves no room; `[UNK]` is missing.
    pub fn train<I: IntoIterator<Item: TrainItem>>(&self, items: I) -> Result<Tokenizer> {
        self.train_with(items, &mut |_| {})
    }

    /// The same, reporting progress.
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn train_with<I: IntoIterator<Item: TrainItem>>(
        &self,
        items: I,
        progress: &mut dyn FnMut(TrainProgress),
    ) -> Result<Tokenizer> {
        check_size(self.vocab_size, self.special_tokens.len())?;
        let bert = if self.lowercase { BertNormalizer::uncased() } else { BertNormalizer::cased() };
        let normalizer = Normalizer::BertNormalizer(bert);
        let pre_tokenizer = PreTokenizer::BertPreTokenizer;
        let words = count::words(items, Some(&normalizer), Some(&pre_tokenizer), progress)?;
        let settings = merges::Settings {
            vocab_size: self.vocab_size,
            min_frequency: self.min_frequency,
            special_tokens: &self.special_tokens,
            limit_alphabet: self.limit_alphabet,
            initial_alphabet: &self.initial_alphabet,
            prefix: Some("##"),
            suffix: None,
            max_token_chars: None,
        };
        let learnt = merges::learn(&words, &settings, progress);
        Tokenizer::bert(Vocab::from_tokens(learnt.tokens)?, self.lowercase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_tokens_come_first() {
        let trainer = WordPieceTrainer { vocab_size: 16, ..Default::default() };
        let mut last = None;
        let tokenizer = trainer.train_with(["Banana bandana", "banana"], &mut |p| last = Some(p)).unwrap();
        assert_eq!(tokenizer.vocab_size(), 16);
        let ids = tokenizer.special_ids();
        assert_eq!([ids.pad, ids.unk, ids.cls, ids.sep, ids.mask], [0, 1, 2, 3, 4].map(Some));
        assert_eq!(last, Some(TrainProgress::Merging { done: 16, total: 16 }));
        let again = Tokenizer::from_json(&tokenizer.to_json()).unwrap();
        assert_eq!(again.encode("banana band", true), tokenizer.encode("banana band", true));
        let tiny = WordPieceTrainer { vocab_size: 5, ..Default::default() };
        assert!(tiny.train(["a"]).is_err());
    }
}
