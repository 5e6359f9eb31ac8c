//! Normalisers that cut, replace and add text.

use serde::{Deserialize, Serialize};

use crate::{Result, normalized::NormalizedText, pattern::Pattern, pre_tokenizers::byte_to_char};

/// Removes white space at the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strip {
    /// At the beginning.
    pub strip_left: bool,
    /// At the end.
    pub strip_right: bool,
}

impl Strip {
    pub(super) fn apply(&self, text: &mut NormalizedText) {
        let all = text.text();
        let from = if self.strip_left { all.len() - all.trim_start().len() } else { 0 };
        let to = if self.strip_right { all.trim_end().len().max(from) } else { all.len() };
        text.keep(from..to);
    }
}

/// Replaces a pattern by a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replace {
    /// What is replaced.
    pub pattern: Pattern,
    /// The literal replacement.
    pub content: String,
}

impl Replace {
    pub(super) fn apply(&self, text: &mut NormalizedText) -> Result<()> {
        let parts = self.pattern.parts(text.text())?;
        if parts.iter().any(|(_, found)| *found) {
            text.replace(&parts, &self.content);
        }
        Ok(())
    }

    /// `token` with the replacements, as a decoder.
    pub(crate) fn decode(&self, token: &str) -> Result<String> {
        let parts = self.pattern.parts(token)?.into_iter();
        Ok(parts.map(|(range, found)| if found { &self.content } else { &token[range] }).collect())
    }
}

/// Prepends a string to non-empty text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepend {
    /// The text.
    pub prepend: String,
}

impl Prepend {
    pub(super) fn apply(&self, text: &mut NormalizedText) {
        text.prepend(&self.prepend);
    }
}

/// Writes bytes as the visible characters that stand for them.
pub(super) fn byte_level(text: &mut NormalizedText) {
    let mut chars = Vec::with_capacity(text.text().len());
    for c in text.text().chars() {
        let bytes = c
            .encode_utf8(&mut [0; 4])
            .bytes()
            .enumerate()
            .map(|(i, b)| (byte_to_char(b), isize::from(i > 0)))
            .collect::<Vec<_>>();
        chars.extend(bytes);
    }
    text.transform(chars, 0);
}

/// The clean-up of Google's neural machine translation: control characters are dropped; other white
/// space and SentencePiece's symbols become spaces.
pub(super) fn nmt(text: &mut NormalizedText) {
    text.filter(
        |c| !matches!(c, '\u{1}'..='\u{8}' | '\u{b}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{8f}' | '\u{9f}'),
    );
    text.map(|c| match c {
        '\t' | '\n' | '\u{c}' | '\r' | '\u{1680}' | '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}' => ' ',
        '\u{2581}' | '\u{feff}' | '\u{fffd}' => ' ',
        _ => c,
    });
}

#[cfg(test)]
mod tests {
    use crate::Normalizer;

    #[test]
    fn each() {
        for (json, text, expected) in [
            (r#"{"type":"Strip","strip_left":true,"strip_right":false}"#, "\t a b ", "a b "),
            (r#"{"type":"Strip","strip_left":true,"strip_right":true}"#, " \u{a0} ", ""),
            (r#"{"type":"Replace","pattern":{"String":"ab"},"content":"x"}"#, "ababc", "xxc"),
            (r#"{"type":"Replace","pattern":{"Regex":"\\s+"},"content":" "}"#, "a \n b", "a b"),
            (r#"{"type":"Replace","pattern":{"String":""},"content":"-"}"#, "ab", "-a-b-"),
            (r#"{"type":"Prepend","prepend":"▁"}"#, "a", "▁a"),
            (r#"{"type":"Prepend","prepend":"▁"}"#, "", ""),
            (r#"{"type":"ByteLevel"}"#, "a é", "aĠÃ©"),
            (r#"{"type":"Nmt"}"#, "a\u{1}\tb\u{200b}", "a b "),
        ] {
            let normalizer: Normalizer = serde_json::from_str(json).unwrap();
            assert_eq!(normalizer.normalize(text).unwrap(), expected, "{json}");
            assert_eq!(serde_json::to_string(&normalizer).unwrap(), json);
        }
    }
}
