//! The second stage: normalised text to words.

mod bert;
mod byte_level;
mod whitespace;

pub use byte_level::ByteLevel;
pub(crate) use byte_level::{byte_to_char, char_to_byte};

use serde::{Deserialize, Serialize};

use crate::{
    normalized::NormalizedText,
    splits::{Split, Splits},
};

/// A pre-tokenizer, named as in `tokenizer.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum PreTokenizer {
    /// Cuts at white space and around every punctuation character.
    BertPreTokenizer,
    /// GPT-2's splitting and the mapping of bytes to visible characters.
    ByteLevel(ByteLevel),
    /// Runs of word characters and runs of other visible ones: `\w+|[^\w\s]+`.
    Whitespace,
    /// Cuts at white space only.
    WhitespaceSplit,
    /// One pre-tokenizer after the other.
    Sequence {
        /// In this order.
        pretokenizers: Vec<PreTokenizer>,
    },
}

impl PreTokenizer {
    /// The `type`s that exist here.
    pub(crate) const TYPES: &[&str] =
        &["BertPreTokenizer", "ByteLevel", "Whitespace", "WhitespaceSplit", "Sequence"];

    /// The words of `text`.
    ///
    /// ```
    /// use cloze_tokenizer::{ByteLevel, PreTokenizer};
    ///
    /// assert_eq!(PreTokenizer::BertPreTokenizer.words("it's so."), ["it", "'", "s", "so", "."]);
    /// assert_eq!(PreTokenizer::ByteLevel(ByteLevel::gpt2()).words("it's so."), ["it", "'s", "Ġso", "."]);
    /// ```
    pub fn words(&self, text: &str) -> Vec<String> {
        let mut splits = Splits::new(false);
        let whole = Split { range: 0..text.len(), added: None };
        splits.push(NormalizedText::new(text, 0, false), [whole]);
        self.apply(&mut splits);
        let words = splits.splits.iter();
        words.map(|s| splits.text[s.range.clone()].to_owned()).collect()
    }

    /// Cuts into words, and writes them as the model is to see them.
    pub(crate) fn apply(&self, splits: &mut Splits) {
        self.cut(splits);
        splits.write_bytes();
    }

    /// The same, but leaves [`Splits::write_bytes`] to the caller.
    pub(crate) fn cut(&self, splits: &mut Splits) {
        splits.write_bytes();
        if !self.only_cuts() {
            splits.write_spans();
        }
        match self {
            Self::BertPreTokenizer => splits.cut(bert::cut),
            Self::ByteLevel(byte_level) => byte_level.apply(splits),
            Self::Whitespace => splits.cut(whitespace::words_and_symbols),
            Self::WhitespaceSplit => splits.cut(whitespace::split),
            Self::Sequence { pretokenizers } => pretokenizers.iter().for_each(|p| p.cut(splits)),
        }
    }

    /// Whether it works on text whose spans are not written down.
    fn only_cuts(&self) -> bool {
        use PreTokenizer::{BertPreTokenizer, ByteLevel, Sequence, Whitespace, WhitespaceSplit};
        matches!(self, BertPreTokenizer | ByteLevel(_) | Sequence { .. } | Whitespace | WhitespaceSplit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence() {
        let both = PreTokenizer::Sequence {
            pretokenizers: vec![PreTokenizer::WhitespaceSplit, PreTokenizer::BertPreTokenizer],
        };
        assert_eq!(both.words(" a.b  c"), ["a", ".", "b", "c"]);
    }

    #[test]
    fn every_listed_type_is_one() {
        for name in PreTokenizer::TYPES {
            let json = format!(r#"{{"type":"{name}","pretokenizers":[]}}"#);
            let found = serde_json::from_str::<PreTokenizer>(&json);
            // `pretokenizers` belongs to the sequence only, so ByteLevel refuses it by name.
            assert!(found.is_ok() || found.unwrap_err().to_string().contains("unknown field"));
        }
    }
}
