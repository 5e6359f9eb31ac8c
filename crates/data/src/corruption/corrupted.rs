//! A corrupted sequence: its tokens, and the spans of the original that were replaced.

use std::ops::Range;

/// A corrupted sequence. [`Edits`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Corrupted {
    ids: Vec<u32>,
    spans: Vec<ReplacedSpan>,
    counts: ReplacementCounts,
}

/// A span of the original and what replaced it. Tokens between spans are unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplacedSpan {
    /// Its range in the original; empty for a pure insertion.
    pub original: Range<usize>,
    /// The replacement's range in the corrupted sequence; empty for a pure deletion.
    pub corrupted: Range<usize>,
}

impl ReplacedSpan {
    /// Whether the replacement has as many tokens as the span, so that a model can predict token by token.
    pub fn keeps_length(&self) -> bool {
        self.original.len() == self.corrupted.len()
    }
}

/// Token counts by operation, for a run's summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplacementCounts {
    /// Tokens replaced by a mask or sentinel.
    pub masked: u64,
    /// Of these, tokens in spans replaced by a single mask or sentinel.
    pub in_spans: u64,
    /// The masks and sentinels of such spans, including empty spans.
    pub span_masks: u64,
    /// Tokens replaced by a random piece.
    pub random: u64,
    /// Tokens to predict that were left unchanged.
    pub kept: u64,
    /// Tokens deleted.
    pub deleted: u64,
    /// Random pieces inserted.
    pub inserted: u64,
    /// Tokens moved among their neighbours.
    pub moved: u64,
}

impl std::ops::AddAssign for ReplacementCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { masked, in_spans, span_masks, random, kept, deleted, inserted, moved } = other;
        self.masked += masked;
        self.in_spans += in_spans;
        self.span_masks += span_masks;
        self.random += random;
        self.kept += kept;
        self.deleted += deleted;
        self.inserted += inserted;
        self.moved += moved;
    }
}

impl Corrupted {
    /// The pieces of the corrupted sequence.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The replaced spans, from left to right.
    pub fn spans(&self) -> &[ReplacedSpan] {
        &self.spans
    }

    /// Token counts by operation; zeros if the corruption does not count.
    pub fn counts(&self) -> ReplacementCounts {
        self.counts
    }

    /// Sets the token counts.
    pub fn with_counts(mut self, counts: ReplacementCounts) -> Self {
        self.counts = counts;
        self
    }

    /// `[ids]`: for each token, the position in the original whose token type it takes. An unchanged token
    /// keeps its own position; a replacement token takes the corresponding one in its span, the last if the
    /// span is shorter, and an insertion takes the position before it.
    ///
    /// If the original is empty, every position is 0.
    pub fn origins(&self) -> Vec<usize> {
        let mut origins = Vec::with_capacity(self.ids.len());
        let mut next = 0;
        for ReplacedSpan { original, corrupted } in &self.spans {
            origins.extend(next..original.start);
            let last = original.end.max(1) - 1;
            origins.extend(corrupted.clone().map(|at| (original.start + at - corrupted.start).min(last)));
            next = original.end;
        }
        let rest = self.ids.len() - origins.len();
        origins.extend(next..next + rest);
        origins
    }
}

/// Builds a corrupted sequence from left to right. Whatever is not replaced stays.
///
/// ```
/// # use cloze_data::Edits;
/// let mut edits = Edits::new(&[10, 11, 12, 13, 14]);
/// edits.replace(0..1, &[]); // deletes a token
/// edits.replace(2..4, &[99]); // a sentinel for two tokens
/// edits.replace(5..5, &[98]); // inserts one
/// let corrupted = edits.finish();
/// assert_eq!(corrupted.ids(), [11, 99, 14, 98]);
/// assert_eq!(corrupted.spans()[1].corrupted, 1..2);
/// ```
#[derive(Debug)]
pub struct Edits<'a> {
    original: &'a [u32],
    /// Tokens of the original already processed.
    read: usize,
    corrupted: Corrupted,
}

impl<'a> Edits<'a> {
    /// A sequence without edits so far.
    pub fn new(original: &'a [u32]) -> Self {
        let ids = Vec::with_capacity(original.len());
        Self { original, read: 0, corrupted: Corrupted { ids, ..Corrupted::default() } }
    }

    /// Replaces a span by `with` and records the span as replaced, even if nothing changes.
    ///
    /// # Panics
    /// If the span begins before the end of the one before, or ends beyond the sequence.
    pub fn replace(&mut self, span: Range<usize>, with: &[u32]) {
        assert!(self.read <= span.start && span.start <= span.end, "spans are replaced from left to right");
        let Corrupted { ids, spans, .. } = &mut self.corrupted;
        ids.extend(&self.original[self.read..span.start]);
        let start = ids.len();
        ids.extend(with);
        self.read = span.end;
        spans.push(ReplacedSpan { original: span, corrupted: start..ids.len() });
    }

    /// The corrupted sequence.
    pub fn finish(mut self) -> Corrupted {
        self.corrupted.ids.extend(&self.original[self.read..]);
        self.corrupted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The spans suffice to restore the original.
        #[test]
        fn the_original_can_be_restored(
            original in prop::collection::vec(0..50u32, 0..40),
            edits in prop::collection::vec((0..6usize, 0..4usize, prop::collection::vec(50..99u32, 0..4)), 0..8),
        ) {
            let mut edit = Edits::new(&original);
            let mut read = 0;
            for (gap, len, with) in &edits {
                let start = (read + gap).min(original.len());
                let end = (start + len).min(original.len());
                edit.replace(start..end, with);
                read = end;
            }
            let corrupted = edit.finish();
            prop_assert_eq!(corrupted.spans().len(), edits.len());
            let (mut restored, mut next) = (Vec::<u32>::new(), 0);
            for (span, (_, _, with)) in corrupted.spans().iter().zip(&edits) {
                restored.extend(&corrupted.ids()[next..span.corrupted.start]);
                prop_assert_eq!(restored.len(), span.original.start);
                restored.extend(&original[span.original.clone()]);
                prop_assert_eq!(&corrupted.ids()[span.corrupted.clone()], &with[..]);
                next = span.corrupted.end;
            }
            restored.extend(&corrupted.ids()[next..]);
            prop_assert_eq!(&restored, &original);

            let origins = corrupted.origins();
            prop_assert_eq!(origins.len(), corrupted.ids().len());
            prop_assert!(origins.is_sorted());
            let replaced = |at: usize| corrupted.spans().iter().any(|span| span.corrupted.contains(&at));
            for (at, origin) in origins.iter().enumerate() {
                prop_assert!(*origin < original.len().max(1));
                prop_assert!(replaced(at) || corrupted.ids()[at] == original[*origin]);
            }
        }
    }

    #[test]
    fn tokens_of_a_replacement_come_from_their_span() {
        let mut edits = Edits::new(&[1, 2, 3, 4, 5, 6]);
        edits.replace(1..3, &[8, 9]);
        edits.replace(3..4, &[7, 7, 7]);
        edits.replace(5..5, &[0]);
        let corrupted = edits.finish();
        assert_eq!(corrupted.ids(), [1, 8, 9, 7, 7, 7, 5, 0, 6]);
        assert_eq!(corrupted.origins(), [0, 1, 2, 3, 3, 3, 4, 4, 5]);
        let kept: Vec<bool> = corrupted.spans().iter().map(ReplacedSpan::keeps_length).collect();
        assert_eq!(kept, [true, false, false]);
    }

    #[test]
    #[should_panic = "from left to right"]
    fn overlapping_spans_are_a_mistake() {
        let mut edits = Edits::new(&[1, 2, 3]);
        edits.replace(0..2, &[9]);
        edits.replace(1..3, &[9]);
    }
}
