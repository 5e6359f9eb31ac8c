//! The words of a sequence, and spans of them.

use super::Original;
use super::replacement::Budget;
use crate::random::Random;
use std::ops::Range;

/// The whole words that may be replaced. Words with no token between them are adjacent; a special token, and
/// so a segment's end, separates them.
pub(super) fn words(original: &Original<'_>) -> Vec<Range<usize>> {
    units(original, |position| original.word_starts[position])
}

/// The tokens that may be replaced, grouped into units. `starts` says whether a unit starts at a position.
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

/// A word drawn as the first of a span.
pub(super) struct Start<'a> {
    words: &'a [Range<usize>],
    /// Which words are already in a span.
    taken: &'a [bool],
    first: usize,
    /// Remaining budget in tokens.
    pub wanted: usize,
}

impl Start<'_> {
    /// The number of adjacent words from here, at most `most`.
    pub fn touching(&self, most: usize) -> usize {
        let last = (self.first + most).min(self.words.len());
        let pairs = self.words[self.first..last].windows(2);
        1 + pairs.take_while(|pair| pair[0].end == pair[1].start).count()
    }

    /// The tokens of the span of `n` words, one or more.
    pub fn span(&self, n: usize) -> Range<usize> {
        self.words[self.first].start..self.words[self.first + n - 1].end
    }

    /// Whether one of the span's `n` words is in a span already.
    pub fn meets_another(&self, n: usize) -> bool {
        self.taken[self.first..self.first + n].contains(&true)
    }
}

/// Spans of whole words in the order drawn, until they hold enough tokens or every word was tried. Each word
/// is equally likely to start a span; `length` gives the number of words, or 0 for no span. The words must be
/// free and fit the budget.
///
/// If no word fits, the first word drawn is cut.
pub(super) fn spans(
    original: &Original<'_>,
    budget: Budget,
    random: &mut Random,
    length: impl Fn(&Start<'_>, &mut Random) -> usize,
) -> Vec<Range<usize>> {
    let words = words(original);
    let mut wanted = budget.wanted(original);
    let (mut order, mut taken): (Vec<usize>, _) = ((0..words.len()).collect(), vec![false; words.len()]);
    let mut spans = Vec::new();
    for place in 0..order.len() {
        if wanted == 0 {
            break;
        }
        let other = place + random.below((order.len() - place) as u64) as usize;
        order.swap(place, other);
        let start = Start { words: &words, taken: &taken, first: order[place], wanted };
        let n = length(&start, random);
        if n > 0 {
            let (first, span) = (start.first, start.span(n));
            taken[first..first + n].fill(true);
            wanted -= span.len();
            spans.push(span);
        }
    }
    if spans.is_empty() {
        spans.extend(order.first().map(|first| budget.cut(&words[*first])));
    }
    spans
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
