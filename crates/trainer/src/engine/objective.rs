//! The training objective: the interface between the loop and a kind of training.

use super::by_rows::ByRows;
use super::replicas::Replicas;
use super::term::Term;
use crate::Result;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

/// A training objective over batches of examples.
///
/// A loss is a sum of terms, each a mean over items of a batch, such as tokens to predict or sentence pairs.
/// Returning sums and counts separately lets the loop average over several micro-batches exactly as over one
/// large batch.
pub trait Objective: Sync {
    /// The trained model.
    type Model: Module;
    /// The input of the loss.
    type Batch: Sync;

    /// The terms at a step (from 1): at least one, and the same ones at every step. Their weights may change.
    fn terms(&self, step: u64) -> Vec<Term>;

    /// For each [term](Self::terms), in order, the number of items that it averages over in this batch, or
    /// their total weight; may be 0.
    fn counts(&self, batch: &Self::Batch) -> Vec<f64>;

    /// For each term, in the same order, its sum over the batch, `[1]`, in nats.
    fn sums(&self, model: &Self::Model, batch: &Self::Batch, device: &Device) -> Vec<Tensor<1>>;

    /// The loss by rows, for an objective that compares the examples of a batch and is to be computed in parts. By default
    /// none. The answer is the same at every step.
    fn by_rows(&self) -> Option<&dyn ByRows<Self::Model, Self::Batch>> {
        None
    }

    /// The sums and the gradients of a batch, for an objective that computes them in parts, e.g. because the
    /// batch's graph would be too large. By default none: the engine derives them from [`sums`](Self::sums).
    /// `factors` has each term's factor in the loss, and `seed` must be the source of all random numbers.
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

    /// Gives each replica the state that the others' micro-batches have left in the model outside of its parameters, such
    /// as where each stream of a text stands; `own` are those of this replica. Called by several replicas after every step.
    /// By default, a model has no such state.
    ///
    /// # Errors
    /// Those of the replicas.
    fn share_state(
        &self,
        _model: &Self::Model,
        _own: &[Self::Batch],
        _replicas: &dyn Replicas,
    ) -> Result<()> {
        Ok(())
    }
}
