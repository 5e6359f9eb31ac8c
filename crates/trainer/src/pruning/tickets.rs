//! Lottery tickets: iterative magnitude pruning with rewinding (Frankle & Carbin 2019; Chen et al. 2020).

use super::latent::{weights as weights_of, with_weights};
use super::masks::largest;
use super::targets::{Scope, Target};
use crate::Result;
use crate::config::validate::{Check, ensure};
use crate::engine::optimizer::{Optimizer, OptimizerState};
use crate::engine::{Extension, KeptState, Rewind, Rounds};
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_data::Random;
use cloze_model::weights::{self, ModulePath, NamedTensors, OnDevice, TensorsOnDevice};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Separates the random masks' numbers from all others of a seed.
const MASK_STREAM: u64 = 0x71C3;

/// The names of kept tensors begin so.
const MASK: &str = "mask:";
const PARAMETER: &str = "parameter:";
const MOMENT: &str = "moment:";

/// The settings of a search for a lottery ticket. `train.epochs` are those of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TicketsSection {
    /// The share of weights that is 0 in the end. Default 0.5.
    #[serde(default = "half")]
    pub sparsity: f64,
    /// The share of all weights that is pruned after each round but the last. Default 0.1.
    #[serde(default = "tenth")]
    pub per_round: f64,
    /// Whether the smallest weights of each matrix are pruned, `"matrix"`, or those of all together, `"global"`.
    /// Default `"global"`.
    #[serde(default = "global")]
    pub scope: Scope,
    /// After each round, weights, optimiser and learning rate return to what they were after this many steps of the
    /// first round; the head too. Default 0: to the checkpoint.
    #[serde(default)]
    pub rewind: u64,
}

fn half() -> f64 {
    0.5
}

fn tenth() -> f64 {
    0.1
}

fn global() -> Scope {
    Scope::Global
}

impl TicketsSection {
    pub(super) fn check(&self) -> Check {
        for (key, share) in [("pruning.sparsity", self.sparsity), ("pruning.per_round", self.per_round)] {
            ensure(share > 0.0 && share < 1.0, key, share, "a share above 0 and below 1")?;
        }
        ensure(self.per_round >= 0.001, "pruning.per_round", self.per_round, "at least 0.001")
    }

    /// The number of rounds: the first is without masks.
    pub fn n_rounds(&self) -> u64 {
        // Ten rounds of a tenth are ten, whatever their sum is in binary.
        (self.sparsity / self.per_round - 1e-9).ceil() as u64 + 1
    }
}

/// How masks are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketMasks {
    /// The smallest weights at the end of a round are pruned.
    Magnitude,
    /// Random weights are pruned, the control of Frankle & Carbin 2019, §2.
    Random {
        /// The seed of the masks.
        seed: u64,
    },
}

/// The masks of a search for a lottery ticket. After each round the weights with the least size among those left are
/// pruned, and everything else returns to its state after [`rewind`](TicketsSection::rewind) steps. The result is the model of
/// the last round.
///
/// Deviations from Chen's code, as in the paper: the head returns as well, and each round has a whole schedule.
#[derive(Debug)]
pub struct Tickets {
    section: TicketsSection,
    choice: TicketMasks,
    rounds: Rounds,
    targets: Vec<Target>,
    /// `[n_entries]` each; none in the first round.
    masks: Vec<Tensor<1>>,
    start: Option<Start>,
    /// Of the model.
    device: Option<Device>,
}

/// What a round starts from.
#[derive(Debug, Clone)]
struct Start {
    parameters: NamedTensors,
    moments: OptimizerState,
    updates: u64,
}

impl Tickets {
    /// Masks for these targets in these rounds.
    pub fn new(section: TicketsSection, choice: TicketMasks, rounds: Rounds, targets: Vec<Target>) -> Self {
        Self { section, choice, rounds, targets, masks: Vec::new(), start: None, device: None }
    }

    /// The share of weights that are left in a round, counted from 0.
    fn left(&self, round: u64) -> f64 {
        1.0 - (round as f64 * self.section.per_round).min(self.section.sparsity)
    }

    /// The masks of a round that begins with a trained model.
    fn choose<M: Module>(&self, model: &M, round: u64) -> Vec<Tensor<1>> {
        let weights = weights_of(model, &self.targets);
        let scores: Vec<Vec<f32>> = match self.choice {
            TicketMasks::Magnitude => weights
                .iter()
                .enumerate()
                .map(|(place, weight)| {
                    let size = |weight: f32| weight.abs();
                    let sizes = weight.clone().into_data().iter::<f32>().map(size).collect::<Vec<_>>();
                    // What is pruned stays pruned: a weight that is left may be 0, too.
                    match self.masks.get(place) {
                        None => sizes,
                        Some(mask) => {
                            let mask = mask.clone().into_data().iter::<f32>().collect::<Vec<_>>();
                            sizes
                                .into_iter()
                                .zip(mask)
                                .map(|(size, mask)| if mask > 0.0 { size } else { -1.0 })
                                .collect()
                        }
                    }
                })
                .collect(),
            // The same numbers in each round, so that what is pruned stays pruned.
            TicketMasks::Random { seed } => {
                let lists = self.targets.iter().enumerate().map(|(place, target)| {
                    let mut random = Random::derive(seed, &[MASK_STREAM, place as u64]);
                    (0..target.n_entries()).map(|_| random.unit_f32()).collect()
                });
                lists.collect()
            }
        };
        let masks = largest(&scores, self.left(round), self.section.scope);
        let tensor = |(mask, weight): (Vec<f32>, &Tensor<2>)| {
            let n = mask.len();
            Tensor::from_data(TensorData::new(mask, [n]), &weight.device())
        };
        masks.into_iter().zip(&weights).map(tensor).collect()
    }

    fn masked<M: Module>(&self, model: M) -> M {
        if self.masks.is_empty() {
            return model;
        }
        let weights = weights_of(&model, &self.targets).into_iter();
        let masked = weights.zip(self.targets.iter().zip(&self.masks));
        let masked = masked.map(|(weight, (target, mask))| weight * target.wide(mask.clone())).collect();
        with_weights(model, &self.targets, masked)
    }
}

impl<M: Module> Extension<M> for Tickets {
    fn name(&self) -> &str {
        "tickets"
    }

    fn prepare(&mut self, model: M) -> Result<M> {
        self.device = weights_of(&model, &self.targets).first().map(Tensor::device);
        Ok(model)
    }

    fn rewind(&mut self, model: &M, optimizer: &Optimizer, step: u64) -> Option<Rewind> {
        let made = step - 1;
        if made == self.rounds.rewind && self.start.is_none() {
            let (parameters, moments) = (weights::collect(model), optimizer.state(model));
            self.start = Some(Start { parameters, moments, updates: optimizer.updates() });
        }
        let round = self.rounds.begins(step)?;
        self.masks = self.choose(model, round);
        let Start { parameters, moments, updates } = self.start.clone()?;
        Some(Rewind { parameters, moments, updates })
    }

    fn before_step(&mut self, model: M, step: u64) -> M {
        // What was rewound has no masks.
        match self.rounds.begins(step) {
            Some(_) => self.masked(model),
            None => model,
        }
    }

    fn on_gradients(&mut self, model: &M, gradients: GradientsParams, _: u64) -> GradientsParams {
        if self.masks.is_empty() {
            return gradients;
        }
        let places = self.targets.iter().enumerate().map(|(place, of)| (of.path.clone(), place)).collect();
        let path = ModulePath::default();
        let mut masked = Masked { path, places, tickets: self, gradients };
        model.visit(&mut masked);
        masked.gradients
    }

    fn after_update(&mut self, model: M, _: u64) -> M {
        self.masked(model)
    }

    fn tensors(&self) -> TensorsOnDevice {
        let masks = self.targets.iter().zip(&self.masks);
        let masks =
            masks.map(|(target, mask)| (format!("{MASK}{}", target.path), OnDevice::new(mask.clone())));
        let start = self.start.iter().flat_map(|start| {
            let parts = [(PARAMETER, &start.parameters), (MOMENT, &start.moments)];
            parts.into_iter().flat_map(|(part, tensors)| {
                let on_device = |data: &TensorData| kept(data, self.device.as_ref()?);
                tensors
                    .iter()
                    .filter_map(move |(name, data)| Some((format!("{part}{name}"), on_device(data)?)))
            })
        });
        masks.chain(start).collect()
    }

    fn state(&self) -> Value {
        json!({ "updates": self.start.as_ref().map(|start| start.updates) })
    }

    fn restore(&mut self, model: &M, mut kept: KeptState) -> std::result::Result<(), String> {
        let mut part = |prefix: &str| -> NamedTensors {
            let names: Vec<String> =
                kept.tensors.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
            let taken = names.into_iter().filter_map(|name| {
                let data = kept.tensors.remove(&name)?;
                Some((name[prefix.len()..].to_owned(), data))
            });
            taken.collect()
        };
        let (mut masks, parameters, moments) = (part(MASK), part(PARAMETER), part(MOMENT));
        if !masks.is_empty() {
            let mut restored = Vec::new();
            for (target, weight) in self.targets.iter().zip(weights_of(model, &self.targets)) {
                match masks.remove(&target.path) {
                    Some(mask) if mask.num_elements() == target.n_entries() => {
                        restored.push(Tensor::from_data(mask, &weight.device()));
                    }
                    _ => {
                        return Err(format!("the mask of `{}` is missing, or of another shape", target.path));
                    }
                }
            }
            self.masks = restored;
        }
        if let Some(updates) = kept.state["updates"].as_u64() {
            let shapes = weights::shapes(model);
            let fits = |(path, shape): &(String, Vec<usize>)| {
                parameters.get(path).is_some_and(|data| data.shape().as_slice() == shape.as_slice())
            };
            if let Some((path, _)) = shapes.iter().find(|shape| !fits(shape)) {
                return Err(format!("the first round's `{path}` is missing, or of another shape"));
            }
            self.start = Some(Start { parameters, moments, updates });
        }
        Ok(())
    }
}

/// A tensor for a checkpoint.
fn kept(data: &TensorData, device: &Device) -> Option<OnDevice> {
    let data = data.clone();
    Some(match data.shape().len() {
        1 => OnDevice::new(Tensor::<1>::from_data(data, device)),
        2 => OnDevice::new(Tensor::<2>::from_data(data, device)),
        3 => OnDevice::new(Tensor::<3>::from_data(data, device)),
        4 => OnDevice::new(Tensor::<4>::from_data(data, device)),
        _ => return None,
    })
}

/// Masks gradients.
struct Masked<'a> {
    path: ModulePath,
    places: BTreeMap<String, usize>,
    tickets: &'a Tickets,
    gradients: GradientsParams,
}

impl ModuleVisitor for Masked<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(place) = self.places.get(&self.path.to_string()).copied() else { return };
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        let (target, shape) = (&self.tickets.targets[place], gradient.dims());
        let mask = target.wide(self.tickets.masks[place].clone());
        self.gradients.register(param.id, (gradient.reshape(target.shape) * mask).reshape(shape));
    }
}
