//! Objectives on running text.

use crate::engine::Objective;
use burn::tensor::{Device, Tensor};

/// An objective with one term, the mean cross-entropy of the predicted tokens, evaluated token by token.
pub trait TextObjective: Objective<Model: Sync> {
    /// The name of a prediction in reports, such as `"token"`.
    const PREDICTION: &str;

    /// The cross-entropy of each predicted token of a batch, in nats.
    ///
    /// # Shapes
    /// - returns `[n_predicted]`, where `n_predicted` is the batch's [count](Objective::counts)
    fn losses(&self, model: &Self::Model, batch: &Self::Batch, device: &Device) -> Tensor<1>;

    /// Number of tokens of a batch that are read, predicted or not.
    fn n_tokens(batch: &Self::Batch) -> u64;
}
