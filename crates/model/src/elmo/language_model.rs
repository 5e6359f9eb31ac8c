use super::ElmoEncoder;
use crate::blocks::Linear;
use crate::ops;
use crate::{HasBackbone, Sequences, linear_maps};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// ELMo: a bidirectional language model whose directions share the character encoder and the output layer
/// (Peters et al. 2018, §3.1).
///
/// [`ElmoConfig`](super::ElmoConfig) builds one. A task reads all layers of its encoder through a
/// [`ScalarMix`](crate::blocks::ScalarMix).
///
/// Deviations: the output layer is a full softmax over the pieces, while the paper's code uses a sampled
/// softmax over words; each sequence starts from a zero state, while the code continues with the previous
/// batch's states.
#[derive(Module, Debug)]
pub struct Elmo {
    /// The layers.
    pub encoder: ElmoEncoder,
    /// `[p, vocab_size]`, shared by both directions.
    pub output: Linear,
}

linear_maps!(Elmo { encoder; output });

/// The losses of both directions.
#[derive(Debug, Clone)]
pub struct ElmoLosses {
    /// `−log P(t_(k+1) | t_1, …, t_k)` for each sequence's tokens but its last.
    pub next: Tensor<1>,
    /// `−log P(t_(k−1) | t_k, …, t_N)` for each sequence's tokens but its first.
    pub previous: Tensor<1>,
}

impl Elmo {
    /// The cross-entropies of the next and of the previous token, in nats, each `[n_tokens − sequences]`
    /// (Peters et al. 2018, §3.1). Training minimises their sum.
    ///
    /// # Panics
    /// If no sequence has two tokens, or an id is out of the vocabulary.
    pub fn losses(&self, sequences: &Sequences, device: &Device) -> ElmoLosses {
        let (ids, packing) = (sequences.ids(), sequences.packing());
        let spans = packing.starts().zip(packing.lengths());
        // Tokens that are followed by one of their sequence.
        let followed: Vec<i32> =
            spans.flat_map(|(start, len)| start..start + len - 1).map(|token| token as i32).collect();
        let n = followed.len();
        assert!(n > 0, "a sequence of two tokens at least");
        let following: Vec<i32> = followed.iter().map(|token| token + 1).collect();
        let output = self.encoder.forward(sequences, device);
        let rows =
            |states: Tensor<2>, tokens: &[i32]| states.select(0, Tensor::<1, Int>::from_data(tokens, device));
        let states = Tensor::cat(vec![rows(output.forward, &followed), rows(output.reverse, &following)], 0);
        let targets: Vec<i32> = following.iter().chain(&followed).map(|token| ids[*token as usize]).collect();
        let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [2 * n]), device);
        let losses = ops::cross_entropy(self.output.forward(states), targets);
        ElmoLosses { next: losses.clone().narrow(0, 0, n), previous: losses.narrow(0, n, n) }
    }
}

impl HasBackbone for Elmo {
    type Backbone = ElmoEncoder;
    const PATH: &'static str = "encoder";

    fn backbone(&self) -> &ElmoEncoder {
        &self.encoder
    }

    fn backbone_mut(&mut self) -> &mut ElmoEncoder {
        &mut self.encoder
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoder::tests::small;
    use super::*;
    use crate::ParamInit;
    use burn::tensor::Tolerance;
    use burn::tensor::activation::log_softmax;

    #[test]
    fn each_token_is_predicted_from_both_sides() {
        let device = Device::flex();
        let model = small().init(&mut ParamInit::new(&device, 5));
        let texts: Sequences = [&[3, 4, 5][..], &[6], &[7, 8]].into_iter().collect();
        let ElmoLosses { next, previous } = model.losses(&texts, &device);
        let output = model.encoder.forward(&texts, &device);
        // Which token's state predicts which token.
        for (losses, states, pairs) in [
            (next, output.forward, [(0, 4), (1, 5), (4, 8)]),
            (previous, output.reverse, [(1, 3), (2, 4), (5, 7)]),
        ] {
            let logits = log_softmax(model.output.forward(states), 1);
            let expected =
                pairs.map(|(token, id)| logits.clone().slice([token..token + 1, id..id + 1]).neg());
            let expected = Tensor::cat(expected.to_vec(), 0).reshape([3]).into_data();
            losses.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
    }
}
