//! The tokens of captions as people write them.

use crate::translation::words;

/// Endings that are tokens of their own, as in the Penn Treebank.
const ENDINGS: [&str; 7] = ["n't", "'s", "'m", "'d", "'re", "'ve", "'ll"];

/// Words that are two tokens, as in the Penn Treebank.
const TWO_TOKENS: [(&str, &str); 4] =
    [("cannot", "can not"), ("gonna", "gon na"), ("gotta", "got ta"), ("wanna", "wan na")];

/// Abbreviations that keep their full stop.
const ABBREVIATIONS: [&str; 7] = ["mr.", "mrs.", "ms.", "dr.", "st.", "jr.", "sr."];

/// What CoreNLP writes for brackets.
const BRACKETS: [&str; 6] = ["-lrb-", "-rrb-", "-lcb-", "-rcb-", "-lsb-", "-rsb-"];

/// A caption as pycocoevalcap scores it: lower-case tokens without punctuation, separated by one space.
///
/// pycocoevalcap runs the `PTBTokenizer` of Stanford CoreNLP 3.4.1, a Java program, and removes tokens that are
/// punctuation: quotation marks, `. ? ! , : ; - -- ...`. This function does the same by simple rules, for English:
/// - text is lower-cased, and cut at white space, at quotation marks, dashes and `? ! ;`, and at `,` and `:` that are
///   not between digits;
/// - hyphens and apostrophes stay inside of words (`t-shirt`, `o'clock`) and are removed around them;
/// - full stops are removed behind words, except of abbreviations (`a.m.`, `mr.`);
/// - the endings `'s`, `n't`, `'re` … and `$ % # £ €` are tokens of their own.
///
/// Brackets become `-lrb-`, `-rrb-` … and stay, as in pycocoevalcap, which means to remove them, but looks for them in
/// capital letters. Several marks in a row, as `?!`, are a token that stays too.
///
/// **Deviation**: CoreNLP has many more rules, such as for fractions, initials and abbreviations (`dept.`). Of Multi30k's
/// 29,000 English training captions, 7 come out otherwise. To compare scores with published ones to the last digit,
/// tokenize with CoreNLP.
///
/// ```
/// use cloze_evaluation::captions::tokenize;
///
/// assert_eq!(tokenize("The man's T-shirt, isn't it \"red\"?"), "the man 's t-shirt is n't it red");
/// ```
pub fn tokenize(caption: &str) -> String {
    let caption = caption.to_lowercase().replace("&amp;", "&").replace(['\u{2018}', '\u{2019}', '`'], "'");
    let mut tokens = Vec::new();
    for word in words(&caption) {
        let chars: Vec<char> = word.chars().collect();
        let mut piece = String::new();
        for (place, c) in chars.iter().enumerate() {
            let neighbour =
                |step: isize| place.checked_add_signed(step).and_then(|place| chars.get(place)).copied();
            let both = |is: fn(char) -> bool| neighbour(-1).is_some_and(is) && neighbour(1).is_some_and(is);
            let either = |other| neighbour(-1) == Some(other) || neighbour(1) == Some(other);
            let is_mark = |c| matches!(c, '?' | '!');
            let marks;
            let own = match c {
                '(' => "-lrb-",
                ')' => "-rrb-",
                '{' => "-lcb-",
                '}' => "-rcb-",
                '[' => "-lsb-",
                ']' => "-rsb-",
                '$' => "$",
                '%' => "%",
                '#' => "#",
                '£' => "£",
                '€' => "€",
                // Several marks in a row are no punctuation of pycocoevalcap's.
                '?' | '!' if neighbour(-1).is_some_and(is_mark) => continue,
                '?' | '!' if neighbour(1).is_some_and(is_mark) => {
                    marks = chars[place..].iter().take_while(|c| is_mark(**c)).collect::<String>();
                    &marks
                }
                '?' | '!' | ';' | '"' | '\u{201c}' | '\u{201d}' | '\u{2013}' | '\u{2014}' | '\u{2026}' => "",
                ',' | ':' if !both(|c| c.is_ascii_digit()) => "",
                '-' if either('-') => "",
                '.' if either('.') => "",
                _ => {
                    piece.push(*c);
                    continue;
                }
            };
            push_word(&std::mem::take(&mut piece), &mut tokens);
            tokens.push(own.to_owned());
        }
        push_word(&piece, &mut tokens);
    }
    tokens.retain(|token| !token.is_empty());
    tokens.join(" ")
}

/// The tokens of a word without punctuation in its middle.
fn push_word(word: &str, tokens: &mut Vec<String>) {
    if ENDINGS.contains(&word) || BRACKETS.contains(&word) {
        return tokens.push(word.to_owned());
    }
    let bare = word.trim_matches(['\'', '-']);
    let is_abbreviation = ABBREVIATIONS.contains(&bare) || is_initials(bare);
    let bare = if is_abbreviation { bare } else { bare.trim_end_matches(['.', '\'', '-']) };
    if let Some((_, two)) = TWO_TOKENS.iter().find(|(one, _)| *one == bare) {
        return tokens.push((*two).to_owned());
    }
    let cut = ENDINGS.iter().find_map(|ending| Some((bare.strip_suffix(ending)?, ending)));
    match cut.filter(|(start, _)| !start.is_empty()) {
        Some((start, ending)) => tokens.extend([start.to_owned(), (*ending).to_owned()]),
        None => tokens.push(bare.to_owned()),
    }
}

/// Single letters, each with a full stop: `a.m.`.
fn is_initials(word: &str) -> bool {
    let chars: Vec<char> = word.chars().collect();
    chars.len() >= 4 && chars.chunks(2).all(|pair| matches!(pair, [letter, '.'] if letter.is_alphabetic()))
}
