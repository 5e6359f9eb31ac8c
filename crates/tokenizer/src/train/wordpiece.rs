//! WordPiece, by frequency or by likelihood.

use super::{TrainItem, TrainProgress, WordCounts, check_size, count, likelihood, merges, symbols::Settings};
use crate::{BertNormalizer, Decoder, Model, Normalizer, PreTokenizer, Result, Tokenizer, Vocab, WordPiece};

/// Which pair of pieces is merged next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WordPieceScore {
    /// The most frequent, as in byte-pair encoding (Sennrich et al. 2016): as in `tokenizers`.
    #[default]
    Frequency,
    /// The one that most increases the likelihood of the text per occurrence, `freq(ab) / (freq(a)
    /// · freq(b))`: the WordPiece of Schuster & Nakajima (2012) and BERT.
    ///
    /// Rare characters that always occur together score highest: set a [minimum
    /// frequency](WordPieceTrainer::min_frequency) to get useful pieces.
    ///
    /// ```
    /// use cloze_tokenizer::train::{WordPieceScore, WordPieceTrainer};
    ///
    /// let lines = ["the then them the", "the quiz"];
    /// let score = WordPieceScore::Likelihood;
    /// let trainer = WordPieceTrainer { vocab_size: 27, score, ..Default::default() };
    /// // `qu` occurs once, but so do `q` and `u`; `he` and `th` are three times as frequent.
    /// assert!(trainer.train(lines)?.token_to_id("qu").is_some());
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    Likelihood,
}

/// Trains a WordPiece vocabulary (Schuster & Nakajima 2012).
///
/// The result is BERT's tokenizer with the special tokens first.
#[derive(Debug, Clone, PartialEq)]
pub struct WordPieceTrainer {
    /// Target number of pieces, including special tokens. The result is smaller if the text runs
    /// out of pairs.
    pub vocab_size: usize,
    /// Rarer pairs are not merged.
    pub min_frequency: u64,
    /// The first ids. `[UNK]` must be among them; BERT's five names become special tokens.
    pub special_tokens: Vec<String>,
    /// Keep only this many of the most frequent characters. BERT's pipelines use 1,000.
    pub limit_alphabet: Option<usize>,
    /// Characters to include even if the text lacks them.
    pub initial_alphabet: Vec<char>,
    /// Lower-case and strip accents, as for bert-base-uncased.
    pub lowercase: bool,
    /// Which pair is merged next.
    pub score: WordPieceScore,
    /// Begins every piece inside a word.
    pub continuing_subword_prefix: String,
    /// Merged pieces stay shorter than this many characters, excluding the prefix.
    pub max_token_chars: Option<usize>,
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
            score: WordPieceScore::Frequency,
            continuing_subword_prefix: "##".into(),
            max_token_chars: None,
        }
    }
}

impl WordPieceTrainer {
    /// Trains on lines of text, or on the results of reading them.
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
        let bert = if self.lowercase { BertNormalizer::uncased() } else { BertNormalizer::cased() };
        let normalizer = Normalizer::BertNormalizer(bert);
        count::words(items, Some(&normalizer), Some(&PreTokenizer::BertPreTokenizer), progress)
    }

    /// Trains on counted words.
    ///
    /// # Errors
    /// The size leaves no room.
    pub fn train_counted(
        &self,
        words: &WordCounts,
        progress: &mut dyn FnMut(TrainProgress),
    ) -> Result<Tokenizer> {
        check_size(self.vocab_size, self.special_tokens.len(), 0)?;
        let prefix = self.continuing_subword_prefix.as_str();
        let settings = Settings {
            vocab_size: self.vocab_size,
            min_frequency: self.min_frequency,
            special_tokens: &self.special_tokens,
            limit_alphabet: self.limit_alphabet,
            initial_alphabet: &self.initial_alphabet,
            prefix: Some(prefix).filter(|p| !p.is_empty()),
            suffix: None,
            max_token_chars: self.max_token_chars,
        };
        let learnt = match self.score {
            WordPieceScore::Frequency => merges::learn(&words.0, &settings, progress),
            WordPieceScore::Likelihood => likelihood::learn(&words.0, &settings, progress),
        };
        let mut tokenizer = Tokenizer::bert(Vocab::from_tokens(learnt.tokens)?, self.lowercase)?;
        if prefix != "##"
            && let Model::WordPiece(bert) = &tokenizer.model
        {
            let vocab = bert.vocab().clone();
            let max = bert.max_input_chars_per_word();
            tokenizer.model = Model::WordPiece(WordPiece::with(vocab, bert.unk_token(), prefix, max)?);
            let decoder = Decoder::WordPiece { prefix: prefix.to_owned(), cleanup: true };
            tokenizer = tokenizer.with_decoder(decoder);
        }
        Ok(tokenizer)
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
        assert_eq!(
            again.encode("banana band", true).unwrap(),
            tokenizer.encode("banana band", true).unwrap()
        );
        let tiny = WordPieceTrainer { vocab_size: 5, ..Default::default() };
        assert!(tiny.train(["a"]).is_err());
    }

    #[test]
    fn a_prefix_of_ones_own() {
        let trainer = WordPieceTrainer {
            vocab_size: 16,
            continuing_subword_prefix: "-".into(),
            max_token_chars: Some(4),
            ..Default::default()
        };
        let tokenizer = trainer.train(["banana"]).unwrap();
        let encoding = tokenizer.encode("banana nab", false).unwrap();
        assert_eq!(encoding.tokens, ["ban", "-ana", "[UNK]"]);
        let again = Tokenizer::from_json(&tokenizer.to_json()).unwrap();
        assert_eq!(again.encode("banana", true).unwrap(), tokenizer.encode("banana", true).unwrap());
        assert_eq!(tokenizer.decode(&encoding.ids[..2], true).unwrap(), "banana");
    }
}
