//! Byte-pair encoding, of characters or of bytes.

use super::{TrainItem, TrainProgress, check_size, count, merges};
use crate::{
    AddedToken, Bpe, BpeConfig, ByteLevel, Decoder, Model, Normalizer, PreTokenizer, Result, Tokenizer, Vocab,
};

/// Trains byte-pair encoding (Sennrich et al. 2016).
///
/// With `byte_level`, words are split as GPT-2 does and spelt in bytes, so that nothing is unknown, and
/// the result is RoBERTa's tokenizer. Otherwise words are split at white space and punctuation and spelt
/// in characters, with [`end_of_word_suffix`](Self::end_of_word_suffix) marking where they end.
#[derive(Debug, Clone, PartialEq)]
pub struct BpeTrainer {
    /// Whether to spell in bytes.
    pub byte_level: bool,
    /// Pieces wanted, the special tokens included. Fewer result if the text has no more pairs.
    pub vocab_size: usize,
    /// Pairs that come less often are not joined.
    pub min_frequency: u64,
    /// The first ids. `<unk>`, if among them, stands for unknown characters.
    pub special_tokens: Vec<String>,
    /// Keep only so many characters, the most frequent; of no use with `byte_level`.
    pub limit_alphabet: Option<usize>,
    /// Characters to have even if the text does not; with `byte_level`, all bytes are.
    pub initial_alphabet: Vec<char>,
    /// Ends the last piece of a word; not with `byte_level`.
    pub end_of_word_suffix: Option<String>,
    /// Normalises before everything else.
    pub normalizer: Option<Normalizer>,
    /// Pieces stay shorter than this many characters (bytes with `byte_level`).
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
            end_of_word_suffix: None,
            normalizer: None,
            max_token_chars: None,
        }
    }
}

impl BpeTrainer {
    /// Of characters, with `</w>` at the end of words.
    pub fn characters() -> Self {
        Self { byte_level: false, end_of_word_suffix: Some("</w>".into()), ..Self::default() }
    }

    /// Trains on lines of text, or on results of reading them.
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
        let mut alphabet = self.initial_alphabet.clone();
        let mut suffix = self.end_of_word_suffix.as_deref();
        let pre_tokenizer = if self.byte_level {
            alphabet.extend(ByteLevel::alphabet());
            suffix = None;
            PreTokenizer::ByteLevel(ByteLevel::gpt2())
        } else {
            PreTokenizer::BertPreTokenizer
        };
        check_size(self.vocab_size, self.special_tokens.len() + alphabet.len())?;
        let words = count::words(items, self.normalizer.as_ref(), Some(&pre_tokenizer), progress)?;
        let settings = merges::Settings {
            vocab_size: self.vocab_size,
            min_frequency: self.min_frequency,
            special_tokens: &self.special_tokens,
            limit_alphabet: self.limit_alphabet.filter(|_| !self.byte_level),
            initial_alphabet: &alphabet,
            prefix: None,
            suffix,
            max_token_chars: self.max_token_chars,
        };
        let learnt = merges::learn(&words, &settings, progress);
        let unk = self.special_tokens.iter().find(|t| *t == "<unk>" && !self.byte_level);
        let config = BpeConfig {
            unk_token: unk.cloned(),
            end_of_word_suffix: suffix.map(str::to_owned),
            ..BpeConfig::default()
        };
        let model = Bpe::from_ids(Vocab::from_tokens(learnt.tokens)?, learnt.merges, config)?;
        let mut tokenizer = if self.byte_level {
            Tokenizer::byte_level_bpe(model)?
        } else {
            let decoder = suffix.map_or(Decoder::Sequence { decoders: Vec::new() }, |suffix| {
                Decoder::BPEDecoder { suffix: suffix.to_owned() }
            });
            Tokenizer::new(Model::Bpe(model)).with_pre_tokenizer(pre_tokenizer).with_decoder(decoder)
        };
        // Those with settings of their own, such as RoBERTa's mask, are there already.
        let missing = self.special_tokens.iter().filter(|t| tokenizer.added.id(t).is_none());
        let missing: Vec<_> = missing.map(AddedToken::special).collect();
        tokenizer.add_tokens(missing)?;
        match &self.normalizer {
            Some(normalizer) => tokenizer.with_normalizer(normalizer.clone()),
            None => Ok(tokenizer),
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
            let encoding = tokenizer.encode(text, true);
            assert_eq!(encoding.ids[0], 0);
            assert_eq!(tokenizer.decode(&encoding.ids, true), text);
        }
        assert_eq!(tokenizer.encode("the <mask>", true).tokens, ["<s>", "the", " <mask>", "</s>"]);
    }

    #[test]
    fn characters_with_an_end_of_word() {
        let trainer = BpeTrainer { vocab_size: 30, ..BpeTrainer::characters() };
        let tokenizer = trainer.train(["low lower", "low slow"]).unwrap();
        let encoding = tokenizer.encode("slow low x", false);
        assert_eq!(tokenizer.decode(&encoding.ids, true), "slow low");
        assert!(encoding.tokens.contains(&"low</w>".to_owned()));
        assert_eq!(encoding.tokens.last().unwrap(), "<unk>");
    }
}
