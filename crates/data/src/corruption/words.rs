//! The words of a sequence.

use super::Original;
use std::ops::Range;

/// The whole words that may be replaced. Two that follow each other without a token between them touch; a special token,
/// and with it the end of a segment, keeps them apart.
pub(super) fn words(original: &Original<'_>) -> Vec<Range<usize>> {
    units(original, |position| original.word_starts[position])
}

/// The tokens that may be replaced, put together to units. `starts` says whether a unit starts at a place.
pub(super) fn units(original: &Original<'_>, starts: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut units: Vec<Range<usize>> = Vec::new();
    for position in (0..original.len()).filter(|position| original.maskable[*position]) {
        match units.last_mut() {
            Some(unit) if unit.end == position && !starts(position) => unit.end += 1,
            _ => units.push(position..position + 1),
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_at_word_starts_and_at_special_tokens() {
        let starts = [true, true, false, true, true, false, false];
        let maskable = [false, true, true, true, false, true, true];
        let original = Original::new(&[1; 7], &starts, &maskable);
        assert_eq!(words(&original), [1..3, 3..4, 5..7]);
    }
}
