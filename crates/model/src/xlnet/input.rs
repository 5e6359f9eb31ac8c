use crate::Sequences;

/// A batch of segments of equal length, on the host: tokens, and what each of them sees.
///
/// ```
/// # use cloze_model::xlnet::XlnetInput;
/// // Tokens 1 and 3 are predicted, first 3 and then 1.
/// let input = XlnetInput::new(vec![5, 6, 7, 8], 1).with_order(&[None, Some(1), None, Some(0)]);
/// assert_eq!(input.targets(), [1, 3]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XlnetInput {
    pub(super) ids: Vec<i32>,
    pub(super) batch: usize,
    pub(super) len: usize,
    pub(super) ignored: Option<Vec<bool>>,
    pub(super) segments: Option<Vec<i32>>,
    pub(super) hidden: Option<Vec<bool>>,
    pub(super) targets: Vec<i32>,
}

impl XlnetInput {
    /// Segments without padding, where each token sees its whole segment.
    ///
    /// # Shapes
    /// - `ids`: `batch · len`, segments concatenated
    ///
    /// # Panics
    /// If the segments are empty or unequal.
    pub fn new(ids: Vec<i32>, batch: usize) -> Self {
        assert!(
            batch > 0 && !ids.is_empty() && ids.len().is_multiple_of(batch),
            "equal segments with tokens"
        );
        let len = ids.len() / batch;
        Self { ids, batch, len, ignored: None, segments: None, hidden: None, targets: Vec::new() }
    }

    /// Sequences of any lengths, padded at the start with hidden `pad_id` tokens, so that all end at the last
    /// position, where XLNet has its classification token.
    ///
    /// # Panics
    /// If there is no sequence.
    pub fn left_padded(sequences: &Sequences, pad_id: i32) -> Self {
        let len = sequences.longest();
        let (mut ids, mut ignored) = (Vec::new(), Vec::new());
        for sequence in sequences.iter() {
            let padding = len - sequence.len();
            ids.resize(ids.len() + padding, pad_id);
            ids.extend(sequence);
            ignored.extend((0..len).map(|place| place < padding));
        }
        let ignored = ignored.contains(&true).then_some(ignored);
        Self { ignored, ..Self::new(ids, sequences.len()) }
    }

    /// Hides tokens from all others: `[batch, len]`, `true` = ignored.
    ///
    /// # Panics
    /// If the numbers of values and tokens differ.
    pub fn with_pad_mask(mut self, ignored: Vec<bool>) -> Self {
        assert_eq!(ignored.len(), self.ids.len(), "values of the padding mask, and tokens");
        self.ignored = Some(ignored);
        self
    }

    /// Sets the tokens' segment numbers, such as of a sentence pair, `[batch, len]`. Attention only depends
    /// on whether two tokens' numbers are equal; the memory has number 0.
    ///
    /// # Panics
    /// If the numbers of segment numbers and tokens differ.
    pub fn with_token_types(mut self, token_type_ids: Vec<i32>) -> Self {
        assert_eq!(token_type_ids.len(), self.ids.len(), "token types, and tokens");
        self.segments = Some(token_type_ids);
        self
    }

    /// Hides tokens from individual tokens: `[batch, len, len]`, `true` where the first does not see the
    /// second. A token's content always sees itself; the query stream sees its own token unless it is hidden
    /// here.
    ///
    /// # Panics
    /// Unless there is one value per pair of tokens.
    pub fn with_hidden(mut self, hidden: Vec<bool>) -> Self {
        assert_eq!(hidden.len(), self.ids.len() * self.len, "a value for each pair of tokens");
        self.hidden = Some(hidden);
        self
    }

    /// Predicts the tokens at these positions: the same number `n` in each segment, segment by segment.
    ///
    /// # Panics
    /// If the segments' numbers differ, or a position is out of range.
    pub fn with_targets(mut self, targets: Vec<i32>) -> Self {
        assert!(targets.len().is_multiple_of(self.batch), "equally many predictions of each segment");
        let inside = targets.iter().all(|place| (0..self.len as i32).contains(place));
        assert!(inside, "a prediction beyond its segment of {} tokens", self.len);
        self.targets = targets;
        self
    }

    /// Predicts the tokens that have a place in the order, in that order: each sees the tokens without a
    /// place, and those with a lower one (Yang et al. 2019, eq. 3, with the partial prediction of eq. 7).
    /// Tokens without a place see only each other, so that no prediction's content leaks back through them.
    ///
    /// # Panics
    /// If the numbers of places and tokens differ, or the segments have different numbers of
    /// predictions.
    pub fn with_order(mut self, order: &[Option<u32>]) -> Self {
        assert_eq!(order.len(), self.ids.len(), "places in the order, and tokens");
        let mut hidden = Vec::with_capacity(order.len() * self.len);
        let mut targets = Vec::new();
        let mut counts = Vec::with_capacity(self.batch);
        for row in order.chunks(self.len) {
            let before = targets.len();
            targets.extend((0..self.len as i32).filter(|place| row[*place as usize].is_some()));
            counts.push(targets.len() - before);
            for own in row {
                hidden.extend(row.iter().map(|other| match (own, other) {
                    (_, None) => false,
                    (None, Some(_)) => true,
                    (Some(own), Some(other)) => own <= other,
                }));
            }
        }
        assert!(counts.iter().all(|n| *n == counts[0]), "equally many predictions of each segment");
        self.hidden = hidden.contains(&true).then_some(hidden);
        self.with_targets(targets)
    }

    /// The predicted positions, the same number in each segment, ascending if they come from an
    /// [order](Self::with_order).
    pub fn targets(&self) -> &[i32] {
        &self.targets
    }

    /// Number of segments.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Number of tokens per segment.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always `false`: segments have tokens.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the token at `of` does not see that at `other` of the same segment.
    pub(super) fn hides(&self, row: usize, of: usize, other: usize) -> bool {
        let ignored = self.ignored.as_ref().is_some_and(|ignored| ignored[row * self.len + other]);
        ignored || self.hidden.as_ref().is_some_and(|hidden| hidden[(row * self.len + of) * self.len + other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_hides_what_comes_later_and_the_token_itself() {
        let input = XlnetInput::new(vec![0; 4], 1).with_order(&[None, Some(1), None, Some(0)]);
        let sees: Vec<Vec<usize>> =
            (0..4).map(|of| (0..4).filter(|other| !input.hides(0, of, *other)).collect()).collect();
        assert_eq!(sees, [vec![0, 2], vec![0, 2, 3], vec![0, 2], vec![0, 2]]);
        assert_eq!(input.targets(), [1, 3]);
    }

    #[test]
    fn padding_is_at_the_beginning() {
        let sequences: Sequences = [&[5, 6, 4][..], &[7, 4]].into_iter().collect();
        let input = XlnetInput::left_padded(&sequences, 3);
        assert_eq!(input.ids, [5, 6, 4, 3, 7, 4]);
        assert_eq!(input.ignored, Some(vec![false, false, false, true, false, false]));
        assert!(input.hides(1, 2, 0) && !input.hides(1, 2, 1) && !input.hides(0, 2, 0));
    }

    #[test]
    #[should_panic(expected = "equally many predictions of each segment")]
    fn segments_have_equally_many_predictions() {
        _ = XlnetInput::new(vec![0; 4], 2).with_order(&[None, Some(1), Some(1), Some(0)]);
    }
}
