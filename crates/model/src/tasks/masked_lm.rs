use crate::bert::{Bert, BertInput, MlmHead};
use crate::blocks::{Attention, LearnedPositions, MultiHeadAttention, Positions};
use burn::module::Module;
use burn::tensor::{Int, Tensor};

/// An encoder with only the masked-LM head, for continued pretraining and for prompts.
///
/// Its loss is [`classification_loss`](super::classification_loss) of the logits and the pieces' ids.
#[derive(Module, Debug)]
pub struct BertForMaskedLm<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// The encoder; the head projects onto its token embeddings.
    pub bert: Bert<A, P>,
    /// Predicts pieces.
    pub mlm: MlmHead,
}

impl<A: Attention, P: Positions> BertForMaskedLm<A, P> {
    /// The logits of all pieces at some tokens.
    ///
    /// # Shapes
    /// - `positions`: `[n]`, indices into the flattened batch: `row · len + column`, or the token's index in packed
    ///   sequences; returns `[n, vocab_size]`
    pub fn forward(&self, input: BertInput, positions: Tensor<1, Int>) -> Tensor<2> {
        let states = self.bert.states_at(input, positions);
        self.mlm.forward(states, self.bert.embeddings.tokens.weight.val())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{close, config, inputs};
    use super::*;
    use crate::ParamInit;
    use burn::tensor::Device;

    #[test]
    fn the_head_is_that_of_pretraining() {
        let device = Device::flex();
        let pretrained = config().init(&mut ParamInit::new(&device, 2));
        let [packed, padded] = inputs(&[3, 5], &device);
        let positions = Tensor::<1, Int>::from_data([1, 3], &device);
        let expected = pretrained.forward(packed.clone(), positions.clone()).mlm;
        let model = BertForMaskedLm { bert: pretrained.bert, mlm: pretrained.mlm };
        close(model.forward(packed, positions), expected.clone().into_data());
        let positions = Tensor::<1, Int>::from_data([1, 5], &device);
        close(model.forward(padded, positions), expected.into_data());
    }
}
