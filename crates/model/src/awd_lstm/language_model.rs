use super::{AwdLstmEncoder, AwdLstmOutput};
use crate::blocks::{AdaptiveSoftmax, OutputLayer, SampledSoftmax};
use crate::ops::{self, Packing};
use crate::recurrent::RecurrentState;
use crate::{HasBackbone, Sequences, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};

/// AWD-LSTM: `P(x) = Π_t P(x_t | x_<t)` by LSTM layers whose output layer is the embedding table (Merity et al. 2018).
///
/// [`AwdLstmConfig`](super::AwdLstmConfig) builds one. The state after a stretch of text initialises the
/// next one ([`AwdLstmOutput::last`]); detached, that is truncated backpropagation through time.
///
/// Deviation: a recurrent layer has one bias; PyTorch's has two, which are only ever added.
#[derive(Module, Debug)]
pub struct AwdLstm {
    /// Embeddings and layers.
    pub encoder: AwdLstmEncoder,
    /// The bias of an output layer that is the embedding table, `[vocab_size]`.
    pub output_bias: Option<Param<Tensor<1>>>,
    /// The adaptive softmax in place of the embedding table, if there is one.
    pub adaptive: Option<AdaptiveSoftmax>,
}

linear_maps!(AwdLstm { encoder, adaptive });

impl AwdLstm {
    /// The states of all tokens; see [`AwdLstmEncoder::forward`].
    ///
    /// # Panics
    /// As there.
    pub fn forward(
        &self,
        sequences: &Sequences,
        initial: Option<Vec<RecurrentState>>,
        device: &Device,
    ) -> AwdLstmOutput {
        self.encoder.forward(sequences, initial, device)
    }

    /// The device of the parameters.
    pub fn device(&self) -> Device {
        self.encoder.embedding.weight.lazy_device()
    }

    /// The logits of states, `[n, d_embedding]` → `[n, vocab_size]`; the log-probabilities, if the output is
    /// [adaptive](Self::adaptive).
    pub fn project(&self, states: Tensor<2>) -> Tensor<2> {
        match &self.adaptive {
            Some(adaptive) => adaptive.log_probs(states),
            None => ops::linear_tied(states, self.encoder.embedding.weight.val(), self.bias()),
        }
    }

    fn bias(&self) -> Option<Tensor<1>> {
        self.output_bias.as_ref().map(Param::val)
    }

    /// [`losses`](Self::losses) among pieces drawn for the batch, for training with a large vocabulary.
    ///
    /// # Panics
    /// Those of [`losses`](Self::losses); with an [adaptive](Self::adaptive) output, and if `sampled` is not
    /// [valid](SampledSoftmax::validate).
    pub fn sampled_losses(&self, sampled: SampledSoftmax, states: Tensor<2>, next: &[i32]) -> Tensor<1> {
        self.losses_of(states, next, Some(sampled))
    }

    /// The cross-entropy of the token that follows each token, `−log P(x_t | x_<t)`, in nats.
    ///
    /// # Shapes
    /// - `states`: `[n, d_embedding]`, [after the output dropout](AwdLstmOutput::dropped)
    /// - `next`: the id that follows each token; returns `[n]`
    ///
    /// # Panics
    /// If the numbers of ids and states differ.
    pub fn losses(&self, states: Tensor<2>, next: &[i32]) -> Tensor<1> {
        self.losses_of(states, next, None)
    }

    fn losses_of(&self, states: Tensor<2>, next: &[i32], sampled: Option<SampledSoftmax>) -> Tensor<1> {
        let table = &self.encoder.embedding.weight;
        let output = OutputLayer {
            adaptive: self.adaptive.as_ref(),
            logits: |states| self.project(states),
            rows: |ids| table.val().select(0, ids),
            bias: self.bias(),
            vocab_size: table.lazy_shape()[0],
        };
        output.losses(states, next, sampled)
    }
}

/// Activation regularisation: the sum of the squares of `m ⊙ h_t`, the states after the output dropout, `[1]` (Merity et
/// al. 2018, §3.5). As in its authors' code the loss is the mean over all numbers.
pub fn activation_squares(dropped: Tensor<2>) -> Tensor<1> {
    dropped.powi_scalar(2).sum()
}

/// Temporal activation regularisation: the sum of the squares of `h_t − h_(t+1)` for packed states before the
/// output dropout, `[1]` (Merity et al. 2018, §3.5). As in its authors' code the loss is the mean over all
/// numbers, `d` per token except each sequence's last.
pub fn temporal_squares(states: Tensor<2>, packing: &Packing) -> Tensor<1> {
    let device = states.device();
    let spans = packing.starts().zip(packing.lengths());
    let followed = spans.flat_map(|(start, len)| start..start + len - 1).map(|token| token as i32);
    let followed: Vec<i32> = followed.collect();
    if followed.is_empty() {
        return Tensor::zeros([1], &device);
    }
    let at = |tokens: &[i32]| states.clone().select(0, Tensor::<1, Int>::from_data(tokens, &device));
    let next: Vec<i32> = followed.iter().map(|token| token + 1).collect();
    (at(&followed) - at(&next)).powi_scalar(2).sum()
}

impl HasBackbone for AwdLstm {
    type Backbone = AwdLstmEncoder;
    const PATH: &'static str = "encoder";

    fn backbone(&self) -> &AwdLstmEncoder {
        &self.encoder
    }

    fn backbone_mut(&mut self) -> &mut AwdLstmEncoder {
        &mut self.encoder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regularisers_are_sums_of_squares() {
        let device = Device::flex();
        let states = Tensor::<2>::from_data([[1.0, 2.0], [4.0, 2.0], [0.0, 1.0], [5.0, 5.0]], &device);
        let value = |sum: Tensor<1>| sum.into_data().iter::<f32>().next().unwrap();
        assert_eq!(value(activation_squares(states.clone())), 1.0 + 4.0 + 16.0 + 4.0 + 1.0 + 25.0 + 25.0);
        // Of the sequences of two, one and one token, only the first has a difference.
        assert_eq!(value(temporal_squares(states.clone(), &Packing::new([2, 1, 1]))), 9.0);
        assert_eq!(value(temporal_squares(states.clone(), &Packing::new([1, 3]))), 17.0 + 41.0);
        assert_eq!(value(temporal_squares(states, &Packing::new([1, 1, 1, 1]))), 0.0);
    }
}
