use crate::blocks::{
    Attention, AttentionInput, FeedForward, KeyValueCache, MultiHeadAttention, Norm, NormPlacement,
};
use crate::linear_maps;
use crate::ops::{self, AttentionMask, Residual};
use burn::module::Module;
use burn::tensor::Tensor;

/// A layer of a left-to-right model: self-attention and a feed-forward network, each with a normalisation, dropout and
/// a residual connection.
#[derive(Module, Debug)]
pub struct GptLayer {
    /// The first sub-layer.
    pub attention: MultiHeadAttention,
    /// The normalisation of the first sub-layer, pre-norm or post-norm.
    pub attention_norm: Norm,
    /// The second sub-layer.
    pub feed_forward: FeedForward,
    /// The normalisation of the second sub-layer, pre-norm or post-norm.
    pub feed_forward_norm: Norm,
    pub(super) dropout: f64,
    #[module(skip)]
    pub(super) norm: NormPlacement,
}

linear_maps!(GptLayer { attention, feed_forward });

impl GptLayer {
    /// # Shapes
    /// - `x`: `[batch, len, d_model]`; returns the same
    pub fn forward(
        &self,
        x: Tensor<3>,
        mask: &AttentionMask,
        cache: Option<&mut KeyValueCache>,
    ) -> Tensor<3> {
        let attend = |queries: Tensor<3>| {
            let mut input = AttentionInput::new(queries, mask);
            input.cache = cache;
            self.attention.forward(input).context
        };
        match self.norm {
            NormPlacement::Pre => {
                let attended = attend(self.attention_norm.forward(x.clone()));
                let x = ops::dropout_add(attended, x, self.dropout);
                let y = self.feed_forward.forward(self.feed_forward_norm.forward(x.clone()));
                ops::dropout_add(y, x, self.dropout)
            }
            NormPlacement::Post => {
                let residual = |input: Tensor<3>| Residual { input, dropout: self.dropout };
                let x = self.attention_norm.add_forward(attend(x.clone()), residual(x));
                self.feed_forward_norm.add_forward(self.feed_forward.forward(x.clone()), residual(x))
            }
        }
    }
}
