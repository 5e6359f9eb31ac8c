//! The splitting patterns of well-known models, written by hand: one pass instead of a regular expression's
//! backtracking.

use std::ops::Range;

use super::byte_level::{gpt2, kind_at, run_end};
use crate::unicode::{LETTER, LOWER, NUMBER, SPACE, UPPER, case};

/// Calls its second argument with the matches, which cover the text.
pub(crate) type Splitter = fn(&str, &mut dyn FnMut(Range<usize>));

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// OpenAI's `cl100k_base` (tiktoken) and Llama 3.
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2: the same, with every digit alone.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// OpenAI's `o200k_base` (tiktoken; GPT-4o, gpt-oss): words end where capitals follow lower-case
/// letters.
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The splitter equivalent to `pattern`, if it is verbatim one of these.
pub(crate) fn splitter(pattern: &str) -> Option<Splitter> {
    match pattern {
        GPT2 => Some(gpt2),
        CL100K => Some(|text, word| all(text, word, |text, at| next(text, at, 3))),
        QWEN2 => Some(|text, word| all(text, word, |text, at| next(text, at, 1))),
        O200K => Some(|text, word| all(text, word, next_cased)),
        _ => None,
    }
}

#[inline]
fn all(text: &str, word: &mut dyn FnMut(Range<usize>), next: impl Fn(&str, usize) -> usize) {
    let mut at = 0;
    while at < text.len() {
        let end = next(text, at);
        word(at..end);
        at = end;
    }
}

/// The end of `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at `at`, if present.
#[inline]
fn contraction_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at..)? {
        [b'\'', b's' | b'S' | b't' | b'T' | b'm' | b'M' | b'd' | b'D', ..] => Some(at + 2),
        [b'\'', b'r' | b'R' | b'v' | b'V', b'e' | b'E', ..] | [b'\'', b'l' | b'L', b'l' | b'L', ..] => {
            Some(at + 3)
        }
        // The long s, which is an s whatever the case.
        [b'\'', 0xC5, 0xBF, ..] => Some(at + 3),
        _ => None,
    }
}

/// The end of `\p{N}{1,most}`, of which the first ends at `at`.
#[inline]
fn numbers_end(text: &str, mut at: usize, most: usize) -> usize {
    for _ in 1..most {
        match kind_at(text, text.as_bytes(), at) {
            Some((NUMBER, size)) => at += size,
            _ => break,
        }
    }
    at
}

/// The end of `\s*[\r\n]+|\s+(?!\S)|\s+` at `at`: up to the last line end in it; without one, all but the last
/// character, unless it ends the text or is alone.
#[inline]
fn spaces_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let (mut end, mut last) = (at, at);
    let mut lines_end = None;
    while let Some((SPACE, size)) = kind_at(text, bytes, end) {
        last = end;
        end += size;
        if matches!(bytes[last], b'\r' | b'\n') {
            lines_end = Some(end);
        }
    }
    lines_end.unwrap_or(if end < bytes.len() && last > at { last } else { end })
}

/// The end of the match of [`O200K`] that begins at `at`: the first alternative that fits, in the pattern's order.
#[inline]
fn next_cased(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let Some((kind, size)) = kind_at(text, bytes, at) else {
        return bytes.len();
    };
    let after = at + size;
    let is_line_end = matches!(bytes[at], b'\r' | b'\n');
    let mut ends = [Letters::default(); 2];
    if kind != LETTER && kind != NUMBER && !is_line_end {
        ends[0] = Letters::at(text, after);
    }
    // A mark is what may stand before letters, and a letter.
    if kind == LETTER || kind == 0 && bytes[at] >= 128 && ends[0].small.is_none() {
        ends[1] = Letters::at(text, at);
    }
    let [before, here] = ends;
    if let Some(end) = before.small.or(here.small).or(before.capital).or(here.capital) {
        return contraction_end(bytes, end).unwrap_or(end);
    }
    if kind == NUMBER {
        return numbers_end(text, after, 3);
    }
    let symbols = match kind {
        0 => Some(after),
        _ if bytes[at] == b' ' => match kind_at(text, bytes, after) {
            Some((0, size)) => Some(after + size),
            _ => None,
        },
        _ => None,
    };
    if let Some(inside) = symbols {
        let mut end = run_end(text, bytes, inside, 0);
        while matches!(bytes.get(end), Some(b'\r' | b'\n' | b'/')) {
            end += 1;
        }
        return end;
    }
    spaces_end(text, at)
}

/// Ends of the letters of an [`O200K`] word.
#[derive(Debug, Clone, Copy, Default)]
struct Letters {
    /// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
    small: Option<usize>,
    /// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`, if the other does not match.
    capital: Option<usize>,
}

impl Letters {
    #[inline]
    fn at(text: &str, start: usize) -> Self {
        let run = |mut at: usize, set: u8, each: &mut dyn FnMut(usize, u8)| {
            while let Some((case, size)) = case_at(text, at)
                && case & set != 0
            {
                at += size;
                each(at, case);
            }
            at
        };
        // What may be a capital or small ends the word where no small letter follows the capitals.
        let mut caseless_end = None;
        let capitals = run(start, UPPER, &mut |end, case| {
            if case & LOWER != 0 {
                caseless_end = Some(end);
            }
        });
        let small = run(capitals, LOWER, &mut |_, _| {});
        Self {
            small: if small > capitals { Some(small) } else { caseless_end },
            capital: (capitals > start).then_some(capitals),
        }
    }
}

/// [`case`] of the character at `at`, and its length.
#[inline]
fn case_at(text: &str, at: usize) -> Option<(u8, usize)> {
    match *text.as_bytes().get(at)? {
        b'a'..=b'z' => Some((LOWER, 1)),
        b'A'..=b'Z' => Some((UPPER, 1)),
        0..128 => Some((0, 1)),
        _ => text[at..].chars().next().map(|c| (case(c), c.len_utf8())),
    }
}

/// The end of the match of [`CL100K`] or [`QWEN2`] that begins at `at`: the first alternative that fits, in the
/// pattern's order.
#[inline]
fn next(text: &str, at: usize, digits: usize) -> usize {
    let bytes = text.as_bytes();
    let newline = |at: usize| matches!(bytes.get(at), Some(b'\r' | b'\n'));
    if let Some(end) = contraction_end(bytes, at) {
        return end;
    }
    let Some((kind, size)) = kind_at(text, bytes, at) else {
        return bytes.len();
    };
    let after = at + size;
    match kind {
        LETTER => return run_end(text, bytes, after, LETTER),
        NUMBER => return numbers_end(text, after, digits),
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
    spaces_end(text, at)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

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
        assert_eq!(
            words(O200K, "HTTPServer's camelCase don'T 中文AB é\u{301}É 12345!?\n/x/ \u{301}A \n  "),
            [
                "HTTPServer's",
                " camel",
                "Case",
                " don'T",
                " 中文",
                "AB",
                " é\u{301}",
                "É",
                " ",
                "123",
                "45",
                "!?\n/",
                "x",
                "/",
                " \u{301}",
                "A",
                " \n",
                "  "
            ]
        );
        assert!(splitter(r"\s+").is_none() && words(CL100K, "").is_empty());
    }

    /// What the patterns tell apart, and characters of every kind.
    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![
                "'", "'s", "'S", "'ſ", "'re", "'VE", "'lL", "'l", "'d", " ", "  ", "\t", "\r", "\n", "\r\n", "\u{a0}",
                "\u{85}", "\u{2028}", "a", "Ab", "AB", "ǅ", "ʰ", "/", "é", "e\u{301}", "中", "1", "22", "4444", "½", "٣", "!", "?!", "_",
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
            static ALL: LazyLock<[(&str, Regex); 4]> =
                LazyLock::new(|| [GPT2, CL100K, QWEN2, O200K].map(|pattern| (pattern, Regex::new(pattern).unwrap())));
            for (pattern, regex) in &*ALL {
                let found: Vec<&str> = regex.find_iter(&text).map(|m| m.unwrap().as_str()).collect();
                prop_assert_eq!(words(pattern, &text), found, "{}", pattern);
            }
        }
    }
}
