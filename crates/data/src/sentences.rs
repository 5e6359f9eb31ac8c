//! Sentence segmentation, by the library `sentencex` (Wikimedia; rules and abbreviations per
//! language).

use crate::corpus::pieces;

/// Bytes of text passed to the library at a time, as its time is superlinear in the text's length.
const PIECE: usize = 8 << 10;

/// The non-empty sentences of a paragraph, trimmed.
///
/// `language` is an ISO 639-1 code; an unsupported one falls back to the closest supported language,
/// eventually English. A paragraph above 8 KiB is passed in pieces that end at white space; a sentence
/// cut off by one piece starts the next, so only sentences above 8 KiB are cut.
pub fn sentences<'a>(paragraph: &'a str, language: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let language = language.to_string();
    let mut rest = paragraph;
    std::iter::from_fn(move || {
        let piece = pieces(rest, PIECE).next()?;
        let mut found = sentencex::segment(&language, piece);
        let mut used = piece.len();
        if used < rest.len()
            && found.len() > 1
            && let Some(last) = found.pop()
        {
            used -= last.len();
        }
        rest = &rest[used..];
        Some(found)
    })
    .flatten()
    .map(str::trim)
    .filter(|sentence| !sentence.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str) -> Vec<&str> {
        sentences(text, "en").collect()
    }

    #[test]
    fn abbreviations_do_not_end_a_sentence() {
        let text = "Mr. Smith paid $3.50 to Dr. Jones. He left at once!  Did he return?";
        let expected = ["Mr. Smith paid $3.50 to Dr. Jones.", "He left at once!", "Did he return?"];
        assert_eq!(split(text), expected);
    }

    #[test]
    fn long_paragraphs_are_cut_between_sentences() {
        let sentence = "The old sailor sailed the old sea until the old boat sank under him.";
        let text = vec![sentence; 1_000].join(" ");
        assert!(text.len() > 8 * PIECE);
        let found = split(&text);
        assert_eq!(found.len(), 1_000);
        assert!(found.iter().all(|found| *found == sentence));
    }

    #[test]
    fn nothing_is_lost_of_a_long_line_without_an_end() {
        let text = "wörd ".repeat(40_000);
        let sentences = split(&text);
        let letters: usize = sentences.iter().map(|s| s.chars().filter(|c| *c == 'ö').count()).sum();
        assert_eq!(letters, 40_000);
        assert!(split("").is_empty() && split(" \n ").is_empty());
        assert_eq!(split(&"é".repeat(30_000)).concat().chars().count(), 30_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn nothing_is_lost_across_pieces(
            words in prop::collection::vec("[a-zé]{1,9}[.!?,]?|\\PC{0,40}", 3_000..4_000),
        ) {
            let text = words.join(" ");
            let dense = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(dense(&split(&text).concat()), dense(&text));
        }
    }

    proptest! {
        /// No text makes the library panic, or lose anything but white space.
        #[test]
        fn any_text_in_any_language(
            text in "(\\PC|[.!?\\n\\t \"'()]|Dr\\.|\u{0}|\u{200D}|\u{E0041}|。){0,80}",
            language in "(en|de|ja|hi|am|xx||[a-z]{1,4})",
        ) {
            let dense = |text: &str| text.split_whitespace().collect::<String>();
            let parts: Vec<&str> = sentences(&text, &language).collect();
            prop_assert!(parts.iter().all(|part| !part.is_empty() && part.trim() == *part));
            prop_assert_eq!(dense(&parts.concat()), dense(&text));
        }
    }
}
