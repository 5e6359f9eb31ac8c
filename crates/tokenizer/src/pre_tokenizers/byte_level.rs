//! GPT-2's byte level: its splitting pattern, written by hand, and bytes as visible characters
//! (Radford et al. 2019; `encoder.py` of openai/gpt-2).

use std::{ops::Range, sync::LazyLock};

use serde::{Deserialize, Serialize};

use crate::{
    splits::Splits,
    unicode::{LETTER, NUMBER, SPACE, class},
};

/// Byte-level settings, in a pre-tokenizer, post-processor or decoder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ByteLevel {
    /// Add a space before text that does not begin with one, so that the first word is like any
    /// other.
    pub add_prefix_space: bool,
    /// As a post-processor: exclude leading and trailing white space from the offsets.
    pub trim_offsets: bool,
    /// Split with GPT-2's pattern; otherwise only map bytes.
    pub use_regex: bool,
}

impl Default for ByteLevel {
    /// The reference's defaults, which are not GPT-2's.
    fn default() -> Self {
        Self { add_prefix_space: true, trim_offsets: true, use_regex: true }
    }
}

impl ByteLevel {
    /// GPT-2's settings: no prefix space, offsets including spaces.
    pub fn gpt2() -> Self {
        Self { add_prefix_space: false, trim_offsets: false, use_regex: true }
    }

    /// The 256 characters that stand for the bytes.
    pub fn alphabet() -> impl Iterator<Item = char> {
        (0..=255).map(byte_to_char)
    }

    /// Cuts the words; [`Splits::write_bytes`] writes them in the characters for bytes.
    pub(super) fn apply(&self, splits: &mut Splits) {
        if self.add_prefix_space {
            splits.prefix_spaces(|text| !text.starts_with(' '));
        }
        if self.use_regex {
            splits.cut(gpt2);
        }
        splits.bytes = true;
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, by hand. Its matches
/// cover the text.
pub(crate) fn gpt2(text: &str, word: &mut dyn FnMut(Range<usize>)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = gpt2_next(text, bytes, at);
        word(at..end);
        at = end;
    }
}

/// The end of the match that begins at `at`.
#[inline]
fn gpt2_next(text: &str, bytes: &[u8], at: usize) -> usize {
    if bytes[at] == b'\'' {
        match &bytes[at + 1..] {
            [b's' | b't' | b'm' | b'd', ..] => return at + 2,
            [b'r' | b'v', b'e', ..] | [b'l', b'l', ..] => return at + 3,
            _ => {}
        }
    }
    // An optional space before a run of one kind.
    let body = at + usize::from(bytes[at] == b' ');
    if let Some((kind, size)) = kind_at(text, bytes, body)
        && kind != SPACE
    {
        return run_end(text, bytes, body + size, kind);
    }
    // White space: all of it but the last character, which the next word takes, unless it ends the
    // text or is alone.
    let mut end = at;
    let mut last = at;
    while let Some((SPACE, size)) = kind_at(text, bytes, end) {
        last = end;
        end += size;
    }
    if end < bytes.len() && last > at { last } else { end }
}

/// The end of the run of `kind` that continues at `at`.
#[inline]
pub(super) fn run_end(text: &str, bytes: &[u8], mut at: usize, kind: u8) -> usize {
    loop {
        if kind == LETTER {
            at = letters_end(bytes, at);
        }
        match kind_at(text, bytes, at) {
            Some((next, size)) if next == kind => at += size,
            _ => return at,
        }
    }
}

/// End of the run of ASCII letters from `at`, or where fewer than eight bytes are left. Eight bytes at a
/// time: word ends are unpredictable branches, and this branches once instead of at every letter.
#[inline]
fn letters_end(bytes: &[u8], mut at: usize) -> usize {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = 0x80 * EACH;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let eight = u64::from_le_bytes(*eight);
        // In lower case, without the high bits so that no sum spills over into the next byte.
        let lower = (eight | (0x20 * EACH)) & !HIGH;
        let from_a = lower + (0x80 - u64::from(b'a')) * EACH;
        let beyond_z = lower + (0x7F - u64::from(b'z')) * EACH;
        let others = !(from_a & !beyond_z & !eight) & HIGH;
        at += others.trailing_zeros() as usize / 8;
        if others != 0 {
            break;
        }
    }
    at
}

/// The kind of the character at `at` (letter, number, space, or 0 for others), and its length.
#[inline]
pub(super) fn kind_at(text: &str, bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let &byte = bytes.get(at)?;
    if byte < 128 {
        return Some((BYTE_KIND[usize::from(byte)], 1));
    }
    let c = text[at..].chars().next()?;
    Some((class(c) & (LETTER | NUMBER | SPACE), c.len_utf8()))
}

/// The kind of an ASCII character; other bytes have none.
static BYTE_KIND: [u8; 256] = {
    let mut kinds = [u8::MAX; 256];
    let mut byte = 0u8;
    while byte < 128 {
        kinds[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' => LETTER,
            b'0'..=b'9' => NUMBER,
            b' ' | 9..=13 => SPACE,
            _ => 0,
        };
        byte += 1;
    }
    kinds
};

/// The visible character for a byte: the byte itself if visible, else one of U+0100 to U+0143.
#[inline]
pub(crate) fn byte_to_char(byte: u8) -> char {
    BYTE_TO_CHAR[byte as usize]
}

/// The byte that a character stands for.
pub(crate) fn char_to_byte(c: char) -> Option<u8> {
    *CHAR_TO_BYTE.get(c as usize)?
}

static BYTE_TO_CHAR: [char; 256] = {
    let mut chars = ['\0'; 256];
    let mut hidden = 0x100u32;
    let mut b = 0u32;
    while b < 256 {
        let visible = matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if visible { b } else { hidden };
        if !visible {
            hidden += 1;
        }
        chars[b as usize] = match char::from_u32(code) {
            Some(c) => c,
            None => '\0',
        };
        b += 1;
    }
    chars
};

static CHAR_TO_BYTE: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
    let mut bytes = [None; 0x144];
    for byte in 0..=255 {
        bytes[byte_to_char(byte) as usize] = Some(byte);
    }
    bytes
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PreTokenizer;

    fn words(text: &str) -> Vec<&str> {
        let mut out = Vec::new();
        gpt2(text, &mut |r| out.push(&text[r]));
        out
    }

    #[test]
    fn gpt2_pattern() {
        assert_eq!(
            words("I'll say  it's\n\n 12abc!?"),
            ["I", "'ll", " say", " ", " it", "'s", "\n\n", " 12", "abc", "!?"]
        );
        assert_eq!(words("a  \n"), ["a", "  \n"]);
        assert_eq!(words("\ta"), ["\t", "a"]);
        assert_eq!(words(" 's 'x'S"), [" '", "s", " '", "x", "'", "S"]);
        assert_eq!(words("\u{a0}\u{a0}é ½"), ["\u{a0}", "\u{a0}", "é", " ½"]);
        assert!(words("").is_empty());
    }

    #[test]
    fn bytes_and_back() {
        assert_eq!(byte_to_char(b' '), 'Ġ');
        for byte in 0..=255 {
            assert_eq!(char_to_byte(byte_to_char(byte)), Some(byte));
        }
        assert_eq!(char_to_byte(' '), None);
        assert_eq!(char_to_byte('中'), None);
    }

    #[test]
    fn prefix_space_and_mapping() {
        let with = PreTokenizer::ByteLevel(ByteLevel::default());
        assert_eq!(with.words("é x").unwrap(), ["ĠÃ©", "Ġx"]);
        let whole = ByteLevel { use_regex: false, ..ByteLevel::gpt2() };
        assert_eq!(PreTokenizer::ByteLevel(whole).words("a b").unwrap(), ["aĠb"]);
    }
}
