//! `zh`: the characters sacreBLEU treats as Chinese.

use super::super::python::is_space;
use super::western;

/// The trimmed line with spaces around its Chinese characters.
pub(super) fn spaced(line: &str) -> String {
    western::spaced(line.trim_matches(is_space), is_chinese)
}

/// Whether sacreBLEU treats a character as Chinese.
///
/// Two of its ranges are meant for characters beyond U+FFFF but written with only four of their five digits,
/// so they are actually U+2001 to U+2A6D and U+2F81 to U+2FA1: characters such as `–`, `“`, `€` and `→`
/// count, those beyond U+FFFF do not.
fn is_chinese(c: char) -> bool {
    matches!(c,
        '\u{3400}'..='\u{4db5}'
        | '\u{4e00}'..='\u{9fa5}'
        | '\u{9fa6}'..='\u{9fbb}'
        | '\u{f900}'..='\u{fa2d}'
        | '\u{fa30}'..='\u{fa6a}'
        | '\u{fa70}'..='\u{fad9}'
        | '\u{2001}'..='\u{2a6d}'
        | '\u{2f81}'..='\u{2fa1}'
        | '\u{ff00}'..='\u{ffef}'
        | '\u{2e80}'..='\u{2eff}'
        | '\u{3000}'..='\u{303f}'
        | '\u{31c0}'..='\u{31ef}'
        | '\u{2f00}'..='\u{2fdf}'
        | '\u{2ff0}'..='\u{2fff}'
        | '\u{3100}'..='\u{312f}'
        | '\u{31a0}'..='\u{31bf}'
        | '\u{fe10}'..='\u{fe1f}'
        | '\u{fe30}'..='\u{fe4f}'
        | '\u{3200}'..='\u{33ff}')
}
