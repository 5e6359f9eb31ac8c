//! A text that noises change one after another.

use crate::corruption::{Corrupted, Original};
use crate::examples::ExampleTokens;
use std::ops::Range;

/// The tokens of an example, as noises change them. Special tokens stay in place.
///
/// Tokens inserted by one noise, such as masks, are ordinary tokens to the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NoisyText {
    ids: Vec<u32>,
    word_starts: Vec<bool>,
    /// Each token's sentence number; irrelevant for special tokens.
    sentences: Vec<u32>,
    /// Whether a token is not special.
    movable: Vec<bool>,
}

impl From<&ExampleTokens> for NoisyText {
    fn from(tokens: &ExampleTokens) -> Self {
        Self::new(&tokens.original(), &tokens.sentences)
    }
}

impl NoisyText {
    /// A sequence with each token's sentence number. Consecutive tokens with the same number form a sentence.
    ///
    /// # Panics
    /// Unless there is one number per token.
    pub fn new(original: &Original<'_>, sentences: &[u32]) -> Self {
        assert_eq!(original.len(), sentences.len(), "one number per token");
        Self {
            ids: original.ids.to_vec(),
            word_starts: original.word_starts.to_vec(),
            sentences: sentences.to_vec(),
            movable: original.maskable.to_vec(),
        }
    }

    /// The pieces, special ones among them.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The tokens as a corruption takes them.
    pub fn original(&self) -> Original<'_> {
        Original::new(&self.ids, &self.word_starts, &self.movable)
    }

    /// The tokens between special ones, as ranges: the example's documents, if a piece separates them.
    pub fn stretches(&self) -> Vec<Range<usize>> {
        runs(&self.movable).collect()
    }

    /// The sentences of a stretch.
    pub fn sentences(&self, stretch: &Range<usize>) -> Vec<Range<usize>> {
        let mut start = stretch.start;
        let sentences = self.sentences[stretch.clone()].chunk_by(|a, b| a == b);
        let ranges = sentences.map(|sentence| {
            let range = start..start + sentence.len();
            start = range.end;
            range
        });
        ranges.collect()
    }

    /// Applies a corruption of [`original`](Self::original).
    ///
    /// A replacement begins a word if the original span did, and belongs to the sentence of its first token;
    /// an insertion is a word in the sentence of the token after it.
    pub fn take(&mut self, corrupted: &Corrupted) {
        let mut next = Self::default();
        let mut read = 0;
        for span in corrupted.spans() {
            let with = &corrupted.ids()[span.corrupted.clone()];
            let span = span.original.clone();
            next.push(self, read..span.start);
            read = span.end;
            let keeps_length = with.len() == span.len();
            for (at, id) in with.iter().enumerate() {
                // Where an insertion stands at the end of a text, the token behind it is special.
                let behind = self.movable.get(span.start) == Some(&true);
                let place = if behind { span.start } else { span.start.saturating_sub(1) };
                let starts_word = match keeps_length {
                    true => self.word_starts[span.start + at],
                    false => at == 0 && (span.is_empty() || self.word_starts[span.start]),
                };
                next.ids.push(*id);
                next.word_starts.push(starts_word);
                next.sentences.push(self.sentences.get(place).copied().unwrap_or(0));
                next.movable.push(true);
            }
        }
        next.push(self, read..self.ids.len());
        *self = next;
    }

    fn push(&mut self, from: &Self, range: Range<usize>) {
        self.ids.extend(&from.ids[range.clone()]);
        self.word_starts.extend(&from.word_starts[range.clone()]);
        self.sentences.extend(&from.sentences[range.clone()]);
        self.movable.extend(&from.movable[range]);
    }

    /// Reorders a stretch into these parts, with their words and sentences.
    ///
    /// # Panics
    /// Unless the parts cover every token of the stretch exactly once.
    pub fn rearrange(&mut self, stretch: &Range<usize>, parts: &[Range<usize>]) {
        let tokens: usize = parts.iter().map(Range::len).sum();
        let inside = |part: &Range<usize>| stretch.start <= part.start && part.end <= stretch.end;
        assert!(
            tokens == stretch.len() && parts.iter().all(inside),
            "each token of the stretch has one place"
        );
        let mut next = Self::default();
        next.push(self, 0..stretch.start);
        parts.iter().for_each(|part| next.push(self, part.clone()));
        next.push(self, stretch.end..self.ids.len());
        *self = next;
    }

    /// Drops the last non-special tokens until at most `most` are left. Returns the number dropped.
    pub(crate) fn cut(&mut self, most: usize) -> u64 {
        let mut left = self.ids.len().saturating_sub(most);
        let mut cut = 0;
        for place in (0..self.ids.len()).rev() {
            if left > 0 && self.movable[place] {
                self.ids.remove(place);
                self.word_starts.remove(place);
                self.sentences.remove(place);
                self.movable.remove(place);
                left -= 1;
                cut += 1;
            }
        }
        cut
    }

    /// The pieces.
    pub(crate) fn into_ids(self) -> Vec<u32> {
        self.ids
    }
}

/// The runs of tokens that may be changed.
pub(in crate::corruption) fn runs(movable: &[bool]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    movable.chunk_by(|a, b| a == b).filter_map(move |run| {
        let range = start..start + run.len();
        start = range.end;
        run[0].then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corruption::Edits;
    use std::slice;

    /// `[1, 10, 11, 12, 2, 13, 14, 2]`, where 1 and 2 are special, 12 continues 11's word and begins no
    /// sentence.
    fn text() -> NoisyText {
        let ids = [1, 10, 11, 12, 2, 13, 14, 2];
        let starts = [true, true, true, false, true, true, true, true];
        let movable = ids.map(|id| id >= 10);
        NoisyText::new(&Original::new(&ids, &starts, &movable), &[0, 0, 1, 1, 1, 2, 2, 2])
    }

    #[test]
    fn stretches_end_at_special_tokens_and_sentences_where_numbers_change() {
        let text = text();
        assert_eq!(text.stretches(), [1..4, 5..7]);
        assert_eq!(text.sentences(&(1..4)), [1..2, 2..4]);
        assert_eq!(text.sentences(&(5..7)), slice::from_ref(&(5..7)));
        assert!(NoisyText::default().stretches().is_empty());
    }

    #[test]
    fn bounds_follow_what_a_corruption_does() {
        let mut text = text();
        let mut edits = Edits::new(&[1, 10, 11, 12, 2, 13, 14, 2]);
        edits.replace(1..1, &[90]); // before the first sentence
        edits.replace(2..4, &[99]); // a word of two pieces
        edits.replace(5..6, &[]);
        edits.replace(7..7, &[91]); // behind the last token
        text.take(&edits.finish());
        assert_eq!(text.ids(), [1, 90, 10, 99, 2, 14, 91, 2]);
        assert_eq!(text.stretches(), [1..4, 5..7]);
        assert_eq!(text.sentences(&(1..4)), [1..3, 3..4]);
        assert_eq!(text.sentences(&(5..7)), slice::from_ref(&(5..7)));
        assert!(text.original().word_starts.iter().all(|starts| *starts));
    }

    #[test]
    fn parts_take_their_words_and_sentences_with_them() {
        let mut text = text();
        text.rearrange(&(1..4), &[2..4, 1..2]);
        assert_eq!(text.ids(), [1, 11, 12, 10, 2, 13, 14, 2]);
        assert_eq!(text.sentences(&(1..4)), [1..3, 3..4]);
        assert_eq!(text.original().word_starts[..4], [true, true, false, true]);
    }

    #[test]
    #[should_panic = "each token of the stretch has one place"]
    fn parts_that_leave_a_token_out_are_a_mistake() {
        text().rearrange(&(1..4), slice::from_ref(&(2..4)));
    }

    #[test]
    fn special_tokens_are_not_cut() {
        let mut text = text();
        assert_eq!((text.cut(8), text.cut(6)), (0, 2));
        assert_eq!(text.ids(), [1, 10, 11, 12, 2, 2]);
        assert_eq!(text.cut(0), 3);
        assert_eq!(text.into_ids(), [1, 2, 2]);
    }
}
