use std::iter::repeat_n;
use std::sync::Arc;

/// Concatenated sequences without padding: a batch of one row, `[1, n_tokens, ...]`, in which each
/// token sees only its own sequence.
///
/// ```
/// # use cloze_ops::Packing;
/// let packing = Packing::new([3, 1, 2]);
/// assert_eq!(packing.n_tokens(), 6);
/// assert_eq!(packing.starts().collect::<Vec<_>>(), [0, 3, 4]);
/// assert_eq!(packing.positions().collect::<Vec<_>>(), [0, 1, 2, 0, 0, 1]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    lengths: Arc<[usize]>,
    n_tokens: usize,
}

impl Packing {
    /// Sequences of these lengths, in tokens.
    ///
    /// # Panics
    /// If one of them is 0.
    pub fn new(lengths: impl Into<Arc<[usize]>>) -> Self {
        let lengths = lengths.into();
        assert!(lengths.iter().all(|len| *len > 0), "a packed sequence has a token at least");
        let n_tokens = lengths.iter().sum();
        Self { lengths, n_tokens }
    }

    /// The sequences' lengths, in tokens.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Total number of tokens.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// The longest sequence's length; 0 if there are no sequences.
    pub fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// Each sequence's first token.
    pub fn starts(&self) -> impl Iterator<Item = usize> {
        self.lengths.iter().scan(0, |next, len| Some(std::mem::replace(next, *next + len)))
    }

    /// Each token's position in its sequence.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.lengths.iter().flat_map(|len| 0..*len)
    }

    /// Each token's sequence.
    pub fn sequences(&self) -> impl Iterator<Item = usize> {
        self.lengths.iter().enumerate().flat_map(|(sequence, len)| repeat_n(sequence, *len))
    }

    /// Each token's place in the padded form of the batch, `sequence · longest + position`.
    pub fn padded_places(&self) -> impl Iterator<Item = usize> {
        let longest = self.longest();
        self.sequences().zip(self.positions()).map(move |(sequence, position)| sequence * longest + position)
    }

    /// The token at each place of the padded form; `None` for padding.
    pub fn padded_tokens(&self) -> Vec<Option<usize>> {
        let mut tokens = vec![None; self.lengths.len() * self.longest()];
        for (token, place) in self.padded_places().enumerate() {
            tokens[place] = Some(token);
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_back() {
        let packing = Packing::new([2, 3, 1]);
        assert_eq!(packing.padded_places().collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6]);
        let expected = [Some(0), Some(1), None, Some(2), Some(3), Some(4), Some(5), None, None];
        assert_eq!(packing.padded_tokens(), expected);
        assert_eq!(packing.sequences().collect::<Vec<_>>(), [0, 0, 1, 1, 1, 2]);
        assert_eq!(Packing::new([]).longest(), 0);
    }
}
