//! Target tokens in time-major order: all first tokens, all second ones, and so on.

use crate::Sequences;
use burn::tensor::{Device, Int, Tensor};
use std::cmp::Reverse;

/// The order of the tokens in a loop over time steps.
pub(crate) struct TimeMajor {
    /// The sequences, longest first.
    pub order: Vec<usize>,
    /// The number of sequences in each step.
    pub counts: Vec<usize>,
    /// The token of each place; 0 after the end of a sequence.
    pub ids: Vec<i32>,
    /// The place of each token in the sequences' original order.
    places: Vec<i32>,
}

impl TimeMajor {
    /// With `same`, every step has all sequences, so that shapes stay the same; otherwise only those that have not
    /// ended.
    pub fn new(target: &Sequences, same: bool) -> Self {
        let lengths = target.lengths();
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|sequence| Reverse(lengths[*sequence]));
        let active = |step: usize| order.partition_point(|sequence| lengths[*sequence] > step);
        let counts: Vec<usize> =
            (0..target.longest()).map(|step| if same { order.len() } else { active(step) }).collect();
        let starts: Vec<usize> =
            counts.iter().scan(0, |next, count| Some(std::mem::replace(next, *next + count))).collect();
        let sequences: Vec<&[i32]> = target.iter().collect();
        let mut ids = vec![0; counts.iter().sum()];
        let mut rows = vec![0; order.len()];
        for (row, sequence) in order.iter().enumerate() {
            rows[*sequence] = row;
            for (start, id) in starts.iter().zip(sequences[*sequence]) {
                ids[start + row] = *id;
            }
        }
        let place = |(row, len): (&usize, &usize)| {
            let row = *row;
            starts[..*len].iter().map(move |start| (start + row) as i32).collect::<Vec<_>>()
        };
        let places = rows.iter().zip(lengths).flat_map(place).collect();
        Self { order, counts, ids, places }
    }

    /// Puts values of the steps' tokens in the sequences' original order.
    pub fn in_token_order(&self, x: Tensor<2>) -> Tensor<2> {
        let places = Tensor::<1, Int>::from_data(self.places.as_slice(), &x.device());
        x.select(0, places)
    }

    /// Puts a number of each token, in the sequences' original order, in that of the steps; 0 after the end of a sequence.
    pub fn in_step_order(&self, numbers: &[f32]) -> Vec<f32> {
        let mut ordered = vec![0.0; self.ids.len()];
        for (place, number) in self.places.iter().zip(numbers) {
            ordered[*place as usize] = *number;
        }
        ordered
    }

    /// The row of each sequence.
    pub fn rows(&self, device: &Device) -> Tensor<1, Int> {
        let mut rows = vec![0; self.order.len()];
        for (row, sequence) in self.order.iter().enumerate() {
            rows[*sequence] = row as i32;
        }
        Tensor::from_data(rows.as_slice(), device)
    }

    /// The sequences in this order.
    pub fn ordered(&self, sequences: &Sequences) -> Sequences {
        let all: Vec<&[i32]> = sequences.iter().collect();
        self.order.iter().map(|sequence| all[*sequence]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_sequences_stand_first() {
        let device = Device::flex();
        let target: Sequences = [&[1][..], &[2, 3, 4], &[5, 6]].into_iter().collect();
        let steps = TimeMajor::new(&target, false);
        assert_eq!((steps.order.as_slice(), steps.counts.as_slice()), (&[1, 2, 0][..], &[3, 2, 1][..]));
        assert_eq!(steps.ids, [2, 5, 1, 3, 6, 4]);
        assert_eq!(steps.ordered(&target).ids(), [2, 3, 4, 5, 6, 1]);
        assert_eq!(steps.rows(&device).into_data().iter::<i32>().collect::<Vec<_>>(), [2, 0, 1]);
        for same in [false, true] {
            let steps = TimeMajor::new(&target, same);
            let n = steps.ids.len();
            let ids = Tensor::<1, Int>::from_data(steps.ids.as_slice(), &device).float().reshape([n, 1]);
            let ids: Vec<i32> = steps.in_token_order(ids).into_data().iter().collect();
            assert_eq!(ids, target.ids());
        }
        assert_eq!(TimeMajor::new(&target, true).counts, [3, 3, 3]);
    }
}
