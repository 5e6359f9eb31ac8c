//! White space as in Python's `str`, by which sacreBLEU splits lines.

/// Whether Python's `str.isspace` is true: Unicode's white space, and the four separators of ASCII.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// The words of a text, as in `str.split()`.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// The text without trailing white space, as in `str.rstrip()`. sacreBLEU's program strips it from all lines.
pub fn trimmed(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_in_python() {
        let spaces = "\t\n\u{b}\u{c}\r\u{1c}\u{1f} \u{85}\u{a0}\u{1680}\u{2000}\u{200a}\u{2028}\u{3000}";
        assert!(spaces.chars().all(is_space));
        assert!(!"\u{180e}\u{200b}\u{feff}a".chars().any(is_space));
        assert!(words("\u{3000}a\u{1c}\u{a0}b ").eq(["a", "b"]));
        assert_eq!(words(" \n").count(), 0);
    }
}
