//! BERT's basic tokenization: white space separates, every punctuation character is a word.

use std::ops::Range;

use crate::unicode::{PUNCTUATION, SPACE, class};

pub(super) fn cut(text: &str, word: &mut dyn FnMut(Range<usize>)) {
    let bytes = text.as_bytes();
    let mut start = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let (class, len) = match ASCII.get(usize::from(byte)) {
            Some(0) => {
                at += 1;
                continue;
            }
            Some(&class) => (class, 1),
            None => match text[at..].chars().next() {
                Some(c) => (class(c), c.len_utf8()),
                None => break,
            },
        };
        if class & (SPACE | PUNCTUATION) != 0 {
            word(start..at);
            if class & SPACE == 0 {
                word(at..at + len);
            }
            start = at + len;
        }
        at += len;
    }
    word(start..text.len());
}

/// The relevant classes of ASCII characters.
static ASCII: [u8; 128] = {
    let mut classes = [0; 128];
    let mut b = 0;
    while b < 128 {
        let byte = b as u8;
        if byte == b' ' || (byte >= 9 && byte <= 13) {
            classes[b] = SPACE;
        } else if byte.is_ascii_punctuation() {
            classes[b] = PUNCTUATION;
        }
        b += 1;
    }
    classes
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_is_as_in_the_table() {
        for byte in 0..128 {
            assert_eq!(ASCII[usize::from(byte)], class(byte.into()) & (SPACE | PUNCTUATION));
        }
    }
}
