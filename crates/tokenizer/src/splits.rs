//! Normalised text cut into words, the form between pre-tokenizer and model.

use std::ops::Range;

use crate::normalized::{NormalizedText, Span};

/// One piece of the text: a word for the model, or an added token found before.
#[derive(Debug, Clone)]
pub(crate) struct Split {
    /// Bytes of the normalised text.
    pub range: Range<usize>,
    /// The id of the added token this piece is; the later stages leave it alone.
    pub added: Option<u32>,
}

/// The normalised text of a whole input, with its cuts. Pieces that a stage removes (white space) stay
/// in the text and are in no split.
#[derive(Debug, Clone, Default)]
pub(crate) struct Splits {
    pub text: String,
    /// For every byte of `text`, the range of the original it stands for, when wanted.
    pub spans: Option<Vec<Span>>,
    pub splits: Vec<Split>,
}

impl Splits {
    pub fn new(track: bool) -> Self {
        Self { spans: track.then(Vec::new), ..Self::default() }
    }

    /// Appends normalised text with the cuts already made in it, as ranges of that text.
    pub fn push(&mut self, text: NormalizedText, cuts: impl IntoIterator<Item = Split>) {
        let base = self.text.len();
        let (text, spans) = text.into_parts();
        if base == 0 {
            self.text = text;
            self.spans = self.spans.is_some().then(|| spans.unwrap_or_default());
        } else {
            self.text.push_str(&text);
            if let (Some(all), Some(spans)) = (&mut self.spans, spans) {
                all.extend(spans);
            }
        }
        self.splits.extend(
            cuts.into_iter()
                .filter(|s| !s.range.is_empty())
                .map(|s| Split { range: base + s.range.start..base + s.range.end, added: s.added }),
        );
    }

    /// Cuts every piece that is not an added token: `cut` is given its text and calls its second
    /// argument with the ranges, within that text, of the words in it.
    pub fn cut(&mut self, cut: impl Fn(&str, &mut dyn FnMut(Range<usize>))) {
        let mut splits = Vec::with_capacity(self.splits.len().max(self.text.len() / 4));
        for split in &self.splits {
            if split.added.is_some() {
                splits.push(split.clone());
                continue;
            }
            let base = split.range.start;
            cut(&self.text[split.range.clone()], &mut |range: Range<usize>| {
                if !range.is_empty() {
                    splits.push(Split { range: base + range.start..base + range.end, added: None });
                }
            });
        }
        self.splits = splits;
    }

    /// The range of the original that a range of the normalised text stands for; of an empty range,
    /// or without spans, `(0, 0)`.
    pub fn original(&self, range: Range<usize>) -> Span {
        match self.spans.as_ref().map(|spans| &spans[range]) {
            Some([first, .., last]) => (first.0, last.1),
            Some([only]) => *only,
            _ => (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_leaves_added_tokens_alone() {
        let mut splits = Splits::new(true);
        let cuts = [(0..4, None), (4..7, Some(9))];
        splits
            .push(NormalizedText::new("a-b <x>", 0, true), cuts.map(|(range, added)| Split { range, added }));
        splits.cut(|text, word| {
            assert_eq!(text, "a-b ");
            word(0..1);
            word(2..3);
        });
        let ranges: Vec<_> = splits.splits.iter().map(|s| s.range.clone()).collect();
        assert_eq!(ranges, [0..1, 2..3, 4..7]);
        assert_eq!(splits.original(2..3), (2, 3));
    }
}
