//! How much the loss depends on each head and each neuron.

use super::super::task::Task;
use crate::engine::Advance;
use burn::module::Param;
use burn::tensor::{Device, Tensor};
use cloze_model::HasBackbone;
use cloze_model::bert::Bert;
use cloze_model::blocks::Linear;
use cloze_ops::on_awake_cores;

/// The importance of the heads and neurons of each layer: `E_x |∂L(x)/∂ξ|` for a factor `ξ = 1` on what a head or a neuron
/// adds to the tokens' states (Michel, Levy & Neubig 2019, §4.1).
#[derive(Debug, Clone, PartialEq)]
pub struct Importance {
    /// For each layer a number for each head.
    pub heads: Vec<Vec<f64>>,
    /// For each layer a number for each neuron, a feature inside its feed-forward network.
    pub neurons: Vec<Vec<f64>>,
}

impl Importance {
    /// The same, with each layer's heads divided by the root of their sum of squares, and its neurons likewise (Molchanov
    /// et al. 2017; Michel et al. 2019, §4.1): layers differ in the size of their gradients.
    pub fn normed(&self) -> Self {
        let layer = |values: &Vec<f64>| {
            let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
            values.iter().map(|value| if norm > 0.0 { value / norm } else { 0.0 }).collect()
        };
        Self {
            heads: self.heads.iter().map(layer).collect(),
            neurons: self.neurons.iter().map(layer).collect(),
        }
    }
}

/// The importance of a model's heads and neurons for its loss on some features. The absolute value is taken of each
/// unit of `unit` features, one example unless the loss compares examples, and not of a batch, in which the gradients
/// of different examples would cancel.
///
/// The factor of a head acts on its rows of the attention's output map, so that its gradient is the sum of these rows
/// times theirs, `Σ W ⊙ ∂L/∂W`; the same with a neuron and its row of the map down. `model` is on a device with
/// autodiff; its dropout should be 0.
pub fn importance<T: Task<Model: HasBackbone<Backbone = Bert>>>(
    task: &T,
    model: &T::Model,
    features: &[&T::Features],
    unit: usize,
    device: &Device,
    progress: &mut dyn FnMut(Advance),
) -> Importance {
    let n_layers = model.backbone().encoder.layers.len();
    let mut sums: [Vec<Option<Tensor<1>>>; 2] = [vec![None; n_layers], vec![None; n_layers]];
    let units = features.chunks(unit.max(1));
    let n_units = units.len();
    for (done, batch) in units.enumerate() {
        if task.weight(batch) > 0.0 {
            let found = on_awake_cores(device, || of_unit(task, model, batch, device));
            for (layer, found) in found.into_iter().enumerate() {
                for (sums, found) in sums.iter_mut().zip(found) {
                    let Some(found) = found else { continue };
                    sums[layer] = Some(match sums[layer].take() {
                        Some(sum) => sum + found,
                        None => found,
                    });
                }
            }
        }
        let done = done + 1;
        progress(Advance { done: (done * unit).min(features.len()), share: done as f64 / n_units as f64 });
    }
    let read = |sums: Vec<Option<Tensor<1>>>| {
        let means = sums.into_iter().map(|sum| {
            let values = sum.map(|sum| sum.into_data().iter::<f64>().collect::<Vec<_>>()).unwrap_or_default();
            values.into_iter().map(|value| value / n_units.max(1) as f64).collect()
        });
        means.collect()
    };
    let [heads, neurons] = sums;
    Importance { heads: read(heads), neurons: read(neurons) }
}

/// `|∂L/∂ξ|` of the heads and of the neurons of each layer, for the mean loss of one unit.
fn of_unit<T: Task<Model: HasBackbone<Backbone = Bert>>>(
    task: &T,
    model: &T::Model,
    batch: &[&T::Features],
    device: &Device,
) -> Vec<[Option<Tensor<1>>; 2]> {
    let loss = task.loss(task.scores(model, batch, device), batch).div_scalar(task.weight(batch));
    let gradients = loss.backward();
    let of = |map: &Linear, n: usize| -> Option<Tensor<1>> {
        let rows = by_row(&map.weight, &gradients)?;
        let [d_in] = rows.dims();
        Some(rows.reshape([n, d_in / n.max(1)]).sum_dim(1).reshape([n]).abs())
    };
    let layers = model.backbone().encoder.layers.iter().map(|layer| {
        let [d_ff, _] = layer.feed_forward.down.weight.dims();
        [of(&layer.attention.output, layer.attention.n_heads()), of(&layer.feed_forward.down, d_ff)]
    });
    layers.collect()
}

/// `Σ_j W_ij·∂L/∂W_ij` of each row `i`; none without a gradient.
fn by_row(weight: &Param<Tensor<2>>, gradients: &burn::tensor::Gradients) -> Option<Tensor<1>> {
    let value = weight.val();
    let gradient = value.grad(gradients)?;
    let [d_in, _] = gradient.dims();
    Some((value.inner() * gradient).sum_dim(1).reshape([d_in]))
}
