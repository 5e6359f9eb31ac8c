//! The order in which a recurrent layer reads packed sequences.

use crate::Packing;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// The direction in which sequences are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the first token on.
    #[default]
    Forward,
    /// From the last token back. Results are still in token order.
    Reverse,
}

impl Direction {
    /// The token, within a sequence of `len`, that a step reads.
    pub(crate) fn place(self, step: usize, len: usize) -> usize {
        match self {
            Self::Forward => step,
            Self::Reverse => len - 1 - step,
        }
    }
}

/// One time step of all sequences, for composed operations: every step has all rows, so that shapes stay
/// constant.
pub(crate) struct Step {
    /// `[sequences]`: the token that each sequence reads; its first if it has ended.
    pub tokens: Tensor<1, Int>,
    /// `[sequences, d]`: the sequences that have ended; `None` if none has.
    pub ended: Option<Tensor<2, Bool>>,
}

impl Step {
    pub fn new(step: usize, packing: &Packing, direction: Direction, d: usize, device: &Device) -> Self {
        let sequences = || packing.starts().zip(packing.lengths());
        let token = |(start, len): (usize, &usize)| {
            (start + if step < *len { direction.place(step, *len) } else { 0 }) as i32
        };
        let tokens: Vec<i32> = sequences().map(token).collect();
        let n = tokens.len();
        let ended: Vec<bool> = sequences().map(|(_, len)| step >= *len).collect();
        let ended = ended
            .contains(&true)
            .then(|| Tensor::<2, Bool>::from_data(TensorData::new(ended, [n, 1]), device).expand([n, d]));
        Self { tokens: Tensor::from_data(TensorData::new(tokens, [n]), device), ended }
    }

    /// Keeps the old values of ended sequences.
    pub fn keep_ended(&self, new: Tensor<2>, old: Tensor<2>) -> Tensor<2> {
        match &self.ended {
            Some(ended) => new.mask_where(ended.clone(), old),
            None => new,
        }
    }
}

/// All steps' results, `[sequences, d]` each, in the order of the tokens.
pub(crate) fn in_token_order(
    steps: Vec<Tensor<2>>,
    packing: &Packing,
    direction: Direction,
    device: &Device,
) -> Tensor<2> {
    let n = packing.lengths().len();
    let places = packing.lengths().iter().enumerate().flat_map(|(sequence, len)| {
        (0..*len).map(move |token| (direction.place(token, *len) * n + sequence) as i32)
    });
    let places: Vec<i32> = places.collect();
    let places = TensorData::new(places, [packing.n_tokens()]);
    Tensor::cat(steps, 0).select(0, Tensor::from_data(places, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reads_a_token_of_each_sequence() {
        let (device, packing) = (Device::flex(), Packing::new([2, 3]));
        let tokens = |step, direction| {
            let step = Step::new(step, &packing, direction, 1, &device);
            let ended = step.ended.map(|ended| ended.into_data().iter::<bool>().collect::<Vec<_>>());
            (step.tokens.into_data().iter::<i32>().collect::<Vec<_>>(), ended)
        };
        assert_eq!(tokens(0, Direction::Forward), (vec![0, 2], None));
        assert_eq!(tokens(1, Direction::Forward), (vec![1, 3], None));
        assert_eq!(tokens(2, Direction::Forward), (vec![0, 4], Some(vec![true, false])));
        assert_eq!(tokens(0, Direction::Reverse), (vec![1, 4], None));
        assert_eq!(tokens(2, Direction::Reverse), (vec![0, 2], Some(vec![true, false])));
        let rows = |step: i32| [[step as f32 * 10.0], [step as f32 * 10.0 + 1.0]];
        let steps = || (0..3).map(|step| Tensor::from_data(rows(step), &device)).collect();
        for (direction, expected) in
            [(Direction::Forward, [0, 10, 1, 11, 21]), (Direction::Reverse, [10, 0, 21, 11, 1])]
        {
            let found = in_token_order(steps(), &packing, direction, &device).into_data();
            assert_eq!(found.iter::<i32>().collect::<Vec<_>>(), expected);
        }
    }
}
