//! Cutting at white space.

use std::ops::Range;

use crate::unicode::{SPACE, WORD, class};

/// Cuts at white space.
pub(super) fn split(text: &str, word: &mut dyn FnMut(Range<usize>)) {
    let mut start = 0;
    for (i, c) in text.char_indices() {
        if c.is_whitespace() {
            word(start..i);
            start = i + c.len_utf8();
        }
    }
    word(start..text.len());
}

/// `\w+|[^\w\s]+`: runs of word characters and runs of other visible ones.
pub(super) fn words_and_symbols(text: &str, word: &mut dyn FnMut(Range<usize>)) {
    let mut start = 0;
    let mut last = SPACE;
    for (i, c) in text.char_indices() {
        let class = class(c) & (SPACE | WORD);
        if class != last {
            if last != SPACE {
                word(start..i);
            }
            start = i;
            last = class;
        }
    }
    if last != SPACE {
        word(start..text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::super::PreTokenizer;

    #[test]
    fn runs() {
        assert_eq!(
            PreTokenizer::Whitespace.words("it's  a_b -- é!").unwrap(),
            ["it", "'", "s", "a_b", "--", "é", "!"]
        );
        assert_eq!(PreTokenizer::WhitespaceSplit.words("\tit's\u{a0}so ").unwrap(), ["it's", "so"]);
        assert!(PreTokenizer::Whitespace.words(" \n").unwrap().is_empty());
    }
}
