//! Character classes, with one table look-up each.
//!
//! The tables are those of the reference, the `tokenizers` crate, for identical results: general
//! categories of BERT's stages from `unicode_categories` 0.1, the classes of regular expressions
//! (`\p{L}`, `\p{N}`, `\w`) from `regex-syntax`, normalisation from
//! `unicode-normalization-alignments` (Unicode 9), white space and case from the standard library.

use std::sync::{LazyLock, OnceLock};

use regex_syntax::hir::{Class, HirKind};
use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::char::{canonical_combining_class, decompose_canonical};

/// Unicode `White_Space`.
pub(crate) const SPACE: u8 = 1;
/// What BERT's text cleaning drops: NUL, U+FFFD, categories Cc, Cf and Co except tab and line ends.
pub(crate) const DROPPED: u8 = 2;
/// BERT's CJK ideograph blocks.
pub(crate) const CHINESE: u8 = 4;
/// BERT's punctuation: ASCII symbols and category P.
pub(crate) const PUNCTUATION: u8 = 8;
/// `\p{L}`.
pub(crate) const LETTER: u8 = 16;
/// `\p{N}`.
pub(crate) const NUMBER: u8 = 32;
/// `\w`.
pub(crate) const WORD: u8 = 64;
/// Canonical decomposition may change or move it, or it is a non-spacing mark.
pub(crate) const ACCENT: u8 = 128;

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, what may begin a word of `o200k_base` (see [`case`]).
pub(crate) const UPPER: u8 = 1;
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`, what may end one.
pub(crate) const LOWER: u8 = 2;

const PAGE: usize = 256;
const PAGES: usize = 0x11_0000 / PAGE;

/// A byte for each character, in pages made on first use.
type Table = [OnceLock<Box<[u8; PAGE]>>; PAGES];

static TABLE: Table = [const { OnceLock::new() }; PAGES];
static CASES: Table = [const { OnceLock::new() }; PAGES];

#[inline]
fn look_up(table: &Table, c: char, compute: fn(char) -> u8) -> u8 {
    let code = c as usize;
    let page = table[code / PAGE].get_or_init(|| {
        let mut page = Box::new([0; PAGE]);
        for (i, slot) in page.iter_mut().enumerate() {
            // Surrogates are no characters and stay 0.
            *slot = char::from_u32((code / PAGE * PAGE + i) as u32).map_or(0, compute);
        }
        page
    });
    page[code % PAGE]
}

/// The classes of `c`, as a set of the bits above.
#[inline]
pub(crate) fn class(c: char) -> u8 {
    look_up(&TABLE, c, compute)
}

/// [`UPPER`], [`LOWER`], both or neither.
#[inline]
pub(crate) fn case(c: char) -> u8 {
    look_up(&CASES, c, |c| {
        let [upper, lower] = &*CASE_CLASSES;
        (u8::from(contains(upper, c)) * UPPER) | (u8::from(contains(lower, c)) * LOWER)
    })
}

/// Whether `c` has any of the classes in `set`.
#[inline]
pub(crate) fn is(c: char, set: u8) -> bool {
    class(c) & set != 0
}

fn compute(c: char) -> u8 {
    let mut set = 0;
    let mut put = |bit, yes| {
        if yes {
            set |= bit;
        }
    };
    put(SPACE, c.is_whitespace());
    put(DROPPED, c == '\0' || c == '\u{fffd}' || (!matches!(c, '\t' | '\n' | '\r') && c.is_other()));
    put(CHINESE, is_chinese(c));
    put(PUNCTUATION, c.is_ascii_punctuation() || c.is_punctuation());
    put(LETTER, contains(&CLASSES[0], c));
    put(NUMBER, contains(&CLASSES[1], c));
    put(WORD, contains(&CLASSES[2], c));
    let mut parts = 0;
    let mut same = true;
    decompose_canonical(c, |d| {
        parts += 1;
        same &= d == c;
    });
    put(ACCENT, parts != 1 || !same || canonical_combining_class(c) != 0 || c.is_mark_nonspacing());
    set
}

/// The blocks that BERT's `_is_chinese_char` lists, as in the reference.
fn is_chinese(c: char) -> bool {
    matches!(
        c as u32,
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}

pub(crate) type Ranges = Vec<(char, char)>;

/// The ranges of `\p{L}`, `\p{N}` and `\w`, as in the reference's regular expressions.
static CLASSES: LazyLock<[Ranges; 3]> = LazyLock::new(|| [r"\p{L}", r"\p{N}", r"\w"].map(class_ranges));

static CASE_CLASSES: LazyLock<[Ranges; 2]> =
    LazyLock::new(|| [r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"].map(class_ranges));

/// The ranges of a class of regular expressions; empty for a single character.
pub(crate) fn class_ranges(pattern: &str) -> Ranges {
    let hir = regex_syntax::parse(pattern).expect("a constant, valid pattern");
    match hir.into_kind() {
        HirKind::Class(Class::Unicode(class)) => class.iter().map(|r| (r.start(), r.end())).collect(),
        _ => Vec::new(),
    }
}

fn contains(ranges: &Ranges, c: char) -> bool {
    let after = ranges.partition_point(|r| r.0 <= c);
    after > 0 && c <= ranges[after - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_well_known_characters() {
        assert_eq!(class('a'), LETTER | WORD);
        assert_eq!(class('7'), NUMBER | WORD);
        assert_eq!(class('_'), PUNCTUATION | WORD);
        assert_eq!(class('\t'), SPACE);
        assert_eq!(class('\0'), DROPPED);
        assert_eq!(class('é'), LETTER | WORD | ACCENT);
        assert_eq!(class('中'), LETTER | WORD | CHINESE);
        assert!(is('\u{301}', ACCENT) && is('«', PUNCTUATION) && is('\u{200b}', DROPPED));
        assert!(is('가', ACCENT), "Hangul syllables decompose");
    }
}
