//! Splits at delimiters (a pattern, punctuation, digits or one character), or at a fixed length.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    Result,
    pattern::{Pattern, SplitBehavior, char_parts},
    pre_tokenizers::Splitter,
    unicode::{PUNCTUATION, is},
};

/// Splits at a pattern's matches or, with `invert`, at everything else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitPattern {
    /// The delimiter.
    pub pattern: Pattern,
    /// What to do with it.
    pub behavior: SplitBehavior,
    /// Whether the pattern describes words instead of delimiters.
    pub invert: bool,
}

impl SplitPattern {
    /// The hand-written matcher, if the words are its matches, which cover the text.
    fn splitter(&self) -> Option<Splitter> {
        let matches = self.behavior == SplitBehavior::Isolated
            || self.invert && self.behavior == SplitBehavior::Removed;
        self.pattern.splitter().filter(|_| matches)
    }

    /// Whether appending text changes only the last few words.
    pub(super) fn cuts_locally(&self) -> bool {
        self.splitter().is_some() || self.pattern.text().is_some()
    }

    pub(super) fn cut(&self, text: &str, word: &mut dyn FnMut(Range<usize>)) -> Result<()> {
        if let Some(splitter) = self.splitter() {
            splitter(text, word);
            return Ok(());
        }
        let mut parts = self.pattern.parts(text)?;
        if self.invert {
            parts.iter_mut().for_each(|(_, found)| *found = !*found);
        }
        self.behavior.ranges(parts).into_iter().for_each(word);
        Ok(())
    }
}

/// Cuts at punctuation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Punctuation {
    /// What to do with it.
    #[serde(default = "isolated")]
    pub behavior: SplitBehavior,
}

fn isolated() -> SplitBehavior {
    SplitBehavior::Isolated
}

impl Punctuation {
    pub(super) fn cut(&self, text: &str, word: &mut dyn FnMut(Range<usize>)) {
        self.behavior.ranges(char_parts(text, |c| is(c, PUNCTUATION))).into_iter().for_each(word);
    }
}

/// Cuts around numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digits {
    /// Every digit alone, or runs of them.
    pub individual_digits: bool,
}

impl Digits {
    pub(super) fn cut(&self, text: &str, word: &mut dyn FnMut(Range<usize>)) {
        let behavior =
            if self.individual_digits { SplitBehavior::Isolated } else { SplitBehavior::Contiguous };
        behavior.ranges(char_parts(text, char::is_numeric)).into_iter().for_each(word);
    }
}

/// Cuts at a character, which is dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CharDelimiterSplit {
    /// The character.
    pub delimiter: char,
}

impl CharDelimiterSplit {
    pub(super) fn cut(&self, text: &str, word: &mut dyn FnMut(Range<usize>)) {
        SplitBehavior::Removed.ranges(char_parts(text, |c| c == self.delimiter)).into_iter().for_each(word);
    }
}

/// Cuts after this many characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "Length")]
pub struct FixedLength {
    length: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Length {
    #[serde(default = "five")]
    length: usize,
}

fn five() -> usize {
    5
}

impl TryFrom<Length> for FixedLength {
    type Error = crate::Error;

    fn try_from(Length { length }: Length) -> Result<Self> {
        Self::new(length)
    }
}

impl FixedLength {
    /// Words of `length` characters; the last one has the rest.
    ///
    /// # Errors
    /// The length is 0.
    pub fn new(length: usize) -> Result<Self> {
        match length {
            0 => Err(crate::Error::invalid("length", "it is 0; expected 1 or more")),
            _ => Ok(Self { length }),
        }
    }

    pub(super) fn cut(&self, text: &str, word: &mut dyn FnMut(Range<usize>)) {
        let mut start = 0;
        for (at, _) in text.char_indices().skip(self.length).step_by(self.length) {
            word(start..at);
            start = at;
        }
        word(start..text.len());
    }
}

#[cfg(test)]
mod tests {
    use crate::PreTokenizer;

    #[test]
    fn each() {
        for (json, expected) in [
            (r#"{"type":"Punctuation","behavior":"Isolated"}"#, &["a1", "-", "b22 c", "!"][..]),
            (r#"{"type":"Digits","individual_digits":true}"#, &["a", "1", "-b", "2", "2", " c!"]),
            (r#"{"type":"Digits","individual_digits":false}"#, &["a", "1", "-b", "22", " c!"]),
            (r#"{"type":"CharDelimiterSplit","delimiter":"-"}"#, &["a1", "b22 c!"]),
            (r#"{"type":"FixedLength","length":4}"#, &["a1-b", "22 c", "!"]),
            (
                r#"{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Removed","invert":true}"#,
                &["a1", "b22", "c"],
            ),
            (
                r#"{"type":"Split","pattern":{"String":"2"},"behavior":"MergedWithNext","invert":false}"#,
                &["a1-b", "2", "2 c!"],
            ),
        ] {
            let pre_tokenizer: PreTokenizer = serde_json::from_str(json).unwrap();
            assert_eq!(pre_tokenizer.words("a1-b22 c!").unwrap(), expected, "{json}");
            assert_eq!(serde_json::to_string(&pre_tokenizer).unwrap(), json);
        }
        assert!(serde_json::from_str::<PreTokenizer>(r#"{"type":"FixedLength","length":0}"#).is_err());
    }
}
