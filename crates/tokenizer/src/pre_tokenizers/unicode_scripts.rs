//! Splits where the script changes, as SentencePiece does in training.

use std::{ops::Range, sync::LazyLock};

use crate::unicode::{Ranges, class_ranges};

/// Cuts where the script changes; the Japanese syllabaries count as Han. Spaces and characters without
/// a script join the preceding text.
pub(super) fn cut(text: &str, word: &mut dyn FnMut(Range<usize>)) {
    let mut start = text.len();
    let mut last = None;
    for (at, c) in text.char_indices() {
        let script = script(c);
        if script.is_none() || script == last {
            continue;
        }
        if last.is_some() {
            word(start..at);
        }
        start = at;
        last = script;
    }
    word(start..text.len());
}

/// The number of the script of `c` in [`NAMES`]; `None` goes with every script.
fn script(c: char) -> Option<u8> {
    match c {
        ' ' => None,
        'a'..='z' | 'A'..='Z' => Some(LATIN),
        '\0'..='\u{7f}' => Some(COMMON),
        '\u{30fc}' => Some(HAN),
        // What the reference's table has otherwise than Unicode.
        '\u{589}' | '\u{61c}' => Some(COMMON),
        '\u{953}' | '\u{954}' => Some(DEVANAGARI),
        _ => {
            let after = SCRIPTS.partition_point(|(range, _)| range.0 <= c);
            let (range, script) = SCRIPTS.get(after.checked_sub(1)?)?;
            (c <= range.1).then_some(*script)
        }
    }
}

const fn number(name: &str) -> u8 {
    let mut i = 0;
    while !equal(NAMES[i], name) {
        i += 1;
    }
    i as u8
}

const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

const COMMON: u8 = number("Common");
const DEVANAGARI: u8 = number("Devanagari");
const HAN: u8 = number("Han");
const HIRAGANA: u8 = number("Hiragana");
const KATAKANA: u8 = number("Katakana");
const LATIN: u8 = number("Latin");

/// Ranges of characters and the number of their script, in order: Unicode 9, as the reference's table.
static SCRIPTS: LazyLock<Vec<((char, char), u8)>> = LazyLock::new(|| {
    let of = |name: &str| -> Ranges { class_ranges(&format!(r"[\p{{Script={name}}}&&\p{{Age=9.0}}]")) };
    let mut scripts = Vec::new();
    for (name, number) in NAMES.iter().zip(0u8..) {
        let number = if matches!(number, HIRAGANA | KATAKANA) { HAN } else { number };
        scripts.extend(of(name).into_iter().map(|range| (range, number)));
    }
    scripts.sort_unstable();
    scripts
});

/// The scripts of Unicode 9.
#[rustfmt::skip]
const NAMES: [&str; 137] = [
    "Adlam", "Ahom", "AnatolianHieroglyphs", "Arabic", "Armenian", "Avestan", "Balinese", "Bamum", "BassaVah",
    "Batak", "Bengali", "Bhaiksuki", "Bopomofo", "Brahmi", "Braille", "Buginese", "Buhid",
    "CanadianAboriginal", "Carian", "CaucasianAlbanian", "Chakma", "Cham", "Cherokee", "Common", "Coptic",
    "Cuneiform", "Cypriot", "Cyrillic", "Deseret", "Devanagari", "Duployan", "EgyptianHieroglyphs", "Elbasan",
    "Ethiopic", "Georgian", "Glagolitic", "Gothic", "Grantha", "Greek", "Gujarati", "Gurmukhi", "Han",
    "Hangul", "Hanunoo", "Hatran", "Hebrew", "Hiragana", "ImperialAramaic", "Inherited",
    "InscriptionalPahlavi", "InscriptionalParthian", "Javanese", "Kaithi", "Kannada", "Katakana", "KayahLi",
    "Kharoshthi", "Khmer", "Khojki", "Khudawadi", "Lao", "Latin", "Lepcha", "Limbu", "LinearA", "LinearB",
    "Lisu", "Lycian", "Lydian", "Mahajani", "Malayalam", "Mandaic", "Manichaean", "Marchen", "MeeteiMayek",
    "MendeKikakui", "MeroiticCursive", "MeroiticHieroglyphs", "Miao", "Modi", "Mongolian", "Mro", "Multani",
    "Myanmar", "Nabataean", "NewTaiLue", "Newa", "Nko", "Ogham", "OlChiki", "OldHungarian", "OldItalic",
    "OldNorthArabian", "OldPermic", "OldPersian", "OldSouthArabian", "OldTurkic", "Oriya", "Osage", "Osmanya",
    "PahawhHmong", "Palmyrene", "PauCinHau", "PhagsPa", "Phoenician", "PsalterPahlavi", "Rejang", "Runic",
    "Samaritan", "Saurashtra", "Sharada", "Shavian", "Siddham", "SignWriting", "Sinhala", "SoraSompeng",
    "Sundanese", "SylotiNagri", "Syriac", "Tagalog", "Tagbanwa", "TaiLe", "TaiTham", "TaiViet", "Takri",
    "Tamil", "Tangut", "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Ugaritic", "Vai",
    "WarangCiti", "Yi",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PreTokenizer;

    #[test]
    fn scripts_and_spaces() {
        let words = |text: &str| PreTokenizer::UnicodeScripts.words(text).unwrap();
        assert_eq!(words("どこで生れ。Yes"), ["どこで生れ", "。", "Yes"]);
        assert_eq!(words("Apples are りんご 林檎"), ["Apples are ", "りんご 林檎"]);
        assert_eq!(words("  a タワー\u{378}b"), ["a ", "タワー\u{378}", "b"]);
        assert!(words(" ").is_empty() && words("").is_empty());
    }

    #[test]
    fn every_name_is_one() {
        let mut numbers: Vec<u8> = SCRIPTS.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), NAMES.len() - 2, "all but the syllabaries");
        assert!(SCRIPTS.windows(2).all(|pair| pair[0].0.1 < pair[1].0.0), "no character has two scripts");
        assert_eq!(
            [script('é'), script('京'), script('い'), script('7')],
            [LATIN, HAN, HAN, COMMON].map(Some)
        );
    }
}
