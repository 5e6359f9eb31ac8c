//! Normalised text cut into words, the form between pre-tokenizer and model.

use std::{convert::Infallible, ops::Range};

use crate::{
    normalized::{NormalizedText, Span, spans_in_place},
    pre_tokenizers::byte_to_char,
};

/// One piece of the text: a word for the model, or an added token found before.
#[derive(Debug, Clone)]
pub(crate) struct Split {
    /// Bytes of the normalised text.
    pub range: Range<usize>,
    /// The id of the added token this piece is; the later stages leave it alone.
    pub added: Option<u32>,
}

/// The normalised text of a whole input, with its splits. Text that a stage removes (white space)
/// stays in the text but is in no split.
#[derive(Debug, Clone, Default)]
pub(crate) struct Splits {
    pub text: String,
    /// For every byte of `text`, the range of the original it stands for, when wanted.
    pub spans: Option<Vec<Span>>,
    pub splits: Vec<Split>,
    /// Spans are wanted but not yet stored: every character stands for the original one at its
    /// position.
    in_place: bool,
    /// The words have yet to be written in the characters that stand for bytes; see
    /// [`write_bytes`](Self::write_bytes).
    pub bytes: bool,
}

impl Splits {
    pub fn new(track: bool) -> Self {
        Self { in_place: track, ..Self::default() }
    }

    /// Appends normalised text with its existing splits, as ranges of that text.
    pub fn push(&mut self, text: NormalizedText, cuts: impl IntoIterator<Item = Split>) {
        let base = self.text.len();
        let mut spans = None;
        let text = if self.in_place && text.in_place() == Some(base) {
            text.into_text()
        } else {
            self.write_spans();
            let (text, written) = text.into_parts();
            spans = written;
            text
        };
        if base == 0 {
            self.text = text;
            self.spans = spans;
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

    /// Cuts every piece that is not an added token: `cut` receives its text and calls its second
    /// argument with the ranges of the words in it.
    pub fn cut(&mut self, cut: impl Fn(&str, &mut dyn FnMut(Range<usize>))) {
        let Ok(()) = self.try_cut(|text, word| {
            cut(text, word);
            Ok::<_, Infallible>(())
        });
    }

    /// The same, for a fallible `cut`.
    pub fn try_cut<E>(
        &mut self,
        cut: impl Fn(&str, &mut dyn FnMut(Range<usize>)) -> Result<(), E>,
    ) -> Result<(), E> {
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
            })?;
        }
        self.splits = splits;
        Ok(())
    }

    /// The range of the original that a range of the normalised text stands for; of an empty range,
    /// or without spans, `(0, 0)`.
    #[inline]
    pub fn original(&self, range: Range<usize>) -> Span {
        if self.in_place && !range.is_empty() {
            let Range { mut start, mut end } = range;
            while !self.text.is_char_boundary(start) {
                start -= 1;
            }
            while !self.text.is_char_boundary(end) {
                end += 1;
            }
            return (start, end);
        }
        match self.spans.as_ref().map(|spans| &spans[range]) {
            Some([first, .., last]) => (first.0, last.1),
            Some([only]) => *only,
            _ => (0, 0),
        }
    }

    /// Stores the spans, if wanted, for a stage that changes them.
    pub fn write_spans(&mut self) {
        if std::mem::take(&mut self.in_place) {
            self.spans = Some(spans_in_place(&self.text, 0));
        }
    }

    /// Writes the words in the characters that stand for bytes, if not done yet.
    pub fn write_bytes(&mut self) {
        if !std::mem::take(&mut self.bytes) {
            return;
        }
        self.write_spans();
        let mut text = String::with_capacity(self.text.len() * 5 / 4);
        let mut spans = self.spans.as_ref().map(|spans| Vec::with_capacity(spans.len() * 5 / 4));
        for split in &mut self.splits {
            let start = text.len();
            for at in split.range.clone() {
                let byte = self.text.as_bytes()[at];
                let before = text.len();
                match split.added {
                    None => text.push(byte_to_char(byte)),
                    // An added token stays as it is.
                    Some(_) if self.text.is_char_boundary(at) => text.extend(self.text[at..].chars().next()),
                    Some(_) => continue,
                }
                if let (Some(old), Some(spans)) = (&self.spans, &mut spans) {
                    spans.extend(std::iter::repeat_n(old[at], text.len() - before));
                }
            }
            split.range = start..text.len();
        }
        self.text = text;
        self.spans = spans;
    }

    /// Rewrites every piece that is not an added token: `change` receives its text and whether it begins
    /// the original text, and calls its last argument with the new characters and the positions in that
    /// text that they stand for.
    pub fn rewrite(&mut self, change: impl Fn(&str, bool, &mut dyn FnMut(char, usize))) {
        self.write_spans();
        let mut text = String::with_capacity(self.text.len() * 5 / 4);
        let mut spans = self.spans.as_ref().map(|spans| Vec::with_capacity(spans.len() * 5 / 4));
        for split in &mut self.splits {
            let start = text.len();
            let piece = &self.text[split.range.clone()];
            let old = self.spans.as_ref().map(|spans| &spans[split.range.clone()]);
            let first = old.is_some_and(|old| old.first().is_some_and(|span| span.0 == 0));
            if split.added.is_some() {
                text.push_str(piece);
                if let (Some(spans), Some(old)) = (&mut spans, old) {
                    spans.extend_from_slice(old);
                }
            } else {
                change(piece, first, &mut |c, at| {
                    text.push(c);
                    if let (Some(spans), Some(old)) = (&mut spans, old) {
                        spans.extend(std::iter::repeat_n(old[at], c.len_utf8()));
                    }
                });
            }
            split.range = start..text.len();
        }
        (self.text, self.spans) = (text, spans);
    }

    /// Adds a space before every piece that `wants` one; it also stands for the piece's first
    /// character.
    pub fn prefix_spaces(&mut self, wants: impl Fn(&str) -> bool) {
        let wants = |text: &str, split: &Split| split.added.is_none() && wants(&text[split.range.clone()]);
        if !self.splits.iter().any(|split| wants(&self.text, split)) {
            return;
        }
        self.write_spans();
        let mut text = String::with_capacity(self.text.len() + self.splits.len());
        let mut spans = self.spans.as_ref().map(|spans| Vec::with_capacity(spans.len()));
        for split in &mut self.splits {
            let start = text.len();
            let old = self.spans.as_ref().map(|spans| &spans[split.range.clone()]);
            if wants(&self.text, split) {
                text.push(' ');
                if let (Some(spans), Some(&[first, ..])) = (&mut spans, old) {
                    spans.push(first);
                }
            }
            text.push_str(&self.text[split.range.clone()]);
            if let (Some(spans), Some(old)) = (&mut spans, old) {
                spans.extend_from_slice(old);
            }
            split.range = start..text.len();
        }
        self.text = text;
        self.spans = spans;
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
