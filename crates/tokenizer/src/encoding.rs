//! The result of encoding a text.

use std::ops::Range;

use crate::{Span, TruncationDirection};

/// The pieces of a text, or of a pair, with all their attributes. All vectors have one entry per
/// piece.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Encoding {
    /// Ids.
    pub ids: Vec<u32>,
    /// The pieces as in the vocabulary; for an added token, the text it matched.
    pub tokens: Vec<String>,
    /// 0 for the first segment, 1 for the second (BERT's `token_type_ids`).
    pub type_ids: Vec<u32>,
    /// Ranges in the original text (in the word, if the text was given as words), in bytes unless
    /// [`OffsetUnit::Chars`](crate::OffsetUnit) was asked for; `(0, 0)` for special tokens and padding.
    ///
    /// Not always character boundaries: the byte level trims one byte per white-space character, as in
    /// the reference, even if an added token included a wide one such as U+2003. Slice with `str::get`.
    pub offsets: Vec<Span>,
    /// The number of the word in its text; `None` for special tokens and padding.
    pub word_ids: Vec<Option<u32>>,
    /// 0 for the first text, 1 for the second; `None` for special tokens and padding.
    pub sequence_ids: Vec<Option<u32>>,
    /// 1 for tokens added by the post-processor or padding.
    pub special_tokens_mask: Vec<u32>,
    /// 0 for padding, else 1.
    pub attention_mask: Vec<u32>,
    /// What truncation cut off, in parts of the same length that overlap by the stride; empty if the
    /// tokenizer does [not keep it](crate::Tokenizer::set_keep_overflow).
    pub overflowing: Vec<Encoding>,
    /// Whether truncation cut off pieces of a text. `false` for the overflowing parts themselves.
    pub truncated: bool,
}

impl Encoding {
    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no pieces.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The pieces of text `sequence` (0 or 1), without special tokens; `None` if it has no pieces.
    pub fn sequence_range(&self, sequence: u32) -> Option<Range<usize>> {
        let of_sequence = |id: &Option<u32>| *id == Some(sequence);
        let start = self.sequence_ids.iter().position(of_sequence)?;
        let end = self.sequence_ids.iter().rposition(of_sequence)?;
        Some(start..end + 1)
    }

    /// The piece that covers position `char` of text `sequence` (0 or 1), a byte unless the encoding was
    /// made with offsets in characters. The first, if several cover one character.
    ///
    /// ```
    /// # use cloze_tokenizer::{OffsetUnit, Tokenizer, Vocab};
    /// let tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "so", "##on", "etre"])?, true)?;
    /// let encoding = tokenizer.encode("Être soon", false)?;
    /// assert_eq!(encoding.char_to_token(6, 0), Some(1), "Ê is two bytes");
    /// assert_eq!(encoding.char_to_token(5, 0), None, "a space");
    /// let encoding = tokenizer.encode_input("Être soon", false, OffsetUnit::Chars)?;
    /// assert_eq!(encoding.char_to_token(5, 0), Some(1));
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn char_to_token(&self, char: usize, sequence: u32) -> Option<usize> {
        (0..self.len()).find(|&i| {
            let (start, end) = self.offsets[i];
            self.sequence_ids[i] == Some(sequence) && (start..end).contains(&char)
        })
    }

    /// The number of the word that covers position `char` of text `sequence`.
    pub fn char_to_word(&self, char: usize, sequence: u32) -> Option<u32> {
        self.word_ids[self.char_to_token(char, sequence)?]
    }

    /// The text that piece `token` belongs to, and its offsets there; `None` for special tokens and
    /// padding.
    pub fn token_to_chars(&self, token: usize) -> Option<(u32, Span)> {
        Some((self.token_to_sequence(token)?, self.offsets[token]))
    }

    /// The text that piece `token` belongs to, and the number of its word; `None` for special tokens and
    /// padding.
    pub fn token_to_word(&self, token: usize) -> Option<(u32, u32)> {
        Some((self.token_to_sequence(token)?, self.word_ids[token]?))
    }

    /// The text that piece `token` belongs to; `None` for special tokens and padding.
    pub fn token_to_sequence(&self, token: usize) -> Option<u32> {
        self.sequence_ids.get(token).copied().flatten()
    }

    /// The pieces of word `word` of text `sequence`; `None` if there is no such word.
    ///
    /// ```
    /// # use cloze_tokenizer::{Tokenizer, Vocab};
    /// let tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "so", "##on", "now"])?, true)?;
    /// let pair = tokenizer.encode_pair("Now", "now  soon", false)?;
    /// assert_eq!(pair.word_to_tokens(1, 1), Some(2..4));
    /// assert_eq!(pair.word_to_chars(1, 1), Some((5, 9)));
    /// assert_eq!(pair.word_to_tokens(1, 0), None, "the first text has one word");
    /// assert_eq!(pair.token_to_word(3), Some((1, 1)));
    /// assert_eq!(pair.token_to_chars(3), Some((1, (7, 9))));
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn word_to_tokens(&self, word: u32, sequence: u32) -> Option<Range<usize>> {
        let of_word = |&i: &usize| self.sequence_ids[i] == Some(sequence) && self.word_ids[i] == Some(word);
        let start = (0..self.len()).find(of_word)?;
        let end = (0..self.len()).rfind(of_word)?;
        Some(start..end + 1)
    }

    pub(crate) fn with_capacity(pieces: usize) -> Self {
        Self {
            ids: Vec::with_capacity(pieces),
            tokens: Vec::with_capacity(pieces),
            type_ids: Vec::with_capacity(pieces),
            offsets: Vec::with_capacity(pieces),
            word_ids: Vec::with_capacity(pieces),
            sequence_ids: Vec::with_capacity(pieces),
            special_tokens_mask: Vec::with_capacity(pieces),
            attention_mask: Vec::with_capacity(pieces),
            overflowing: Vec::new(),
            truncated: false,
        }
    }

    /// The offsets of word `word` of text `sequence`, from its first piece to its last.
    pub fn word_to_chars(&self, word: u32, sequence: u32) -> Option<Span> {
        let tokens = self.word_to_tokens(word, sequence)?;
        Some((self.offsets[tokens.start].0, self.offsets[tokens.end - 1].1))
    }

    /// Converts byte offsets in `text` to character offsets.
    pub(crate) fn count_chars(&mut self, text: &str) {
        if text.is_ascii() {
            return;
        }
        // For every byte the number of its character; after the last, how many there are.
        let numbered = text.chars().enumerate();
        let mut chars: Vec<usize> =
            numbered.flat_map(|(i, c)| std::iter::repeat_n(i, c.len_utf8())).collect();
        chars.push(chars.last().map_or(0, |last| last + 1));
        for (start, end) in &mut self.offsets {
            (*start, *end) = (chars[*start], chars[*end]);
        }
    }

    pub(crate) fn push(&mut self, id: u32, token: &str, offsets: Span, word: Option<u32>, sequence: u32) {
        self.ids.push(id);
        self.tokens.push(token.to_owned());
        self.type_ids.push(sequence);
        self.offsets.push(offsets);
        self.word_ids.push(word);
        self.sequence_ids.push(Some(sequence));
        self.special_tokens_mask.push(0);
        self.attention_mask.push(1);
    }

    /// Appends a piece of a text; [`complete`](Self::complete) fills in what they share.
    #[inline]
    pub(crate) fn push_piece(&mut self, id: u32, token: &str, offsets: Span, word: u32) {
        self.ids.push(id);
        self.tokens.push(token.to_owned());
        self.offsets.push(offsets);
        self.word_ids.push(Some(word));
    }

    pub(crate) fn complete(&mut self, sequence: u32) {
        let len = self.len();
        self.type_ids.resize(len, sequence);
        self.sequence_ids.resize(len, Some(sequence));
        self.special_tokens_mask.resize(len, 0);
        self.attention_mask.resize(len, 1);
    }

    pub(crate) fn push_special(&mut self, id: u32, token: &str, type_id: u32) {
        self.push(id, token, (0, 0), None, 0);
        let last = self.len() - 1;
        self.type_ids[last] = type_id;
        self.sequence_ids[last] = None;
        self.special_tokens_mask[last] = 1;
    }

    pub(crate) fn set_type_ids(&mut self, type_id: u32) {
        self.type_ids.fill(type_id);
        for overflow in &mut self.overflowing {
            overflow.set_type_ids(type_id);
        }
    }

    /// A copy of a part, without its overflow.
    fn part(&self, range: Range<usize>) -> Self {
        Self {
            ids: self.ids[range.clone()].to_vec(),
            tokens: self.tokens[range.clone()].to_vec(),
            type_ids: self.type_ids[range.clone()].to_vec(),
            offsets: self.offsets[range.clone()].to_vec(),
            word_ids: self.word_ids[range.clone()].to_vec(),
            sequence_ids: self.sequence_ids[range.clone()].to_vec(),
            special_tokens_mask: self.special_tokens_mask[range.clone()].to_vec(),
            attention_mask: self.attention_mask[range].to_vec(),
            overflowing: Vec::new(),
            truncated: false,
        }
    }

    /// Cuts to `max_len`; the rest becomes overflow, in parts of `max_len` that overlap by `stride`.
    pub(crate) fn truncate(&mut self, max_len: usize, stride: usize, from: TruncationDirection) {
        let len = self.len();
        if max_len >= len {
            return;
        }
        if max_len == 0 {
            let all = std::mem::take(self);
            self.overflowing.push(all);
            return;
        }
        let step = max_len.saturating_sub(stride).max(1);
        let mut parts = Vec::new();
        match from {
            TruncationDirection::Right => {
                for start in (0..len).step_by(step) {
                    let end = (start + max_len).min(len);
                    parts.push(self.part(start..end));
                    if end == len {
                        break;
                    }
                }
            }
            TruncationDirection::Left => {
                for end in (1..=len).rev().step_by(step) {
                    let start = end.saturating_sub(max_len);
                    parts.push(self.part(start..end));
                    if start == 0 {
                        break;
                    }
                }
            }
        }
        let overflowing = parts.split_off(1);
        if let Some(first) = parts.pop() {
            *self = first;
        }
        self.overflowing = overflowing;
    }

    /// Appends `other`. Each overflow of either is combined with the other and with its overflows, in
    /// the reference's order.
    pub(crate) fn append(&mut self, other: Encoding) {
        let mut overflowing = Vec::new();
        for mine in &self.overflowing {
            for theirs in std::iter::once(&other).chain(&other.overflowing) {
                let mut both = mine.clone();
                both.append(theirs.clone());
                both.overflowing.clear();
                overflowing.push(both);
            }
        }
        for theirs in &other.overflowing {
            let mut both = self.clone();
            both.overflowing.clear();
            both.append(theirs.clone());
            overflowing.push(both);
        }
        if self.len() < other.len() && overflowing.is_empty() {
            // Special tokens before a text: its vectors have room for them.
            *self = Self {
                ids: before(self.ids.drain(..), other.ids),
                tokens: before(self.tokens.drain(..), other.tokens),
                type_ids: before(self.type_ids.drain(..), other.type_ids),
                offsets: before(self.offsets.drain(..), other.offsets),
                word_ids: before(self.word_ids.drain(..), other.word_ids),
                sequence_ids: before(self.sequence_ids.drain(..), other.sequence_ids),
                special_tokens_mask: before(self.special_tokens_mask.drain(..), other.special_tokens_mask),
                attention_mask: before(self.attention_mask.drain(..), other.attention_mask),
                overflowing,
                truncated: false,
            };
            return;
        }
        self.ids.extend(other.ids);
        self.tokens.extend(other.tokens);
        self.type_ids.extend(other.type_ids);
        self.offsets.extend(other.offsets);
        self.word_ids.extend(other.word_ids);
        self.sequence_ids.extend(other.sequence_ids);
        self.special_tokens_mask.extend(other.special_tokens_mask);
        self.attention_mask.extend(other.attention_mask);
        self.overflowing = overflowing;
    }
}

/// `first` and then `second`, in the latter's memory.
fn before<T>(first: std::vec::Drain<T>, mut second: Vec<T>) -> Vec<T> {
    second.splice(0..0, first);
    second
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: u32) -> Encoding {
        let mut encoding = Encoding::default();
        for i in 0..n {
            encoding.push(i, "x", (i as usize, i as usize + 1), Some(i), 0);
        }
        encoding
    }

    fn parts(mut encoding: Encoding, len: usize, stride: usize, from: TruncationDirection) -> Vec<Vec<u32>> {
        encoding.truncate(len, stride, from);
        let rest = encoding.overflowing.iter().map(|e| e.ids.clone());
        std::iter::once(encoding.ids.clone()).chain(rest).collect()
    }

    #[test]
    fn truncation_overlaps_by_the_stride() {
        use TruncationDirection::{Left, Right};
        assert_eq!(parts(numbers(5), 3, 1, Right), [vec![0, 1, 2], vec![2, 3, 4]]);
        assert_eq!(parts(numbers(5), 2, 0, Left), [vec![3, 4], vec![1, 2], vec![0]]);
        assert_eq!(parts(numbers(2), 3, 0, Right), [vec![0, 1]]);
        assert_eq!(parts(numbers(2), 0, 0, Right), [vec![], vec![0, 1]]);
    }

    #[test]
    fn words_characters_and_tokens() {
        let mut encoding = numbers(3);
        encoding.word_ids = vec![Some(0), Some(0), Some(1)];
        assert_eq!(encoding.word_to_tokens(0, 0), Some(0..2));
        assert_eq!(encoding.word_to_tokens(2, 0), None);
        assert_eq!(encoding.char_to_token(1, 0), Some(1));
        assert_eq!(encoding.char_to_token(1, 1), None);
        assert_eq!(encoding.char_to_word(2, 0), Some(1));
        assert_eq!(encoding.word_to_chars(0, 0), Some((0, 2)));
        encoding.push_special(9, "[SEP]", 0);
        assert_eq!(encoding.sequence_range(0), Some(0..3));
        assert_eq!(encoding.sequence_range(1), None);
        let none = (encoding.token_to_chars(3), encoding.token_to_word(3), encoding.token_to_sequence(4));
        assert_eq!(none, (None, None, None));
    }

    #[test]
    fn offsets_in_characters() {
        let mut encoding = Encoding::default();
        for offsets in [(0, 2), (2, 3), (3, 7), (7, 7)] {
            encoding.push(0, "x", offsets, Some(0), 0);
        }
        encoding.count_chars("ßa😀");
        assert_eq!(encoding.offsets, [(0, 1), (1, 2), (2, 3), (3, 3)]);
    }
}
