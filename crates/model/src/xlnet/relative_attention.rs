use super::distances::shift;
use super::stream::Stream;
use crate::blocks::Linear;
use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::softmax;

/// Attention by content, distance and segment (Dai et al. 2019, §3.3; Yang et al. 2019, §2.5), with scores
///
/// `((q_i + u)ᵀ k_j + (q_i + v)ᵀ W_R R_(i−j) + (q_i + b)ᵀ s_ij) / √d_k`,
///
/// where `R` are [sinusoids](super) of the distance, and `s_ij` is one of two vectors: tokens `i` and `j` are of the same
/// segment or not. A query that sees nothing has a context of zeros; in transformers it has the mean of all values, its
/// own among them.
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
    /// `s`, `[2, n_heads, d_k]`: of the same segment, and of another.
    pub segments: Param<Tensor<3>>,
    dropout: f64,
}

impl RelativeAttention {
    /// A new attention of `n_heads` heads, which divide `d_model`; `dropout` acts on the probabilities.
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

    /// The output for the queries of some streams, which look at the same keys.
    ///
    /// # Shapes
    /// - `x`: `[n_queries, d_model]`, the streams one after another, in each the `batch` segments; returns the same
    /// - `keys`: `[batch, k_len, d_model]`
    /// - `positions`: `[n_distances, d_model]`, see [`sinusoids`](crate::blocks::sinusoids)
    pub(super) fn forward(
        &self,
        x: Tensor<2>,
        streams: &[&Stream],
        keys: Tensor<3>,
        positions: Tensor<2>,
    ) -> Tensor<2> {
        let [batch, k_len, d_model] = keys.dims();
        let [n_heads, d_k] = self.content_bias.dims();
        let keys = keys.reshape([batch * k_len, d_model]);
        let of_rows = |x: Tensor<3>| x.reshape([n_heads * batch, k_len, d_k]);
        let key = of_rows(self.heads(self.key.forward(keys.clone()))).swap_dims(1, 2);
        let value = of_rows(self.heads(self.value.forward(keys)));
        let position = self.heads(self.position.forward(positions)).swap_dims(1, 2);
        let query = self.query.forward(x);

        let mut contexts = Vec::new();
        let mut start = 0;
        for stream in streams {
            let rows = batch * stream.n;
            let query = self.heads(query.clone().narrow(0, start, rows));
            start += rows;
            let scores = self.scores(query, stream, key.clone(), position.clone());
            let mut weights = ops::dropout(softmax(scores, 3), self.dropout);
            if let Some(seeing) = &stream.seeing {
                weights = weights * seeing.clone();
            }
            let context = weights.reshape([n_heads * batch, stream.n, k_len]).matmul(value.clone());
            let context = context.reshape([n_heads, rows, d_k]).swap_dims(0, 1);
            contexts.push(context.reshape([rows, d_model]));
        }
        let context = match contexts.len() {
            1 => contexts.swap_remove(0),
            _ => Tensor::cat(contexts, 0),
        };
        self.output.forward(context)
    }

    /// # Shapes
    /// - `query`: `[n_heads, batch · n, d_k]`; `key`: `[n_heads · batch, d_k, k_len]`; `position`: `[n_heads, d_k,
    ///   n_distances]`
    /// - returns `[n_heads, batch, n, k_len]`
    fn scores(&self, query: Tensor<3>, stream: &Stream, key: Tensor<3>, position: Tensor<3>) -> Tensor<4> {
        let [n_heads, rows, d_k] = query.dims();
        let ([of_keys, _, k_len], n) = (key.dims(), stream.n);
        let batch = of_keys / n_heads;
        // The query is scaled and not the scores: it is the smaller tensor.
        let scale = 1.0 / (d_k as f64).sqrt();
        let biased =
            |bias: &Param<Tensor<2>>| (query.clone() + bias.val().unsqueeze_dim(1)).mul_scalar(scale);

        let by_content = biased(&self.content_bias).reshape([of_keys, n, d_k]).matmul(key);
        let by_distance = biased(&self.position_bias).matmul(position);
        let n_distances = by_distance.dims()[2];
        let by_distance = match &stream.columns {
            None => shift(by_distance.reshape([of_keys, n, n_distances]), k_len),
            Some(columns) => {
                let columns = columns.clone().expand([n_heads, batch, n, k_len]);
                let by_distance = by_distance.reshape([n_heads, batch, n, n_distances]).gather(3, columns);
                by_distance.reshape([of_keys, n, k_len])
            }
        };
        let mut scores = (by_content + by_distance).reshape([n_heads, batch, n, k_len]);
        if let Some(of_others) = &stream.of_others {
            // What a query gives to keys of its own segment, it may as well not give: softmax ignores what is added to a
            // whole row. So the difference of the two vectors is enough.
            let segments = self.segments.val();
            let difference = segments.clone().narrow(0, 1, 1) - segments.narrow(0, 0, 1);
            let difference = difference.reshape([n_heads, d_k, 1]);
            let by_segment = biased(&self.segment_bias).matmul(difference).reshape([n_heads, batch, n, 1]);
            debug_assert_eq!(rows, batch * n);
            scores = scores + by_segment * of_others.clone();
        }
        match &stream.hidden {
            Some(hidden) => scores + hidden.clone(),
            None => scores,
        }
    }

    /// Heads before tokens: `[tokens, n_heads · d_k]` → `[n_heads, tokens, d_k]`.
    fn heads(&self, x: Tensor<2>) -> Tensor<3> {
        let ([tokens, _], [n_heads, d_k]) = (x.dims(), self.content_bias.dims());
        x.reshape([tokens, n_heads, d_k]).swap_dims(0, 1)
    }

    /// The linear maps by name.
    pub fn linears_mut(&mut self) -> Vec<(&'static str, &mut Linear)> {
        let Self { query, key, value, position, output, .. } = self;
        vec![("query", query), ("key", key), ("value", value), ("position", position), ("output", output)]
    }
}
