//! Cutting a block that is too long for a passage.

use super::blocks::Kind;
use crate::sentences;
use std::ops::Range;

/// Where a text may be cut, from the best place to the last resort.
#[derive(Clone, Copy, Debug)]
enum Units {
    Lines,
    Sentences,
    Words,
    Characters,
}

impl Units {
    /// Smaller units.
    fn finer(self) -> Option<Self> {
        match self {
            Self::Lines | Self::Sentences => Some(Self::Words),
            Self::Words => Some(Self::Characters),
            Self::Characters => None,
        }
    }

    /// Where each unit of a text begins; white space belongs to the unit before it.
    fn starts(self, text: &str, language: &str) -> Vec<usize> {
        match self {
            Self::Lines => starts(text.split_inclusive('\n')),
            Self::Sentences => {
                // Sentences are slices of the text.
                let place = |sentence: &str| sentence.as_ptr() as usize - text.as_ptr() as usize;
                sentences(text, language).map(place).collect()
            }
            Self::Words => {
                let mut last = ' ';
                let is_start = |(at, c): (usize, char)| {
                    let before = std::mem::replace(&mut last, c);
                    (before.is_whitespace() && !c.is_whitespace()).then_some(at)
                };
                text.char_indices().filter_map(is_start).collect()
            }
            Self::Characters => {
                text.char_indices().filter(|(_, c)| !c.is_whitespace()).map(|(at, _)| at).collect()
            }
        }
    }
}

/// Where consecutive parts of a text begin, without those of white space alone.
fn starts<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let mut at = 0;
    let with_start = parts.map(|part| {
        at += part.len();
        (at - part.len(), part)
    });
    with_start.filter(|(_, part)| !part.trim().is_empty()).map(|(start, _)| start).collect()
}

/// The pieces of a block that fit, in order, the first one behind the text `before`.
pub(super) fn cut(
    text: &str,
    kind: &Kind,
    before: &str,
    language: &str,
    fits: &dyn Fn(&str) -> bool,
) -> Vec<Range<usize>> {
    let units = match kind {
        Kind::Lines => Units::Lines,
        Kind::Prose | Kind::Heading { .. } => Units::Sentences,
    };
    let mut cutting = Cutting { text, before, language, fits, pieces: Vec::new() };
    cutting.cut(0..text.len(), units);
    cutting.pieces
}

struct Cutting<'a> {
    text: &'a str,
    before: &'a str,
    language: &'a str,
    fits: &'a dyn Fn(&str) -> bool,
    pieces: Vec<Range<usize>>,
}

impl Cutting<'_> {
    /// Cuts a part of the text between these units, or within them where one is too long.
    fn cut(&mut self, span: Range<usize>, units: Units) {
        let starts = units.starts(&self.text[span.clone()], self.language);
        let starts: Vec<usize> = starts.into_iter().map(|start| span.start + start).collect();
        let end = |unit: usize| starts.get(unit + 1).copied().unwrap_or(span.end);
        let mut at = 0;
        while at < starts.len() {
            let before = if self.pieces.is_empty() { self.before } else { "" };
            let fits = |n: usize| {
                let piece = self.text[starts[at]..end(at + n - 1)].trim_end();
                if before.is_empty() { (self.fits)(piece) } else { (self.fits)(&format!("{before}{piece}")) }
            };
            let n = most(starts.len() - at, fits);
            match units.finer() {
                Some(finer) if n == 0 => self.cut(starts[at]..end(at), finer),
                _ => self.pieces.push(starts[at]..end(at + n.max(1) - 1)),
            }
            at += n.max(1);
        }
    }
}

/// The largest number up to `max` that fits, if all below one that fits do: by doubling, then halving, so that few
/// texts much longer than a piece are measured.
fn most(max: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (0, 1);
    while low + step <= max && fits(low + step) {
        low += step;
        step *= 2;
    }
    let mut high = (low + step).min(max + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_found() {
        for max in 0..40 {
            for limit in 0..50 {
                assert_eq!(most(max, |n| n <= limit), limit.min(max), "{limit} of {max}");
            }
        }
    }

    #[test]
    fn a_long_word_is_cut_by_few_measurements() {
        let text = "x".repeat(200_000);
        let measured = std::cell::Cell::new(0);
        let fits = |piece: &str| {
            measured.set(measured.get() + piece.len());
            piece.len() <= 1_000
        };
        let pieces = cut(&text, &Kind::Lines, "", "en", &fits);
        assert_eq!(pieces.len(), 200);
        assert!(pieces.iter().all(|piece| piece.len() == 1_000));
        assert!(measured.get() < 30 * text.len(), "{}", measured.get());
    }
}
