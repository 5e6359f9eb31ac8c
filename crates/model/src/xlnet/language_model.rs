use super::{Xlnet, XlnetInput, XlnetMemory};
use crate::{HasBackbone, linear_maps, ops};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// XLNet with its projection onto the vocabulary: `P(x | g) = softmax(e(x)ᵀ g + b)` (Yang et al. 2019, eq. 4), where `e`
/// is the embedding table.
#[derive(Module, Debug)]
pub struct XlnetLanguageModel {
    /// The model.
    pub xlnet: Xlnet,
    /// `b`, `[vocab_size]`, initially zeros.
    pub bias: Param<Tensor<1>>,
}

linear_maps!(XlnetLanguageModel { xlnet });

impl XlnetLanguageModel {
    /// The logits of states, `[n, d_model]` → `[n, vocab_size]`.
    pub fn project(&self, states: Tensor<2>) -> Tensor<2> {
        ops::linear_tied(states, self.xlnet.tokens.weight.val(), Some(self.bias.val()))
    }

    /// The logits of the predicted tokens, and the memory after the segments.
    ///
    /// # Shapes
    /// - returns `[batch · n, vocab_size]`, in the order of [`XlnetInput::targets`]
    ///
    /// # Panics
    /// Those of [`Xlnet::predict`].
    pub fn logits(
        &self,
        input: &XlnetInput,
        memory: Option<&XlnetMemory>,
        device: &Device,
    ) -> (Tensor<2>, XlnetMemory) {
        let predictions = self.xlnet.predict(input, memory, device);
        (self.project(predictions.states), predictions.memory)
    }

    /// The cross-entropy of the predicted tokens, `−log P(x_(z_t) | x_(z_<t))`, in nats, and the memory after the
    /// segments.
    ///
    /// # Shapes
    /// - returns `[batch · n]`, in the order of [`XlnetInput::targets`]
    ///
    /// # Panics
    /// Those of [`Xlnet::predict`].
    pub fn losses(
        &self,
        input: &XlnetInput,
        memory: Option<&XlnetMemory>,
        device: &Device,
    ) -> (Tensor<1>, XlnetMemory) {
        let n = input.targets.len() / input.batch;
        let labels = input.targets.iter().enumerate().map(|(number, place)| {
            let row = number / n;
            input.ids[row * input.len + *place as usize]
        });
        let labels: Vec<i32> = labels.collect();
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [input.targets.len()]), device);
        let (logits, memory) = self.logits(input, memory, device);
        (ops::cross_entropy(logits, labels), memory)
    }
}

impl HasBackbone for XlnetLanguageModel {
    type Backbone = Xlnet;
    const PATH: &'static str = "xlnet";

    fn backbone(&self) -> &Xlnet {
        &self.xlnet
    }

    fn backbone_mut(&mut self) -> &mut Xlnet {
        &mut self.xlnet
    }
}
