use super::{Attention, DecoderLayer, DecoderLayerInput, LayerCache, Norm, recorded};
use crate::linear_maps;
use crate::ops::{self, AttentionMask};
use burn::module::Module;
use burn::tensor::Tensor;

/// A stack of decoder layers, with a final normalisation if the layers are pre-norm.
#[derive(Module, Debug)]
pub struct Decoder<A: Attention, C: Attention = A> {
    /// From the first layer to the last.
    pub layers: Vec<DecoderLayer<A, C>>,
    /// Normalises the last layer's output.
    pub final_norm: Option<Norm>,
    /// Dropout on the last states, after the final normalisation (T5).
    pub output_dropout: f64,
}

linear_maps!(Decoder<A: Attention, C: Attention> { layers });

/// The output of the decoder.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DecoderOutput {
    /// The last states, `[batch, q_len, d_model]`.
    pub last_hidden_state: Tensor<3>,
    /// The probabilities of the last layer's attention to the memory, `[batch, n_heads, q_len, k_len]`, if asked for.
    pub weights: Option<Tensor<4>>,
}

impl<A: Attention, C: Attention> Decoder<A, C> {
    /// With `caches`, one per layer, `x` holds only the new tokens, and the first call computes the keys and
    /// values of the memory, unless the caches have them and `memory` is `None`. `need_weights` asks for the
    /// last layer's attention to the memory.
    ///
    /// # Shapes
    /// - `x`: `[batch, q_len, d_model]`; `memory`: `[batch, k_len, d_model]`
    ///
    /// # Panics
    /// If there are caches, but not one per layer.
    pub fn forward(
        &self,
        mut x: Tensor<3>,
        mask: &AttentionMask,
        memory: Option<Tensor<3>>,
        memory_mask: &AttentionMask,
        caches: Option<&mut [LayerCache]>,
        need_weights: bool,
    ) -> DecoderOutput {
        let mut caches: Vec<Option<&mut LayerCache>> = match caches {
            Some(caches) => {
                assert_eq!(caches.len(), self.layers.len(), "a cache for each layer");
                caches.iter_mut().map(Some).collect()
            }
            None => self.layers.iter().map(|_| None).collect(),
        };
        let mut weights = None;
        recorded(|pass| pass.begin(&x, mask));
        for (number, (layer, cache)) in self.layers.iter().zip(&mut caches).enumerate() {
            recorded(|pass| pass.add_states(&x));
            let is_last = number + 1 == self.layers.len();
            let input = DecoderLayerInput::new(x, mask, memory.clone(), memory_mask)
                .with_cache(cache.take())
                .with_weights(need_weights && is_last);
            let output = layer.forward(input);
            (x, weights) = (output.x, output.weights);
        }
        if let Some(norm) = &self.final_norm {
            x = norm.forward(x);
        }
        x = ops::dropout(x, self.output_dropout);
        recorded(|pass| pass.add_states(&x));
        DecoderOutput { last_hidden_state: x, weights }
    }
}
