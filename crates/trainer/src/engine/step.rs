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
    /// What the loss is multiplied by in the backward pass, and the gradients divided by after it; 1 in FP32 and bf16. See
    /// [`LossScale`](super::loss_scale::LossScale).
    pub loss_scale: f64,
}

/// Makes one step on `batches`, which count as one large batch, of which each of the `replicas` computes its share.
///
/// The device's generator is seeded for each micro-batch from the seed, the step and its place in the
/// step, so dropout is a function of these and not of what ran before, nor of how many replicas there are: a resumed run
/// draws the same.
/// Backends keep one generator for each device: of two trainings on one device in one process, each disturbs
/// the other's dropout.
///
/// The model comes back in either case, and as it was where there is an error.
///
/// # Errors
/// [`TrainerError::Objective`] for an objective whose counts or sums are not one for each of its terms;
/// [`TrainerError::DeviceFailed`] where the device does not compute the loss or the gradients;
/// [`TrainerError::Replicas`] where another replica cannot be reached.
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

/// Who takes part in a step besides its model.
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
    let model = optimizer.prepare(model);
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
        let model = optimizer.step(model, gradients, config.lr, scale / config.loss_scale);
        hooks.after_update(model, config.step)
    } else {
        model
    };
    (model, Ok(StepReport { losses, grad_norm, updated }))
}

/// A step whose figures are still on its device, where nothing waits for them.
#[derive(Debug)]
pub struct Ahead {
    losses: Losses,
    /// Numbers whose sum is the square of the gradients' norm.
    squares: Option<Tensor<1>>,
}

impl Ahead {
    /// Waits for the figures. The parameters have moved, whatever they are: `updated` tells whether they should have.
    pub fn read(self) -> StepReport {
        let losses = self.losses.read();
        let grad_norm = self.squares.map_or(0.0, gradients::norm_of);
        let updated = grad_norm.is_finite() && losses.iter().all(|loss| loss.is_finite());
        StepReport { losses, grad_norm, updated }
    }
}

/// [`step`] of one replica, without a scale of the loss, that reads nothing: the processor can begin the next step before a
/// device with a queue has begun this one. The clipping factor is computed on the device. An update is made whether or not loss and gradients
/// are finite, so that this is for runs that end where they are not.
///
/// # Errors
/// As [`step`].
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

/// [`step_ahead`] with extensions, of one replica.
pub(crate) fn extended_step_ahead<O: Objective>(
    objective: &O,
    model: O::Model,
    optimizer: &mut Optimizer,
    batches: &[O::Batch],
    device: &Device,
    config: StepConfig,
    hooks: &mut Hooks<'_, O::Model>,
) -> (O::Model, Result<Ahead>) {
    debug_assert!(config.loss_scale == 1.0, "steps that nobody waits for have no scale of the loss");
    let model = optimizer.prepare(model);
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

/// Those of one micro-batch.
#[derive(Debug)]
enum Part {
    Read(Vec<f64>),
    /// `[n_terms]`, on the device.
    Unread(Box<Tensor<1>>),
}

impl Losses {
    /// Their sums.
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

/// For each term its mean over all `batches`, and the gradients of the weighted sum of these.
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

/// This replica's part of [`losses`], whose figures are not read.
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
        return Err(TrainerError::Objective { problem: "has no terms; expected one at least".into() });
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

/// The loss. Weights that are all 1 are left out.
fn weighted_sum(means: Tensor<1>, terms: &[Term]) -> Tensor<1> {
    if terms.iter().all(|term| term.weight == 1.0) {
        return means.sum();
    }
    let weights: Vec<f32> = terms.iter().map(|term| term.weight as f32).collect();
    let weights = Tensor::from_data(weights.as_slice(), &means.device());
    (means * weights).sum()
}

/// Whether an objective gave as many of something as it has terms.
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
