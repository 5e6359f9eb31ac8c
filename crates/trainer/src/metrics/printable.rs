//! Makes user text safe to print on a terminal.

use std::borrow::Cow;

/// Escapes everything in `text` that a terminal would not simply display: control characters, except the line
/// feed, and characters that change the writing direction.
///
/// ```
/// use cloze_trainer::metrics::printable;
///
/// assert_eq!(printable("Müller: 50 %\n"), "Müller: 50 %\n");
/// assert_eq!(printable("a\u{1b}[31mred\0"), r"a\u{1b}[31mred\u{0}");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match acts(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal does something other than display `c`.
fn acts(c: char) -> bool {
    let overrides_direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\n') || overrides_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_every_script_stays_as_it_is() {
        for text in ["", "Ünïcödé", "日本語", "עברית", "👩‍👩‍👧", "e\u{301}"] {
            assert!(matches!(printable(text), Cow::Borrowed(shown) if shown == text));
        }
    }

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        for c in ["\u{1b}", "\0", "\r", "\t", "\u{7f}", "\u{9b}", "\u{202e}"] {
            let shown = printable(c);
            assert!(shown.starts_with(r"\u{") && shown.is_ascii(), "{shown}");
        }
    }
}
