//! Training on several devices or machines: the interface between replicas of a model.

use crate::Result;
use std::fmt::Debug;
use std::ops::Range;

/// The replicas that make each step together (synchronous data parallelism). Each computes its share of a
/// step's micro-batches, so that together they do what one process does with the same config.
///
/// The loss of a step is a mean over the examples of all replicas: counts are summed before any division by
/// them, and gradients before their norm is computed. Every replica then makes the same update.
///
/// All replicas make the same calls in the same order, on threads outside rayon's pool, and each call returns
/// once all replicas have made it. Sums must be bit-identical on every replica; they equal those of one process
/// if added in rank order.
pub trait Replicas: Debug + Send + Sync {
    /// The index of this replica.
    fn rank(&self) -> usize;

    /// The number of replicas, at least 1.
    fn size(&self) -> usize;

    /// Replaces each value by its sum over all replicas, which all pass the same number of values.
    ///
    /// # Errors
    /// [`TrainerError::Replicas`](crate::TrainerError::Replicas) if another replica cannot be reached.
    fn sum(&self, values: &mut [f64]) -> Result<()>;

    /// The same for 32-bit values: the gradients of all parameters in one buffer.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum).
    fn sum_gradients(&self, values: &mut [f32]) -> Result<()>;
}

/// A single replica: sums are the identity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alone;

impl Replicas for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn sum(&self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }

    fn sum_gradients(&self, _: &mut [f32]) -> Result<()> {
        Ok(())
    }
}

/// The range of a replica's share of `n` micro-batches: shares are consecutive and differ by at most one.
pub(crate) fn share(replicas: &dyn Replicas, n: usize) -> Range<usize> {
    let (rank, size) = (replicas.rank(), replicas.size().max(1));
    n * rank / size..n * (rank + 1) / size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct One(usize, usize);

    impl Replicas for One {
        fn rank(&self) -> usize {
            self.0
        }

        fn size(&self) -> usize {
            self.1
        }

        fn sum(&self, _: &mut [f64]) -> Result<()> {
            Ok(())
        }

        fn sum_gradients(&self, _: &mut [f32]) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_micro_batch_is_one_replicas() {
        assert_eq!(share(&Alone, 5), 0..5);
        for size in 1..6 {
            for n in 0..9 {
                let places: Vec<usize> = (0..size).flat_map(|rank| share(&One(rank, size), n)).collect();
                assert_eq!(places, (0..n).collect::<Vec<_>>(), "{n} micro-batches of {size} replicas");
            }
        }
    }
}
