//! The seam for training on several devices or machines: what replicas of one model sum between them.

use burn::module::Module;
use burn::optim::GradientsParams;

/// The replicas that make each step together, every one on micro-batches of its own (synchronous data parallelism).
///
/// The loss of a step is a mean over the examples of all replicas. So the counts are summed before anything is divided
/// by them, and the gradients before their norm is taken; every replica then makes the same update.
pub trait Replicas: Sync {
    /// The number of this replica, from 0. It tells the random numbers of one replica's dropout from another's.
    fn rank(&self) -> u64;

    /// Replaces each value by its sum over all replicas.
    fn sum(&self, values: &mut [f64]);

    /// Each gradient's sum over all replicas. `model` names the parameters, in the same order on every replica.
    fn sum_gradients<M: Module>(&self, model: &M, gradients: GradientsParams) -> GradientsParams;
}

/// One replica, which is all there is: nothing is summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alone;

impl Replicas for Alone {
    fn rank(&self) -> u64 {
        0
    }

    fn sum(&self, _: &mut [f64]) {}

    fn sum_gradients<M: Module>(&self, _: &M, gradients: GradientsParams) -> GradientsParams {
        gradients
    }
}
