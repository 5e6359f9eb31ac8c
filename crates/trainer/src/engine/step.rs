//! One optimisation step: forward and backward over micro-batches, clipping, update.

use crate::engine::by_rows::{self, Leaves, Setting};
use crate::engine::extension::Extensions;
use crate::engine::failure::guarded;
use crate::engine::gradients;
use crate::engine::messages::gather_numbers;
use crate::engine::objective::Objective;
use crate::engine::optimizer::Optimizer;
use crate::engine::replicas::{Alone, Replicas, Share};
use crate::engine::settings::Exchange;
use crate::engine::slices::{Cut, Slices};
use crate::engine::team::{SliceGradients, Team};
use crate::engine::term::Term;
use crate::engine::tree_sum::{Node, TreeSum};
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use cloze_data::derive_seed;
use cloze_ops::{Precision, on_awake_cores, with_precision};
use std::time::{Duration, Instant};
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
    /// How long this replica computed, without waiting for others; zero for one that is alone.
    pub computed: Duration,
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
    /// The format in which gradients of micro-batches are added.
    pub exchange: Exchange,
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
    let slices = (replicas.size() > 1)
        .then(|| Slices::new(&model, replicas.size(), Cut::Nowhere, |_, is_trained| is_trained));
    let team = slices.as_ref().map(|slices| Team {
        replicas,
        slices,
        divides_update: false,
        exchange: config.exchange,
    });
    let own = match objective.by_rows() {
        Some(_) => 0..batches.len(),
        None => Share::of(replicas).range(batches.len()),
    };
    let own = MicroBatches { first: own.start as u64, batches: &batches[own] };
    let hooks = &mut Hooks { team, extensions: &mut Vec::new() };
    extended_step(objective, model, optimizer, own, device, config, hooks)
}

/// A replica's share of a step's micro-batches; all of them if the loss is [by rows](by_rows::ByRows).
#[derive(Debug)]
pub(super) struct MicroBatches<'a, B> {
    /// The place of the first of them among all.
    pub first: u64,
    pub batches: &'a [B],
}

impl<B> Clone for MicroBatches<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for MicroBatches<'_, B> {}

/// Participants in a step besides its model.
pub(super) struct Hooks<'a, M> {
    /// The replicas, if there are several.
    pub team: Option<Team<'a>>,
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

/// [`step`] with extensions, on a replica's micro-batches.
pub(super) fn extended_step<O: Objective>(
    objective: &O,
    model: O::Model,
    optimizer: &mut Optimizer,
    batches: MicroBatches<'_, O::Batch>,
    device: &Device,
    config: StepConfig,
    hooks: &mut Hooks<'_, O::Model>,
) -> (O::Model, Result<StepReport>) {
    let model = hooks.before_step(optimizer.prepare(model), config.step);
    let (model, computed) = match hooks.team {
        None => alone(objective, model, batches, device, config, hooks),
        Some(team) => together(objective, model, batches, device, config, hooks, team),
    };
    let shared = |computed| match hooks.team {
        Some(team) => objective.share_state(&model, batches.batches, team.replicas).map(|()| computed),
        None => Ok(computed),
    };
    let Computed { losses, gradients, grad_norm, took } = match computed.and_then(shared) {
        Ok(computed) => computed,
        Err(error) => return (model, Err(error)),
    };
    let _update = trace_span!("update").entered();
    let updated = grad_norm.is_finite() && losses.iter().all(|loss| loss.is_finite());
    let report = StepReport { losses, grad_norm, updated, computed: took };
    if !updated {
        return (hooks.after_skip(model, config.step), Ok(report));
    }
    let clips = config.clip_norm > 0.0 && grad_norm > config.clip_norm;
    let clipping = if clips { config.clip_norm / grad_norm } else { 1.0 };
    let scale = clipping / config.loss_scale;
    let model = hooks.before_update(model, config.step);
    let model = match (gradients, hooks.team) {
        (Summed::Slice(own), Some(team)) => {
            let inner = device.clone().inner();
            match team.update(&model, optimizer, own, &inner, config.lr, scale) {
                Ok(values) => values.replace(model, &inner),
                Err(error) => return (model, Err(error)),
            }
        }
        (Summed::Slice(_), None) => unreachable!("slices are a team's"),
        (Summed::Whole(gradients), _) => optimizer.step(model, gradients, config.lr, scale),
    };
    (hooks.after_update(model, config.step), Ok(report))
}

/// The losses of a step, its summed gradients, and their norm before clipping.
struct Computed {
    losses: Vec<f64>,
    gradients: Summed,
    grad_norm: f64,
    /// Of the replica's own work, if there are others.
    took: Duration,
}

/// Gradients summed over all micro-batches of a step.
enum Summed {
    Whole(GradientsParams),
    /// Those of this replica's slice, which it updates.
    Slice(SliceGradients),
}

/// What one process computes.
fn alone<O: Objective>(
    objective: &O,
    model: O::Model,
    batches: MicroBatches<'_, O::Batch>,
    device: &Device,
    config: StepConfig,
    hooks: &mut Hooks<'_, O::Model>,
) -> (O::Model, Result<Computed>) {
    let computed = guarded(config.step, || {
        let weights = weights(objective, batches, config, None)?;
        let (losses, sum) = backward_alone(objective, &model, batches, device, config, &weights)?;
        let losses = total_losses(losses.read(), weights.terms.len());
        let gradients = total(&model, sum, config.exchange);
        let gradients = hooks.on_gradients(&model, gradients, config.step);
        let grad_norm = gradients::global_norm(&model, &gradients) / config.loss_scale;
        Ok(Computed { losses, gradients: Summed::Whole(gradients), grad_norm, took: Duration::ZERO })
    });
    (model, computed)
}

/// What replicas compute together.
fn together<O: Objective>(
    objective: &O,
    model: O::Model,
    batches: MicroBatches<'_, O::Batch>,
    device: &Device,
    config: StepConfig,
    hooks: &mut Hooks<'_, O::Model>,
    team: Team<'_>,
) -> (O::Model, Result<Computed>) {
    // Of a loss by rows, every replica has all micro-batches, and counts them alone.
    let counted_by = objective.by_rows().is_none().then_some(team);
    let weights = match guarded(config.step, || weights(objective, batches, config, counted_by)) {
        Ok(weights) => weights,
        Err(error) => return (model, Err(error)),
    };
    let leaves = Leaves::new(objective, batches, Share::of(team.replicas));
    let inner = device.clone().inner();
    // Only these parts are a thread's of the pool, as none of them may wait for another replica.
    let start = Instant::now();
    let (model, rows) = on_awake_cores(device, || {
        let rows = guarded(config.step, || Ok(own_rows(objective, &model, batches, &leaves, device, config)));
        (model, rows)
    });
    let mut took = start.elapsed();
    let rows = guarded(config.step, || match objective.by_rows() {
        Some(_) => by_rows::of_batches(by_rows::gathered(team.replicas, rows?, &inner)?, &leaves),
        None => by_rows::of_batches(rows?, &leaves),
    });
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return (model, Err(error)),
    };
    let start = Instant::now();
    let (model, computed) = on_awake_cores(device, || {
        let computed = guarded(config.step, || {
            let (losses, sum) =
                backward(objective, &model, (batches, &leaves, rows), device, config, &weights)?;
            Ok((losses.read(), sum))
        });
        (model, computed)
    });
    took += start.elapsed();
    let computed = guarded(config.step, || {
        let (losses, sum) = computed?;
        let losses = gather_numbers(team.replicas, &losses)?.concat();
        let losses = total_losses(losses, weights.terms.len());
        let own = team.sum(&model, sum)?;
        if team.divides_update {
            let grad_norm = team.norm(&own, &inner)? / config.loss_scale;
            return Ok(Computed { losses, gradients: Summed::Slice(own), grad_norm, took });
        }
        let gradients = hooks.on_gradients(&model, team.whole(own, &inner)?, config.step);
        let grad_norm = gradients::global_norm(&model, &gradients) / config.loss_scale;
        Ok(Computed { losses, gradients: Summed::Whole(gradients), grad_norm, took })
    });
    (model, computed)
}

/// The sum over all micro-batches.
fn total<M: Module>(model: &M, sum: TreeSum<GradientsParams>, exchange: Exchange) -> GradientsParams {
    // Replicas send each other even the gradients of a single leaf.
    let is_leaf = sum.is_leaf();
    let total = sum.total(|left, right| gradients::add_rounded(model, left, right, exchange));
    let total = total.unwrap_or_default();
    if is_leaf { gradients::rounded(model, total, exchange) } else { total }
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
        let n_terms = self.losses.n_terms;
        let losses = total_losses(self.losses.read(), n_terms);
        let grad_norm = self.squares.map_or(0.0, gradients::norm_of);
        let updated = grad_norm.is_finite() && losses.iter().all(|loss| loss.is_finite());
        StepReport { losses, grad_norm, updated, computed: Duration::ZERO }
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
    let hooks = &mut Hooks { team: None, extensions: &mut Vec::new() };
    let batches = MicroBatches { first: 0, batches };
    extended_step_ahead(objective, model, optimizer, batches, device, config, hooks)
}

/// [`step_ahead`] with extensions, for one replica.
pub(super) fn extended_step_ahead<O: Objective>(
    objective: &O,
    model: O::Model,
    optimizer: &mut Optimizer,
    batches: MicroBatches<'_, O::Batch>,
    device: &Device,
    config: StepConfig,
    hooks: &mut Hooks<'_, O::Model>,
) -> (O::Model, Result<Ahead>) {
    debug_assert!(config.loss_scale == 1.0, "steps ahead have no loss scale");
    let model = hooks.before_step(optimizer.prepare(model), config.step);
    let computed = guarded(config.step, || {
        let weights = weights(objective, batches, config, None)?;
        let (losses, sum) = backward_alone(objective, &model, batches, device, config, &weights)?;
        let gradients = hooks.on_gradients(&model, total(&model, sum, config.exchange), config.step);
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
    /// Reads the means of all micro-batches, one after the other.
    fn read(self) -> Vec<f64> {
        let means = self.parts.into_iter().map(|part| match part {
            Part::Read(means) => means,
            Part::Unread(means) => (*means).into_data().iter::<f64>().collect(),
        });
        means.flatten().collect()
    }
}

/// For each term its mean over a whole step: the sum of the means of its micro-batches.
fn total_losses(means: Vec<f64>, n_terms: usize) -> Vec<f64> {
    let mut losses = vec![0.0; n_terms];
    for means in means.chunks(n_terms.max(1)) {
        losses.iter_mut().zip(means).for_each(|(loss, mean)| *loss += mean);
    }
    losses
}

/// What the items of each term count in a step.
struct Weights {
    terms: Vec<Term>,
    /// One by the number of items.
    shares: Vec<f64>,
    /// Their factors in the loss.
    factors: Vec<f64>,
}

/// The weights of the terms, which depend on the micro-batches of all replicas.
fn weights<O: Objective>(
    objective: &O,
    batches: MicroBatches<'_, O::Batch>,
    config: StepConfig,
    team: Option<Team<'_>>,
) -> Result<Weights> {
    let terms = objective.terms(config.step);
    if terms.is_empty() {
        return Err(TrainerError::Objective { problem: "has no terms; expected at least one".into() });
    }
    let mut counts = Vec::new();
    for batch in batches.batches {
        let more = objective.counts(batch);
        one_for_each(&terms, "counts", more.len())?;
        counts.extend(more);
    }
    let replicas: &dyn Replicas = team.map_or(&Alone, |team| team.replicas);
    let counts = gather_numbers(replicas, &counts)?.concat();
    let mut totals = vec![0.0; terms.len()];
    for counts in counts.chunks(terms.len()) {
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    let shares: Vec<f64> = totals.iter().map(|total| if *total > 0.0 { 1.0 / total } else { 0.0 }).collect();
    let factors =
        shares.iter().zip(&terms).map(|(share, term)| share * term.weight * config.loss_scale).collect();
    Ok(Weights { terms, shares, factors })
}

/// The random seed of a micro-batch.
fn seed_of(config: StepConfig, place: u64) -> u64 {
    derive_seed(config.seed, &[DROPOUT_STREAM, config.step, place])
}

/// The rows of a replica's parts of micro-batches, without a graph; none unless the loss is by rows.
fn own_rows<O: Objective>(
    objective: &O,
    model: &O::Model,
    batches: MicroBatches<'_, O::Batch>,
    leaves: &Leaves,
    device: &Device,
    config: StepConfig,
) -> Vec<Tensor<2>> {
    let Some(by_rows) = objective.by_rows() else { return Vec::new() };
    let mut rows = Vec::new();
    for ((place, batch), leaves) in (batches.first..).zip(batches.batches).zip(leaves.of_batches()) {
        if !leaves.parts.is_empty() {
            let setting = Setting { device, precision: config.precision, seed: seed_of(config, place) };
            rows.extend(setting.own_rows(by_rows, model, batch, &leaves));
        }
    }
    rows
}

/// [`backward`] in one process.
fn backward_alone<O: Objective>(
    objective: &O,
    model: &O::Model,
    batches: MicroBatches<'_, O::Batch>,
    device: &Device,
    config: StepConfig,
    weights: &Weights,
) -> Result<(Losses, TreeSum<GradientsParams>)> {
    let leaves = Leaves::new(objective, batches, Share::default());
    let rows = own_rows(objective, model, batches, &leaves, device, config);
    let rows = by_rows::of_batches(rows, &leaves)?;
    backward(objective, model, (batches, &leaves, rows), device, config, weights)
}

/// The means of each term, and the sum of the gradients, of a replica's leaves of micro-batches, given the rows of those
/// in parts. Nothing is read.
fn backward<O: Objective>(
    objective: &O,
    model: &O::Model,
    (batches, leaves, rows): (MicroBatches<'_, O::Batch>, &Leaves, Vec<Vec<Tensor<2>>>),
    device: &Device,
    config: StepConfig,
    weights: &Weights,
) -> Result<(Losses, TreeSum<GradientsParams>)> {
    let Weights { terms, shares, factors } = weights;
    let mut sum = TreeSum::default();
    let mut add = |place: usize, gradients| {
        sum.push(Node::part(place as u64, gradients), |left, right| {
            gradients::add_rounded(model, left, right, config.exchange)
        });
    };
    let means_of = |sums: Vec<Tensor<1>>| {
        let means = sums.into_iter().zip(shares).map(|(sum, share)| sum.mul_scalar(*share)).collect();
        Tensor::cat(means, 0)
    };
    let mut losses = Losses { n_terms: terms.len(), parts: Vec::new() };
    let batches = (batches.first..).zip(batches.batches);
    for (((place, batch), leaves), rows) in batches.zip(leaves.of_batches()).zip(rows) {
        if leaves.own.is_empty() {
            continue;
        }
        let seed = seed_of(config, place);
        if let Some(by_rows) = objective.by_rows().filter(|_| !leaves.parts.is_empty()) {
            let setting = Setting { device, precision: config.precision, seed };
            let sums = setting.gradients(by_rows, model, batch, (&leaves, rows), factors, &mut add);
            check_sums(terms, &sums)?;
            if leaves.has_first() {
                losses.parts.push(Part::Unread(Box::new(means_of(sums).inner())));
            }
            continue;
        }
        let leaf = leaves.numbers.start;
        device.seed(seed);
        let in_parts =
            with_precision(config.precision, || objective.gradients(model, batch, factors, seed, device));
        if let Some((sums, gradients)) = in_parts {
            one_for_each(terms, "sums", sums.len())?;
            let means = sums.into_iter().zip(shares).map(|(sum, share)| sum * share);
            losses.parts.push(Part::Read(means.collect()));
            add(leaf, gradients);
            continue;
        }
        let forward = trace_span!("forward").entered();
        let sums = with_precision(config.precision, || objective.sums(model, batch, device));
        check_sums(terms, &sums)?;
        let means = means_of(sums);
        drop(forward);
        let backward = trace_span!("backward").entered();
        let loss = weighted_sum(means.clone(), terms);
        let loss = if config.loss_scale == 1.0 { loss } else { loss.mul_scalar(config.loss_scale) };
        add(leaf, GradientsParams::from_grads(loss.backward(), model));
        drop(backward);
        losses.parts.push(Part::Unread(Box::new(means)));
    }
    Ok((losses, sum))
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

/// Checks that an objective returned one number per term.
fn check_sums(terms: &[Term], sums: &[Tensor<1>]) -> Result<()> {
    one_for_each(terms, "sums", sums.len())?;
    for (term, sum) in terms.iter().zip(sums) {
        let [n] = sum.dims();
        if n != 1 {
            let problem = format!("has {n} numbers as the sum of its term `{}`; expected one", term.name);
            return Err(TrainerError::Objective { problem });
        }
    }
    Ok(())
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
