//! The first stage: text to normalised text.

mod bert;
mod edit;
mod precompiled;
mod sentencepiece;
mod unicode;

pub use bert::BertNormalizer;
pub use edit::{Prepend, Replace, Strip};
pub use precompiled::Precompiled;
pub use sentencepiece::SentencePiece;

use serde::{Deserialize, Serialize};
use unicode_normalization_alignments::char::is_combining_mark;

use crate::{Result, normalized::NormalizedText};

/// A normaliser, named as in `tokenizer.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
#[non_exhaustive]
pub enum Normalizer {
    /// BERT's cleaning, ideograph spacing, accent stripping and lower-casing.
    BertNormalizer(BertNormalizer),
    /// Canonical composition.
    NFC,
    /// Canonical decomposition.
    NFD,
    /// Compatibility composition.
    NFKC,
    /// Compatibility decomposition.
    NFKD,
    /// Lower case, character by character.
    Lowercase,
    /// Drops combining marks (from decomposed text).
    StripAccents,
    /// Drops white space at the ends.
    Strip(Strip),
    /// Replaces a pattern.
    Replace(Replace),
    /// Prepends text.
    Prepend(Prepend),
    /// Bytes as visible characters.
    ByteLevel,
    /// Drops control characters and turns other white space into spaces.
    Nmt,
    /// SentencePiece's rules for characters, as `tokenizers` applies them.
    Precompiled(Precompiled),
    /// SentencePiece's rules for characters and spaces, as its own library applies them. Only supported by
    /// cloze.
    SentencePiece(SentencePiece),
    /// Several normalisers in sequence.
    Sequence {
        /// In this order.
        normalizers: Vec<Normalizer>,
    },
}

impl Normalizer {
    /// The supported `type`s.
    pub(crate) const TYPES: &[&str] = &[
        "BertNormalizer",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Lowercase",
        "StripAccents",
        "Strip",
        "Replace",
        "Prepend",
        "ByteLevel",
        "Nmt",
        "Precompiled",
        "SentencePiece",
        "Sequence",
    ];

    /// `text` normalised.
    ///
    /// # Errors
    /// [`Error::PatternGaveUp`](crate::Error::PatternGaveUp), of a `Replace`.
    ///
    /// ```
    /// use cloze_tokenizer::{BertNormalizer, Normalizer};
    ///
    /// let bert = Normalizer::BertNormalizer(BertNormalizer::uncased());
    /// assert_eq!(bert.normalize("Ünïcode\tis 好")?, "unicode is  好 ");
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn normalize(&self, text: &str) -> Result<String> {
        let mut normalized = NormalizedText::new(text, 0, false);
        self.apply(&mut normalized)?;
        Ok(normalized.into_parts().0)
    }

    /// The length in bytes of the longest replaced string; `None` if text may affect the normalisation of any
    /// earlier text.
    pub(crate) fn reach(&self) -> Option<usize> {
        /// The converters' form of SentencePiece's rule for extra spaces.
        const SPACES: &str = " {2,}";
        match self {
            Self::Strip(strip) => (!strip.strip_right).then_some(0),
            Self::Replace(Replace { pattern, .. }) => match pattern.text() {
                Some(text) => Some(text.len()),
                None => (pattern.expression() == Some(SPACES)).then_some(2),
            },
            Self::Sequence { normalizers } => {
                normalizers.iter().try_fold(0, |longest, n| Some(n.reach()?.max(longest)))
            }
            _ => Some(0),
        }
    }

    /// Normalises the text if nothing needs replacing; returns whether it did.
    pub(crate) fn apply_unless_replaced(&self, text: &mut NormalizedText) -> Result<bool> {
        match self {
            Self::Replace(Replace { pattern, .. }) => {
                Ok(!pattern.parts(text.text())?.iter().any(|(_, found)| *found))
            }
            Self::Sequence { normalizers } => {
                for normalizer in normalizers {
                    if !normalizer.apply_unless_replaced(text)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            other => other.apply(text).map(|()| true),
        }
    }

    pub(crate) fn apply(&self, text: &mut NormalizedText) -> Result<()> {
        match self {
            Self::BertNormalizer(bert) => bert.apply(text),
            Self::NFC => unicode::nfc(text),
            Self::NFD => unicode::nfd(text),
            Self::NFKC => unicode::nfkc(text),
            Self::NFKD => unicode::nfkd(text),
            Self::Lowercase => text.lowercase(),
            Self::StripAccents => text.filter(|c| c.is_ascii() || !is_combining_mark(c)),
            Self::Strip(strip) => strip.apply(text),
            Self::Replace(replace) => replace.apply(text)?,
            Self::Prepend(prepend) => prepend.apply(text),
            Self::ByteLevel => edit::byte_level(text),
            Self::Nmt => edit::nmt(text),
            Self::Precompiled(rules) => rules.apply(text),
            Self::SentencePiece(rules) => rules.apply(text),
            Self::Sequence { normalizers } => normalizers.iter().try_for_each(|n| n.apply(text))?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_strips_accents() {
        let strip: Normalizer = serde_json::from_str(
            r#"{"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},{"type":"Lowercase"}]}"#,
        )
        .unwrap();
        assert_eq!(strip.normalize("Élan").unwrap(), "elan");
    }

    #[test]
    fn every_listed_type_is_one() {
        for name in Normalizer::TYPES {
            let json = match *name {
                "Sequence" => r#"{"type":"Sequence","normalizers":[]}"#.to_owned(),
                // A trie of one unit, without rules.
                "Precompiled" => r#"{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAA="}"#.to_owned(),
                "SentencePiece" => r#"{"type":"SentencePiece","rules":null,"add_dummy_prefix":true,"remove_extra_whitespaces":true}"#.to_owned(),
                "Strip" => r#"{"type":"Strip","strip_left":true,"strip_right":true}"#.to_owned(),
                "Replace" => r#"{"type":"Replace","pattern":{"String":"a"},"content":"b"}"#.to_owned(),
                "Prepend" => r#"{"type":"Prepend","prepend":"a"}"#.to_owned(),
                name => format!(r#"{{"type":"{name}"}}"#),
            };
            serde_json::from_str::<Normalizer>(&json).unwrap();
        }
    }
}
