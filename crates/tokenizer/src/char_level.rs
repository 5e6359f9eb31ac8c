//! Character-level tokenizers.

use crate::{AddedToken, Bpe, BpeConfig, Decoder, Model, Result, Tokenizer, Vocab};

impl Tokenizer {
    /// A tokenizer of single characters: the special tokens have the first ids, then come the characters of
    /// `alphabet`, sorted, each once. `unk_token` stands for any other character; without one, other
    /// characters are dropped. In `tokenizer.json` it is a BPE model without merges.
    ///
    /// # Errors
    /// `unk_token` is not a special token; a special token is repeated.
    ///
    /// ```
    /// use cloze_tokenizer::Tokenizer;
    ///
    /// let text = "To be, or not to be";
    /// let tokenizer = Tokenizer::characters(text.chars(), ["<unk>"], Some("<unk>"))?;
    /// assert_eq!(tokenizer.encode("bet!", false)?.tokens, ["b", "e", "t", "<unk>"]);
    /// assert_eq!(tokenizer.decode(&tokenizer.encode(text, false)?.ids, true)?, text);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn characters<T: Into<String>>(
        alphabet: impl IntoIterator<Item = char>,
        special_tokens: impl IntoIterator<Item = T>,
        unk_token: Option<&str>,
    ) -> Result<Self> {
        let special: Vec<String> = special_tokens.into_iter().map(Into::into).collect();
        let mut chars: Vec<char> = alphabet.into_iter().collect();
        chars.sort_unstable();
        chars.dedup();
        let chars = chars.into_iter().map(String::from).filter(|c| !special.contains(c));
        let vocab = Vocab::from_tokens(special.iter().cloned().chain(chars))?;
        let config = BpeConfig { unk_token: unk_token.map(str::to_owned), ..BpeConfig::default() };
        let model = Bpe::new(vocab, Vec::<(&str, &str)>::new(), config)?;
        // A sequence of nothing joins without spaces.
        let decoder = Decoder::Sequence { decoders: Vec::new() };
        let mut tokenizer = Self::new(Model::Bpe(model)).with_decoder(decoder);
        tokenizer.add_tokens(special.into_iter().map(AddedToken::special))?;
        Ok(tokenizer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_is_a_token() {
        let special = ["[PAD]", "x"];
        let tokenizer = Tokenizer::characters("bébax".chars(), special, None).unwrap();
        assert_eq!(tokenizer.vocab_size(), 5);
        let encoding = tokenizer.encode("éa?b[PAD]x", false).unwrap();
        assert_eq!(encoding.tokens, ["é", "a", "b", "[PAD]", "x"]);
        assert_eq!(encoding.offsets[0], (0, 2));
        let again = Tokenizer::from_json(&tokenizer.to_json()).unwrap();
        assert_eq!(again.encode("éab", false).unwrap(), tokenizer.encode("éab", false).unwrap());
        assert!(Tokenizer::characters("a".chars(), ["b"], Some("c")).is_err());
        assert!(Tokenizer::characters("a".chars(), ["b", "b"], None).is_err());
    }
}
