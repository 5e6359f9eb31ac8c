//! Movement pruning (Sanh, Wolf & Rush 2020).

use super::latent::{weights, with_weights};
use super::masks::largest;
use super::schedule::CubicSchedule;
use super::targets::{Granularity, Scope, Target};
use crate::Result;
use crate::config::validate::{Check, ensure, not_negative, positive};
use crate::engine::{Extension, KeptState};
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use cloze_model::weights::{ModulePath, OnDevice, TensorsOnDevice};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The settings of movement pruning: weights that training moves away from 0 stay, those that it moves towards 0 are
/// pruned, whatever their size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MovementSection {
    /// The share of weights, heads or neurons that is left in the end. With a `threshold` there is no such share,
    /// and the key is not read. Default 0.15.
    #[serde(default = "left")]
    pub left: f64,
    /// What is pruned: `"weights"`, `"heads"` or `"neurons"`. Default `"weights"`.
    #[serde(default)]
    pub granularity: Granularity,
    /// Whether each matrix keeps the same share, `"matrix"`, or all of them together, `"global"`. Default
    /// `"matrix"`.
    #[serde(default = "matrix")]
    pub scope: Scope,
    /// The share of the run before anything is pruned. Default 0.1.
    #[serde(default = "warmup")]
    pub warmup: f64,
    /// The share of the run at its end in which the masks' share no longer changes. Only models from there on can be
    /// the result. Default 0.3.
    #[serde(default = "cooldown")]
    pub cooldown: f64,
    /// Soft movement pruning: a weight stays while the sigmoid of its score is above this. Default none: the
    /// largest scores stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// With a `threshold`, what the mean of the scores' sigmoids counts in the loss; it rises with the cubic schedule.
    /// Default 100.
    #[serde(default = "penalty")]
    pub penalty: f64,
    /// The learning rate of the scores, which are updated by plain gradient descent. Without a threshold only
    /// their order counts, which this does not change. Default 1 without, 100 with a `threshold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_lr: Option<f64>,
}

fn left() -> f64 {
    0.15
}

fn matrix() -> Scope {
    Scope::Matrix
}

fn warmup() -> f64 {
    0.1
}

fn cooldown() -> f64 {
    0.3
}

fn penalty() -> f64 {
    100.0
}

impl MovementSection {
    pub(super) fn check(&self) -> Check {
        let is_share = |share: f64| share > 0.0 && share < 1.0;
        ensure(is_share(self.left), "pruning.left", self.left, "a share above 0 and below 1")?;
        for (key, share) in [("pruning.warmup", self.warmup), ("pruning.cooldown", self.cooldown)] {
            ensure((0.0..1.0).contains(&share), key, share, "a share of 0 or more and below 1")?;
        }
        let both = self.warmup + self.cooldown;
        ensure(both <= 1.0, "pruning.cooldown", self.cooldown, "at most 1 together with `pruning.warmup`")?;
        if let Some(threshold) = self.threshold {
            ensure(is_share(threshold), "pruning.threshold", threshold, "a number above 0 and below 1")?;
        }
        not_negative("pruning.penalty", self.penalty)?;
        self.score_lr.map_or(Ok(()), |lr| positive("pruning.score_lr", lr))
    }

    /// The schedule of a run of this many steps.
    pub fn schedule(&self, steps: u64) -> CubicSchedule {
        let part = |share: f64| (share * steps as f64).round() as u64;
        let settled = steps.saturating_sub(part(self.cooldown));
        CubicSchedule { left: self.left, warmup: part(self.warmup), settled }
    }
}

/// The masks of a run with movement pruning. Each entry of a mask has a score, which is its gradient summed over the steps:
///
/// ```text
/// M = 1 where S is among the largest v(t), else 0       or 1 where σ(S) > τ
/// S ← S − α·∂L/∂M,   ∂L/∂M = Σ ∂L/∂W' ⊙ W              straight through the mask
/// ```
///
/// so that `S = −α·Σ_t W·∂L/∂W`: large where a step of gradient descent moves the weight away from 0. A score of a head
/// or neuron sums over its weights. With the threshold τ, the loss has the penalty `λ·mean(σ(S))`.
///
/// Deviations from the authors' code: scores are updated by gradient descent, as in the paper's equation, instead of by
/// AdamW, and they do not count in the norm that gradients are clipped by.
#[derive(Debug)]
pub struct Movement {
    section: MovementSection,
    schedule: CubicSchedule,
    targets: Vec<Target>,
    step: u64,
    state: Option<State>,
}

/// What belongs to each target.
#[derive(Debug)]
struct State {
    /// The weights without masks; taken out during an update.
    weights: Vec<Tensor<2>>,
    /// `[n_entries]`
    scores: Vec<Tensor<1>>,
    /// `[n_entries]`
    masks: Vec<Tensor<1>>,
    /// The last step's gradients of the scores; none for a frozen weight.
    gradients: Vec<Option<Tensor<1>>>,
}

impl Movement {
    /// Masks for these targets, which [`weight_targets`](super::weight_targets) gives, in a run of `steps` steps.
    pub fn new(section: MovementSection, targets: Vec<Target>, steps: u64) -> Self {
        let schedule = section.schedule(steps);
        Self { section, schedule, targets, step: 0, state: None }
    }

    /// The factor of the gradients in the scores' updates.
    fn lr(&self) -> f64 {
        self.section.score_lr.unwrap_or(if self.section.threshold.is_some() { 100.0 } else { 1.0 })
    }

    /// The masks of scores after `step` steps.
    fn masks(&self, scores: &[Tensor<1>], step: u64) -> Vec<Tensor<1>> {
        if let Some(threshold) = self.section.threshold {
            // σ(s) > τ where s > log(τ/(1 − τ)).
            let least = (threshold / (1.0 - threshold)).ln();
            let is_pruned = step > self.schedule.warmup;
            let mask = |scores: &Tensor<1>| match is_pruned {
                true => scores.clone().greater_elem(least).float(),
                false => scores.ones_like(),
            };
            return scores.iter().map(mask).collect();
        }
        let share = self.schedule.share(step);
        if share >= 1.0 {
            return scores.iter().map(Tensor::ones_like).collect();
        }
        let lists: Vec<Vec<f32>> =
            scores.iter().map(|scores| scores.clone().into_data().iter::<f32>().collect()).collect();
        let masks = largest(&lists, share, self.section.scope);
        let tensor = |(mask, scores): (Vec<f32>, &Tensor<1>)| {
            let n = mask.len();
            Tensor::from_data(TensorData::new(mask, [n]), &scores.device())
        };
        masks.into_iter().zip(scores).map(tensor).collect()
    }

    /// The gradient of the penalty with respect to a target's scores, after `step` steps: `λ·σ'(S)/n`.
    fn of_penalty(&self, scores: &Tensor<1>, step: u64) -> Option<Tensor<1>> {
        self.section.threshold?;
        // The factor rises from 0 as the share falls from 1.
        let risen = CubicSchedule { left: 0.0, ..self.schedule };
        let factor = self.section.penalty * (1.0 - risen.share(step));
        let n: usize = self.targets.iter().map(Target::n_entries).sum();
        let open = burn::tensor::activation::sigmoid(scores.clone());
        let slope = open.clone() * (open.ones_like() - open);
        Some(slope * (factor / n.max(1) as f64))
    }

    fn masked(&self, state: &State) -> Vec<Tensor<2>> {
        let parts = self.targets.iter().zip(&state.masks).zip(&state.weights);
        parts.map(|((target, mask), weight)| weight.clone() * target.wide(mask.clone())).collect()
    }
}

impl<M: Module> Extension<M> for Movement {
    fn name(&self) -> &str {
        "movement"
    }

    fn prepare(&mut self, model: M) -> Result<M> {
        if self.state.is_none() {
            let weights = weights(&model, &self.targets);
            let device = |place: usize| weights[place].device();
            let masks: Vec<Tensor<1>> =
                self.targets.iter().enumerate().map(|(place, target)| target.ones(&device(place))).collect();
            let scores = masks.iter().map(Tensor::zeros_like).collect();
            let gradients = vec![None; self.targets.len()];
            self.state = Some(State { weights, scores, masks, gradients });
        }
        Ok(model)
    }

    fn on_gradients(&mut self, model: &M, gradients: GradientsParams, step: u64) -> GradientsParams {
        let Some(state) = &self.state else { return gradients };
        let mut split = Split {
            path: ModulePath::default(),
            places: self.targets.iter().enumerate().map(|(place, of)| (of.path.clone(), place)).collect(),
            targets: &self.targets,
            state,
            gradients,
            of_scores: vec![None; self.targets.len()],
        };
        model.visit(&mut split);
        let (gradients, of_scores) = (split.gradients, split.of_scores);
        let with_penalty = |(of_score, scores): (Option<Tensor<1>>, &Tensor<1>)| {
            let penalty = self.of_penalty(scores, step);
            match (of_score, penalty) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            }
        };
        let of_scores: Vec<Option<Tensor<1>>> =
            of_scores.into_iter().zip(&state.scores).map(with_penalty).collect();
        if let Some(state) = &mut self.state {
            state.gradients = of_scores;
        }
        gradients
    }

    fn before_update(&mut self, model: M, _: u64) -> M {
        match &mut self.state {
            Some(state) => with_weights(model, &self.targets, std::mem::take(&mut state.weights)),
            None => model,
        }
    }

    fn after_update(&mut self, model: M, step: u64) -> M {
        let Some(mut state) = self.state.take() else { return model };
        let lr = self.lr();
        let updated = state.scores.into_iter().zip(std::mem::take(&mut state.gradients));
        state.scores = updated
            .map(|(scores, gradient)| match gradient {
                Some(gradient) => scores - gradient * lr,
                None => scores,
            })
            .collect();
        state.gradients = vec![None; self.targets.len()];
        state.weights = weights(&model, &self.targets);
        state.masks = self.masks(&state.scores, step);
        self.step = step;
        let masked = self.masked(&state);
        self.state = Some(state);
        with_weights(model, &self.targets, masked)
    }

    fn tensors(&self) -> TensorsOnDevice {
        let Some(state) = &self.state else { return TensorsOnDevice::default() };
        let parts = self.targets.iter().zip(&state.scores).zip(&state.weights);
        let named = parts.flat_map(|((target, scores), weight)| {
            [
                (format!("{}.score", target.path), OnDevice::new(scores.clone())),
                (target.path.clone(), OnDevice::new(weight.clone())),
            ]
        });
        named.collect()
    }

    fn state(&self) -> Value {
        json!({ "step": self.step })
    }

    fn restore(&mut self, model: &M, mut kept: KeptState) -> std::result::Result<(), String> {
        self.step = kept.state["step"].as_u64().ok_or("`step` is missing")?;
        let devices: Vec<_> = weights(model, &self.targets).iter().map(Tensor::device).collect();
        let (mut scores, mut of_weights) = (Vec::new(), Vec::new());
        for (target, device) in self.targets.iter().zip(&devices) {
            let mut take = |name: String, shape: &[usize]| match kept.tensors.remove(&name) {
                Some(data) if data.shape().as_slice() == shape => Ok(data),
                Some(_) => Err(format!("`{name}` is of another shape")),
                None => Err(format!("`{name}` is missing")),
            };
            let data = take(format!("{}.score", target.path), &[target.n_entries()])?;
            scores.push(Tensor::<1>::from_data(data, device));
            of_weights.push(Tensor::<2>::from_data(take(target.path.clone(), &target.shape)?, device));
        }
        let masks = self.masks(&scores, self.step);
        let gradients = vec![None; self.targets.len()];
        self.state = Some(State { weights: of_weights, scores, masks, gradients });
        Ok(())
    }
}

/// Splits the gradients of masked weights into those of the weights and those of the scores.
struct Split<'a> {
    path: ModulePath,
    places: BTreeMap<String, usize>,
    targets: &'a [Target],
    state: &'a State,
    gradients: GradientsParams,
    of_scores: Vec<Option<Tensor<1>>>,
}

impl ModuleVisitor for Split<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(place) = self.places.get(&self.path.to_string()).copied() else { return };
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        let target = &self.targets[place];
        let (shape, gradient) = (gradient.dims(), gradient.reshape(target.shape));
        self.of_scores[place] = Some(target.summed(gradient.clone() * self.state.weights[place].clone()));
        let of_weight = gradient * target.wide(self.state.masks[place].clone());
        self.gradients.register(param.id, of_weight.reshape(shape));
    }
}
