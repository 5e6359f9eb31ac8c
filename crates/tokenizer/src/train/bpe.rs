//! Byte-pair encoding, of characters or of bytes.

use super::{TrainItem, TrainProgress, WordCounts, check_size, count, merges, symbols::Settings};
use crate::{
    AddedToken, Bpe, BpeConfig, ByteLevel, Decoder, Model, Normalizer, PreTokenizer, Result, Tokenizer, Vocab,
};

/// Trains byte-pair encoding (Sennrich et al. 2016).
///
/// With `byte_level`, words are split as in GPT-2 and encoded as bytes, so nothing is unknown, and the
/// result is RoBERTa's tokenizer. Otherwise words are split at white space and punctuation into
/// characters, with [`end_of_word_suffix`](Self::end_of_word_suffix) marking their ends.
#[derive(Debug, Clone, PartialEq)]
pub struct BpeTrainer {
    /// Whether to work on bytes.
    pub byte_level: bool,
    /// Target number of pieces, including special tokens. The result is smaller if the text runs
    /// out of pairs.
    pub vocab_size: usize,
    /// Rarer pairs are not merged.
    pub min_frequency: u64,
    /// The first ids. `<unk>`, if among them, stands for unknown characters.
    pub special_tokens: Vec<String>,
    /// Keep only this many of the most frequent characters; no effect with `byte_level`.
    pub limit_alphabet: Option<usize>,
    /// Characters to include even if the text lacks them; with `byte_level`, all bytes are
    /// included.
    pub initial_alphabet: Vec<char>,
    /// Begins every piece inside a word; not with `byte_level`.
    pub continuing_subword_prefix: Option<String>,
    /// Ends the last piece of a word; not with `byte_level`.
    pub end_of_word_suffix: Option<String>,
    /// Normalises before everything else.
    pub normalizer: Option<Normalizer>,
    /// Cuts text into words, instead of GPT-2's pattern with `byte_level`, or of BERT's splitting
    /// without; applied before bytes become characters.
    pub pre_tokenizer: Option<PreTokenizer>,
    /// Merged pieces stay shorter than this many characters (bytes with `byte_level`), excluding prefix
    /// and suffix.
    pub max_token_chars: Option<usize>,
}

impl Default for BpeTrainer {
    /// 30,000 byte-level pieces with RoBERTa's special tokens as ids 0 to 4.
    fn default() -> Self {
        Self {
            byte_level: true,
            vocab_size: 30_000,
            min_frequency: 0,
            special_tokens: ["<s>", "<pad>", "</s>", "<unk>", "<mask>"].map(String::from).into(),
            limit_alphabet: None,
            initial_alphabet: Vec::new(),
            continuing_subword_prefix: None,
            end_of_word_suffix: None,
            normalizer: None,
            pre_tokenizer: None,
            max_token_chars: None,
        }
    }
}

impl BpeTrainer {
    /// Of characters, with `</w>` at the end of words.
    pub fn characters() -> Self {
        Self { byte_level: false, end_of_word_suffix: Some("</w>".into()), ..Self::default() }
    }

    /// Trains on lines of text, or on the results of reading them.
    ///
    /// # Errors
    /// An item cannot be read; the size leaves no room.
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
        check_size(self.vocab_size, self.special_tokens.len(), self.alphabet().len())?;
        count::words(items, self.normalizer.as_ref(), Some(&self.words()), progress)
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
        let alphabet = self.alphabet();
        check_size(self.vocab_size, self.special_tokens.len(), alphabet.len())?;
        let marks = |mark: &Option<String>| mark.clone().filter(|m| !self.byte_level && !m.is_empty());
        let prefix = marks(&self.continuing_subword_prefix);
        let suffix = marks(&self.end_of_word_suffix);
        let settings = Settings {
            vocab_size: self.vocab_size,
            min_frequency: self.min_frequency,
            special_tokens: &self.special_tokens,
            limit_alphabet: self.limit_alphabet.filter(|_| !self.byte_level),
            initial_alphabet: &alphabet,
            prefix: prefix.as_deref(),
            suffix: suffix.as_deref(),
            max_token_chars: self.max_token_chars,
        };
        let learnt = merges::learn(&words.0, &settings, progress);
        let unk = self.special_tokens.iter().find(|t| *t == "<unk>" && !self.byte_level);
        let decoder = match (&prefix, &suffix) {
            (_, Some(suffix)) => Decoder::BPEDecoder { suffix: suffix.clone() },
            (Some(prefix), None) => Decoder::WordPiece { prefix: prefix.clone(), cleanup: false },
            (None, None) => Decoder::Sequence { decoders: Vec::new() },
        };
        let config = BpeConfig {
            unk_token: unk.cloned(),
            continuing_subword_prefix: prefix,
            end_of_word_suffix: suffix,
            ..BpeConfig::default()
        };
        let model = Bpe::from_ids(Vocab::from_tokens(learnt.tokens)?, learnt.merges, config)?;
        let mut tokenizer = if self.byte_level {
            Tokenizer::byte_level_bpe(model)?
        } else {
            Tokenizer::new(Model::Bpe(model)).with_decoder(decoder)
        };
        if self.pre_tokenizer.is_some() || !self.byte_level {
            tokenizer = tokenizer.with_pre_tokenizer(self.words());
        }
        // Those with settings of their own, such as RoBERTa's mask, are there already.
        let missing = self.special_tokens.iter().filter(|t| tokenizer.added.id(t).is_none());
        let missing: Vec<_> = missing.map(AddedToken::special).collect();
        tokenizer.add_tokens(missing)?;
        match &self.normalizer {
            Some(normalizer) => tokenizer.with_normalizer(normalizer.clone()),
            None => Ok(tokenizer),
        }
    }

    /// The characters that the vocabulary has in any case.
    fn alphabet(&self) -> Vec<char> {
        let mut alphabet = self.initial_alphabet.clone();
        if self.byte_level {
            alphabet.extend(ByteLevel::alphabet());
            alphabet.sort_unstable();
            alphabet.dedup();
        }
        alphabet
    }

    /// The pre-tokenizer that splits text into words.
    fn words(&self) -> PreTokenizer {
        match (&self.pre_tokenizer, self.byte_level) {
            (None, true) => PreTokenizer::ByteLevel(ByteLevel::gpt2()),
            (None, false) => PreTokenizer::BertPreTokenizer,
            (Some(own), false) => own.clone(),
            (Some(own), true) => {
                let bytes = PreTokenizer::ByteLevel(ByteLevel { use_regex: false, ..ByteLevel::gpt2() });
                PreTokenizer::Sequence { pretokenizers: vec![own.clone(), bytes] }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_spell_everything() {
        let trainer = BpeTrainer { vocab_size: 266, ..Default::default() };
        let tokenizer = trainer.train(["the theme then", "the them"]).unwrap();
        assert_eq!(tokenizer.vocab_size(), 266);
        for text in ["the theme 中 é\u{0}", " x", ""] {
            let encoding = tokenizer.encode(text, true).unwrap();
            assert_eq!(encoding.ids[0], 0);
            assert_eq!(tokenizer.decode(&encoding.ids, true).unwrap(), text);
        }
        assert_eq!(tokenizer.encode("the <mask>", true).unwrap().tokens, ["<s>", "the", " <mask>", "</s>"]);
    }

    #[test]
    fn characters_with_an_end_of_word() {
        let trainer = BpeTrainer { vocab_size: 30, ..BpeTrainer::characters() };
        let tokenizer = trainer.train(["low lower", "low slow"]).unwrap();
        let encoding = tokenizer.encode("slow low x", false).unwrap();
        assert_eq!(tokenizer.decode(&encoding.ids, true).unwrap(), "slow low");
        assert!(encoding.tokens.contains(&"low</w>".to_owned()));
        assert_eq!(encoding.tokens.last().unwrap(), "<unk>");
    }

    #[test]
    fn words_of_ones_own() {
        let pre_tokenizer = Some(PreTokenizer::WhitespaceSplit);
        let bytes = BpeTrainer { vocab_size: 264, pre_tokenizer, ..Default::default() };
        let tokenizer = bytes.train(["a-é a-é"]).unwrap();
        assert_eq!(tokenizer.encode("a-é", false).unwrap().tokens, ["a-Ã©"]);
        let marked = BpeTrainer {
            continuing_subword_prefix: Some("##".into()),
            end_of_word_suffix: None,
            ..BpeTrainer { byte_level: false, ..bytes }
        };
        let tokenizer = marked.train(["a-é a-é b-é"]).unwrap();
        let encoding = tokenizer.encode("a-é b-é-", false).unwrap();
        assert_eq!(encoding.tokens, ["a-é", "b-é", "##-"]);
        assert_eq!(tokenizer.decode(&encoding.ids, true).unwrap(), "a-é b-é-");
    }
}
