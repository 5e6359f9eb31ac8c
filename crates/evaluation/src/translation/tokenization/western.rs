//! `13a`, the tokenizer of `mteval-v13a.pl`, and its parts shared with other tokenizers.

/// The line with white space between its tokens.
pub(crate) fn thirteen_a(line: &str) -> String {
    let mut line = format!(" {} ", line.replace("<skipped>", "").replace("-\n", "").replace('\n', " "));
    if line.contains('&') {
        line = without_entities(&line);
    }
    separated(&line)
}

/// The line with four XML entities replaced by their characters.
pub(crate) fn without_entities(line: &str) -> String {
    line.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
}

/// The line with spaces around punctuation, as in `13a` and `zh`.
pub(crate) fn separated(line: &str) -> String {
    numbers_kept(&symbols_spaced(line))
}

/// The line with spaces around ASCII punctuation, except full stops, commas, apostrophes and hyphens.
pub(crate) fn symbols_spaced(line: &str) -> String {
    spaced(line, |c| matches!(c, '{'..='~' | '['..='`' | ' '..='&' | '('..='+' | ':'..='@' | '/'))
}

/// The line with spaces around full stops and commas that are not between digits, and around hyphens after digits.
pub(crate) fn numbers_kept(line: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    let is_point = |c| matches!(c, '.' | ',');
    let line = pairs(line, |c| !is_digit(c), is_point, ["", " ", " "]);
    let line = pairs(&line, is_point, |c| !is_digit(c), [" ", " ", ""]);
    pairs(&line, is_digit, |c| c == '-', ["", " ", " "])
}

/// The line with spaces around each character of a class.
pub(crate) fn spaced(line: &str, class: impl Fn(char) -> bool) -> String {
    let mut all = String::with_capacity(line.len() + line.len() / 2);
    for c in line.chars() {
        if class(c) {
            all.extend([' ', c, ' ']);
        } else {
            all.push(c);
        }
    }
    all
}

/// The line with `between` before, between and after each pair of characters, one of the class `first`
/// followed by one of `second`. Pairs are found from left to right without overlap, as by a regular
/// expression.
pub(crate) fn pairs(
    line: &str,
    first: impl Fn(char) -> bool,
    second: impl Fn(char) -> bool,
    between: [&str; 3],
) -> String {
    let mut all = String::with_capacity(line.len() + line.len() / 2);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.next_if(|&next| first(c) && second(next)) {
            None => all.push(c),
            Some(next) => {
                all.push_str(between[0]);
                all.push(c);
                all.push_str(between[1]);
                all.push(next);
                all.push_str(between[2]);
            }
        }
    }
    all
}
