//! The second stage: normalised text to words.

mod bert;
mod byte_level;
mod delimiters;
mod known_patterns;
mod metaspace;
mod unicode_scripts;
mod whitespace;

pub use byte_level::ByteLevel;
pub(crate) use byte_level::{byte_to_char, char_to_byte};
pub use delimiters::{CharDelimiterSplit, Digits, FixedLength, Punctuation, SplitPattern};
pub(crate) use known_patterns::{Splitter, splitter};
pub use metaspace::{Metaspace, PrependScheme};

use serde::{Deserialize, Serialize};

use crate::{
    Result,
    normalized::NormalizedText,
    splits::{Split, Splits},
};

/// A pre-tokenizer, named as in `tokenizer.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
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
    /// Cuts at a pattern.
    Split(SplitPattern),
    /// Cuts at punctuation.
    Punctuation(Punctuation),
    /// Cuts around numbers.
    Digits(Digits),
    /// Cuts at one character.
    CharDelimiterSplit(CharDelimiterSplit),
    /// Cuts after this many characters.
    FixedLength(FixedLength),
    /// Cuts where the script changes: Latin, Han with the Japanese syllabaries, Arabic, ….
    UnicodeScripts,
    /// Spaces as a visible character, and cuts before it.
    Metaspace(Metaspace),
    /// Several pre-tokenizers in sequence.
    Sequence {
        /// In this order.
        pretokenizers: Vec<PreTokenizer>,
    },
}

impl PreTokenizer {
    /// The supported `type`s.
    pub(crate) const TYPES: &[&str] = &[
        "BertPreTokenizer",
        "ByteLevel",
        "Whitespace",
        "WhitespaceSplit",
        "Split",
        "Punctuation",
        "Digits",
        "CharDelimiterSplit",
        "FixedLength",
        "UnicodeScripts",
        "Metaspace",
        "Sequence",
    ];

    /// The words of `text`.
    ///
    /// # Errors
    /// [`Error::PatternGaveUp`](crate::Error::PatternGaveUp), of a `Split`.
    ///
    /// ```
    /// use cloze_tokenizer::{ByteLevel, PreTokenizer};
    ///
    /// assert_eq!(PreTokenizer::BertPreTokenizer.words("it's so.")?, ["it", "'", "s", "so", "."]);
    /// assert_eq!(PreTokenizer::ByteLevel(ByteLevel::gpt2()).words("it's so.")?, ["it", "'s", "Ġso", "."]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn words(&self, text: &str) -> Result<Vec<String>> {
        let track = self.needs_spans();
        let mut splits = Splits::new(track);
        let whole = Split { range: 0..text.len(), added: None };
        splits.push(NormalizedText::new(text, 0, track), [whole]);
        self.apply(&mut splits)?;
        let words = splits.splits.iter();
        Ok(words.map(|s| splits.text[s.range.clone()].to_owned()).collect())
    }

    /// Splits into words, and writes them in the form the model expects.
    pub(crate) fn apply(&self, splits: &mut Splits) -> Result<()> {
        self.cut(splits)?;
        splits.write_bytes();
        Ok(())
    }

    /// The same, but leaves [`Splits::write_bytes`] to the caller.
    pub(crate) fn cut(&self, splits: &mut Splits) -> Result<()> {
        splits.write_bytes();
        if !self.only_cuts() {
            splits.write_spans();
        }
        match self {
            Self::BertPreTokenizer => splits.cut(bert::cut),
            Self::ByteLevel(byte_level) => byte_level.apply(splits),
            Self::Whitespace => splits.cut(whitespace::words_and_symbols),
            Self::WhitespaceSplit => splits.cut(whitespace::split),
            Self::Split(split) => splits.try_cut(|text, word| split.cut(text, word))?,
            Self::Punctuation(punctuation) => splits.cut(|text, word| punctuation.cut(text, word)),
            Self::Digits(digits) => splits.cut(|text, word| digits.cut(text, word)),
            Self::CharDelimiterSplit(split) => splits.cut(|text, word| split.cut(text, word)),
            Self::FixedLength(fixed) => splits.cut(|text, word| fixed.cut(text, word)),
            Self::UnicodeScripts => splits.cut(unicode_scripts::cut),
            Self::Metaspace(metaspace) => metaspace.apply(splits),
            Self::Sequence { pretokenizers } => pretokenizers.iter().try_for_each(|p| p.cut(splits))?,
        }
        Ok(())
    }

    /// The pre-tokenizers of nested sequences, in order.
    pub(crate) fn stages<'a>(&'a self, stages: &mut Vec<&'a Self>) {
        match self {
            Self::Sequence { pretokenizers } => pretokenizers.iter().for_each(|p| p.stages(stages)),
            stage => stages.push(stage),
        }
    }

    /// Whether appending text changes only the last few words, regardless of length.
    pub(crate) fn cuts_locally(&self) -> bool {
        match self {
            Self::ByteLevel(byte_level) => byte_level.use_regex,
            Self::Split(split) => split.cuts_locally(),
            Self::Metaspace(metaspace) => metaspace.split,
            Self::Sequence { .. } => false,
            _ => true,
        }
    }

    /// Whether it works on text whose spans are not stored.
    fn only_cuts(&self) -> bool {
        !matches!(self, Self::Metaspace(_))
    }

    /// Whether its words depend on where they are in the original text.
    pub(crate) fn needs_spans(&self) -> bool {
        match self {
            Self::Metaspace(metaspace) => metaspace.prepend_scheme == PrependScheme::First,
            Self::Sequence { pretokenizers } => pretokenizers.iter().any(Self::needs_spans),
            _ => false,
        }
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
        assert_eq!(both.words(" a.b  c").unwrap(), ["a", ".", "b", "c"]);
    }

    #[test]
    fn every_listed_type_is_one() {
        for name in PreTokenizer::TYPES {
            let fields = match *name {
                "Split" => r#","pattern":{"String":"a"},"behavior":"Removed","invert":false"#,
                "Digits" => r#","individual_digits":false"#,
                "CharDelimiterSplit" => r#","delimiter":"a""#,
                "Metaspace" => r#","replacement":"a""#,
                "Sequence" => r#","pretokenizers":[]"#,
                _ => "",
            };
            serde_json::from_str::<PreTokenizer>(&format!(r#"{{"type":"{name}"{fields}}}"#)).unwrap();
        }
    }
}
