//! Which words of two texts differ.

use std::ops::Range;

use maud::{Markup, html};

/// Words of a text compared; the rest of a longer one is shown unmarked.
const WORDS: usize = 400;

/// The words of a text, as ranges of bytes. Characters of scripts without spaces between words, and marks of
/// punctuation, each count as a word.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut open = false;
    for (at, character) in text.char_indices() {
        let end = at + character.len_utf8();
        let alone = is_punctuation(character) || has_no_spaces(character);
        match words.last_mut() {
            _ if character.is_whitespace() => {}
            Some(word) if open && !alone => word.end = end,
            _ => words.push(at..end),
        }
        open = !character.is_whitespace() && !alone;
    }
    words
}

fn is_punctuation(character: char) -> bool {
    character.is_ascii_punctuation()
        || matches!(character, '¡' | '¿' | '«' | '»' | '\u{2010}'..='\u{205E}' | '\u{3000}'..='\u{303F}')
        || matches!(character, '\u{FF01}'..='\u{FF0F}' | '\u{FF1A}'..='\u{FF20}')
}

/// Han, kana, Thai, Lao, Khmer and Myanmar.
fn has_no_spaces(character: char) -> bool {
    matches!(character, '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}' | '\u{20000}'..='\u{3FFFF}')
        || matches!(character, '\u{0E00}'..='\u{0EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}')
}

/// Both texts with the words marked that are not in their longest common subsequence: those of `first` as
/// `missed`, those of `second` as `wrong`.
pub(super) fn compared(first: &str, second: &str) -> [Markup; 2] {
    marked_by([first, second], [words(first), words(second)], |a, b| a == b)
}

/// The same, where case is no difference, and punctuation neither.
pub(super) fn compared_as_spoken(first: &str, second: &str) -> [Markup; 2] {
    let spoken = |text: &str| {
        let mut words = words(text);
        words.retain(|word| !text[word.clone()].chars().all(is_punctuation));
        words
    };
    marked_by([first, second], [spoken(first), spoken(second)], |a, b| a.to_lowercase() == b.to_lowercase())
}

fn marked_by(
    texts: [&str; 2],
    words: [Vec<Range<usize>>; 2],
    is_same: impl Fn(&str, &str) -> bool,
) -> [Markup; 2] {
    let cut = words.each_ref().map(|words| &words[..words.len().min(WORDS)]);
    let common = common(cut.map(<[_]>::len), |i, j| {
        is_same(&texts[0][cut[0][i].clone()], &texts[1][cut[1][j].clone()])
    });
    let classes = ["missed", "wrong"];
    std::array::from_fn(|side| marked(texts[side], cut[side], &common[side], classes[side]))
}

/// Which words of each text are in the longest common subsequence; `is_same` compares a word of the first text with one of
/// the second.
fn common([a, b]: [usize; 2], is_same: impl Fn(usize, usize) -> bool) -> [Vec<bool>; 2] {
    // The length of the longest one of the words from i and j on.
    let width = b + 1;
    let mut longest = vec![0_u32; (a + 1) * width];
    for i in (0..a).rev() {
        for j in (0..b).rev() {
            longest[i * width + j] = match is_same(i, j) {
                true => longest[(i + 1) * width + j + 1] + 1,
                false => longest[(i + 1) * width + j].max(longest[i * width + j + 1]),
            };
        }
    }
    let mut both = [vec![false; a], vec![false; b]];
    let (mut i, mut j) = (0, 0);
    while i < a && j < b {
        if is_same(i, j) {
            (both[0][i], both[1][j]) = (true, true);
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    both
}

/// The text with the words marked that are not common; neighbouring ones share a mark.
fn marked(text: &str, words: &[Range<usize>], common: &[bool], class: &str) -> Markup {
    let mut marks: Vec<Range<usize>> = Vec::new();
    let mut open = false;
    for (word, common) in words.iter().zip(common) {
        match marks.last_mut() {
            _ if *common => {}
            Some(mark) if open => mark.end = word.end,
            _ => marks.push(word.clone()),
        }
        open = !common;
    }
    let starts = std::iter::once(0).chain(marks.iter().map(|mark| mark.end));
    let ends = marks.iter().map(|mark| mark.start).chain([text.len()]);
    let plain: Vec<&str> = starts.zip(ends).map(|(start, end)| &text[start..end]).collect();
    html! {
        @for (before, mark) in plain.iter().zip(&marks) { (before) mark class=(class) { (text[mark.clone()]) } }
        (plain[marks.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(first: &str, second: &str) -> [String; 2] {
        compared(first, second).map(Markup::into_string)
    }

    #[test]
    fn words_are_what_is_between_spaces_and_punctuation() {
        let of =
            |text: &'static str| -> Vec<&str> { words(text).into_iter().map(|word| &text[word]).collect() };
        assert_eq!(of("Ein  Mann, „alt“."), ["Ein", "Mann", ",", "„", "alt", "“", "."]);
        assert_eq!(of("他在家 now"), ["他", "在", "家", "now"]);
        assert_eq!(of("हिन्दी है"), ["हिन्दी", "है"]);
        assert!(of(" \n").is_empty());
    }

    #[test]
    fn what_differs_is_marked_and_nothing_else() {
        let [reference, translation] = html("A man <sits> in a boat.", "A man is in boat.");
        assert_eq!(
            reference,
            r#"A man <mark class="missed">&lt;sits&gt;</mark> in <mark class="missed">a</mark> boat."#
        );
        assert_eq!(translation, r#"A man <mark class="wrong">is</mark> in boat."#);
        assert_eq!(html("the same", "the same"), ["the same", "the same"]);
        assert_eq!(html("", "all new"), ["", r#"<mark class="wrong">all new</mark>"#]);
        assert_eq!(html("all gone", ""), [r#"<mark class="missed">all gone</mark>"#, ""]);
    }

    #[test]
    fn neither_case_nor_punctuation_is_spoken() {
        let [first, second] = compared_as_spoken("A man, old.", "a young man old!").map(Markup::into_string);
        assert_eq!(first, "A man, old.");
        assert_eq!(second, r#"a <mark class="wrong">young</mark> man old!"#);
        let [first, _] = compared_as_spoken("A (red) hat.", "a").map(Markup::into_string);
        assert_eq!(first, r#"A (<mark class="missed">red) hat</mark>."#);
    }

    #[test]
    fn a_long_text_is_whole_and_marked_at_its_beginning() {
        let long = "a ".repeat(2 * WORDS);
        let [_, shown] = html("b", &long);
        assert_eq!(shown.matches('a').count(), 2 * WORDS + "mark class mark".matches('a').count());
    }
}
