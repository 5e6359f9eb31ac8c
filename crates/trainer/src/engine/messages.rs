//! What replicas tell one another, as words of 32 bits.

use super::replicas::{Replicas, bytes_of, words_of};
use crate::{Result, TrainerError};

/// Every replica's message to all others, in order of ranks.
pub(crate) fn gather(replicas: &dyn Replicas, own: Vec<u32>) -> Result<Vec<Vec<u32>>> {
    if replicas.size() <= 1 {
        return Ok(vec![own]);
    }
    replicas.exchange(vec![own; replicas.size()])
}

/// Every replica's numbers, in order of ranks.
pub(crate) fn gather_numbers(replicas: &dyn Replicas, own: &[f64]) -> Result<Vec<Vec<f64>>> {
    if replicas.size() <= 1 {
        return Ok(vec![own.to_vec()]);
    }
    let all = gather(replicas, own.iter().flat_map(|number| words(number.to_bits())).collect())?;
    let number = |pair: &[u32; 2]| f64::from_bits(u64::from(pair[0]) | u64::from(pair[1]) << 32);
    Ok(all.iter().map(|message| message.as_chunks().0.iter().map(number).collect()).collect())
}

/// The sums of every replica's numbers, added in order of ranks.
pub(super) fn sum_numbers(replicas: &dyn Replicas, own: &[f64]) -> Result<Vec<f64>> {
    let mut sums = vec![0.0; own.len()];
    for numbers in gather_numbers(replicas, own)? {
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    }
    Ok(sums)
}

/// What the first replica tells all others: it alone has `told`.
pub(super) fn from_first(replicas: &dyn Replicas, told: Option<Vec<u8>>) -> Result<Vec<u8>> {
    if replicas.size() <= 1 {
        return Ok(told.unwrap_or_default());
    }
    let message = told.map_or_else(Vec::new, |bytes| words_of(&bytes));
    let mut all = gather(replicas, message)?;
    Ok(bytes_of(&all.swap_remove(0)))
}

/// What is left of a message.
pub(crate) struct Words<'a> {
    rest: &'a [u32],
    /// Its sender.
    rank: usize,
}

impl<'a> Words<'a> {
    pub fn new(message: &'a [u32], rank: usize) -> Self {
        Self { rest: message, rank }
    }

    pub fn one(&mut self) -> Result<u32> {
        Ok(self.take(1)?[0])
    }

    pub fn values(&mut self, length: usize) -> Result<Vec<f32>> {
        Ok(self.take(length)?.iter().map(|word| f32::from_bits(*word)).collect())
    }

    pub fn take(&mut self, n: usize) -> Result<&'a [u32]> {
        let problem = || format!("disagree: rank {} sent a message of another model or step", self.rank);
        let (taken, rest) =
            self.rest.split_at_checked(n).ok_or_else(|| TrainerError::Replicas { problem: problem() })?;
        self.rest = rest;
        Ok(taken)
    }
}

fn words(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::super::replicas::Alone;
    use super::*;

    #[test]
    fn bytes_survive_any_length() {
        for n in 0..10u8 {
            let bytes: Vec<u8> = (1..=n).collect();
            assert_eq!(bytes_of(&words_of(&bytes)), bytes);
        }
        assert_eq!(bytes_of(&[]), [0u8; 0]);
        assert_eq!(from_first(&Alone, Some(vec![1, 2, 3])).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn numbers_keep_their_bits() {
        #[derive(Debug)]
        struct Mirror;
        impl Replicas for Mirror {
            fn rank(&self) -> usize {
                0
            }
            fn size(&self) -> usize {
                2
            }
            fn exchange(&self, messages: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
                Ok(messages)
            }
        }
        let own = [0.1, -0.0, f64::MAX, 5e-324];
        let all = gather_numbers(&Mirror, &own).unwrap();
        assert_eq!(all.len(), 2);
        let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        all.iter().for_each(|numbers| assert_eq!(bits(numbers), bits(&own)));
        assert_eq!(sum_numbers(&Mirror, &[0.1, 2.0]).unwrap(), [0.2, 4.0]);
    }
}
