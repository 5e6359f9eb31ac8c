//! Training on several devices or machines: the interface between replicas of a model.

use crate::Result;
use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

/// The replicas that make each step together (synchronous data parallelism). Each computes its share of a
/// step's micro-batches, and the weights end with the bits of one process that computes all of them.
///
/// An implementation only carries messages. Sums, their order and the division of the work are the engine's.
///
/// All replicas make the same calls in the same order, on threads outside rayon's pool, and each call returns
/// once all replicas have made it.
pub trait Replicas: Debug + Send + Sync {
    /// The index of this replica.
    fn rank(&self) -> usize;

    /// The number of replicas, at least 1.
    fn size(&self) -> usize;

    /// Sends `messages[r]` to each replica `r`, itself among them, and returns the messages to this one, in order of
    /// ranks. A message may have any length. Its words are numbers of 32 bits or their parts, on machines with one
    /// order of bytes.
    ///
    /// # Errors
    /// [`TrainerError::Replicas`](crate::TrainerError::Replicas) if another replica cannot be reached.
    fn exchange(&self, messages: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>>;

    /// A replica's name in messages.
    fn name(&self, rank: usize) -> String {
        format!("rank {rank}")
    }

    /// Sets for how long another replica may give no sign of life before an exchange fails. By default nothing: an
    /// implementation may have no such limit.
    fn wait_at_most(&self, _limit: Duration) {}
}

/// A single replica, which gets its own messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alone;

impl Replicas for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn exchange(&self, messages: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
        Ok(messages)
    }
}

/// A replica's part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    rank: usize,
    size: usize,
}

impl Share {
    /// The part of this replica.
    pub fn of(replicas: &dyn Replicas) -> Self {
        Self { rank: replicas.rank(), size: replicas.size().max(1) }
    }

    /// The part of this number of so many.
    pub fn part(number: usize, of: usize) -> Self {
        Self { rank: number, size: of.max(1) }
    }

    /// The range of this part of `n` things: parts are consecutive and differ by at most one.
    pub fn range(self, n: usize) -> Range<usize> {
        let Self { rank, size } = self;
        n * rank / size..n * (rank + 1) / size
    }

    /// Whether this part has number `place`, if things are dealt out like cards.
    pub(crate) fn is_dealt(self, place: usize) -> bool {
        place % self.size == self.rank
    }

    /// Whether this is all of the work.
    pub fn is_whole(self) -> bool {
        self.size == 1
    }
}

impl Default for Share {
    /// All of the work.
    fn default() -> Self {
        Self { rank: 0, size: 1 }
    }
}

/// A message of bytes, after their number.
pub fn words_of(bytes: &[u8]) -> Vec<u32> {
    let (whole, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let of_bytes =
        whole.iter().chain((!rest.is_empty()).then_some(&last)).map(|four| u32::from_le_bytes(*four));
    let n = bytes.len() as u64;
    [n as u32, (n >> 32) as u32].into_iter().chain(of_bytes).collect()
}

/// The bytes of a message from [`words_of`].
pub fn bytes_of(message: &[u32]) -> Vec<u8> {
    let Some(([low, high], words)) = message.split_first_chunk() else { return Vec::new() };
    let n = u64::from(*low) | u64::from(*high) << 32;
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(n as usize);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_one_replicas() {
        assert_eq!(Share::of(&Alone).range(5), 0..5);
        for size in 1..6 {
            for n in 0..9 {
                let places: Vec<usize> = (0..size).flat_map(|rank| Share { rank, size }.range(n)).collect();
                assert_eq!(places, (0..n).collect::<Vec<_>>(), "{n} micro-batches of {size} replicas");
            }
        }
    }
}
