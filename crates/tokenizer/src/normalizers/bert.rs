//! BERT's normalisation (`BasicTokenizer` of google-research/bert), as in `tokenizers`.

use serde::{Deserialize, Serialize};
use unicode_categories::UnicodeCategories;

use crate::{
    normalized::NormalizedText,
    unicode::{ACCENT, CHINESE, DROPPED, SPACE, is},
};

/// Settings of BERT's normaliser.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BertNormalizer {
    /// Drop control characters and turn all white space into spaces.
    pub clean_text: bool,
    /// Put spaces around CJK ideographs, making each a word.
    pub handle_chinese_chars: bool,
    /// Drop accents; `None` follows `lowercase`, as in the original.
    pub strip_accents: Option<bool>,
    /// Lower-case.
    pub lowercase: bool,
}

impl Default for BertNormalizer {
    fn default() -> Self {
        Self::uncased()
    }
}

impl BertNormalizer {
    /// As for bert-base-uncased.
    pub fn uncased() -> Self {
        Self { clean_text: true, handle_chinese_chars: true, strip_accents: None, lowercase: true }
    }

    /// As for bert-base-cased: case and accents stay.
    pub fn cased() -> Self {
        Self { lowercase: false, ..Self::uncased() }
    }

    pub(crate) fn apply(&self, text: &mut NormalizedText) {
        if text.text().is_ascii() && !(self.clean_text && text.text().bytes().any(is_dropped)) {
            let upper = if self.lowercase { b'A'..b'Z' + 1 } else { 0..0 };
            let space = if self.clean_text { b'\t'..b'\r' + 1 } else { 0..0 };
            text.map_ascii(|byte| match byte {
                byte if upper.contains(&byte) => byte | 0x20,
                byte if space.contains(&byte) => b' ',
                byte => byte,
            });
            return;
        }
        if self.clean_text {
            text.filter(|c| !is(c, DROPPED));
            text.map(|c| if is(c, SPACE) { ' ' } else { c });
        }
        if text.text().is_ascii() {
            if self.lowercase {
                text.lowercase();
            }
            return;
        }
        if self.handle_chinese_chars && text.text().chars().any(|c| is(c, CHINESE)) {
            let mut chars = Vec::with_capacity(text.text().len());
            for c in text.text().chars() {
                if is(c, CHINESE) {
                    chars.extend([(' ', 0), (c, 1), (' ', 1)]);
                } else {
                    chars.push((c, 0));
                }
            }
            text.transform(chars, 0);
        }
        let strip = self.strip_accents.unwrap_or(self.lowercase);
        if strip && text.text().chars().any(|c| is(c, ACCENT)) {
            super::unicode::nfd(text);
            text.filter(|c| c.is_ascii() || !c.is_mark_nonspacing());
        }
        if self.lowercase {
            text.lowercase();
        }
    }
}

/// [`DROPPED`] of ASCII.
fn is_dropped(byte: u8) -> bool {
    byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bert: BertNormalizer, text: &str) -> String {
        let mut text = NormalizedText::new(text, 0, true);
        bert.apply(&mut text);
        text.into_parts().0
    }

    #[test]
    fn uncased_and_cased() {
        assert_eq!(run(BertNormalizer::uncased(), "Héllo\u{0}\u{200b}\nWÖRLD"), "hello world");
        assert_eq!(run(BertNormalizer::cased(), "Héllo\tÖ"), "Héllo Ö");
        assert_eq!(run(BertNormalizer::cased(), "a中b"), "a 中 b");
    }

    #[test]
    fn ascii_is_as_other_text() {
        for byte in 0..128 {
            assert_eq!(is_dropped(byte), is(byte.into(), DROPPED));
            for bert in [
                BertNormalizer::uncased(),
                BertNormalizer::cased(),
                BertNormalizer { clean_text: false, ..BertNormalizer::uncased() },
            ] {
                let alone = run(bert.clone(), &format!("x{}X", char::from(byte)));
                let beside = run(bert, &format!("x{}X中", char::from(byte)));
                assert_eq!(format!("{alone} 中 "), beside);
            }
        }
    }

    #[test]
    fn accents_only() {
        let keep_case = BertNormalizer { strip_accents: Some(true), ..BertNormalizer::cased() };
        assert_eq!(run(keep_case, "Écoute"), "Ecoute");
    }
}
