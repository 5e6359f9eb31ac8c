//! One optimisation step: forward and backward over micro-batches, clipping, update.

use crate::engine::extension::Extensions;
use crate::engine::failure::guarded;
use crate::engine::gradients;
use crate::engine::objective::Objective;
use crate::engine::optimizer::Optimizer;
use crate::engine::replicas::{Alone, Replicas, share};
use crate::engine::term::Term;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use cloze_data::derive_seed;
use cloze_ops::{Precision, with_precision};
use tracing::trace_span;

/// Separates the random stream of dropout masks from all others of a seed.
const DROPOUT_STREAM: u64 = 0xD809;

/// The result of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// For each term of the objective, its mean over the whole step; 0 if the term had no items.
    pub losses: Vec<f64>,
    /// The gradients' global norm before clipping.
    pub grad_norm: f64,
    /// Whether the parameters were updated: not if a loss or a gradient was not finite.
    pub updated: bool,
}

/// The settings of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepConfig {
    /// The run's seed.
    pub seed: u64,
    /// The step's number, from 1.
    pub step: u64,
    /// The learning rate.
    pub lr: f64,
    /// The global norm that gradients are clipped to; 0 disables clipping.
    pub clip_norm: f64,
    /// Precision of matrix products; parameters, gradients and everything else are in FP32.
    pub precision: Precision,
    /// Factor on the loss in the backward pass, divided out of the gradients after it; 1 in FP32 and bf16. See
    /// [`LossScale`](super::loss_scale::LossScale).
    pub loss_scale: f64,
}

/// Makes one step on `batches`, which count as one large batch; each of the `replicas` computes its share.
///
/// The device's generator is seeded for each micro-batch from the seed, the step and the micro-batch's index,
/// so dropout is a function of these alone, not of earlier computations or the number of replicas: a resumed
/// run draws the same. Backends have one generator per device: two trainings on one device in one process
/// disturb each other's dropout.
///
/// The model is always returned, unchanged if there is an error.
///
/// # Errors
/// [`TrainerError::Objective`] for an objective whose counts or sums do not match its terms;
/// [`TrainerError::DeviceFailed`] if the device fails to compute the loss or the gradients;
/// [`TrainerError::Replicas`] if another replica cannot be reached.
pub fn step<O: Objective>(
    objective: &O,
    model: O::Model,
    optimizer: &mut Optimizer,
    batches: &[O::Batch],
    device: &Device,
    config: StepConfig,
    replicas: &dyn Replicas,
) -> (O::Model, Result<StepReport>) {
    let hooks = &mut Hooks { replicas, extensions: &mut Vec::new() };
    extended_step(objective, model, optimizer, batches, device, config, hooks)
}

/// Participants in a step besides its model.
pub(crate) struct Hooks<'a, M> {
    pub replicas: &'a dyn Replicas,
    pub extensions: &'a mut Extensions<M>,
}

impl<M: Module> Hooks<'_, M> {
    fn on_gradients(&mut self, model: &M, gradients: GradientsParams, step: u64) -> GradientsParams {
        self.extensions
            .iter_mut()
            .fold(gradients, |gradients, extension| extension.on_gradients(model, gradients, step))
    }

    fn before_step(&mut self, model: M, step: u64) -> M {
        self.extensions.iter_mut().fold(model, |model, extension| extension.before_step(model, step))
    }

    fn before_update(&mut self, model: M, step: u64) -> M {
        self.extensions.iter_mut().fold(model, |model, extension| extension.before_update(model, step))
    }

    fn after_skip(&mut self, model: M, step: u64) -> M {
        self.extensions.iter_mut().fold(model, |model, extension| extension.after_skip(model, step))
    }

    fn after_update(&mut self, model: M, step: u64) -> M {
        self.extensions.iter_mut().fold(model, |model, extension| extension.after_update(model, step))
    }
}

/// [`step`] with extensions.
pub(crate) fn extended_step<O: Objective>(
    objective: &O,
    model: O::Model,
    optimizer: &mut Optimizer,
    batches: &[O::Batch],
    device: &Device,
    config: StepConfig,
    hooks: &mut Hooks<'_, O::Model>,
) -> (O::Model, Result<StepReport>) {
    let model = hooks.before_step(optimizer.prepare(model), config.step);
    let computed = guarded(config.step, || {
        let (losses, gradients) = losses(objective, &model, batches, device, config, hooks.replicas)?;
        let gradients = hooks.on_gradients(&model, gradients, config.step);
        let update = trace_span!("update").entered();
        let grad_norm = gradients::global_norm(&model, &gradients) / config.loss_scale;
        Ok((losses, gradients, grad_norm, update))
    });
    let (losses, gradients, grad_norm, _update) = match computed {
        Ok(computed) => computed,
        Err(error) => return (model, Err(error)),
    };
    let updated = grad_norm.is_finite() && losses.iter().all(|loss| loss.is_finite());
    let model = if updated {
        let clips = config.clip_norm > 0.0 && grad_norm > config.clip_norm;
        let scale = if clips { config.clip_norm / grad_norm } else { 1.0 };
        let model = hooks.before_update(model, config.step);
        let model = optimizer.step(model, gradients, config.lr, scale / config.loss_scale);
        hooks.after_update(model, config.step)
    } else {
        hooks.after_skip(model, config.step)
    };
    (model, Ok(StepReport { losses, grad_norm, updated }))
}

/// A step whose results are still on the device, so that nothing waits for them.
#[derive(Debug)]
pub struct Ahead {
    losses: Losses,
    /// Partial sums of the squared norm of the gradients.
    squares: Option<Tensor<1>>,
}

impl Ahead {
    /// Waits for the results. The parameters have been updated in any case: `updated` tells whether they should
    /// have been.
    pub fn read(self) -> StepReport {
        let losses = self.losses.read();
        let grad_norm = self.squares.map_or(0.0, gradients::norm_of);
        let updated = grad_norm.is_finite() && losses.iter().all(|loss| loss.is_finite());
        StepReport { losses, grad_norm, updated }
    }
}

/// [`step`] for one replica, without loss scaling and without device reads: the CPU can start the next step
/// before a device with a queue has started this one. The clipping factor is computed on the device. The update
/// is made even if loss and gradients are not finite, so this is for runs that stop in that case.
///
/// # Errors
/// Those of [`step`].
pub fn step_ahead<O: Objective>(
    objective: &O,
    model: O::Model,
    optimizer: &mut Optimizer,
    batches: &[O::Batch],
    device: &Device,
    config: StepConfig,
) -> (O::Model, Result<Ahead>) {
    let hooks = &mut Hooks { replicas: &Alone, extensions: &mut Vec::new() };
    extended_step_ahead(objective, model, optimizer, batches, device, config, hooks)
}

/// [`step_ahead`] with extensions, for one replica.
pub(crate) fn extended_step_ahead<O: Objective>(
    objective: &O,
    model: O::Model,
    optimizer: &mut Optimizer,
    batches: &[O::Batch],
    device: &Device,
    config: StepConfig,
    hooks: &mut Hooks<'_, O::Model>,
) -> (O::Model, Result<Ahead>) {
    debug_assert!(config.loss_scale == 1.0, "steps ahead have no loss scale");
    let model = hooks.before_step(optimizer.prepare(model), config.step);
    let computed = guarded(config.step, || {
        let (losses, gradients) = backward(objective, &model, batches, device, config, &Alone)?;
        let gradients = hooks.on_gradients(&model, gradients, config.step);
        let squares = gradients::squared_norms(&model, &gradients);
        Ok((losses, gradients, squares))
    });
    let (losses, gradients, squares) = match computed {
        Ok(computed) => computed,
        Err(error) => return (model, Err(error)),
    };
    let _update = trace_span!("update").entered();
    let clips = squares.as_ref().filter(|_| config.clip_norm > 0.0);
    // A norm of 0 has no reciprocal; no factor is above 1.
    let scale =
        clips.map(|squares| squares.clone().sum().sqrt().recip().mul_scalar(config.clip_norm).clamp_max(1.0));
    let model = hooks.before_update(model, config.step);
    let model = optimizer.step_unread(model, gradients, config.lr, scale);
    let model = hooks.after_update(model, config.step);
    (model, Ok(Ahead { losses, squares }))
}

/// The terms' means of each micro-batch, in order.
#[derive(Debug)]
struct Losses {
    n_terms: usize,
    parts: Vec<Part>,
}

/// The means of one micro-batch.
#[derive(Debug)]
enum Part {
    Read(Vec<f64>),
    /// `[n_terms]`, on the device.
    Unread(Box<Tensor<1>>),
}

impl Losses {
    /// Reads and sums them.
    fn read(self) -> Vec<f64> {
        let mut losses = vec![0.0; self.n_terms];
        for part in self.parts {
            let means: Vec<f64> = match part {
                Part::Read(means) => means,
                Part::Unread(means) => (*means).into_data().iter::<f64>().collect(),
            };
            losses.iter_mut().zip(means).for_each(|(loss, mean)| *loss += mean);
        }
        losses
    }
}

/// For each term its mean over all `batches`, and the gradients of their weighted sum.
fn losses<O: Objective>(
    objective: &O,
    model: &O::Model,
    batches: &[O::Batch],
    device: &Device,
    config: StepConfig,
    replicas: &dyn Replicas,
) -> Result<(Vec<f64>, GradientsParams)> {
    let (losses, gradients) = backward(objective, model, batches, device, config, replicas)?;
    let mut losses = losses.read();
    replicas.sum(&mut losses)?;
    Ok((losses, gradients::summed(model, gradients, replicas)?))
}

/// This replica's part of [`losses`], without reading the values.
fn backward<O: Objective>(
    objective: &O,
    model: &O::Model,
    batches: &[O::Batch],
    device: &Device,
    config: StepConfig,
    replicas: &dyn Replicas,
) -> Result<(Losses, GradientsParams)> {
    let terms = objective.terms(config.step);
    if terms.is_empty() {
        return Err(TrainerError::Objective { problem: "has no terms; expected at least one".into() });
    }
    let mut totals = vec![0.0; terms.len()];
    let share = share(replicas, batches.len());
    let own = &batches[share.clone()];
    for batch in own {
        let counts = objective.counts(batch);
        one_for_each(&terms, "counts", counts.len())?;
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    replicas.sum(&mut totals)?;
    let shares: Vec<f64> = totals.iter().map(|total| if *total > 0.0 { 1.0 / total } else { 0.0 }).collect();
    let factors: Vec<f64> =
        shares.iter().zip(&terms).map(|(share, term)| share * term.weight * config.loss_scale).collect();

    let mut gradients: Option<GradientsParams> = None;
    let mut losses = Losses { n_terms: totals.len(), parts: Vec::new() };
    for (place, batch) in (share.start as u64..).zip(own) {
        let seed = derive_seed(config.seed, &[DROPOUT_STREAM, config.step, place]);
        device.seed(seed);
        let in_parts =
            with_precision(config.precision, || objective.gradients(model, batch, &factors, seed, device));
        if let Some((sums, more)) = in_parts {
            one_for_each(&terms, "sums", sums.len())?;
            let means = sums.into_iter().zip(&shares).map(|(sum, share)| sum * share);
            losses.parts.push(Part::Read(means.collect()));
            gradients = Some(gradients::add(model, gradients, more));
            continue;
        }
        let forward = trace_span!("forward").entered();
        let sums = with_precision(config.precision, || objective.sums(model, batch, device));
        one_for_each(&terms, "sums", sums.len())?;
        for (term, sum) in terms.iter().zip(&sums) {
            let [n] = sum.dims();
            if n != 1 {
                let problem = format!("has {n} numbers as the sum of its term `{}`; expected one", term.name);
                return Err(TrainerError::Objective { problem });
            }
        }
        let means = sums.into_iter().zip(&shares).map(|(sum, share)| sum.mul_scalar(*share)).collect();
        let means = Tensor::cat(means, 0);
        drop(forward);
        let backward = trace_span!("backward").entered();
        let loss = weighted_sum(means.clone(), &terms);
        let loss = if config.loss_scale == 1.0 { loss } else { loss.mul_scalar(config.loss_scale) };
        let more = loss.backward();
        let more = GradientsParams::from_grads(more, model);
        gradients = Some(gradients::add(model, gradients, more));
        drop(backward);
        losses.parts.push(Part::Unread(Box::new(means)));
    }
    Ok((losses, gradients.unwrap_or_default()))
}

/// The loss. Weights are skipped if all are 1.
fn weighted_sum(means: Tensor<1>, terms: &[Term]) -> Tensor<1> {
    if terms.iter().all(|term| term.weight == 1.0) {
        return means.sum();
    }
    let weights: Vec<f32> = terms.iter().map(|term| term.weight as f32).collect();
    let weights = Tensor::from_data(weights.as_slice(), &means.device());
    (means * weights).sum()
}

/// Checks that an objective returned one of something per term.
fn one_for_each(terms: &[Term], what: &str, found: usize) -> Result<()> {
    if found == terms.len() {
        return Ok(());
    }
    let names: Vec<&str> = terms.iter().map(|term| &*term.name).collect();
    let (n, names) = (terms.len(), names.join(", "));
    Err(TrainerError::Objective {
        problem: format!("gives {found} {what} for its {n} terms ({names}); expected one each"),
    })
}
