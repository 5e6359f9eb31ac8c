//! Truncation of encodings.

use serde::{Deserialize, Serialize};

use crate::Encoding;

/// Where truncation cuts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TruncationDirection {
    /// At the beginning.
    Left,
    /// At the end.
    #[default]
    Right,
}

/// Which of two texts is cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TruncationStrategy {
    /// The longer one, until both are equal; then both.
    #[default]
    LongestFirst,
    /// The first. If that does not suffice, the second is cut as well.
    OnlyFirst,
    /// The second. If that does not suffice, or there is no second, the first is cut as well.
    OnlySecond,
}

/// How to truncate encodings, as in `tokenizer.json`.
///
/// ```
/// # use cloze_tokenizer::{Tokenizer, Truncation, Vocab};
/// let mut tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "a", "b", "c", "d"])?, true)?;
/// // Pieces of three, each of which repeats one of the one before.
/// tokenizer.set_truncation(Some(Truncation { stride: 1, ..Truncation::to(3) }))?;
/// let encoding = tokenizer.encode("a b c d", false)?;
/// assert_eq!(encoding.ids, [1, 2, 3]);
/// assert_eq!(encoding.overflowing[0].ids, [3, 4]);
/// # Ok::<_, cloze_tokenizer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Truncation {
    /// Where to cut.
    #[serde(default)]
    pub direction: TruncationDirection,
    /// Maximum number of pieces, including special tokens.
    pub max_length: usize,
    /// Which of two texts to cut.
    #[serde(default)]
    pub strategy: TruncationStrategy,
    /// Overlap of the overflowing parts, in pieces.
    #[serde(default)]
    pub stride: usize,
}

impl Truncation {
    /// At most `max_length` pieces, the longest text first, cut at the end.
    pub fn to(max_length: usize) -> Self {
        Self {
            direction: TruncationDirection::Right,
            max_length,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
        }
    }

    /// Cuts to `self.max_length - reserved`; returns whether pieces were cut off.
    ///
    /// The named-sequence strategies never fail: if the named text is too short, the other is cut
    /// as well. (The reference reports an error there.)
    pub(crate) fn apply(&self, first: &mut Encoding, second: Option<&mut Encoding>, reserved: usize) -> bool {
        let max = self.max_length.saturating_sub(reserved);
        let Some(second) = second else {
            let cuts = first.len() > max;
            first.truncate(max, self.stride, self.direction);
            return cuts;
        };
        let (n1, n2) = (first.len(), second.len());
        if n1 + n2 <= max {
            return false;
        }
        let (n1, n2) = match self.strategy {
            TruncationStrategy::LongestFirst => self.longest_first(first, second, max),
            TruncationStrategy::OnlyFirst => {
                let rest = max.saturating_sub(n2);
                (rest.min(n1), (max - rest.min(n1)).min(n2))
            }
            TruncationStrategy::OnlySecond => {
                let rest = max.saturating_sub(n1);
                ((max - rest.min(n2)).min(n1), rest.min(n2))
            }
        };
        first.truncate(n1, self.stride, self.direction);
        second.truncate(n2, self.stride, self.direction);
        true
    }

    /// The same for the ids of a single text, which begin at `start` of `ids`.
    pub(crate) fn apply_to_ids(&self, ids: &mut Vec<u32>, start: usize, reserved: usize) {
        let max = self.max_length.saturating_sub(reserved);
        match self.direction {
            TruncationDirection::Right => ids.truncate(start.saturating_add(max)),
            TruncationDirection::Left => _ = ids.drain(start..ids.len().saturating_sub(max).max(start)),
        }
    }

    fn longest_first(&self, first: &Encoding, second: &Encoding, max: usize) -> (usize, usize) {
        // The reference encodes no more words than reach `max_length`, which decides who counts as the
        // longer of two long texts.
        let (n1, n2) = (self.seen(first), self.seen(second));
        let (short, long, swap) = if n1 > n2 { (n2, n1, true) } else { (n1, n2, false) };
        let mut kept = if short > max { (short, short) } else { (short, short.max(max - short)) };
        if kept.0 + kept.1 > max {
            kept = (max / 2, max / 2 + max % 2);
        }
        debug_assert!(kept.1 <= long || kept.0 + kept.1 <= max);
        if swap { (kept.1, kept.0) } else { kept }
    }

    /// The pieces of the words that are needed to reach `max_length`.
    fn seen(&self, encoding: &Encoding) -> usize {
        let len = encoding.len();
        if len <= self.max_length || self.max_length == 0 {
            return len;
        }
        let words = &encoding.word_ids;
        match self.direction {
            TruncationDirection::Right => {
                let word = words[self.max_length - 1];
                words.iter().rposition(|&w| w == word).map_or(len, |last| last + 1)
            }
            TruncationDirection::Left => {
                let word = words[len - self.max_length];
                words.iter().position(|&w| w == word).map_or(len, |first| len - first)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(strategy: TruncationStrategy, lengths: [u32; 2]) -> [usize; 2] {
        let mut both = lengths.map(|n| {
            let mut encoding = Encoding::default();
            (0..n).for_each(|i| encoding.push(i, "", (0, 0), Some(i), 0));
            encoding
        });
        let truncation = Truncation { strategy, ..Truncation::to(7) };
        let [first, second] = &mut both;
        truncation.apply(first, Some(second), 0);
        both.map(|e| e.len())
    }

    #[test]
    fn longest_first() {
        let run = |lengths| run(TruncationStrategy::LongestFirst, lengths);
        assert_eq!(run([0, 8]), [0, 7]);
        assert_eq!(run([2, 8]), [2, 5]);
        assert_eq!(run([4, 4]), [3, 4]);
        assert_eq!(run([4, 8]), [3, 4]);
        assert_eq!(run([8, 4]), [4, 3]);
        assert_eq!(run([8, 2]), [5, 2]);
        assert_eq!(run([3, 4]), [3, 4]);
    }

    #[test]
    fn one_only_and_the_rest_from_the_other() {
        assert_eq!(run(TruncationStrategy::OnlyFirst, [8, 4]), [3, 4]);
        assert_eq!(run(TruncationStrategy::OnlyFirst, [2, 9]), [0, 7]);
        assert_eq!(run(TruncationStrategy::OnlySecond, [4, 8]), [4, 3]);
        assert_eq!(run(TruncationStrategy::OnlySecond, [9, 2]), [7, 0]);
    }
}
