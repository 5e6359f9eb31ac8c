//! Which weights are masked, and which of them go together.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use cloze_model::HasBackbone;
use cloze_model::bert::Bert;
use cloze_model::weights::ModulePath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one entry of a mask stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// A single weight of a layer's linear maps. Zeros among others make no product faster.
    #[default]
    Weights,
    /// A head: its rows of the attention's output map. `cloze prune` takes them out.
    Heads,
    /// A neuron: its row of the feed-forward network's map down. `cloze prune` takes them out.
    Neurons,
}

/// Among what the least are pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// In each matrix the same share.
    Matrix,
    /// Among all of them, so that matrices may differ.
    Global,
}

/// A matrix with a mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The parameter's path in the model.
    pub path: String,
    /// Its shape, `[d_in, d_out]`.
    pub shape: [usize; 2],
    /// The number of rows that share an entry of the mask; none: each weight has its own.
    pub rows: Option<usize>,
}

impl Target {
    /// The number of entries of the mask.
    pub fn n_entries(&self) -> usize {
        let [d_in, d_out] = self.shape;
        self.rows.map_or(d_in * d_out, |rows| d_in / rows.max(1))
    }

    /// A mask `[n_entries]` as a factor of the matrix, `[d_in, d_out]` or `[d_in, 1]`.
    pub fn wide(&self, mask: Tensor<1>) -> Tensor<2> {
        let [d_in, d_out] = self.shape;
        match self.rows {
            None => mask.reshape([d_in, d_out]),
            Some(rows) => mask.reshape([d_in / rows, 1]).expand([d_in / rows, rows]).reshape([d_in, 1]),
        }
    }

    /// The sum of the numbers that belong to each entry, `[n_entries]`, of a matrix `[d_in, d_out]`.
    pub fn summed(&self, values: Tensor<2>) -> Tensor<1> {
        let [d_in, d_out] = self.shape;
        match self.rows {
            None => values.reshape([d_in * d_out]),
            Some(rows) => values.reshape([d_in / rows, rows * d_out]).sum_dim(1).reshape([d_in / rows]),
        }
    }

    /// A mask of ones.
    pub(super) fn ones(&self, device: &Device) -> Tensor<1> {
        Tensor::ones([self.n_entries()], device)
    }
}

/// The matrices of the layers of an encoder that are masked at this granularity: all linear maps, the attention's output
/// maps, or the maps down.
pub fn weight_targets<M: HasBackbone<Backbone = Bert>>(model: &M, granularity: Granularity) -> Vec<Target> {
    let layers = model.backbone().encoder.layers.iter().enumerate();
    let targets = layers.flat_map(|(number, layer)| {
        let (attention, network) = (&layer.attention, &layer.feed_forward);
        let target = |name: &str, weight: &Param<Tensor<2>>, rows| Target {
            path: M::path_of(&format!("encoder.layers.{number}.{name}.weight")),
            shape: weight.dims(),
            rows,
        };
        let output = ("attention.output", &attention.output.weight);
        let down = ("feed_forward.down", &network.down.weight);
        match granularity {
            Granularity::Heads => {
                vec![target(output.0, output.1, Some(output.1.dims()[0] / attention.n_heads().max(1)))]
            }
            Granularity::Neurons => vec![target(down.0, down.1, Some(1))],
            Granularity::Weights => {
                let gate = network.gate.as_ref().map(|gate| ("feed_forward.gate", &gate.weight));
                let maps = [
                    ("attention.query", &attention.query.weight),
                    ("attention.key", &attention.key.weight),
                    ("attention.value", &attention.value.weight),
                    output,
                    ("feed_forward.up", &network.up.weight),
                    down,
                ];
                maps.into_iter().chain(gate).map(|(name, weight)| target(name, weight, None)).collect()
            }
        }
    });
    targets.collect()
}

/// The share of the masks' entries whose weights are all zeros in a model.
pub(crate) fn share_of_zeros<M: Module>(model: &M, targets: &[Target]) -> f64 {
    let mut zeros = Zeros {
        path: ModulePath::default(),
        targets: targets.iter().map(|target| (target.path.clone(), target.clone())).collect(),
        zeros: 0,
        all: 0,
    };
    model.visit(&mut zeros);
    zeros.zeros as f64 / zeros.all.max(1) as f64
}

struct Zeros {
    path: ModulePath,
    targets: BTreeMap<String, Target>,
    zeros: usize,
    all: usize,
}

impl ModuleVisitor for Zeros {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(target) = self.targets.get(&self.path.to_string()) else { return };
        let size = target.rows.map_or(1, |rows| rows * target.shape[1]);
        let values: Vec<f32> = param.val().into_data().iter::<f32>().collect();
        let entries = values.chunks(size.max(1));
        self.all += entries.len();
        self.zeros += entries.filter(|entry| entry.iter().all(|value| *value == 0.0)).count();
    }
}
