//! Gates on attention heads (Voita et al. 2019).

use super::hard_concrete::HardConcrete;
use super::latent::{weights, with_weights};
use super::targets::Target;
use crate::Result;
use crate::config::validate::{Check, not_negative, positive};
use crate::engine::{Extension, KeptState};
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use cloze_data::Random;
use cloze_model::weights::{ModulePath, OnDevice, TensorsOnDevice};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Separates the gates' random numbers from all others of a seed.
const GATE_STREAM: u64 = 0x6A7E;

/// `log α` of a gate before the first step: it is open, at 0.96.
const FIRST: f64 = 2.0;

/// Constants of Adam for `log α`.
const BETAS: [f64; 2] = [0.9, 0.999];
const EPS: f64 = 1e-8;

/// The settings of gates on heads, with a penalty on the number of open ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GatesSection {
    /// What the expected number of open gates counts in the loss: the larger, the fewer heads are left.
    /// Default 0.02.
    #[serde(default = "penalty")]
    pub penalty: f64,
    /// The learning rate of the gates' parameters, which Adam updates. Default 0.05.
    #[serde(default = "lr")]
    pub lr: f64,
}

fn penalty() -> f64 {
    0.02
}

fn lr() -> f64 {
    0.05
}

impl GatesSection {
    pub(super) fn check(&self) -> Check {
        not_negative("pruning.penalty", self.penalty)?;
        positive("pruning.lr", self.lr)
    }
}

/// The gates of a run: each head's output is multiplied by a [hard concrete](HardConcrete) number, drawn anew in each step.
/// Between steps the model holds the gates without noise.
///
/// A gate acts on its head's rows of the attention's output map, `W' = z·W`. A deviation: a step's micro-batches share
/// the gates.
#[derive(Debug)]
pub struct Gates {
    section: GatesSection,
    targets: Vec<Target>,
    seed: u64,
    distribution: HardConcrete,
    /// The output maps without gates; taken out during an update.
    weights: Vec<Tensor<2>>,
    gates: Vec<Vec<Gate>>,
    /// The updates of the gates.
    updates: u64,
}

/// A gate, its last random number and gradient, and its moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Gate {
    log_alpha: f64,
    first: f64,
    second: f64,
    #[serde(skip)]
    uniform: f64,
    #[serde(skip)]
    gradient: Option<f64>,
}

impl Gates {
    /// Gates for the heads of these targets, which [`weight_targets`](super::weight_targets) gives.
    pub fn new(section: GatesSection, targets: Vec<Target>, seed: u64) -> Self {
        let open = Gate { log_alpha: FIRST, ..Gate::default() };
        let gates = targets.iter().map(|target| vec![open; target.n_entries()]).collect();
        let distribution = HardConcrete::default();
        Self { section, targets, seed, distribution, weights: Vec::new(), gates, updates: 0 }
    }

    /// The weights times their gates.
    fn gated(&self, of: impl Fn(&Gate) -> f64) -> Vec<Tensor<2>> {
        let parts = self.targets.iter().zip(&self.gates).zip(&self.weights);
        let gated = parts.map(|((target, gates), weight)| {
            let values: Vec<f32> = gates.iter().map(|gate| of(gate) as f32).collect();
            let n = values.len();
            weight.clone() * target.wide(Tensor::from_data(TensorData::new(values, [n]), &weight.device()))
        });
        gated.collect()
    }

    fn settled<M: Module>(&self, model: M) -> M {
        let distribution = self.distribution;
        with_weights(model, &self.targets, self.gated(|gate| distribution.settled(gate.log_alpha)))
    }
}

impl<M: Module> Extension<M> for Gates {
    fn name(&self) -> &str {
        "gates"
    }

    fn prepare(&mut self, model: M) -> Result<M> {
        if self.weights.is_empty() {
            self.weights = weights(&model, &self.targets);
        }
        Ok(self.settled(model))
    }

    fn before_step(&mut self, model: M, step: u64) -> M {
        let mut random = Random::derive(self.seed, &[GATE_STREAM, step]);
        for gate in self.gates.iter_mut().flatten() {
            // Neither 0 nor 1, whose logarithms have no use.
            gate.uniform = random.unit().clamp(1e-6, 1.0 - 1e-6);
        }
        let distribution = self.distribution;
        let sampled = self.gated(|gate| distribution.sample(gate.log_alpha, gate.uniform));
        with_weights(model, &self.targets, sampled)
    }

    fn on_gradients(&mut self, model: &M, gradients: GradientsParams, _: u64) -> GradientsParams {
        let mut split = Split {
            path: ModulePath::default(),
            places: self.targets.iter().enumerate().map(|(place, of)| (of.path.clone(), place)).collect(),
            gates: self,
            gradients,
            of_gates: vec![None; self.targets.len()],
        };
        model.visit(&mut split);
        let (gradients, of_gates) = (split.gradients, split.of_gates);
        let (distribution, penalty) = (self.distribution, self.section.penalty);
        for (gates, found) in self.gates.iter_mut().zip(of_gates) {
            let found: Vec<f64> =
                found.map(|found| found.into_data().iter::<f64>().collect()).unwrap_or_default();
            for (gate, of_gate) in gates.iter_mut().zip(found) {
                gate.gradient = Some(distribution.gradient(gate.log_alpha, gate.uniform, of_gate, penalty));
            }
        }
        gradients
    }

    fn before_update(&mut self, model: M, _: u64) -> M {
        with_weights(model, &self.targets, std::mem::take(&mut self.weights))
    }

    fn after_update(&mut self, model: M, _: u64) -> M {
        self.updates += 1;
        let correction = BETAS.map(|beta| 1.0 - beta.powf(self.updates as f64));
        for gate in self.gates.iter_mut().flatten() {
            let Some(gradient) = gate.gradient.take() else { continue };
            gate.first = BETAS[0] * gate.first + (1.0 - BETAS[0]) * gradient;
            gate.second = BETAS[1] * gate.second + (1.0 - BETAS[1]) * gradient * gradient;
            let (first, second) = (gate.first / correction[0], gate.second / correction[1]);
            gate.log_alpha -= self.section.lr * first / (second.sqrt() + EPS);
        }
        self.weights = weights(&model, &self.targets);
        self.settled(model)
    }

    fn after_skip(&mut self, model: M, _: u64) -> M {
        self.settled(model)
    }

    fn tensors(&self) -> TensorsOnDevice {
        let parts = self.targets.iter().zip(&self.weights);
        parts.map(|(target, weight)| (target.path.clone(), OnDevice::new(weight.clone()))).collect()
    }

    fn state(&self) -> Value {
        json!({ "updates": self.updates, "gates": self.gates })
    }

    fn restore(&mut self, model: &M, mut kept: KeptState) -> std::result::Result<(), String> {
        self.updates = kept.state["updates"].as_u64().ok_or("`updates` is missing")?;
        let gates: Vec<Vec<Gate>> =
            serde_json::from_value(kept.state["gates"].take()).map_err(|error| error.to_string())?;
        if gates.iter().map(Vec::len).ne(self.gates.iter().map(Vec::len)) {
            return Err("the gates are of another model".into());
        }
        self.gates = gates;
        let mut restored = Vec::new();
        for (target, now) in self.targets.iter().zip(weights(model, &self.targets)) {
            match kept.tensors.remove(&target.path) {
                Some(data) if data.shape().as_slice() == target.shape => {
                    restored.push(Tensor::from_data(data, &now.device()));
                }
                _ => return Err(format!("`{}` is missing, or of another shape", target.path)),
            }
        }
        self.weights = restored;
        Ok(())
    }
}

/// Splits the gradients of gated weights into those of the weights and those of the gates.
struct Split<'a> {
    path: ModulePath,
    places: BTreeMap<String, usize>,
    gates: &'a Gates,
    gradients: GradientsParams,
    of_gates: Vec<Option<Tensor<1>>>,
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
        let (gates, target) = (self.gates, &self.gates.targets[place]);
        let (shape, gradient) = (gradient.dims(), gradient.reshape(target.shape));
        self.of_gates[place] = Some(target.summed(gradient.clone() * gates.weights[place].clone()));
        let of = |gate: &Gate| gates.distribution.sample(gate.log_alpha, gate.uniform) as f32;
        let sampled: Vec<f32> = gates.gates[place].iter().map(of).collect();
        let n = sampled.len();
        let sampled = Tensor::from_data(TensorData::new(sampled, [n]), &gradient.device());
        self.gradients.register(param.id, (gradient * target.wide(sampled)).reshape(shape));
    }
}
