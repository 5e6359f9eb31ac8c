//! Text being normalised, with the origin of each byte.

use std::ops::Range;

/// A half-open byte range of the original text.
pub type Span = (usize, usize);

/// Text being normalised. `spans`, when kept, has for every byte of `text` the range of the original
/// that it stands for; the rules for inserted and removed characters are the reference's.
#[derive(Debug, Clone)]
pub(crate) struct NormalizedText {
    text: String,
    spans: Option<Vec<Span>>,
    /// Where this piece begins in the original text.
    start: usize,
    /// Spans are tracked but not yet stored: every character still stands for the original one at
    /// its position.
    in_place: bool,
}

impl NormalizedText {
    /// A piece of the original that begins at byte `start`; `track` keeps spans.
    pub fn new(text: &str, start: usize, track: bool) -> Self {
        Self { text: text.to_owned(), spans: None, start, in_place: track }
    }

    /// Stores the spans before they change.
    fn write_spans(&mut self) {
        if std::mem::take(&mut self.in_place) {
            self.spans = Some(spans_in_place(&self.text, self.start));
        }
    }

    /// Start of the text in the original, if every character still stands for the one at its position.
    pub fn in_place(&self) -> Option<usize> {
        self.in_place.then_some(self.start)
    }

    /// Maps every character of all-ASCII text to another ASCII character.
    pub fn map_ascii(&mut self, map: impl Fn(u8) -> u8) {
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        for byte in &mut bytes {
            *byte = map(*byte) & 0x7F;
        }
        self.text = String::from_utf8(bytes).expect("all of it is ASCII");
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn into_text(self) -> String {
        self.text
    }

    pub fn into_parts(mut self) -> (String, Option<Vec<Span>>) {
        self.write_spans();
        (self.text, self.spans)
    }

    /// Replaces the text by `chars`. Each has a change: `0` replaces the next old character, `1`
    /// inserts (with the range of the character before it), `-n` replaces one and drops the `n` old
    /// characters after it. `dropped` old characters are dropped at the front.
    pub fn transform(&mut self, chars: impl IntoIterator<Item = (char, isize)>, dropped: usize) {
        self.write_spans();
        let Some(spans) = &mut self.spans else {
            self.text = chars.into_iter().map(|(c, _)| c).collect();
            return;
        };
        if self.text.is_empty() {
            return;
        }
        let mut old = self.text.chars().map(char::len_utf8);
        let mut at: usize = old.by_ref().take(dropped).sum();
        let mut text = String::with_capacity(self.text.len());
        let mut new_spans = Vec::with_capacity(spans.len());
        for (c, change) in chars {
            let span = if change > 0 {
                match at.checked_sub(1) {
                    Some(before) => spans[before],
                    None => (self.start, self.start),
                }
            } else {
                // Past the end only if `chars` replaces more than there is, which no stage does.
                let span = spans.get(at).copied().unwrap_or((self.start, self.start));
                let replaced: usize = old.by_ref().take(1 + change.unsigned_abs()).sum();
                at += replaced;
                span
            };
            text.push(c);
            new_spans.extend(std::iter::repeat_n(span, c.len_utf8()));
        }
        self.text = text;
        *spans = new_spans;
    }

    /// Keeps the characters for which `keep` is true.
    pub fn filter(&mut self, keep: impl Fn(char) -> bool) {
        if self.text.chars().all(&keep) {
            return;
        }
        if self.spans.is_none() && !self.in_place {
            self.text.retain(keep);
            return;
        }
        let mut kept: Vec<(char, isize)> = Vec::with_capacity(self.text.len());
        let mut dropped = 0;
        for c in self.text.chars() {
            if keep(c) {
                kept.push((c, 0));
            } else if let Some((_, change)) = kept.last_mut() {
                *change -= 1;
            } else {
                dropped += 1;
            }
        }
        self.transform(kept, dropped);
    }

    /// Keeps only the bytes of this range.
    pub fn keep(&mut self, range: Range<usize>) {
        if range == (0..self.text.len()) {
            return;
        }
        self.write_spans();
        self.text.truncate(range.end);
        self.text.drain(..range.start);
        if let Some(spans) = &mut self.spans {
            spans.truncate(range.end);
            spans.drain(..range.start);
        }
    }

    /// Prepends `front`, which stands for the first character, to non-empty text.
    pub fn prepend(&mut self, front: &str) {
        if self.text.is_empty() {
            return;
        }
        self.write_spans();
        self.text.insert_str(0, front);
        if let Some(spans) = &mut self.spans {
            let first = spans[0];
            spans.splice(0..0, std::iter::repeat_n(first, front.len()));
        }
    }

    /// Replaces each marked part by `content`, which stands for the part's last character. The parts
    /// cover the text in order.
    pub fn replace(&mut self, parts: &[(Range<usize>, bool)], content: &str) {
        self.write_spans();
        let mut text = String::with_capacity(self.text.len());
        let mut spans = self.spans.as_ref().map(|spans| Vec::with_capacity(spans.len()));
        for (range, replaced) in parts {
            text.push_str(if *replaced { content } else { &self.text[range.clone()] });
            if let (Some(old), Some(spans)) = (&self.spans, &mut spans) {
                if *replaced {
                    let span = range.end.checked_sub(1).map_or((self.start, self.start), |last| old[last]);
                    spans.extend(std::iter::repeat_n(span, content.len()));
                } else {
                    spans.extend_from_slice(&old[range.clone()]);
                }
            }
        }
        (self.text, self.spans) = (text, spans);
    }

    /// Maps every character to one other.
    pub fn map(&mut self, map: impl Fn(char) -> char) {
        if self.text.chars().any(|c| map(c) != c) {
            let chars: Vec<_> = self.text.chars().map(|c| (map(c), 0)).collect();
            self.transform(chars, 0);
        }
    }

    /// Lower-cases character by character, without context, as the reference does.
    pub fn lowercase(&mut self) {
        if self.text.is_ascii() {
            self.text.make_ascii_lowercase();
            return;
        }
        let mut chars = Vec::with_capacity(self.text.len());
        for c in self.text.chars() {
            chars.extend(c.to_lowercase().enumerate().map(|(i, c)| (c, isize::from(i > 0))));
        }
        self.transform(chars, 0);
    }
}

/// The spans of text that begins at byte `start` of the original and is unchanged.
pub(crate) fn spans_in_place(text: &str, start: usize) -> Vec<Span> {
    let mut spans = Vec::with_capacity(text.len());
    for (i, c) in text.char_indices() {
        let span = (start + i, start + i + c.len_utf8());
        spans.extend(std::iter::repeat_n(span, c.len_utf8()));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_inserted_and_removed_characters() {
        let mut text = NormalizedText::new("aéb", 10, true);
        text.transform([('x', 0), ('y', 1), ('z', -1)], 0);
        let (text, spans) = text.into_parts();
        assert_eq!(text, "xyz");
        assert_eq!(spans.unwrap(), [(10, 11), (10, 11), (11, 13)]);
    }

    #[test]
    fn filter_at_both_ends() {
        let mut text = NormalizedText::new("--ab-c--", 0, true);
        text.filter(|c| c != '-');
        let (text, spans) = text.into_parts();
        assert_eq!(text, "abc");
        assert_eq!(spans.unwrap(), [(2, 3), (3, 4), (5, 6)]);
    }
}
