//! Token sequences, single and in batches.

use crate::sight::Sight;
use cloze_tokenizer::Encoding;

/// A model's input sequence, without padding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenSequence {
    /// `[len]`: ids, including special tokens.
    pub input_ids: Vec<i32>,
    /// `[len]`: the segment of each, as numbered by the tokenizer.
    pub token_type_ids: Vec<i32>,
}

impl TokenSequence {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.input_ids.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.input_ids.is_empty()
    }
}

impl From<&Encoding> for TokenSequence {
    fn from(encoding: &Encoding) -> Self {
        Self { input_ids: signed(&encoding.ids), token_type_ids: signed(&encoding.type_ids) }
    }
}

/// Ids as signed integers, for tensors.
pub(crate) fn signed(ids: &[u32]) -> Vec<i32> {
    ids.iter().map(|id| *id as i32).collect()
}

/// A batch of token sequences of different lengths, concatenated without padding, as packed attention
/// expects. [`padded`](Self::padded) makes the rectangle that other models expect.
///
/// Tokens are numbered across the batch: token 0 is the first of the first sequence. Token labels refer to
/// these numbers; [`padded_places`](Self::padded_places) maps them to the rectangle.
///
/// ```
/// # use cloze_data::TokenBatch;
/// let mut batch = TokenBatch::new().with_max_len(10);
/// batch.push(&[2, 17, 3], &[0, 0, 0]);
/// batch.push(&[2, 9, 3, 8, 3], &[0, 0, 0, 1, 1]);
/// assert_eq!((batch.n_tokens(), batch.lengths()), (8, &[3, 5][..]));
/// let padded = batch.padded();
/// assert_eq!((padded.batch_size, padded.seq_len), (2, 8));
/// assert_eq!(batch.padded_places(&[2, 3]), [2, 8]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBatch {
    lengths: Vec<usize>,
    input_ids: Vec<i32>,
    token_type_ids: Vec<i32>,
    /// For all tokens, or for none.
    position_ids: Vec<i32>,
    sights: Vec<Sight>,
    pad_id: i32,
    max_len: usize,
}

/// Token sequences as a rectangle, padded at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Padded {
    /// Sequences.
    pub batch_size: usize,
    /// Tokens per sequence, including padding.
    pub seq_len: usize,
    /// `[batch_size · seq_len]`
    pub input_ids: Vec<i32>,
    /// `[batch_size · seq_len]`
    pub token_type_ids: Vec<i32>,
    /// `[batch_size · seq_len]`, or empty if positions are consecutive.
    pub position_ids: Vec<i32>,
    /// `[batch_size · seq_len]`, `true` = ignored.
    pub pad_mask: Vec<bool>,
}

impl Default for TokenBatch {
    fn default() -> Self {
        Self {
            lengths: Vec::new(),
            input_ids: Vec::new(),
            token_type_ids: Vec::new(),
            position_ids: Vec::new(),
            sights: Vec::new(),
            pad_id: 0,
            max_len: usize::MAX,
        }
    }
}

impl TokenBatch {
    /// Padded lengths are multiples of this, to limit the number of shapes.
    pub const LENGTH_STEP: usize = 8;

    /// A batch without sequences, to be padded with the id 0 to any length.
    pub fn new() -> Self {
        Self::default()
    }

    /// Pads with another id.
    pub fn with_pad_id(mut self, pad_id: i32) -> Self {
        self.pad_id = pad_id;
        self
    }

    /// Limits the rounding of padded lengths to a model's maximum, in tokens. Longer sequences are not cut.
    pub fn with_max_len(mut self, max_len: usize) -> Self {
        self.max_len = max_len;
        self
    }

    /// Adds a sequence whose tokens all see one another.
    ///
    /// # Panics
    /// If there are no tokens, or not one type per token; if an earlier sequence has
    /// [positions](Self::push_at).
    pub fn push(&mut self, input_ids: &[i32], token_type_ids: &[i32]) {
        self.push_seen(input_ids, token_type_ids, Sight::All);
    }

    /// Adds a sequence, with which of its tokens each token sees.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn push_seen(&mut self, input_ids: &[i32], token_type_ids: &[i32], sight: Sight) {
        assert!(self.position_ids.is_empty(), "positions for all sequences or for none");
        self.add(input_ids, token_type_ids, sight);
    }

    fn add(&mut self, input_ids: &[i32], token_type_ids: &[i32], sight: Sight) {
        assert!(!input_ids.is_empty(), "a sequence without tokens: leave it out");
        assert_eq!(input_ids.len(), token_type_ids.len(), "one type per token");
        self.lengths.push(input_ids.len());
        self.input_ids.extend(input_ids);
        self.token_type_ids.extend(token_type_ids);
        self.sights.push(sight);
    }

    /// Adds a sequence with explicit positions, for example of two concatenated sentences. A batch has
    /// positions for all sequences or for none.
    ///
    /// # Panics
    /// As [`push`](Self::push); unless there is one position per token; if an earlier sequence has none.
    pub fn push_at(&mut self, input_ids: &[i32], token_type_ids: &[i32], position_ids: &[i32]) {
        assert_eq!(input_ids.len(), position_ids.len(), "one position per token");
        assert_eq!(self.position_ids.len(), self.n_tokens(), "positions for all sequences or for none");
        self.add(input_ids, token_type_ids, Sight::All);
        self.position_ids.extend(position_ids);
    }

    /// `[sequences]`: the length of each sequence in tokens.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// `[tokens]`: the ids of all sequences, concatenated.
    pub fn input_ids(&self) -> &[i32] {
        &self.input_ids
    }

    /// `[tokens]`: the segments of all sequences, concatenated.
    pub fn token_type_ids(&self) -> &[i32] {
        &self.token_type_ids
    }

    /// `[tokens]`: the positions of all sequences, concatenated; `None` if they are consecutive.
    pub fn position_ids(&self) -> Option<&[i32]> {
        (!self.position_ids.is_empty()).then_some(&self.position_ids)
    }

    /// `[sequences]`: what the tokens of each sequence see.
    pub fn sights(&self) -> &[Sight] {
        &self.sights
    }

    /// Number of sequences.
    pub fn n_sequences(&self) -> usize {
        self.lengths.len()
    }

    /// Number of tokens.
    pub fn n_tokens(&self) -> usize {
        self.input_ids.len()
    }

    /// `[sequences]`: the number of each sequence's first token.
    pub fn starts(&self) -> impl Iterator<Item = usize> + '_ {
        self.lengths.iter().scan(0, |start, len| Some(std::mem::replace(start, *start + len)))
    }

    /// The length of the padded sequences: the longest one's, rounded up to a multiple of
    /// [`LENGTH_STEP`](Self::LENGTH_STEP), up to the [maximum](Self::with_max_len).
    pub fn padded_len(&self) -> usize {
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        longest.next_multiple_of(Self::LENGTH_STEP).min(self.max_len).max(longest)
    }

    /// Number of padding tokens in the rectangle.
    pub fn n_padding(&self) -> usize {
        self.n_sequences() * self.padded_len() - self.n_tokens()
    }

    /// The sequences as a rectangle.
    pub fn padded(&self) -> Padded {
        let seq_len = self.padded_len();
        let fill = |values: &[i32], pad: i32| {
            let mut filled = Vec::with_capacity(self.n_sequences() * seq_len);
            for (start, len) in self.starts().zip(&self.lengths) {
                filled.extend(&values[start..start + len]);
                filled.extend(std::iter::repeat_n(pad, seq_len - len));
            }
            filled
        };
        Padded {
            batch_size: self.n_sequences(),
            seq_len,
            input_ids: fill(&self.input_ids, self.pad_id),
            token_type_ids: fill(&self.token_type_ids, 0),
            position_ids: self.position_ids().map_or_else(Vec::new, |ids| fill(ids, 0)),
            pad_mask: self.lengths.iter().flat_map(|len| (0..seq_len).map(move |at| at >= *len)).collect(),
        }
    }

    /// The places of tokens in the rectangle, `sequence · seq_len + column`, from their ascending numbers.
    ///
    /// # Panics
    /// If the numbers do not ascend or are out of range.
    pub fn padded_places(&self, tokens: &[i32]) -> Vec<i32> {
        let seq_len = self.padded_len();
        let (mut start, mut row) = (0, 0);
        let place = |token: &i32| {
            let token = *token as usize;
            assert!(start <= token && token < self.n_tokens(), "token {token} of {}", self.n_tokens());
            while token >= start + self.lengths[row] {
                start += self.lengths[row];
                row += 1;
            }
            (row * seq_len + token - start) as i32
        };
        tokens.iter().map(place).collect()
    }
}

impl<'a> Extend<&'a TokenSequence> for TokenBatch {
    fn extend<T: IntoIterator<Item = &'a TokenSequence>>(&mut self, sequences: T) {
        for sequence in sequences {
            self.push(&sequence.input_ids, &sequence.token_type_ids);
        }
    }
}

impl<'a> FromIterator<&'a TokenSequence> for TokenBatch {
    fn from_iter<T: IntoIterator<Item = &'a TokenSequence>>(sequences: T) -> Self {
        let mut batch = Self::new();
        batch.extend(sequences);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sequences_are_filled_up() {
        let sequence =
            |ids: &[i32]| TokenSequence { input_ids: ids.to_vec(), token_type_ids: vec![1; ids.len()] };
        let (short, long) = (sequence(&[7]), sequence(&[8; 9]));
        let mut batch = TokenBatch::new().with_pad_id(3).with_max_len(10);
        batch.extend([&short, &long]);
        assert_eq!((batch.lengths(), batch.input_ids()), (&[1, 9][..], &[vec![7], vec![8; 9]].concat()[..]));
        assert_eq!((batch.token_type_ids(), batch.starts().last()), (&[1; 10][..], Some(1)));
        let padded = batch.padded();
        assert_eq!((padded.batch_size, padded.seq_len), (2, 10), "not beyond the most there may be");
        assert_eq!(padded.input_ids, [vec![7], vec![3; 9], vec![8; 9], vec![3]].concat());
        assert_eq!(padded.token_type_ids, [vec![1], vec![0; 9], vec![1; 9], vec![0]].concat());
        let mask = [vec![false], vec![true; 9], vec![false; 9], vec![true]].concat();
        assert_eq!(padded.pad_mask, mask);
        assert_eq!(batch.n_padding(), 10);
        assert_eq!(batch.padded_places(&[0, 1, 1, 9]), [0, 10, 10, 18]);
        assert_eq!(TokenBatch::from_iter([&long]).padded_len(), 16);
        let mut batch = TokenBatch::new().with_max_len(4);
        batch.extend([&long]);
        assert_eq!(batch.padded_len(), 9, "nothing is cut");
        assert_eq!(TokenBatch::new().padded(), Padded::default());
        assert!(TokenBatch::new().padded_places(&[]).is_empty());
    }

    #[test]
    fn positions_are_filled_up_too() {
        let mut batch = TokenBatch::new().with_max_len(4);
        batch.push_at(&[5, 6, 7], &[0, 0, 1], &[0, 1, 0]);
        batch.push_at(&[8], &[1], &[0]);
        assert_eq!(batch.position_ids(), Some(&[0, 1, 0, 0][..]));
        assert_eq!(batch.padded().position_ids, [0, 1, 0, 0, 0, 0, 0, 0]);
        let mut plain = TokenBatch::new();
        plain.push(&[8], &[1]);
        assert!(plain.position_ids().is_none() && plain.padded().position_ids.is_empty());
    }

    #[test]
    #[should_panic = "for all sequences or for none"]
    fn positions_are_of_all_sequences() {
        let mut batch = TokenBatch::new();
        batch.push(&[8], &[1]);
        batch.push_at(&[5], &[0], &[0]);
    }

    #[test]
    #[should_panic = "a sequence without tokens"]
    fn a_sequence_without_tokens_is_a_mistake() {
        TokenBatch::new().push(&[], &[]);
    }
}
