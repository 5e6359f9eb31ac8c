//! Adam with decoupled weight decay, its variants, and parameter groups with their own settings.

use crate::{Result, TrainerError};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::weights::{ModulePath, OnDevice, TensorsOnDevice};
use cloze_ops::{self as ops, AdamStep};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The update rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// AdamW (Loshchilov & Hutter 2019, algorithm 2) with Adam's bias correction.
    #[default]
    Adamw,
    /// LAMB (You et al. 2020, algorithm 2): AdamW's direction scaled to the parameter's norm, for large
    /// batches. Parameters without weight decay use AdamW, as in its authors' BERT.
    Lamb,
    /// StableAdamW (Wortsman et al. 2023, algorithm 2): AdamW with a smaller step for a parameter whose
    /// gradient has just grown. It replaces gradient clipping: `clip_norm` is then 0, as in ModernBERT.
    StableAdamw,
}

/// Parameters with their own settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParamGroup {
    /// A pattern for parameter paths, in which `*` stands for any characters, such as `bert.embeddings.*` or
    /// `*.bias`.
    pub parameters: String,
    /// Factor on the learning rate; 0 freezes the parameters. Default 1.
    #[serde(default = "one")]
    pub lr_scale: f64,
    /// Their weight decay. Default the optimiser's, which skips vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Number of initial updates during which they are frozen, without computing their gradients. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frozen_steps: u64,
}

impl ParamGroup {
    /// Parameters with this pattern and default settings.
    pub fn new(parameters: impl Into<String>) -> Self {
        Self { parameters: parameters.into(), lr_scale: 1.0, weight_decay: None, frozen_steps: 0 }
    }
}

fn one() -> f64 {
    1.0
}

fn is_zero(steps: &u64) -> bool {
    *steps == 0
}

/// The constants of an [`Optimizer`].
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerConfig {
    /// The update rule.
    pub algorithm: Algorithm,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment (BERT: 1e-6).
    pub eps: f64,
    /// Decoupled weight decay, on matrices only.
    pub weight_decay: f64,
    /// Parameter groups with their own settings; a parameter belongs to the first group that matches.
    pub groups: Vec<ParamGroup>,
    /// Groups of parameters that training adds to a model. They come before [`groups`](Self::groups), whose errors
    /// count the user's groups alone.
    pub added: Vec<ParamGroup>,
}

impl Default for OptimizerConfig {
    /// AdamW with BERT's constants.
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Adamw,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-6,
            weight_decay: 0.01,
            groups: Vec::new(),
            added: Vec::new(),
        }
    }
}

/// AdamW, LAMB or StableAdamW over the parameters of a module.
///
/// Unless a group says otherwise, weight decay skips one-dimensional parameters, i.e. biases and norms, as
/// BERT's `AdamWeightDecayOptimizer` does by name. Unlike that optimiser, and like PyTorch's, it applies bias
/// correction to the moments.
#[derive(Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    step: u64,
    /// Settings of parameters in a group.
    settings: HashMap<ParamId, Settings>,
    moments: HashMap<ParamId, Moments>,
    /// Parameters that are frozen for the first updates, and whether the module still has them frozen.
    thawing: HashMap<ParamId, u64>,
    is_prepared: bool,
}

/// A group's settings.
#[derive(Debug, Clone, Copy)]
struct Settings {
    lr_scale: f64,
    weight_decay: Option<f64>,
    frozen_steps: u64,
}

/// Running averages of a parameter's gradient and of its square, flattened, `[n]`.
#[derive(Debug, Clone)]
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// The optimiser's state by parameter path: `PATH.first` and `PATH.second`, `[n]` each.
pub type OptimizerState = BTreeMap<String, TensorData>;

impl Optimizer {
    /// An optimiser of `module`'s parameters before its first step.
    ///
    /// # Errors
    /// An invalid group pattern, or one that matches no parameter.
    pub fn new<M: Module>(config: OptimizerConfig, module: &M) -> Result<Self> {
        let paths = paths(module);
        let mut by_id = settings(&config.groups, &paths)?;
        by_id.extend(settings(&config.added, &paths)?);
        let settings = by_id;
        let trained = paths.into_iter().filter(|(.., is_trained)| *is_trained).map(|(_, id, _)| id);
        let thawing = trained.filter_map(|id| Some((id, settings.get(&id)?.frozen_steps)));
        let thawing = thawing.filter(|(_, steps)| *steps > 0).collect();
        Ok(Self { config, step: 0, settings, moments: HashMap::new(), thawing, is_prepared: false })
    }

    /// The updates made so far.
    pub fn updates(&self) -> u64 {
        self.step
    }

    /// Prepares the module for its next step: freezes parameters within their group's
    /// [`frozen_steps`](ParamGroup::frozen_steps), and unfreezes the group's others.
    pub fn prepare<M: Module>(&mut self, module: M) -> M {
        let thaws = self.thawing.values().any(|steps| *steps == self.step);
        if self.thawing.is_empty() || self.is_prepared && !thaws {
            return module;
        }
        self.is_prepared = true;
        module.map(&mut Thaw { thawing: &self.thawing, step: self.step })
    }

    /// One step. `scale` multiplies every gradient: the clipping factor.
    ///
    /// Parameters without a gradient are unchanged.
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientsParams, lr: f64, scale: f64) -> M {
        self.step += 1;
        let factors = Factors { lr, scale, unread: None };
        module.map(&mut Update { optimizer: self, gradients, factors })
    }

    /// The updated values of pieces of the parameters, of which it then has the moments alone. `gradients` has the places of
    /// each piece in its flattened parameter.
    pub(super) fn step_slices<M: Module>(
        &mut self,
        module: &M,
        gradients: HashMap<ParamId, (Range<usize>, Tensor<1>)>,
        lr: f64,
        scale: f64,
    ) -> HashMap<ParamId, Tensor<1>> {
        self.step += 1;
        let factors = Factors { lr, scale, unread: None };
        let mut update = UpdateSlices { optimizer: self, gradients, factors, updated: HashMap::new() };
        module.visit(&mut update);
        update.updated
    }

    /// Keeps the moments of these pieces of the parameters alone.
    pub(super) fn keep_slices(&mut self, pieces: &HashMap<ParamId, Range<usize>>) {
        let kept = std::mem::take(&mut self.moments).into_iter().filter_map(|(id, moments)| {
            let range = pieces.get(&id)?.clone();
            let piece = |moment: Tensor<1>| moment.slice(range.clone());
            Some((id, Moments { first: piece(moments.first), second: piece(moments.second) }))
        });
        self.moments = kept.collect();
    }

    /// The moments of a parameter, or of the piece of it that is kept.
    pub(super) fn moments(&self, id: ParamId) -> Option<[Tensor<1>; 2]> {
        self.moments.get(&id).map(|moments| [moments.first.clone(), moments.second.clone()])
    }

    /// The constants.
    pub(super) fn config(&self) -> &OptimizerConfig {
        &self.config
    }

    /// Whether a parameter is trained later, after its group's [`frozen_steps`](ParamGroup::frozen_steps).
    pub(super) fn will_thaw(&self, id: ParamId) -> bool {
        self.thawing.contains_key(&id)
    }

    /// [One step](Self::step) with a clipping factor, `[1]`, that stays on the device.
    pub(crate) fn step_unread<M: Module>(
        &mut self,
        module: M,
        gradients: GradientsParams,
        lr: f64,
        scale: Option<Tensor<1>>,
    ) -> M {
        self.step += 1;
        let factors = Factors { lr, scale: 1.0, unread: scale };
        module.map(&mut Update { optimizer: self, gradients, factors })
    }

    /// Copies the state to the host; names come from `module`.
    pub fn state<M: Module>(&self, module: &M) -> OptimizerState {
        self.on_device(module).into_iter().map(|(path, tensor)| (path, tensor.to_data())).collect()
    }

    /// The state on the device, under the names of [`state`](Self::state).
    pub fn on_device<M: Module>(&self, module: &M) -> TensorsOnDevice {
        let mut state = TensorsOnDevice::new();
        for (path, id, _) in paths(module) {
            if let Some(moments) = self.moments.get(&id) {
                state.insert(format!("{path}.first"), OnDevice::new(moments.first.clone()));
                state.insert(format!("{path}.second"), OnDevice::new(moments.second.clone()));
            }
        }
        state
    }

    /// Returns to this state after `step` steps, with the same settings; names come from `module`.
    pub(crate) fn rewind<M: Module>(
        &mut self,
        step: u64,
        state: OptimizerState,
        module: &M,
        device: &Device,
    ) {
        self.moments = moments(state, module, device);
        (self.step, self.is_prepared) = (step, false);
    }

    /// The optimiser with this state after `step` steps; names come from `module`.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn restore<M: Module>(
        config: OptimizerConfig,
        step: u64,
        state: OptimizerState,
        module: &M,
        device: &Device,
    ) -> Result<Self> {
        let moments = moments(state, module, device);
        Ok(Self { step, moments, ..Self::new(config, module)? })
    }
}

/// The moments of a kept state, by parameter.
fn moments<M: Module>(mut state: OptimizerState, module: &M, device: &Device) -> HashMap<ParamId, Moments> {
    let mut moments = HashMap::new();
    for (path, id, _) in paths(module) {
        let mut take = |part: &str| {
            let data = state.remove(&format!("{path}.{part}"))?;
            Some(Tensor::<1>::from_data(data, device))
        };
        if let (Some(first), Some(second)) = (take("first"), take("second")) {
            moments.insert(id, Moments { first, second });
        }
    }
    moments
}

/// The settings of the parameters in groups.
fn settings(groups: &[ParamGroup], paths: &[(String, ParamId, bool)]) -> Result<HashMap<ParamId, Settings>> {
    let mut settings = HashMap::new();
    for (number, group) in groups.iter().enumerate() {
        let refused = |reason: String| TrainerError::ParamGroup {
            group: number,
            pattern: group.parameters.clone(),
            reason,
        };
        let pattern = glob::Pattern::new(&group.parameters).map_err(|error| refused(error.to_string()))?;
        let mut members = paths.iter().filter(|(path, ..)| pattern.matches(path)).peekable();
        if members.peek().is_none() {
            let example = paths.first().map_or("", |(path, ..)| path);
            return Err(refused(format!("it matches no parameter; an existing path is `{example}`")));
        }
        for (_, id, _) in members {
            let ParamGroup { lr_scale, weight_decay, frozen_steps, .. } = *group;
            settings.entry(*id).or_insert(Settings { lr_scale, weight_decay, frozen_steps });
        }
    }
    Ok(settings)
}

/// One update's factors.
#[derive(Debug, Clone)]
struct Factors {
    lr: f64,
    scale: f64,
    /// An additional factor of the gradients.
    unread: Option<Tensor<1>>,
}

impl Optimizer {
    /// A parameter's settings.
    fn settings_of(&self, id: ParamId) -> Settings {
        let usual = Settings { lr_scale: 1.0, weight_decay: None, frozen_steps: 0 };
        self.settings.get(&id).copied().unwrap_or(usual)
    }

    /// The updated values of a parameter of `D` dimensions, or of a piece of it.
    ///
    /// # Shapes
    /// - all: `[n]`
    fn updated<const D: usize>(
        &mut self,
        id: ParamId,
        value: Tensor<1>,
        gradient: Tensor<1>,
        factors: &Factors,
    ) -> Tensor<1> {
        let Settings { lr_scale, weight_decay, frozen_steps } = self.settings_of(id);
        let Self { config, moments, step, .. } = self;
        let usual = if D == 1 { 0.0 } else { config.weight_decay };
        let constants = AdamStep {
            beta1: config.beta1,
            beta2: config.beta2,
            eps: config.eps,
            weight_decay: weight_decay.unwrap_or(usual),
            lr: factors.lr * lr_scale,
            scale: factors.scale,
            // Of those that were frozen at first, the moments begin later.
            step: step.saturating_sub(frozen_steps).max(1),
        };
        // Out of the map, so that they are held once and can be updated in place.
        let before = moments.remove(&id).map(|moments| [moments.first, moments.second]);
        let scaled = |gradient: Tensor<1>| match &factors.unread {
            Some(scale) => gradient * scale.clone(),
            None => gradient,
        };
        let (value, [first, second]) = match (config.algorithm, &factors.unread) {
            (Algorithm::Lamb, _) if constants.weight_decay > 0.0 => {
                ops::lamb(value, scaled(gradient), before, constants)
            }
            (Algorithm::StableAdamw, _) => ops::stable_adamw(value, scaled(gradient), before, constants),
            (_, Some(scale)) => ops::adamw_by(value, gradient, scale.clone(), before, constants),
            (_, None) => ops::adamw(value, gradient, before, constants),
        };
        moments.insert(id, Moments { first, second });
        value
    }
}

struct Update<'a> {
    optimizer: &'a mut Optimizer,
    gradients: GradientsParams,
    factors: Factors,
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else {
            return param;
        };
        if self.optimizer.settings_of(param.id).lr_scale == 0.0 {
            return param;
        }
        let (id, tensor, mapper) = param.consume();
        let (shape, tracked) = (tensor.dims(), tensor.is_require_grad());
        let (value, gradient) = (tensor.inner().reshape([-1]), gradient.reshape([-1]));
        let value = self.optimizer.updated::<D>(id, value, gradient, &self.factors);
        let value = Tensor::from_inner(value.reshape(shape));
        let value = if tracked { value.require_grad() } else { value };
        Param::from_mapped_value(id, value, mapper)
    }
}

/// Updates pieces of parameters.
struct UpdateSlices<'a> {
    optimizer: &'a mut Optimizer,
    gradients: HashMap<ParamId, (Range<usize>, Tensor<1>)>,
    factors: Factors,
    updated: HashMap<ParamId, Tensor<1>>,
}

impl ModuleVisitor for UpdateSlices<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some((range, gradient)) = self.gradients.remove(&param.id) else { return };
        if self.optimizer.settings_of(param.id).lr_scale == 0.0 {
            return;
        }
        let value = param.val().inner().reshape([-1]).slice(range);
        let value = self.optimizer.updated::<D>(param.id, value, gradient, &self.factors);
        self.updated.insert(param.id, value);
    }
}

/// Freezes the parameters within their `frozen_steps`, and unfreezes the others.
struct Thaw<'a> {
    thawing: &'a HashMap<ParamId, u64>,
    /// Updates so far.
    step: u64,
}

impl ModuleMapper for Thaw<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.thawing.get(&param.id) {
            Some(steps) => param.set_require_grad(self.step >= *steps),
            None => param,
        }
    }
}

/// Every float parameter's path, id, and whether it is trained.
pub(super) fn paths<M: Module>(module: &M) -> Vec<(String, ParamId, bool)> {
    #[derive(Default)]
    struct Paths {
        path: ModulePath,
        found: Vec<(String, ParamId, bool)>,
    }
    impl ModuleVisitor for Paths {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }

        fn exit_module(&mut self, _name: &str, container: &str) {
            self.path.exit(container);
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.found.push((self.path.to_string(), param.id, param.is_require_grad()));
        }
    }
    let mut paths = Paths::default();
    module.visit(&mut paths);
    paths.found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::gradients;
    use cloze_model::blocks::Linear;
    use cloze_model::{ParamInit, weights};

    fn config() -> OptimizerConfig {
        OptimizerConfig { weight_decay: 0.1, ..OptimizerConfig::default() }
    }

    /// A linear map with known values, and the gradients of `Σ (x·W + b)²` at a known x.
    fn setup(device: &Device) -> (Linear, GradientsParams) {
        let linear = Linear::new(2, 1, &mut ParamInit::new(device, 0));
        let linear = weights::replace(
            linear,
            [
                ("weight".to_string(), TensorData::from([[0.5f32], [-1.0]])),
                ("bias".to_string(), TensorData::from([0.25f32])),
            ]
            .into(),
        );
        let grads = grads(&linear, device);
        (linear, grads)
    }

    fn grads(linear: &Linear, device: &Device) -> GradientsParams {
        let x = Tensor::<2>::from_data([[1.0, 2.0]], device);
        let loss = linear.forward(x).powi_scalar(2).sum();
        GradientsParams::from_grads(loss.backward(), linear)
    }

    fn values(linear: &Linear) -> Vec<f32> {
        weights::collect(linear).into_values().flat_map(|d| d.iter::<f32>().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn three_steps_equal_torch() {
        // torch 2.9: AdamW([{params: [w], weight_decay: .1}, {params: [b], weight_decay: 0}],
        // lr=0.1, eps=1e-6), loss ((x @ w + b) ** 2).sum(), x = [1, 2], three steps.
        assert_close(&three_steps(config()), &[0.536_891_4, 0.769_080_34, -0.686_368_17]);
    }

    #[test]
    fn three_steps_of_lamb() {
        // numpy in 64 bits after the paper's algorithm 2, the bias without decay and ratio; all else as
        // above.
        let lamb = OptimizerConfig { algorithm: Algorithm::Lamb, ..config() };
        assert_close(&three_steps(lamb), &[0.541_21, 0.711_959_4, -0.753_489_4]);
    }

    #[test]
    fn a_gradient_that_grows_makes_steps_of_stable_adamw_smaller() {
        // numpy in 64 bits after the paper's algorithm 2: gradients of 1, 4 and 16 times the loss, RMS of
        // 1, 1.32 and 1.60.
        let stable = OptimizerConfig { algorithm: Algorithm::StableAdamw, ..config() };
        let device = Device::flex().autodiff();
        let run = |config| {
            let (mut linear, _) = setup(&device);
            let mut optimizer = Optimizer::new(config, &linear).unwrap();
            for scale in [1.0, 4.0, 16.0] {
                let grads = grads(&linear, &device);
                linear = optimizer.step(linear, grads, 0.1, scale);
            }
            values(&linear)
        };
        let expected = [0.474_276_7, 0.710_659_14, -0.753_929_1];
        assert_close(&run(stable), &expected);
        let plain = run(config());
        assert!(plain.iter().zip(expected).any(|(plain, stable)| (plain - stable).abs() > 1e-3));
    }

    #[test]
    fn groups_have_their_own_rate_and_decay() {
        let group = |parameters: &str, lr_scale, weight_decay| ParamGroup {
            lr_scale,
            weight_decay,
            ..ParamGroup::new(parameters)
        };
        let with = |groups| OptimizerConfig { groups, ..config() };
        let plain = three_steps(config());
        let start = [0.25, 0.5, -1.0];
        let frozen = three_steps(with(vec![group("w*", 0.0, None), group("*", 5.0, Some(0.5))]));
        assert_eq!(frozen[1..], start[1..], "the first group that matches");
        assert_ne!(frozen[0], plain[0]);
        let decayed = three_steps(with(vec![group("bias", 1.0, Some(0.1))]));
        assert!((decayed[0] - plain[0]).abs() > 1e-4);

        let (linear, _) = setup(&Device::flex().autodiff());
        let refuse = |pattern: &str| {
            Optimizer::new(with(vec![group("*", 1.0, None), group(pattern, 1.0, None)]), &linear)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refuse("head.*"),
            "optimizer.groups[1].parameters = \"head.*\": it matches no parameter; an existing path is `weight`"
        );
        assert!(refuse("a[").starts_with("optimizer.groups[1].parameters = \"a[\": "), "{}", refuse("a["));

        let added = vec![group("w*", 0.0, None)];
        let both = three_steps(OptimizerConfig { added: added.clone(), ..with(vec![group("*", 5.0, None)]) });
        assert_eq!(both[1..], start[1..], "added groups come first");
        assert_ne!(both[0], plain[0]);
        let both = OptimizerConfig { added, ..with(vec![group("head.*", 1.0, None)]) };
        let told = Optimizer::new(both, &linear).unwrap_err().to_string();
        assert!(told.starts_with("optimizer.groups[0].parameters"), "{told}");
    }

    fn three_steps(config: OptimizerConfig) -> Vec<f32> {
        let device = Device::flex().autodiff();
        let (mut linear, _) = setup(&device);
        let mut optimizer = Optimizer::new(config, &linear).unwrap();
        for _ in 0..3 {
            let grads = grads(&linear, &device);
            linear = optimizer.step(linear, grads, 0.1, 1.0);
        }
        values(&linear)
    }

    fn assert_close(values: &[f32], expected: &[f32]) {
        assert_eq!(values.len(), expected.len());
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-5, "{value} is not {expected}");
        }
    }

    #[test]
    fn the_norm_is_over_all_parameters_and_the_scale_clips() {
        let device = Device::flex().autodiff();
        let (linear, grads) = setup(&device);
        // y = 0.5 − 2 + 0.25 = −1.25, so dy²/db = −2.5, dw = (−2.5, −5).
        let norm = gradients::global_norm(&linear, &grads);
        assert!((norm - (2.5f64.powi(2) * 2.0 + 25.0).sqrt()).abs() < 1e-5);
        let again = self::grads(&linear, &device);
        let doubled = gradients::add(&linear, Some(grads), again);
        assert!((gradients::global_norm(&linear, &doubled) - 2.0 * norm).abs() < 1e-4);
    }

    #[test]
    fn a_frozen_parameter_begins_later_as_if_it_began_then() {
        let device = Device::flex().autodiff();
        let config = || OptimizerConfig {
            groups: vec![ParamGroup { frozen_steps: 2, ..ParamGroup::new("weight") }],
            ..config()
        };
        let (mut linear, _) = setup(&device);
        let mut optimizer = Optimizer::new(config(), &linear).unwrap();
        let before = linear.weight.val().into_data();
        for step in 1..=2 {
            linear = optimizer.prepare(linear);
            assert!(!linear.weight.is_require_grad() && linear.bias.as_ref().unwrap().is_require_grad());
            let gradients = grads(&linear, &device);
            assert!(gradients.get::<2>(linear.weight.id).is_none(), "step {step}");
            linear = optimizer.step(linear, gradients, 0.1, 1.0);
            assert_eq!(linear.weight.val().into_data(), before);
        }
        // A run that is gone on with here does the same.
        let state = optimizer.state(&linear);
        let inner = device.clone().inner();
        let (fresh, _) = setup(&device);
        let resumed = weights::replace(fresh, weights::collect(&linear));
        let mut restored = Optimizer::restore(config(), 2, state, &resumed, &inner).unwrap();
        let [resumed, linear] =
            [(resumed, &mut restored), (linear, &mut optimizer)].map(|(linear, optimizer)| {
                let linear = optimizer.prepare(linear);
                let gradients = grads(&linear, &device);
                optimizer.step(linear, gradients, 0.1, 1.0)
            });
        assert_eq!(values(&resumed), values(&linear));
        // Adam's first step is the learning rate, beside the decay: whatever the gradient, and the steps before.
        let after = linear.weight.val().into_data();
        for (after, before) in after.iter::<f32>().zip(before.iter::<f32>()) {
            let step = after - before * (1.0 - 0.1 * 0.1);
            assert!((step.abs() - 0.1).abs() < 1e-4, "{before} became {after}");
        }
    }

    #[test]
    fn a_parameter_that_is_never_trained_is_not_thawed() {
        let device = Device::flex().autodiff();
        let (linear, _) = setup(&device);
        let linear = cloze_model::freeze(linear, &["weight"]).unwrap();
        let group = ParamGroup { frozen_steps: 1, ..ParamGroup::new("*") };
        let mut optimizer =
            Optimizer::new(OptimizerConfig { groups: vec![group], ..config() }, &linear).unwrap();
        let linear = optimizer.prepare(linear);
        assert!(!linear.bias.as_ref().unwrap().is_require_grad());
        let linear = optimizer.step(linear, GradientsParams::default(), 0.1, 1.0);
        let linear = optimizer.prepare(linear);
        assert!(!linear.weight.is_require_grad() && linear.bias.as_ref().unwrap().is_require_grad());
    }

    #[test]
    fn a_restored_optimizer_goes_on_with_the_same_bits() {
        let device = Device::flex().autodiff();
        let (mut linear, first) = setup(&device);
        let mut optimizer = Optimizer::new(config(), &linear).unwrap();
        linear = optimizer.step(linear, first, 0.1, 1.0);
        let state = optimizer.state(&linear);
        let mut restored = Optimizer::restore(config(), 1, state, &linear, &device.clone().inner()).unwrap();
        let a = optimizer.step(linear.clone(), grads(&linear, &device), 0.1, 0.5);
        let b = restored.step(linear.clone(), grads(&linear, &device), 0.1, 0.5);
        assert_eq!(values(&a), values(&b));
    }
}
