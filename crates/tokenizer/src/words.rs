//! The words of raw text, with punctuation split off as in data for tagging.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::unicode::{self, CHINESE, DROPPED};

/// The words of a text, as byte ranges in order. White space belongs to no word; everything else does.
///
/// The conventions are those of the Penn Treebank and of CoNLL's data: punctuation and symbols are words of their own,
/// and so are `'s`, `n't` and the other English endings with an apostrophe. A word keeps its inner hyphens, periods,
/// slashes and apostrophes (`e-mail`, `3.5`, `O'Brien`), a number its separators (`1,000`, `10:30`), an abbreviation its
/// period (`U.S.`, `Dr.`), and links, addresses, `@names` and `#tags` stay whole. In other languages, a Chinese
/// character is a word, as it is in data for tagging Chinese. Words that are already separated by white space are not split
/// again.
///
/// ```
/// let text = "Wei Chen's e-mail (see p. 504) reached the U.S.";
/// let words: Vec<&str> = cloze_tokenizer::split_words(text).into_iter().map(|word| &text[word]).collect();
/// assert_eq!(
///     words,
///     ["Wei", "Chen", "'s", "e-mail", "(", "see", "p.", "504", ")", "reached", "the", "U.S."]
/// );
/// ```
pub fn split_words(text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::with_capacity(text.len() / 4);
    let mut at = 0;
    while at < text.len() {
        at = split_plain(text, at, &mut words).unwrap_or_else(|| split_chunk(text, at, &mut words));
    }
    words
}

/// Characters that may join letters and digits to one word.
const CONNECTORS: &str = "-‐‑'’./&@+#*·・";

/// Characters that are one word where they are repeated: an ellipsis, a dash, and quotation marks of the Penn Treebank.
const REPEATED: &str = ".-'`";

/// What follows the apostrophe of an English ending, except for `n't`.
const ENDINGS: [&str; 6] = ["s", "re", "ve", "ll", "d", "m"];

/// Abbreviations that keep their period. Words that often end a sentence, such as `no` and `Sun`, are left out.
const ABBREVIATIONS: [&str; 52] = [
    "Adm", "Apr", "Aug", "Ave", "Blvd", "Bros", "Capt", "Co", "Col", "Corp", "Cpl", "Dec", "Dr", "Feb",
    "Fig", "Ft", "Gen", "Gov", "Hon", "Inc", "Jan", "Jr", "Lt", "Ltd", "Maj", "Messrs", "Mr", "Mrs", "Ms",
    "Mt", "Nov", "Oct", "Prof", "Rep", "Rev", "Sen", "Sep", "Sept", "Sgt", "Sr", "St", "al", "approx", "ca",
    "cf", "dept", "est", "etc", "pp", "viz", "vol", "vs",
];

/// Abbreviations that keep their period before a number.
const BEFORE_NUMBERS: [&str; 6] = ["No", "Nos", "no", "nos", "p", "Vol"];

/// The fast path, as most words are of this kind: ASCII letters and digits from `start`, or these and a mark, up to white
/// space or the end of the text. Returns where the text goes on, or `None` for other text.
fn split_plain(text: &str, start: usize, words: &mut Vec<Range<usize>>) -> Option<usize> {
    let bytes = text.as_bytes();
    let end = start + letters_len(&bytes[start..]);
    let is_end = |at: usize| bytes.get(at).is_none_or(u8::is_ascii_whitespace);
    if end == start {
        return None;
    }
    if is_end(end) {
        words.push(start..end);
        return Some(end + 1);
    }
    let is_word = |mark: u8| match mark {
        b',' | b';' | b':' | b'!' | b'?' | b')' => true,
        b'.' => !is_abbreviation(&text[start..end], &text[end + 1..]),
        _ => false,
    };
    if !is_end(end + 1) || !is_word(bytes[end]) {
        return None;
    }
    words.extend([start..end, end..end + 1]);
    Some(end + 2)
}

/// The words up to the next white space. Returns where the text goes on after it.
fn split_chunk(text: &str, start: usize, words: &mut Vec<Range<usize>>) -> usize {
    let (end, next) = match text[start..].char_indices().find(|(_, c)| c.is_whitespace()) {
        Some((len, space)) => (start + len, start + len + space.len_utf8()),
        None => (text.len(), text.len()),
    };
    let chunk = start..end;
    let (mut piece, mut at) = (chunk.start, chunk.start);
    while at < chunk.end {
        let rest = &text[at..chunk.end];
        let link = if at == piece { link_len(rest) } else { 0 };
        let whole = link.max(repeated_len(rest));
        let (len, is_word) = match whole {
            // All but the last letter, which may bear a mark: graphemes that are part of a longer word.
            0 => match letters_len(rest.as_bytes()).saturating_sub(1) {
                0 => {
                    let grapheme = first_grapheme(rest);
                    let (before, after) = (&text[chunk.start..at], &rest[grapheme.len()..]);
                    (grapheme.len(), !is_joined(before, grapheme, after))
                }
                letters => (letters, false),
            },
            whole => (whole, true),
        };
        if is_word {
            split_piece(text, piece..at, words);
            words.push(at..at + len);
            piece = at + len;
        }
        at += len;
    }
    split_piece(text, piece..chunk.end, words);
    next
}

/// The number of ASCII letters and digits at the beginning of a text.
fn letters_len(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count()
}

/// The first grapheme of a text without white space. Of two ASCII characters the first is one by itself.
fn first_grapheme(text: &str) -> &str {
    match text.as_bytes() {
        [first, second, ..] if first.is_ascii() && second.is_ascii() => &text[..1],
        _ => text.graphemes(true).next().unwrap_or(text),
    }
}

/// Whether a grapheme may be part of a longer word, between what comes before it and after it.
fn is_joined(before: &str, grapheme: &str, after: &str) -> bool {
    let Some(first) = grapheme.chars().next() else { return false };
    match first {
        _ if unicode::is(first, CHINESE) => false,
        // Invisible characters, such as a soft hyphen, divide nothing.
        _ if first.is_alphanumeric() || first == '_' || unicode::is(first, DROPPED) => true,
        ',' | ':' | '–' => before.ends_with(char::is_numeric) && after.starts_with(char::is_numeric),
        _ => CONNECTORS.contains(first),
    }
}

/// The words of a part of a chunk that has letters, digits and connectors alone: connectors at its ends are split off
/// unless they belong to the word, and so are English endings.
fn split_piece(text: &str, piece: Range<usize>, words: &mut Vec<Range<usize>>) {
    let (mut start, mut end) = (piece.start, piece.end);
    while let Some(first) = text[start..end].chars().next().filter(|first| CONNECTORS.contains(*first)) {
        let next = start + first.len_utf8();
        if begins_word(first, &text[next..end]) {
            break;
        }
        words.push(start..next);
        start = next;
    }
    let mut endings = Vec::new();
    while start < end {
        match ending_len(&text[start..end], &text[piece.end..]) {
            0 => break,
            len => {
                endings.push(end - len..end);
                end -= len;
            }
        }
    }
    words.extend((start < end).then_some(start..end));
    words.extend(endings.into_iter().rev());
}

/// Whether a connector is the beginning of the word that goes on with `rest`.
fn begins_word(connector: char, rest: &str) -> bool {
    match connector {
        '-' | '+' | '.' => rest.starts_with(char::is_numeric),
        '@' | '#' => rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'),
        '\'' | '’' => is_ending(rest) || rest.chars().take_while(|c| c.is_numeric()).count() == 2,
        _ => false,
    }
}

fn is_ending(letters: &str) -> bool {
    ENDINGS.iter().any(|ending| letters.eq_ignore_ascii_case(ending))
}

/// The bytes at the end of `word` that are a word of their own; 0 if there are none. `after` is the text that follows.
fn ending_len(word: &str, after: &str) -> usize {
    if let Some((host, letters)) = word.rsplit_once(['\'', '’']) {
        let len = word.len() - host.len();
        if is_ending(letters) && host.ends_with(|c: char| c.is_alphanumeric() || c == '.') {
            return len;
        }
        if letters.eq_ignore_ascii_case("t") && host.len() > 1 && host.ends_with(['n', 'N']) {
            return len + 1;
        }
    }
    let Some(last) = word.chars().next_back().filter(|last| CONNECTORS.contains(*last)) else { return 0 };
    let host = &word[..word.len() - last.len_utf8()];
    let is_kept = match last {
        '.' => is_abbreviation(host, after),
        '-' | '#' => host.ends_with(char::is_alphabetic),
        '+' => host.ends_with(|c: char| c.is_alphanumeric() || c == '+'),
        _ => false,
    };
    if is_kept { 0 } else { last.len_utf8() }
}

/// Whether a word before a period is an abbreviation, in front of this text.
fn is_abbreviation(word: &str, after: &str) -> bool {
    let is_short =
        |part: &str| (1..=2).contains(&part.chars().count()) && part.chars().all(char::is_alphabetic);
    if word.contains('.') {
        return word.split('.').all(is_short);
    }
    let mut chars = word.chars();
    if let (Some(initial), None) = (chars.next(), chars.next())
        && initial.is_uppercase()
    {
        // At the end of a text it is a name, as in "plan B.".
        return after.contains(char::is_alphanumeric);
    }
    ABBREVIATIONS.contains(&word)
        || BEFORE_NUMBERS.contains(&word) && after.trim_start().starts_with(char::is_numeric)
}

/// The bytes of a character that is repeated and then one word; 0 if there is none.
fn repeated_len(text: &str) -> usize {
    let Some(first) = text.chars().next().filter(|first| REPEATED.contains(*first)) else { return 0 };
    match text.chars().take_while(|c| *c == first).count() {
        1 => 0,
        n => n * first.len_utf8(),
    }
}

/// The bytes of a link at the beginning of a text without white space, without punctuation after it; 0 if there is none.
fn link_len(text: &str) -> usize {
    // This is asked at every word: nothing beyond the scheme is searched.
    let scheme = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(text.len());
    let is_scheme = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text[scheme..].starts_with("://");
    let prefix = match is_scheme {
        true => scheme + "://".len(),
        _ if text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("www.")) => 4,
        _ => return 0,
    };
    let mut link = &text[..text.find(['<', '>', '"', '“', '”', '«', '»', '`']).unwrap_or(text.len())];
    // Brackets that are closed in the link without being opened.
    let unopened =
        |open: char, close: char| link.matches(close).count().saturating_sub(link.matches(open).count());
    let (mut round, mut square) = (unopened('(', ')'), unopened('[', ']'));
    let take = |unopened: &mut usize| {
        let is_there = *unopened > 0;
        *unopened = unopened.saturating_sub(1);
        is_there
    };
    while let Some(last) = link.chars().next_back() {
        let is_after = match last {
            ')' => take(&mut round),
            ']' => take(&mut square),
            last => ".,;:!?'’*".contains(last),
        };
        if !is_after {
            break;
        }
        link = &link[..link.len() - last.len_utf8()];
    }
    if link.len() > prefix { link.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str) -> Vec<&str> {
        split_words(text).into_iter().map(|word| &text[word]).collect()
    }

    /// The words of each text, as they are written on the right.
    fn check(cases: &[(&str, &str)]) {
        for (text, words) in cases {
            assert_eq!(split(text).join(" "), *words, "{text}");
        }
    }

    #[test]
    fn punctuation_is_split_off() {
        check(&[
            ("Anna moved to Rome.", "Anna moved to Rome ."),
            ("(page 504), \"Rome!\"", "( page 504 ) , \" Rome ! \""),
            ("“Rome”, ‘Oslo’ and «Bern»…", "“ Rome ” , ‘ Oslo ’ and « Bern » …"),
            ("Rome—Oslo, a–b; wait...what?!", "Rome — Oslo , a – b ; wait ... what ? !"),
            ("It costs $3.50, 5% or 7€.", "It costs $ 3.50 , 5 % or 7 € ."),
            ("a,b:c [1]{2}", "a , b : c [ 1 ] { 2 }"),
            ("yes--no 'quoted' dogs' *bold*", "yes -- no ' quoted ' dogs ' * bold *"),
            ("他住在东京。", "他 住 在 东 京 。"),
            ("¿Dónde? ¡Aquí! क्या है।", "¿ Dónde ? ¡ Aquí ! क्या है ।"),
            ("Rome🎉🎉 👨‍👩‍👧!", "Rome 🎉 🎉 👨‍👩‍👧 !"),
        ]);
    }

    #[test]
    fn what_is_one_word_stays_one() {
        for word in [
            "e-mail",
            "3.5",
            "-5",
            "+49",
            ".5",
            "1,000.25",
            "10:30",
            "2010–2015",
            "and/or",
            "AT&T",
            "O'Brien",
            "O’Brien",
            "'90s",
            "bob.smith@example.com",
            "example.com",
            "@user_1",
            "#tag",
            "C++",
            "C#",
            "pre-",
            "Ph.D.",
            "i.e.",
            "p.m.",
            "U.S.",
            "Dr.",
            "https://example.com/a_(b)?c=d&e=f#g",
            "www.example.com/a.",
            "Zu\u{AD}sammen",
            "cafe\u{301}",
            "n't",
            "'s",
            "’ll",
            "...",
            "--",
            "``",
            "''",
            "ジョン・スミス",
        ] {
            let expected: &[&str] =
                if word == "www.example.com/a." { &["www.example.com/a", "."] } else { &[word] };
            assert_eq!(split(word), expected);
        }
    }

    #[test]
    fn english_endings_are_words() {
        check(&[
            ("Wei Chen's and Wei Chen’s", "Wei Chen 's and Wei Chen ’s"),
            ("I don't, we'LL, can't; it's 'fine'.", "I do n't , we 'LL , ca n't ; it 's ' fine ' ."),
            ("the U.S.'s (Oslo)'s", "the U.S. 's ( Oslo ) 's"),
        ]);
    }

    #[test]
    fn a_period_belongs_to_abbreviations_alone() {
        check(&[
            ("J. Smith, plan B.", "J. Smith , plan B ."),
            ("Mr. Lee of Acme Inc., No. 5. I said no.", "Mr. Lee of Acme Inc. , No. 5 . I said no ."),
            ("He left the U.S. (Washington D.C.).", "He left the U.S. ( Washington D.C. ) ."),
            ("report.pdf. 3.5. x@example.com.", "report.pdf . 3.5 . x@example.com ."),
        ]);
    }

    #[test]
    fn links_end_before_punctuation() {
        check(&[
            ("(see https://example.com/a?b=c).", "( see https://example.com/a?b=c ) ."),
            ("[a](http://example.com/x_(y)), b", "[ a ] ( http://example.com/x_(y) ) , b"),
            ("<ftp://example.com/>; WWW.example.com!", "< ftp://example.com/ > ; WWW.example.com !"),
            ("http:// www. ://x", "http : / / www . : / / x"),
        ]);
    }

    proptest! {
        #[test]
        fn the_fast_path_makes_the_same_words(
            text in "(([a-zA-Z0-9]|http|www|[tT]|s|ll|Dr|No|é){0,6}[,;:!?).'a-]{0,2}[ \t\n\r\u{B}\u{C}\u{A0}]?){0,4}",
        ) {
            let (mut words, mut at) = (Vec::new(), 0);
            while at < text.len() {
                at = split_chunk(&text, at, &mut words);
            }
            prop_assert_eq!(split_words(&text), words);
        }

        #[test]
        fn ascii_has_the_graphemes_of_any_text(
            text in "([a-zA-Z0-9,.'-]|\u{301}|\u{200D}|\u{FE0F}|\u{0}|\u{7F}|\u{600}|é|日){1,8}",
        ) {
            let first = text.graphemes(true).next().unwrap();
            prop_assert_eq!(first_grapheme(&text), first);
            let letters = letters_len(text.as_bytes()).saturating_sub(1);
            let graphemes: Vec<&str> = text.graphemes(true).take(letters).collect();
            prop_assert!(graphemes.iter().all(|grapheme| grapheme.len() == 1 && is_joined("", grapheme, "")));
            prop_assert_eq!(graphemes.len(), letters);
        }

        /// Words are in order, hold all but white space, and are not split again if spaces separate them.
        #[test]
        fn nothing_but_white_space_is_lost(
            text in "(\\PC|[a-zA-Z.,'’:/0-9 @#-]|https?://|www\\.|n't|'s|\u{0}|\u{200D}|\u{301}|日|\u{3000}|👨‍👩‍👧){0,60}",
        ) {
            let words = split_words(&text);
            prop_assert!(words.iter().all(|word| !word.is_empty() && !text[word.clone()].contains(char::is_whitespace)));
            prop_assert!(words.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let dense = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(dense(&split(&text).concat()), dense(&text));
        }
    }
}
