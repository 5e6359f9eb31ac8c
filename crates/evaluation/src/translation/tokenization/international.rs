//! `intl`, the tokenizer of `mteval-v14.pl`.

use std::sync::LazyLock;

use regex::Regex;

use super::western::{pairs, spaced};

/// The line with spaces around symbols, and around punctuation that is not between digits.
///
/// `\p{N}`, `\p{P}` and `\p{S}` are those of the crate `regex`; sacreBLEU's are those of Python's `regex`,
/// whose Unicode version may differ.
pub(super) fn international(line: &str) -> String {
    let line = pairs(line, |c| !is_number(c), is_punctuation, ["", " ", " "]);
    let line = pairs(&line, is_punctuation, |c| !is_number(c), [" ", " ", ""]);
    spaced(&line, is_symbol)
}

fn is_number(c: char) -> bool {
    static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\p{N}").ok());
    if c.is_ascii() { c.is_ascii_digit() } else { is_of(c, &NUMBER) }
}

fn is_punctuation(c: char) -> bool {
    static PUNCTUATION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\p{P}").ok());
    if c.is_ascii() { c.is_ascii_punctuation() && !is_ascii_symbol(c) } else { is_of(c, &PUNCTUATION) }
}

fn is_symbol(c: char) -> bool {
    static SYMBOL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\p{S}").ok());
    if c.is_ascii() { is_ascii_symbol(c) } else { is_of(c, &SYMBOL) }
}

/// The symbols of ASCII; its other marks are punctuation.
fn is_ascii_symbol(c: char) -> bool {
    matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~')
}

fn is_of(c: char, class: &Option<Regex>) -> bool {
    class.as_ref().is_some_and(|class| class.is_match(c.encode_utf8(&mut [0; 4])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_is_classified_as_unicode_has_it() {
        let class = |pattern: &str, c: char| Regex::new(pattern).unwrap().is_match(&c.to_string());
        for c in (0..128).map(char::from) {
            let ours = (is_number(c), is_punctuation(c), is_symbol(c));
            assert_eq!(ours, (class(r"\p{N}", c), class(r"\p{P}", c), class(r"\p{S}", c)), "{c:?}");
        }
        assert!(is_number('½') && is_punctuation('。') && is_symbol('€') && !is_symbol('é'));
    }
}
