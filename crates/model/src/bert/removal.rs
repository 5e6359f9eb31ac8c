//! An encoder with fewer attention heads and narrower feed-forward networks, or with zeros in their place.

use super::{Bert, BertConfig};
use crate::blocks::{Linear, MultiHeadAttention, Positions};
use crate::{ModelError, Result};
use burn::module::Param;
use burn::tensor::{Tensor, TensorData};

/// The heads and neurons to remove from an encoder.
///
/// A head adds its context times its rows of the attention's output map to a token's state, and a neuron its
/// activation times its row of the feed-forward network's map down (Michel et al. 2019, §2.1). Without them the model
/// computes what it computes with zeros in these rows, [`Bert::with_zeros`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removal {
    /// For each layer its heads to remove, by their positions among those that the layer has, in ascending order. Empty:
    /// none in any layer.
    pub heads: Vec<Vec<usize>>,
    /// The same for the neurons of each feed-forward network, the features of its inner layer.
    pub neurons: Vec<Vec<usize>>,
}

impl Removal {
    /// Whether nothing is removed.
    pub fn is_empty(&self) -> bool {
        self.heads.iter().chain(&self.neurons).all(Vec::is_empty)
    }
}

/// The numbers below `n` that are not in the ascending list `removed`.
fn kept(n: usize, removed: &[usize]) -> Vec<usize> {
    (0..n).filter(|number| removed.binary_search(number).is_err()).collect()
}

impl BertConfig {
    /// The configuration of an encoder without these heads and neurons, the counterpart of [`Bert::without`].
    ///
    /// # Errors
    /// [`ModelError::Setting`] for a head or a neuron that is not there, for every head or neuron of a layer, for layers
    /// that would keep different numbers of neurons, which no class of transformers has, and for an encoder whose
    /// [heads](Self::fixed_heads) or layers share parameters.
    pub fn without(&self, removal: &Removal) -> Result<Self> {
        let mut config = self.clone();
        if removal.heads.iter().any(|heads| !heads.is_empty()) {
            if removal.heads.len() != self.n_layers {
                let expected = format!("{}, one a layer", self.n_layers);
                return Err(refused("heads", format!("lists for {} layers", removal.heads.len()), expected));
            }
            let numbers = removal.heads.iter().enumerate().map(|(layer, positions)| {
                let mut gone = self.pruned_heads.get(layer).cloned().unwrap_or_default();
                let left = kept(self.n_heads, &gone);
                if let Some(beyond) = positions.iter().find(|position| **position >= left.len()) {
                    let expected = format!("heads from 0 to {}", left.len() - 1);
                    return Err(refused("heads", format!("{beyond} in layer {layer}"), expected));
                }
                gone.extend(positions.iter().map(|position| left[*position]));
                gone.sort_unstable();
                Ok(gone)
            });
            config.pruned_heads = numbers.collect::<Result<_>>()?;
        }
        if let Some(first) =
            removal.neurons.first().filter(|_| removal.neurons.iter().any(|of| !of.is_empty()))
        {
            let differs = |of: &Vec<usize>| of.len() != first.len();
            if removal.neurons.len() != self.n_layers || removal.neurons.iter().any(differs) {
                let expected = "the same number in every layer".into();
                return Err(refused("neurons", "not as many in every layer".into(), expected));
            }
            if self.share_layers {
                let expected = "none: the layers share their parameters".into();
                return Err(refused("neurons", "given".into(), expected));
            }
            if removal.neurons.iter().flatten().any(|neuron| *neuron >= self.d_ff) {
                let expected = format!("neurons from 0 to {}", self.d_ff - 1);
                return Err(refused("neurons", "beyond the last".into(), expected));
            }
            config.d_ff = self.d_ff.saturating_sub(first.len());
        }
        config.validate()?;
        Ok(config)
    }
}

fn refused(key: &'static str, found: String, expected: String) -> ModelError {
    ModelError::Setting { key, found, expected }
}

impl<P: Positions> Bert<MultiHeadAttention, P> {
    /// The encoder without these heads and neurons: smaller matrices, which compute what
    /// [`with_zeros`](Self::with_zeros) computes.
    ///
    /// # Panics
    /// If [`BertConfig::without`] refuses them, or with [adapters](crate::blocks::LoraConfig) that are not merged.
    pub fn without(mut self, removal: &Removal) -> Self {
        let layers = std::mem::take(&mut self.encoder.layers).into_iter().enumerate();
        let cut = layers.map(|(number, mut layer)| {
            if let Some(heads) = removal.heads.get(number).filter(|heads| !heads.is_empty()) {
                let kept = kept(layer.attention.n_heads(), heads);
                layer.attention = layer.attention.keeping_heads(&kept);
            }
            if let Some(neurons) = removal.neurons.get(number).filter(|neurons| !neurons.is_empty()) {
                let [_, d_ff] = layer.feed_forward.up.weight.dims();
                layer.feed_forward = layer.feed_forward.keeping_neurons(&kept(d_ff, neurons));
            }
            layer
        });
        self.encoder.layers = cut.collect();
        self
    }

    /// The encoder with zeros in place of these heads and neurons: in their rows of the maps behind them, and in the
    /// columns and biases of the values and of the maps up. All shapes stay.
    ///
    /// # Panics
    /// As [`without`](Self::without).
    pub fn with_zeros(mut self, removal: &Removal) -> Self {
        for (number, layer) in self.encoder.layers.iter_mut().enumerate() {
            if let Some(heads) = removal.heads.get(number).filter(|heads| !heads.is_empty()) {
                let attention = &mut layer.attention;
                let [width, _] = attention.output.weight.dims();
                let d_v = width / attention.n_heads();
                let features: Vec<usize> =
                    heads.iter().flat_map(|head| head * d_v..(head + 1) * d_v).collect();
                // Values that heads share are those of heads that stay, too.
                if attention.value.weight.dims()[1] == width {
                    zero_outputs(&mut attention.value, &features);
                }
                zero_inputs(&mut attention.output, &features);
            }
            if let Some(neurons) = removal.neurons.get(number).filter(|neurons| !neurons.is_empty()) {
                let network = &mut layer.feed_forward;
                zero_outputs(&mut network.up, neurons);
                network.gate.iter_mut().for_each(|gate| zero_outputs(gate, neurons));
                zero_inputs(&mut network.down, neurons);
            }
        }
        self
    }
}

/// Zeros in these rows of the weight.
fn zero_inputs(map: &mut Linear, inputs: &[usize]) {
    let [d_in, _] = map.weight.dims();
    map.weight = masked(&map.weight, factors(d_in, inputs), [d_in, 1]);
}

/// Zeros in these columns of the weight, and in the biases.
fn zero_outputs(map: &mut Linear, outputs: &[usize]) {
    let [_, d_out] = map.weight.dims();
    map.weight = masked(&map.weight, factors(d_out, outputs), [1, d_out]);
    map.bias = map.bias.as_ref().map(|bias| masked(bias, factors(d_out, outputs), [d_out]));
}

/// 0 at these places, else 1.
fn factors(n: usize, zeros: &[usize]) -> Vec<f32> {
    let mut factors = vec![1.0; n];
    zeros.iter().for_each(|place| factors[*place] = 0.0);
    factors
}

fn masked<const D: usize>(
    param: &Param<Tensor<D>>,
    factors: Vec<f32>,
    shape: [usize; D],
) -> Param<Tensor<D>> {
    let value = param.val();
    let tracked = value.is_require_grad();
    let factors = Tensor::from_data(TensorData::new(factors, shape), &value.device());
    // A leaf of its own, whose values have no history.
    Param::from_tensor((value.detach() * factors).detach()).set_require_grad(tracked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::bert::BertInput;
    use crate::blocks::{LinearMaps, LoraConfig, RotaryConfig, merge_lora, pack_weights, quantize_int8};
    use burn::module::Module;
    use burn::tensor::{Bool, Device, Int, Tolerance};

    fn config() -> BertConfig {
        BertConfig { d_ff: 24, n_heads: 4, ..BertConfig::new(31, 3, 16) }
    }

    fn removal() -> Removal {
        let neurons: Vec<usize> = (0..24).step_by(2).collect();
        Removal {
            heads: vec![vec![1, 2], vec![], vec![0, 1, 3]],
            neurons: vec![neurons.clone(), (12..24).collect(), neurons],
        }
    }

    fn model(config: &BertConfig, device: &Device) -> Bert {
        config.init_encoder(&mut ParamInit::new(device, 1).with_std(0.5))
    }

    fn inputs(device: &Device) -> [BertInput; 2] {
        let ids: Vec<i32> = (0..16).map(|i| 2 + i * 7 % 29).collect();
        let padding: Vec<bool> = (0..16).map(|i| i >= 13).collect();
        let padded = Tensor::<2, Int>::from_data(TensorData::new(ids.clone(), [2, 8]), device);
        let mask = Tensor::<2, Bool>::from_data(TensorData::new(padding, [2, 8]), device);
        [BertInput::packed(&ids, &[5, 11], device), BertInput::new(padded).with_pad_mask(mask)]
    }

    fn assert_close(a: Tensor<3>, b: Tensor<3>) {
        a.into_data().assert_approx_eq::<f32>(&b.into_data(), Tolerance::absolute(1e-5));
    }

    #[test]
    fn a_smaller_encoder_computes_what_zeros_compute() {
        let device = Device::flex();
        let rotary = RotaryConfig { theta: 20.0, ..RotaryConfig::default() };
        for config in [
            config(),
            BertConfig { gated: true, attention_bias: false, feed_forward_bias: false, ..config() },
            BertConfig { rotary: Some(rotary), causal: true, ..config() },
        ] {
            let whole = model(&config, &device);
            let smaller = whole.clone().without(&removal());
            let zeros = whole.clone().with_zeros(&removal());
            let new = config.without(&removal()).unwrap();
            assert_eq!((new.d_ff, new.n_heads_of(0), new.n_heads_of(2)), (12, 2, 1));
            assert_eq!(smaller.num_params(), model(&new, &device).num_params());
            assert_eq!(zeros.num_params(), whole.num_params());
            for input in inputs(&device) {
                let of = |model: &Bert| model.forward(input.clone()).last_hidden_state;
                assert_close(of(&smaller), of(&zeros));
                let difference = (of(&smaller) - of(&whole)).abs().max().into_scalar::<f32>();
                assert!(difference > 1e-2, "{difference}");
            }
            // As packed, as 8 bits, with adapters.
            let mut packed = smaller.clone();
            pack_weights(&mut packed);
            let mut int8 = smaller.clone();
            quantize_int8(&mut int8);
            let adapted =
                LoraConfig::default().attach(smaller.clone(), &mut ParamInit::new(&device, 2)).unwrap();
            let merged = merge_lora(adapted.clone());
            let [input, _] = inputs(&device);
            let of = |model: &Bert| model.forward(input.clone()).last_hidden_state;
            assert_close(of(&packed), of(&smaller));
            assert_close(of(&adapted), of(&smaller));
            assert_close(of(&merged), of(&smaller));
            let difference = (of(&int8) - of(&smaller)).abs().max().into_scalar::<f32>();
            assert!(difference < 0.6, "{difference}");
            assert_eq!(packed.linear_maps_mut().len(), whole.clone().linear_maps_mut().len());
        }
    }

    #[test]
    fn what_was_pruned_is_pruned_further_by_position() {
        let device = Device::flex();
        let once = config().without(&removal()).unwrap();
        assert_eq!(once.pruned_heads, [vec![1, 2], vec![], vec![0, 1, 3]]);
        // The second head that layer 0 has is head 3.
        let more = Removal { heads: vec![vec![1], vec![0, 3], vec![]], neurons: Vec::new() };
        let twice = once.without(&more).unwrap();
        assert_eq!(twice.pruned_heads, [vec![1, 2, 3], vec![0, 3], vec![0, 1, 3]]);
        let all = Removal { heads: twice.pruned_heads.clone(), neurons: removal().neurons };
        let whole = model(&config(), &device);
        let [input, _] = inputs(&device);
        let of = |model: Bert| model.forward(input.clone()).last_hidden_state;
        assert_close(of(whole.clone().without(&removal()).without(&more)), of(whole.without(&all)));
        let chosen = twice.with_chosen_layers(&[0, 2]).unwrap();
        assert_eq!(chosen.pruned_heads, [vec![1, 2, 3], vec![0, 1, 3]]);
    }

    #[test]
    fn frozen_parts_stay_frozen() {
        let device = Device::flex().autodiff();
        let model =
            crate::freeze(model(&config(), &device), &["embeddings.*", "encoder.layers.0.*"]).unwrap();
        for smaller in [model.clone().without(&removal()), model.with_zeros(&removal())] {
            let tracked = |layer: usize| {
                let layer = &smaller.encoder.layers[layer];
                [&layer.attention.output.weight, &layer.feed_forward.up.weight]
                    .map(|weight| weight.is_require_grad())
            };
            assert_eq!((tracked(0), tracked(2)), ([false; 2], [true; 2]));
        }
    }

    #[test]
    fn what_cannot_be_removed_is_told() {
        let error = |config: &BertConfig, heads: Vec<Vec<usize>>, neurons: Vec<Vec<usize>>| {
            config.without(&Removal { heads, neurons }).unwrap_err().to_string()
        };
        let (of, none) = (config(), Vec::new);
        assert!(
            error(&of, vec![vec![0, 1, 2, 3], vec![], vec![]], none())
                .ends_with("one head at least that is left")
        );
        assert!(error(&of, vec![vec![4], vec![], vec![]], none()).ends_with("expected heads from 0 to 3"));
        assert!(error(&of, vec![vec![1]], none()).ends_with("expected 3, one a layer"));
        assert!(
            error(&of, none(), vec![vec![1], vec![], vec![]]).ends_with("the same number in every layer")
        );
        assert!(error(&of, none(), vec![vec![24]; 3]).ends_with("expected neurons from 0 to 23"));
        assert!(error(&of, none(), vec![(0..24).collect(); 3]).contains("`d_ff` is 0"));
        let shared = BertConfig { n_kv_heads: Some(2), ..config() };
        assert!(error(&shared, vec![vec![0]; 3], none()).ends_with("heads share their keys and values"));
        let albert = BertConfig { share_layers: true, ..config() };
        assert!(error(&albert, vec![vec![0]; 3], none()).ends_with("the layers share their parameters"));
        assert!(error(&albert, none(), vec![vec![0]; 3]).ends_with("the layers share their parameters"));
        assert!(Removal { heads: vec![vec![]; 3], neurons: Vec::new() }.is_empty());
    }
}
