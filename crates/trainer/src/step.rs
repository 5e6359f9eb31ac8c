//! One optimisation step: forward and backward over micro-batches, clipping, update.

use crate::gradients;
use crate::objective::Objective;
use crate::optimizer::Optimizer;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use cloze_data::derive_seed;
use cloze_ops::{Precision, with_precision};
use tracing::trace_span;

/// Tells the dropout masks' random numbers from all others that a seed gives.
const DROPOUT_STREAM: u64 = 0xD809;

/// What one step did.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// For each term of the objective, its mean over the whole step; 0 where there was nothing.
    pub losses: Vec<f64>,
    /// The gradients' global norm before clipping.
    pub grad_norm: f64,
    /// Whether the parameters moved: not when a loss or a gradient was not finite.
    pub updated: bool,
}

/// The constants of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepConfig {
    /// The run's seed.
    pub seed: u64,
    /// The step's number, from 1.
    pub step: u64,
    /// The learning rate.
    pub lr: f64,
    /// The global norm that gradients are scaled down to; 0 leaves them alone.
    pub clip_norm: f64,
    /// Of the matrix products; parameters, gradients and all else are in FP32.
    pub precision: Precision,
}

/// Makes one step on `batches`, which count as one large batch.
///
/// The device's generator is seeded for each micro-batch from the seed, the step and its place in the
/// step, so dropout is a function of these and not of what ran before: a resumed run draws the same.
/// Backends keep one generator for each device: of two trainings on one device in one process, each disturbs
/// the other's dropout.
pub fn step<O: Objective>(
    objective: &O,
    model: O::Model,
    optimizer: &mut Optimizer,
    batches: &[O::Batch],
    device: &Device,
    config: StepConfig,
) -> (O::Model, StepReport) {
    let counts: Vec<Vec<f64>> = batches.iter().map(|batch| objective.counts(batch)).collect();
    let totals: Vec<f64> =
        (0..objective.terms().len()).map(|term| counts.iter().map(|c| c[term]).sum()).collect();

    let mut gradients: Option<GradientsParams> = None;
    let mut losses = vec![0.0; totals.len()];
    for (place, batch) in batches.iter().enumerate() {
        device.seed(derive_seed(config.seed, &[DROPOUT_STREAM, config.step, place as u64]));
        let forward = trace_span!("forward").entered();
        let means: Vec<Tensor<1>> =
            with_precision(config.precision, || objective.sums(&model, batch, device))
                .into_iter()
                .zip(&totals)
                .map(|(sum, total)| sum.mul_scalar(if *total > 0.0 { 1.0 / total } else { 0.0 }))
                .collect();
        let means = Tensor::cat(means, 0);
        drop(forward);
        let backward = trace_span!("backward").entered();
        let more = means.clone().sum().backward();
        let more = GradientsParams::from_grads(more, &model);
        gradients = Some(match gradients {
            Some(sum) => gradients::add(&model, sum, more),
            None => more,
        });
        drop(backward);
        for (loss, mean) in losses.iter_mut().zip(means.into_data().iter::<f64>()) {
            *loss += mean;
        }
    }
    let _update = trace_span!("update").entered();
    let gradients = gradients.unwrap_or_default();
    let grad_norm = gradients::global_norm(&model, &gradients);
    let updated = grad_norm.is_finite() && losses.iter().all(|loss| loss.is_finite());
    let model = if updated {
        let clips = config.clip_norm > 0.0 && grad_norm > config.clip_norm;
        let scale = if clips { config.clip_norm / grad_norm } else { 1.0 };
        optimizer.step(model, gradients, config.lr, scale)
    } else {
        model
    };
    (model, StepReport { losses, grad_norm, updated })
}
