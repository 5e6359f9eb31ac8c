//! Tercom's splitting of punctuation and of Chinese and Japanese characters, and removal of punctuation.

use super::super::tokenization::western::{numbers_kept, spaced, symbols_spaced, without_entities};

/// The line with spaces around its punctuation, and XML entities replaced by their characters.
pub(super) fn western(line: &str) -> String {
    let line = without_entities(&line.replace("\n-", "").replace('\n', " "));
    let line = symbols_spaced(&format!(" {line} "));
    // What ends the line is a space, so that the possessive of the last word is found as well.
    numbers_kept(&line.replace("'s ", " 's "))
}

/// The line with spaces around Chinese and Japanese characters and their punctuation.
///
/// One of sacreBLEU's ranges, meant for enclosed letters, is U+3200 to U+3F22. Its rules for hiragana and
/// katakana apply only at the beginning of the line, and a line from [`western`] begins with a space, so they
/// are omitted here.
pub(super) fn asian(line: &str) -> String {
    let classes: [fn(char) -> bool; 6] = [
        |c| matches!(c, '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}'),
        |c| matches!(c, '\u{31c0}'..='\u{31ef}' | '\u{2e80}'..='\u{2eff}'),
        |c| matches!(c, '\u{3300}'..='\u{33ff}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe4f}'),
        |c| matches!(c, '\u{3200}'..='\u{3f22}'),
        is_asian_punctuation,
        is_full_width_punctuation,
    ];
    // To put spaces around a character twice is to do it once.
    spaced(line, |c| classes.iter().any(|class| class(c)))
}

/// The line without ASCII punctuation and, if `asian`, Asian punctuation.
pub(super) fn without_punctuation(line: &str, asian: bool) -> String {
    let is_left_out = |c: char| {
        matches!(c, '.' | ',' | '?' | ':' | ';' | '!' | '"' | '(' | ')')
            || (asian && (is_asian_punctuation(c) || is_full_width_punctuation(c)))
    };
    line.chars().filter(|c| !is_left_out(*c)).collect()
}

fn is_asian_punctuation(c: char) -> bool {
    matches!(c,
        '\u{3001}' | '\u{3002}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}' | '\u{ff61}'..='\u{ff65}'
        | '\u{30fb}')
}

fn is_full_width_punctuation(c: char) -> bool {
    matches!(c, '．' | '，' | '？' | '：' | '；' | '！' | '＂' | '（' | '）')
}
