//! The splitting patterns of well-known models, written by hand: what a regular expression finds by trying,
//! these find in one pass.

use std::ops::Range;

use super::byte_level::{gpt2, kind_at, run_end};
use crate::unicode::{LETTER, NUMBER, SPACE};

/// Calls its second argument with the matches in a text, which they cover.
pub(crate) type Splitter = fn(&str, &mut dyn FnMut(Range<usize>));

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// OpenAI's `cl100k_base` (tiktoken) and Llama 3.
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2: the same, with every digit alone.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The splitter that does what `pattern` does, if it is one of these, letter by letter.
pub(crate) fn splitter(pattern: &str) -> Option<Splitter> {
    match pattern {
        GPT2 => Some(gpt2),
        CL100K => Some(|text, word| all(text, 3, word)),
        QWEN2 => Some(|text, word| all(text, 1, word)),
        _ => None,
    }
}

#[inline]
fn all(text: &str, digits: usize, word: &mut dyn FnMut(Range<usize>)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = next(text, bytes, at, digits);
        word(at..end);
        at = end;
    }
}

/// The end of the match that begins at `at`: the first alternative that fits, in the pattern's order.
#[inline]
fn next(text: &str, bytes: &[u8], at: usize, digits: usize) -> usize {
    let newline = |at: usize| matches!(bytes.get(at), Some(b'\r' | b'\n'));
    if bytes[at] == b'\'' {
        match &bytes[at + 1..] {
            [b's' | b'S' | b't' | b'T' | b'm' | b'M' | b'd' | b'D', ..] => return at + 2,
            [b'r' | b'R' | b'v' | b'V', b'e' | b'E', ..] | [b'l' | b'L', b'l' | b'L', ..] => return at + 3,
            // The long s, which is an s whatever the case.
            [0xC5, 0xBF, ..] => return at + 3,
            _ => {}
        }
    }
    let Some((kind, size)) = kind_at(text, bytes, at) else {
        return bytes.len();
    };
    let after = at + size;
    match kind {
        LETTER => return run_end(text, bytes, after, LETTER),
        NUMBER => {
            let mut end = after;
            for _ in 1..digits {
                match kind_at(text, bytes, end) {
                    Some((NUMBER, size)) => end += size,
                    _ => break,
                }
            }
            return end;
        }
        _ => {}
    }
    // Anything but a line end before letters.
    let follows = kind_at(text, bytes, after);
    if let Some((LETTER, size)) = follows
        && !newline(at)
    {
        return run_end(text, bytes, after + size, LETTER);
    }
    // Symbols, with a space before and line ends behind.
    let symbols = match (kind, follows) {
        (0, _) => Some(after),
        (_, Some((0, size))) if bytes[at] == b' ' => Some(after + size),
        _ => None,
    };
    if let Some(inside) = symbols {
        let mut end = run_end(text, bytes, inside, 0);
        while newline(end) {
            end += 1;
        }
        return end;
    }
    // White space: up to the last line end in it; without one, all but the last character, unless it ends
    // the text or is alone.
    let (mut end, mut last) = (at, at);
    let mut lines_end = None;
    while let Some((SPACE, size)) = kind_at(text, bytes, end) {
        last = end;
        end += size;
        if newline(last) {
            lines_end = Some(end);
        }
    }
    lines_end.unwrap_or(if end < bytes.len() && last > at { last } else { end })
}

#[cfg(test)]
mod tests {
    use fancy_regex::Regex;
    use proptest::prelude::*;

    use super::*;

    fn words<'a>(pattern: &str, text: &'a str) -> Vec<&'a str> {
        let mut out = Vec::new();
        splitter(pattern).unwrap()(text, &mut |range| out.push(&text[range]));
        out
    }

    #[test]
    fn well_known_texts() {
        let text = "I'LL say\t  it's\r\n \n 12345abc!?\n\nx (é) 'ſo  ";
        assert_eq!(
            words(CL100K, text),
            [
                "I", "'LL", " say", "\t ", " it", "'s", "\r\n \n", " ", "123", "45", "abc", "!?\n\n", "x",
                " (", "é", ")", " '", "ſo", "  "
            ]
        );
        assert_eq!(words(QWEN2, "a 123'ſ"), ["a", " ", "1", "2", "3", "'ſ"]);
        assert_eq!(words(GPT2, "a 123'S"), ["a", " 123", "'", "S"]);
        assert!(splitter(r"\s+").is_none() && words(CL100K, "").is_empty());
    }

    /// What the patterns tell apart, and characters of every kind.
    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![
                "'", "'s", "'S", "'ſ", "'re", "'VE", "'lL", "'l", "'d", " ", "  ", "\t", "\r", "\n", "\r\n", "\u{a0}",
                "\u{85}", "\u{2028}", "a", "Ab", "é", "e\u{301}", "中", "1", "22", "4444", "½", "٣", "!", "?!", "_",
                "🙂", "\u{200d}", "\0",
            ]).prop_map(str::to_owned),
            1 => any::<char>().prop_map(String::from),
            1 => "[ -~\\s]{0,12}",
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn as_the_expressions_find_them(text in text()) {
            for pattern in [GPT2, CL100K, QWEN2] {
                let regex = Regex::new(pattern).unwrap();
                let found: Vec<&str> = regex.find_iter(&text).map(|m| m.unwrap().as_str()).collect();
                prop_assert_eq!(words(pattern, &text), found, "{}", pattern);
            }
        }
    }
}
