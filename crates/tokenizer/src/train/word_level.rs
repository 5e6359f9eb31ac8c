//! Word level: the most frequent words.

use std::cmp::Reverse;

use super::{TrainItem, TrainProgress, WordCounts, check_size, count};
use crate::{AddedToken, Model, Normalizer, PreTokenizer, Result, Tokenizer, Vocab, WordLevel};

/// Trains a word-level vocabulary: the special tokens, then the words by descending frequency, ties sorted
/// by bytes, as in `tokenizers`.
#[derive(Debug, Clone, PartialEq)]
pub struct WordLevelTrainer {
    /// Target number of words, including special tokens. The result is smaller if the text has
    /// fewer.
    pub vocab_size: usize,
    /// Rarer words are left out.
    pub min_frequency: u64,
    /// The first ids.
    pub special_tokens: Vec<String>,
    /// Stands for all other words. If it is neither a special token nor a word of the text, other words
    /// are dropped when encoding.
    pub unk_token: String,
    /// Normalises before everything else.
    pub normalizer: Option<Normalizer>,
    /// Cuts the text into words.
    pub pre_tokenizer: Option<PreTokenizer>,
}

impl Default for WordLevelTrainer {
    /// 30,000 words and punctuation marks, with BERT's special tokens as ids 0 to 4,
    /// case-sensitive.
    fn default() -> Self {
        Self {
            vocab_size: 30_000,
            min_frequency: 0,
            special_tokens: ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).into(),
            unk_token: "[UNK]".into(),
            normalizer: None,
            pre_tokenizer: Some(PreTokenizer::Whitespace),
        }
    }
}

impl WordLevelTrainer {
    /// Trains on lines of text, or on the results of reading them.
    ///
    /// # Errors
    /// An item cannot be read; the size leaves no room.
    ///
    /// ```
    /// use cloze_tokenizer::train::WordLevelTrainer;
    ///
    /// let trainer = WordLevelTrainer { vocab_size: 8, ..Default::default() };
    /// let tokenizer = trainer.train(["red roses, red wine", "red roses"])?;
    /// assert_eq!(tokenizer.encode("red wine and roses", false)?.tokens, ["red", "[UNK]", "[UNK]", "roses"]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
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
        self.train_counted(&self.count(items, progress)?, progress)
    }

    /// Counts the words of a text as [`train_with`](Self::train_with) does.
    ///
    /// # Errors
    /// An item cannot be read; the size leaves no room.
    pub fn count<I: IntoIterator<Item: TrainItem>>(
        &self,
        items: I,
        progress: &mut dyn FnMut(TrainProgress),
    ) -> Result<WordCounts> {
        check_size(self.vocab_size, self.special_tokens.len(), 0)?;
        count::words(items, self.normalizer.as_ref(), self.pre_tokenizer.as_ref(), progress)
    }

    /// Trains on counted words.
    ///
    /// # Errors
    /// The size leaves no room.
    pub fn train_counted(
        &self,
        words: &WordCounts,
        _progress: &mut dyn FnMut(TrainProgress),
    ) -> Result<Tokenizer> {
        check_size(self.vocab_size, self.special_tokens.len(), 0)?;
        let mut words: Vec<(&str, u64)> = words.iter().collect();
        // The words come sorted, and the sort is stable.
        words.sort_by_key(|(_, count)| Reverse(*count));
        let words = words.into_iter().filter(|(_, count)| *count >= self.min_frequency);
        let words = words.map(|(word, _)| word.to_owned()).filter(|w| !self.special_tokens.contains(w));
        let tokens = self.special_tokens.iter().cloned().chain(words).take(self.vocab_size);
        let model = WordLevel::new(Vocab::from_tokens(tokens)?, &self.unk_token);
        let mut tokenizer = Tokenizer::new(Model::WordLevel(model));
        if let Some(normalizer) = &self.normalizer {
            tokenizer = tokenizer.with_normalizer(normalizer.clone())?;
        }
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            tokenizer = tokenizer.with_pre_tokenizer(pre_tokenizer.clone());
        }
        tokenizer.add_tokens(self.special_tokens.iter().map(AddedToken::special))?;
        Ok(tokenizer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_falling_frequency() {
        let trainer = WordLevelTrainer {
            special_tokens: vec!["<unk>".into()],
            unk_token: "<unk>".into(),
            normalizer: Some(Normalizer::Lowercase),
            pre_tokenizer: Some(PreTokenizer::WhitespaceSplit),
            vocab_size: 4,
            ..Default::default()
        };
        let tokens = |trainer: &WordLevelTrainer| {
            let tokenizer = trainer.train(["b c a d", "D b <unk> <unk> <unk>"]).unwrap();
            tokenizer.model().vocab().iter().map(|(_, t)| t.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(tokens(&trainer), ["<unk>", "b", "d", "a"]);
        assert_eq!(tokens(&WordLevelTrainer { min_frequency: 2, ..trainer }), ["<unk>", "b", "d"]);
    }
}
