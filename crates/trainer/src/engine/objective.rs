//! What a run minimises: the seam between the loop and a kind of training.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

/// A training objective over batches of examples.
///
/// A loss is a sum of terms, each a mean over things that a batch has a number of, such as the tokens to predict, or
/// pairs of sentences. Returning sums and counts apart lets the loop average over several micro-batches
/// exactly as one large batch would.
pub trait Objective: Sync {
    /// What is trained.
    type Model: Module;
    /// What the loss is computed on.
    type Batch: Sync;

    /// The terms' names, as metrics call them: one at least.
    fn terms(&self) -> &'static [&'static str];

    /// For each term, in the order of [`terms`](Self::terms), what its mean counts in the loss; by default 1. Reports have
    /// the terms as they are, and the loss with their weights.
    fn weights(&self) -> Vec<f64> {
        vec![1.0; self.terms().len()]
    }

    /// For each term, in the same order, how many things it is a mean over in this batch, or
    /// what they weigh; may be 0.
    fn counts(&self, batch: &Self::Batch) -> Vec<f64>;

    /// For each term, in the same order, its sum over the batch, `[1]`, in nats.
    fn sums(&self, model: &Self::Model, batch: &Self::Batch, device: &Device) -> Vec<Tensor<1>>;

    /// The sums and the gradients of a batch, for an objective that computes them part by part, as with a batch whose graph
    /// would be too large. By default none: the engine makes them of [`sums`](Self::sums). `factors` has for each term what its
    /// sum counts in the loss, and `seed` is what every random number is to come from.
    fn gradients(
        &self,
        _model: &Self::Model,
        _batch: &Self::Batch,
        _factors: &[f64],
        _seed: u64,
        _device: &Device,
    ) -> Option<(Vec<f64>, GradientsParams)> {
        None
    }
}

/// The loss of terms with these means.
pub(crate) fn weighted<O: Objective>(objective: &O, means: &[f64]) -> f64 {
    means.iter().zip(objective.weights()).map(|(mean, weight)| mean * weight).sum()
}
