use super::stream::{Limits, Streams, mask};
use super::{XlnetConfig, XlnetInput, XlnetLayer, XlnetMemory};
use crate::blocks::{Embedding, sinusoids};
use crate::ops::{self, RelativeMask};
use crate::{Backbone, BackboneShape, HasBackbone, ParamInit, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// XLNet without a head. [`XlnetConfig`] builds one.
#[derive(Module, Debug)]
pub struct Xlnet {
    /// Piece embeddings, `[vocab_size, d_model]`.
    pub tokens: Embedding,
    /// The query stream's initial vector, instead of a token, `[d_model]`: `w` in Yang et al. 2019, §2.4.
    pub query: Param<Tensor<1>>,
    /// From the first layer to the last.
    pub layers: Vec<XlnetLayer>,
    dropout: f64,
    #[module(skip)]
    settings: Settings,
}

linear_maps!(Xlnet { layers });

/// The configuration's settings that are not parameters.
#[derive(Debug, Clone)]
struct Settings {
    limits: Limits,
    clamp_len: Option<usize>,
    memory_len: Option<usize>,
    reuse_len: Option<usize>,
}

/// The states of a batch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct XlnetOutput {
    /// `[batch, len, d_model]`, the content stream's.
    pub last_hidden_state: Tensor<3>,
    /// The memory for the next segments.
    pub memory: XlnetMemory,
}

/// The states of a batch's predictions.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Predictions {
    /// `[batch · n, d_model]`, the query stream's, in the order of [`XlnetInput::targets`].
    pub states: Tensor<2>,
    /// The memory for the next segments.
    pub memory: XlnetMemory,
}

impl Xlnet {
    pub(super) fn new(config: &XlnetConfig, init: &mut ParamInit) -> Self {
        let XlnetConfig { vocab_size, d_model, n_layers, .. } = *config;
        Self {
            tokens: Embedding::new(vocab_size, d_model, init),
            query: init.truncated_normal([d_model]),
            layers: (0..n_layers).map(|_| XlnetLayer::new(config, init)).collect(),
            dropout: config.dropout,
            settings: Settings {
                limits: Limits { causal: config.causal, same_length: config.same_length },
                clamp_len: config.clamp_len,
                memory_len: config.memory_len,
                reuse_len: config.reuse_len,
            },
        }
    }

    /// The content stream's states; predictions are ignored.
    ///
    /// # Panics
    /// If the memory does not match the texts or the model.
    pub fn forward(&self, input: &XlnetInput, memory: Option<&XlnetMemory>, device: &Device) -> XlnetOutput {
        let context = self.context(input, memory, device);
        let mask = mask(input, Streams::Content, context.memory_len, self.settings.limits);
        let mut x = self.embed(input, device);
        let mut states = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            states.push(x.clone());
            let keys = context.keys(number, x.clone());
            x = context.layer(layer, x, &mask, keys);
        }
        let last_hidden_state = ops::dropout(x, self.dropout);
        XlnetOutput { last_hidden_state, memory: self.remember(memory, states) }
    }

    /// The query stream's states. Both streams share each layer's products; the last layer's content is not
    /// needed and not computed.
    ///
    /// # Panics
    /// If there are no predictions, or the memory does not match the texts or the model.
    pub fn predict(&self, input: &XlnetInput, memory: Option<&XlnetMemory>, device: &Device) -> Predictions {
        assert!(!input.targets.is_empty(), "no prediction: nothing to compute");
        let context = self.context(input, memory, device);
        let limits = self.settings.limits;
        let both = mask(input, Streams::Both, context.memory_len, limits);
        let queries = mask(input, Streams::Queries, context.memory_len, limits);
        let ([batch, len], d_model) = ([input.batch, input.len], self.d_model());
        let n_targets = input.targets.len() / batch;

        let g = self.query.val().reshape([1, 1, d_model]).expand([batch, n_targets, d_model]);
        let g = ops::dropout(g, self.dropout);
        // Of each segment the content, and then the queries.
        let mut x = Tensor::cat(vec![self.embed(input, device), g], 1);
        let mut states = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            let content = x.clone().narrow(1, 0, len);
            states.push(content.clone());
            let keys = context.keys(number, content);
            x = match number + 1 == self.layers.len() {
                false => context.layer(layer, x, &both, keys),
                true => context.layer(layer, x.narrow(1, len, n_targets), &queries, keys),
            };
        }
        let memory = self.remember(memory, states);
        let states = ops::dropout(x.reshape([batch * n_targets, d_model]), self.dropout);
        Predictions { states, memory }
    }

    fn d_model(&self) -> usize {
        self.tokens.weight.dims()[1]
    }

    /// `[batch, len, d_model]`
    fn embed(&self, input: &XlnetInput, device: &Device) -> Tensor<3> {
        let ids = TensorData::new(input.ids.clone(), [input.batch, input.len]);
        let ids = Tensor::<2, Int>::from_data(ids, device);
        ops::dropout(self.tokens.forward(ids), self.dropout)
    }

    fn context<'a>(
        &self,
        input: &XlnetInput,
        memory: Option<&'a XlnetMemory>,
        device: &Device,
    ) -> Context<'a> {
        if let Some(memory) = memory {
            assert_eq!(memory.batch(), input.batch, "the texts of the memory, and of the batch");
            assert_eq!(
                memory.layers().len(),
                self.layers.len(),
                "the layers of the memory, and of the model"
            );
        }
        let memory_len = memory.map_or(0, XlnetMemory::len);
        let k_len = memory_len + input.len;
        let positions = sinusoids(input.len, k_len, self.settings.clamp_len, self.d_model(), device);
        // One mask for all rows of the batch; the reference code draws one for each.
        Context { memory, memory_len, positions: ops::dropout(positions, self.dropout) }
    }

    fn remember(&self, before: Option<&XlnetMemory>, states: Vec<Tensor<3>>) -> XlnetMemory {
        XlnetMemory::after(before, states, self.settings.memory_len, self.settings.reuse_len)
    }
}

/// Data shared by all layers of a pass.
struct Context<'a> {
    memory: Option<&'a XlnetMemory>,
    memory_len: usize,
    /// `[n_distances, d_model]`
    positions: Tensor<2>,
}

impl Context<'_> {
    /// The states above a layer, `[batch, n_queries, d_model]`.
    fn layer(&self, layer: &XlnetLayer, x: Tensor<3>, mask: &RelativeMask, keys: Tensor<3>) -> Tensor<3> {
        let [batch, n_queries, d_model] = x.dims();
        let x = x.reshape([batch * n_queries, d_model]);
        let x = layer.forward(x, mask, keys, self.positions.clone());
        x.reshape([batch, n_queries, d_model])
    }

    /// The states from which a layer's keys and values are made, `[batch, k_len, d_model]`.
    fn keys(&self, layer: usize, states: Tensor<3>) -> Tensor<3> {
        match self.memory {
            Some(memory) => Tensor::cat(vec![memory.layers()[layer].clone(), states], 1),
            None => states,
        }
    }
}

impl Backbone for Xlnet {
    fn shape(&self) -> BackboneShape {
        let [vocab_size, d_model] = self.tokens.weight.lazy_shape().dims();
        BackboneShape::new(d_model, self.layers.len(), vocab_size)
    }

    fn embeddings_path(&self) -> String {
        "tokens".into()
    }

    fn layer_paths(&self) -> Vec<String> {
        (0..self.layers.len()).map(|number| format!("layers.{number}")).collect()
    }
}

impl HasBackbone for Xlnet {
    type Backbone = Self;
    const PATH: &'static str = "";

    fn backbone(&self) -> &Self {
        self
    }

    fn backbone_mut(&mut self) -> &mut Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::LinearMaps;
    use crate::weights;
    use burn::tensor::Tolerance;

    const VOCAB: i32 = 31;

    fn config() -> XlnetConfig {
        XlnetConfig { n_heads: 4, d_ff: 24, dropout: 0.0, ..XlnetConfig::new(VOCAB as usize, 3, 16) }
    }

    /// Fused parts and composed ones.
    fn devices() -> [Device; 2] {
        [Device::flex(), Device::flex().autodiff().gradient_checkpointing()]
    }

    fn model(config: &XlnetConfig, device: &Device) -> Xlnet {
        config.init_encoder(&mut ParamInit::new(device, 3).with_std(0.4))
    }

    fn ids(n: i32) -> Vec<i32> {
        (0..n).map(|i| 1 + i * 7 % (VOCAB - 1)).collect()
    }

    fn close<const D: usize>(found: Tensor<D>, expected: Tensor<D>) {
        found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
    }

    /// The largest difference in each row.
    fn apart(a: Tensor<2>, b: Tensor<2>) -> Vec<f32> {
        (a - b).abs().max_dim(1).into_data().iter::<f32>().collect()
    }

    #[test]
    fn a_prediction_sees_what_comes_before_it_in_the_order_and_never_itself() {
        // Of 9 tokens 5 are predicted; position 6 first, without which and without a memory it sees the context alone.
        let partial = [None, Some(3), None, Some(1), Some(4), None, Some(0), Some(2), None];
        // All are predicted: the first sees nothing at all.
        let whole = [5, 3, 8, 1, 4, 7, 0, 2, 6].map(Some);
        for device in devices() {
            let model = model(&config(), &device);
            for order in [partial, whole] {
                let input = |ids: Vec<i32>| XlnetInput::new(ids, 1).with_order(&order);
                let targets = input(ids(9)).targets().to_vec();
                let states = |ids: Vec<i32>| model.predict(&input(ids), None, &device).states;
                let contents = |ids: Vec<i32>| {
                    model.forward(&input(ids), None, &device).last_hidden_state.squeeze_dim::<2>(0)
                };
                let (before, content_before) = (states(ids(9)), contents(ids(9)));
                for changed in 0..9 {
                    let mut other = ids(9);
                    other[changed] = (other[changed] + 11) % VOCAB;
                    let sees = |place: usize| match (order[place], order[changed]) {
                        (_, None) => true,
                        (None, Some(_)) => false,
                        (Some(own), Some(other)) => other < own,
                    };
                    let differences = apart(states(other.clone()), before.clone());
                    for (place, difference) in targets.iter().zip(differences) {
                        match sees(*place as usize) {
                            true => assert!(difference > 1e-4, "{place} is blind for {changed}"),
                            false => assert_eq!(difference, 0.0, "{place} saw {changed}"),
                        }
                    }
                    let differences = apart(contents(other), content_before.clone());
                    for (place, difference) in differences.into_iter().enumerate() {
                        match sees(place) || place == changed {
                            true => assert!(difference > 1e-4, "{place} is blind for {changed}"),
                            false => assert_eq!(difference, 0.0, "{place} saw {changed}"),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn with_a_memory_a_left_to_right_model_reads_on_as_if_in_one_segment() {
        for device in devices() {
            let config = XlnetConfig { causal: true, ..config() };
            let model = model(&config, &device);
            let all: Vec<i32> = ids(12);
            let whole = model.forward(&XlnetInput::new(all.clone(), 1), None, &device).last_hidden_state;
            let mut memory = None;
            let mut parts = Vec::new();
            for part in [&all[..5], &all[5..6], &all[6..]] {
                let output = model.forward(&XlnetInput::new(part.to_vec(), 1), memory.as_ref(), &device);
                parts.push(output.last_hidden_state);
                memory = Some(output.memory);
            }
            assert_eq!(memory.map(|memory| memory.len()), Some(12));
            close(Tensor::cat(parts, 1), whole);
        }
    }

    #[test]
    fn predictions_see_the_memory_as_earlier_tokens_that_do_not_see_them() {
        let config = XlnetConfig { n_layers: 1, ..config() };
        for device in devices() {
            let model = model(&config, &device);
            let all = ids(10);
            let order: Vec<Option<u32>> = [None, Some(1), None, Some(0), None, Some(2)].into_iter().collect();
            let first = model.forward(&XlnetInput::new(all[..4].to_vec(), 1), None, &device);
            let second = XlnetInput::new(all[4..].to_vec(), 1).with_order(&order);
            let found = model.predict(&second, Some(&first.memory), &device).states;
            // One layer's keys are made of embeddings, so one segment of both gives the same.
            let whole: Vec<Option<u32>> = [None; 4].into_iter().chain(order).collect();
            let whole = XlnetInput::new(all, 1).with_order(&whole);
            close(found, model.predict(&whole, None, &device).states);
        }
    }

    #[test]
    fn a_memory_of_limited_length_forgets() {
        let device = Device::flex();
        let model = model(&XlnetConfig { memory_len: Some(3), n_layers: 1, ..config() }, &device);
        let after = |past: &[i32]| {
            let first = model.forward(&XlnetInput::new(past.to_vec(), 1), None, &device);
            assert_eq!(first.memory.len(), 3);
            let second = XlnetInput::new(vec![1, 2], 1);
            model.forward(&second, Some(&first.memory), &device).last_hidden_state
        };
        close(after(&[4, 5, 6, 7, 8]), after(&[9, 10, 6, 7, 8]));
        let difference = (after(&[4, 5, 6, 7, 8]) - after(&[4, 5, 9, 7, 8])).abs().max();
        assert!(difference.into_scalar::<f32>() > 1e-4);
    }

    #[test]
    fn padding_at_the_beginning_changes_nothing() {
        for device in devices() {
            let model = model(&config(), &device);
            let rows: [&[i32]; 3] = [&[1, 2, 3, 4, 5, 6, 7], &[8], &[9, 10, 11, 12]];
            let padded = XlnetInput::left_padded(&rows.into_iter().collect(), 0);
            let together = model.forward(&padded, None, &device).last_hidden_state;
            for (row, ids) in rows.into_iter().enumerate() {
                let alone = model.forward(&XlnetInput::new(ids.to_vec(), 1), None, &device);
                let of_row = together.clone().narrow(0, row, 1).narrow(1, 7 - ids.len(), ids.len());
                close(of_row, alone.last_hidden_state);
            }
        }
    }

    #[test]
    fn gradients_do_not_reach_the_past() {
        let device = Device::flex().autodiff();
        let model = model(&config(), &device);
        let first = model.forward(&XlnetInput::new(vec![1, 2, 3], 1), None, &device);
        let second = XlnetInput::new(vec![4, 5, 6], 1).with_order(&[None, Some(0), Some(1)]);
        let states = model.predict(&second, Some(&first.memory), &device).states;
        let grads = states.powi_scalar(2).sum().backward();
        let table = model.tokens.weight.val().grad(&grads).unwrap().abs().sum_dim(1).into_data();
        let reached: Vec<usize> =
            table.iter::<f32>().enumerate().filter(|(_, sum)| *sum > 0.0).map(|(id, _)| id).collect();
        // The last prediction's content is seen by nothing.
        assert_eq!(reached, [4, 5]);
    }

    #[test]
    fn distances_beyond_the_clamp_are_one() {
        let device = Device::flex();
        let config = XlnetConfig { n_layers: 1, clamp_len: Some(2), ..config() };
        let model = model(&config, &device);
        let last = |ids: &[i32]| {
            let states = model.forward(&XlnetInput::new(ids.to_vec(), 1), None, &device).last_hidden_state;
            states.narrow(1, ids.len() - 1, 1)
        };
        close(last(&[5, 6, 7, 8, 9]), last(&[7, 6, 5, 8, 9]));
        let difference = (last(&[5, 6, 7, 8, 9]) - last(&[5, 6, 8, 7, 9])).abs().max();
        assert!(difference.into_scalar::<f32>() > 1e-4);
    }

    #[test]
    fn a_model_of_same_length_sees_as_many_tokens_everywhere() {
        let device = Device::flex();
        let config = XlnetConfig { n_layers: 1, causal: true, same_length: true, ..config() };
        let model = model(&config, &device);
        let second = |past: &[i32]| {
            let first = model.forward(&XlnetInput::new(past.to_vec(), 1), None, &device);
            let states = model.forward(&XlnetInput::new(vec![1, 2, 3], 1), Some(&first.memory), &device);
            states.last_hidden_state.squeeze_dim::<2>(0)
        };
        // A change of the past's second token is seen from the first two positions.
        let differences = apart(second(&[4, 5, 6]), second(&[4, 9, 6]));
        assert!(differences[0] > 1e-4 && differences[1] > 1e-4 && differences[2] == 0.0, "{differences:?}");
    }

    #[test]
    fn paths_are_those_of_parameters() {
        let mut model = model(&config(), &Device::flex());
        let paths: Vec<String> = weights::shapes(&model).into_iter().map(|(path, _)| path).collect();
        assert_eq!(model.shape(), BackboneShape::new(16, 3, VOCAB as usize));
        let below =
            |prefix: &str| paths.iter().filter(|path| path.starts_with(&format!("{prefix}."))).count();
        assert_eq!(below(&model.embeddings_path()), 1);
        // Five maps, three biases and segments; two maps with biases; two norms.
        assert!(model.layer_paths().iter().all(|path| below(path) == 9 + 4 + 4));
        let linears: Vec<String> = model.linear_maps_mut().into_iter().map(|map| map.path).collect();
        assert_eq!(linears.len(), 3 * 7);
        assert!(linears.iter().all(|path| below(path) > 0), "{linears:?}");
    }
}
