use crate::blocks::Linear;
use crate::ops::{self, RelativeInput, RelativeMask};
use crate::{ParamInit, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// Attention by content, distance and segment (Dai et al. 2019, §3.3; Yang et al. 2019, §2.5), with scores
///
/// `((q_i + u)ᵀ k_j + (q_i + v)ᵀ W_R R_(i−j) + (q_i + b)ᵀ s_ij) / √d_k`,
///
/// where `R` are [sinusoids](super) of the distance, and `s_ij` is one of two vectors, depending on whether
/// tokens `i` and `j` are in the same segment. A query that sees nothing has a zero context; in transformers
/// it has the mean of all values, including its own.
#[derive(Module, Debug)]
pub struct RelativeAttention {
    /// `W_Q`, `[d_model, n_heads · d_k]`. No map has a bias.
    pub query: Linear,
    /// `W_K`
    pub key: Linear,
    /// `W_V`
    pub value: Linear,
    /// `W_R`, which maps a distance to a key.
    pub position: Linear,
    /// `W_O`, `[n_heads · d_k, d_model]`
    pub output: Linear,
    /// `u`, `[n_heads, d_k]`
    pub content_bias: Param<Tensor<2>>,
    /// `v`, `[n_heads, d_k]`
    pub position_bias: Param<Tensor<2>>,
    /// `b`, `[n_heads, d_k]`
    pub segment_bias: Param<Tensor<2>>,
    /// `s`, `[2, n_heads, d_k]`: for the same segment, and for different ones.
    pub segments: Param<Tensor<3>>,
    dropout: f64,
}

linear_maps!(RelativeAttention { query, key, value, position, output });

impl RelativeAttention {
    /// A new attention of `n_heads` heads; `n_heads` must divide `d_model`; `dropout` acts on the
    /// probabilities.
    pub fn new(d_model: usize, n_heads: usize, dropout: f64, init: &mut ParamInit) -> Self {
        let d_k = d_model / n_heads;
        let mut map = || Linear::without_bias(d_model, d_model, init);
        let [query, key, value, position, output] = [map(), map(), map(), map(), map()];
        Self {
            query,
            key,
            value,
            position,
            output,
            content_bias: init.truncated_normal([n_heads, d_k]),
            position_bias: init.truncated_normal([n_heads, d_k]),
            segment_bias: init.truncated_normal([n_heads, d_k]),
            segments: init.truncated_normal([2, n_heads, d_k]),
            dropout,
        }
    }

    /// The output for the queries.
    ///
    /// # Shapes
    /// - `x`: `[batch · n_queries, d_model]`; returns the same
    /// - `keys`: `[batch, k_len, d_model]`
    /// - `positions`: `[n_distances, d_model]`, see [`sinusoids`](crate::blocks::sinusoids)
    pub(super) fn forward(
        &self,
        x: Tensor<2>,
        mask: &RelativeMask,
        keys: Tensor<3>,
        positions: Tensor<2>,
    ) -> Tensor<2> {
        let ([n_queries, _], [batch, k_len, d_model]) = (x.dims(), keys.dims());
        let [n_heads, d_k] = self.content_bias.dims();
        let [n_distances, _] = positions.dims();
        let keys = keys.reshape([batch * k_len, d_model]);
        let heads = |x: Tensor<2>, len: usize| x.reshape([batch, len, n_heads, d_k]);
        let input = RelativeInput {
            query: heads(self.query.forward(x), n_queries / batch),
            key: heads(self.key.forward(keys.clone()), k_len),
            value: heads(self.value.forward(keys), k_len),
            position: self.position.forward(positions).reshape([n_distances, n_heads, d_k]),
            content_bias: self.content_bias.val(),
            position_bias: self.position_bias.val(),
            segment: mask.has_others().then(|| [self.segment_bias.val(), self.of_others()]),
        };
        let context = ops::relative_attention(input, mask, self.dropout);
        self.output.forward(context.reshape([n_queries, n_heads * d_k]))
    }

    /// The vector of another segment minus that of the same, `[n_heads, d_k]`. The term for the same segment
    /// can be dropped, since softmax is invariant to a constant added to a row.
    fn of_others(&self) -> Tensor<2> {
        let segments = self.segments.val();
        let difference = segments.clone().narrow(0, 1, 1) - segments.narrow(0, 0, 1);
        difference.squeeze_dim::<2>(0)
    }
}
