use crate::ops::Packing;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// Token sequences of different lengths, concatenated on the host: the common input of recurrent,
/// convolutional and Transformer models.
///
/// Each model converts it to its fastest input form: [packed](Self::packed) into one row, or
/// [padded](Self::padded) to a rectangle. Results for single tokens are in the order of [`ids`](Self::ids),
/// without padding.
///
/// ```
/// # use cloze_model::Sequences;
/// let mut sequences = Sequences::new();
/// sequences.push(&[5, 6, 2]);
/// sequences.push(&[7, 2]);
/// assert_eq!((sequences.len(), sequences.n_tokens(), sequences.lengths()), (2, 5, &[3, 2][..]));
/// assert_eq!(sequences.iter().last(), Some(&[7, 2][..]));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sequences {
    ids: Vec<i32>,
    lengths: Vec<usize>,
}

impl Sequences {
    /// No sequences.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sequence.
    ///
    /// # Panics
    /// If the sequence is empty.
    pub fn push(&mut self, ids: &[i32]) {
        assert!(!ids.is_empty(), "a sequence without tokens: leave it out");
        self.ids.extend(ids);
        self.lengths.push(ids.len());
    }

    /// The number of sequences.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are no sequences.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The number of tokens in all sequences.
    pub fn n_tokens(&self) -> usize {
        self.ids.len()
    }

    /// `[n_tokens]`: the ids of all sequences, concatenated.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// The number of tokens in each sequence.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The number of tokens in the longest sequence; 0 if there are no sequences.
    pub fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// Iterator over the sequences.
    pub fn iter(&self) -> impl Iterator<Item = &[i32]> {
        self.lengths.iter().scan(0, |start, len| {
            let ids = &self.ids[*start..*start + len];
            *start += len;
            Some(ids)
        })
    }

    /// The lengths of the sequences, for packed input.
    pub fn packing(&self) -> Packing {
        Packing::new(self.lengths.as_slice())
    }

    /// All sequences in one row, without padding, `[1, n_tokens]`.
    pub fn packed(&self, device: &Device) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(self.ids.clone(), [1, self.ids.len()]), device)
    }

    /// One sequence per row, `[sequences, longest]`, padded at the end with `pad_id`; and the padding mask,
    /// `true` = ignored, if there is any padding.
    pub fn padded(&self, pad_id: i32, device: &Device) -> (Tensor<2, Int>, Option<Tensor<2, Bool>>) {
        let shape = [self.len(), self.longest()];
        let mut ids = Vec::with_capacity(shape[0] * shape[1]);
        let mut ignored = Vec::with_capacity(shape[0] * shape[1]);
        for sequence in self.iter() {
            ids.extend(sequence);
            ids.resize(ids.len() + shape[1] - sequence.len(), pad_id);
            ignored.extend((0..shape[1]).map(|place| place >= sequence.len()));
        }
        let mask =
            ignored.contains(&true).then(|| Tensor::from_data(TensorData::new(ignored, shape), device));
        (Tensor::from_data(TensorData::new(ids, shape), device), mask)
    }
}

impl<'a> FromIterator<&'a [i32]> for Sequences {
    fn from_iter<T: IntoIterator<Item = &'a [i32]>>(sequences: T) -> Self {
        let mut all = Self::new();
        sequences.into_iter().for_each(|ids| all.push(ids));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sequences_are_filled_up_at_their_ends() {
        let sequences: Sequences = [&[5, 6, 2][..], &[7]].into_iter().collect();
        let device = Device::flex();
        let (ids, mask) = sequences.padded(1, &device);
        assert_eq!(ids.into_data().iter::<i32>().collect::<Vec<_>>(), [5, 6, 2, 7, 1, 1]);
        let mask: Vec<bool> = mask.expect("padding").into_data().iter::<bool>().collect();
        assert_eq!(mask, [false, false, false, false, true, true]);
        assert_eq!(sequences.packed(&device).dims(), [1, 4]);
        assert_eq!(sequences.packing().lengths(), [3, 1]);
        let even: Sequences = [&[5, 6][..], &[7, 8]].into_iter().collect();
        assert!(even.padded(1, &device).1.is_none());
    }
}
