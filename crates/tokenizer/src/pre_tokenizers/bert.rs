//! BERT's basic tokenization: white space separates, every punctuation character is a word.

use std::ops::Range;

use crate::unicode::{PUNCTUATION, SPACE, class};

pub(super) fn cut(text: &str, word: &mut dyn FnMut(Range<usize>)) {
    let mut start = 0;
    for (i, c) in text.char_indices() {
        let class = class(c);
        if class & (SPACE | PUNCTUATION) != 0 {
            let end = i + c.len_utf8();
            word(start..i);
            if class & SPACE == 0 {
                word(i..end);
            }
            start = end;
        }
    }
    word(start..text.len());
}
