//! What a run minimises: the seam between the loop and a kind of training.

use super::term::Term;
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

    /// The terms at a step, from 1: one at least, and the same ones at every step. Their weights may change.
    fn terms(&self, step: u64) -> Vec<Term>;

    /// For each [term](Self::terms), in their order, how many things it is a mean over in this batch, or
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
