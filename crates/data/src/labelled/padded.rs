//! Sequences side by side.

use super::features::TokenSequence;

/// Padded lengths are multiples of this, so that few different shapes occur.
const LENGTH_STEP: usize = 8;

/// Sequences as a rectangle, short ones filled up at their ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Padded {
    /// Sequences.
    pub batch_size: usize,
    /// Tokens of each, padding among them.
    pub seq_len: usize,
    /// `[batch_size · seq_len]`
    pub input_ids: Vec<i32>,
    /// `[batch_size · seq_len]`
    pub token_type_ids: Vec<i32>,
    /// `[batch_size · seq_len]`, `true` = ignored.
    pub pad_mask: Vec<bool>,
}

/// Sequences one after the other, without padding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// Tokens of each sequence.
    pub lengths: Vec<usize>,
    /// `[lengths' sum]`
    pub input_ids: Vec<i32>,
    /// `[lengths' sum]`
    pub token_type_ids: Vec<i32>,
}

impl Padded {
    /// Pads with the id `pad` to the longest sequence, rounded up to a multiple of 8 that is no more than
    /// `max_len`.
    pub fn new(sequences: &[&TokenSequence], pad: i32, max_len: usize) -> Self {
        let longest = sequences.iter().map(|sequence| sequence.len()).max().unwrap_or(0);
        let seq_len = longest.next_multiple_of(LENGTH_STEP).min(max_len).max(longest);
        let mut batch = Self { batch_size: sequences.len(), seq_len, ..Self::default() };
        for sequence in sequences {
            let padding = seq_len - sequence.len();
            batch.input_ids.extend(&sequence.input_ids);
            batch.input_ids.extend(std::iter::repeat_n(pad, padding));
            batch.token_type_ids.extend(&sequence.token_type_ids);
            batch.token_type_ids.extend(std::iter::repeat_n(0, padding));
            batch.pad_mask.extend((0..seq_len).map(|position| position >= sequence.len()));
        }
        batch
    }

    /// Values of each sequence's tokens, such as labels, with `fill` in the padding: `[batch_size · seq_len]`.
    ///
    /// # Panics
    /// If there are more of a sequence than the batch has room for.
    pub fn fill<T: Copy>(&self, values: &[&[T]], fill: T) -> Vec<T> {
        let padded = |values: &&[T]| {
            assert!(values.len() <= self.seq_len, "values of a batch's tokens");
            values
                .iter()
                .copied()
                .chain(std::iter::repeat_n(fill, self.seq_len - values.len()))
                .collect::<Vec<_>>()
        };
        values.iter().flat_map(padded).collect()
    }
}

impl Packed {
    /// Puts sequences one after the other.
    pub fn new(sequences: &[&TokenSequence]) -> Self {
        let joined = |part: fn(&TokenSequence) -> &Vec<i32>| {
            sequences.iter().flat_map(|sequence| part(sequence)).copied().collect()
        };
        Self {
            lengths: sequences.iter().map(|sequence| sequence.len()).collect(),
            input_ids: joined(|sequence| &sequence.input_ids),
            token_type_ids: joined(|sequence| &sequence.token_type_ids),
        }
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
        let batch = Padded::new(&[&short, &long], 3, 10);
        assert_eq!((batch.batch_size, batch.seq_len), (2, 10), "not beyond the most there may be");
        assert_eq!(batch.input_ids, [vec![7], vec![3; 9], vec![8; 9], vec![3]].concat());
        assert_eq!(batch.token_type_ids, [vec![1], vec![0; 9], vec![1; 9], vec![0]].concat());
        let mask = [vec![false], vec![true; 9], vec![false; 9], vec![true]].concat();
        assert_eq!(batch.pad_mask, mask);
        assert_eq!(
            batch.fill(&[&[5], &[6; 9]], -100),
            [vec![5], vec![-100; 9], vec![6; 9], vec![-100]].concat()
        );
        assert_eq!(Padded::new(&[&long], 3, 512).seq_len, 16);
        assert_eq!(Padded::new(&[&long], 3, 4).seq_len, 9, "nothing is cut");
        assert_eq!(Padded::new(&[], 3, 4), Padded::default());

        let packed = Packed::new(&[&short, &long]);
        assert_eq!((packed.lengths, packed.input_ids), (vec![1, 9], [vec![7], vec![8; 9]].concat()));
    }
}
