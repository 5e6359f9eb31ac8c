use super::distances::scores_of_distances;
use super::{Distances, Linear};
use crate::sizes::check_sizes;
use crate::{ParamInit, Result, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};

/// Configuration of [`TransformerXl`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransformerXlConfig {
    /// Maximum distance: larger ones are clamped to it; `None`: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clamp_len: Option<usize>,
}

impl TransformerXlConfig {
    /// Checks that the value is valid.
    ///
    /// # Errors
    /// [`ModelError::Setting`](crate::ModelError::Setting) with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_sizes([("transformer_xl.clamp_len", self.clamp_len.unwrap_or(1))])
    }
}

/// The extra terms of Transformer-XL's attention (Dai et al. 2019, §3.3) with XLNet's segments (Yang et al.
/// 2019, §2.5), whose scores are
///
/// `((q_i + u)ᵀ k_j + (q_i + v)ᵀ W_R R_(i−j) + (q_i + b)ᵀ s_ij) / √d_k`:
///
/// `R` are sinusoids of the distance, and `s_ij` is one of two vectors, depending on whether tokens `i` and
/// `j` are in the same segment.
#[derive(Module, Debug)]
pub struct TransformerXl {
    /// `W_R`, `[d_model, n_heads · d_k]`, which maps a distance to a key; without a bias.
    pub position: Linear,
    /// `u`, `[n_heads, d_k]`
    pub content_bias: Param<Tensor<2>>,
    /// `v`, `[n_heads, d_k]`
    pub position_bias: Param<Tensor<2>>,
    /// `b`, `[n_heads, d_k]`
    pub segment_bias: Param<Tensor<2>>,
    /// `s`, `[2, n_heads, d_k]`: for the same segment, and for different ones.
    pub segments: Param<Tensor<3>>,
}

linear_maps!(TransformerXl { position });

impl TransformerXl {
    /// New parameters.
    pub(super) fn new(d_model: usize, [n_heads, d_k]: [usize; 2], init: &mut ParamInit) -> Self {
        Self {
            position: Linear::without_bias(d_model, n_heads * d_k, init),
            content_bias: init.truncated_normal([n_heads, d_k]),
            position_bias: init.truncated_normal([n_heads, d_k]),
            segment_bias: init.truncated_normal([n_heads, d_k]),
            segments: init.truncated_normal([2, n_heads, d_k]),
        }
    }

    /// The queries of the content term, `q + u`, `[batch, n_heads, len, d_k]`.
    pub(super) fn of_content(&self, q: &Tensor<4>) -> Tensor<4> {
        biased(q, &self.content_bias)
    }

    /// The sum of the other terms.
    ///
    /// # Shapes
    /// - `q`: `[batch, n_heads, len, d_k]`; `keys`: `[1, n_heads, n_rows, d_k]`, the distances' vectors, mapped and
    ///   split into heads; returns `[batch, n_heads, len, len]`
    pub(super) fn scores(&self, q: &Tensor<4>, keys: Tensor<4>, distances: &Distances) -> Tensor<4> {
        let [_, n_heads, _, d_k] = q.dims();
        let of_distances = scores_of_distances(&biased(q, &self.position_bias), keys, distances.rows.clone());
        let scores = match &distances.of_others {
            Some(of_others) => {
                // What a query gives to keys of its own segment, it may as well not give: softmax ignores what is added
                // to a whole row. So the difference of the two vectors is enough.
                let segments = self.segments.val();
                let difference = segments.clone().narrow(0, 1, 1) - segments.narrow(0, 0, 1);
                let difference = difference.reshape([1, n_heads, d_k, 1]);
                let of_segments = biased(q, &self.segment_bias).matmul(difference);
                of_distances + of_segments * of_others.clone()
            }
            None => of_distances,
        };
        scores.mul_scalar(1.0 / (d_k as f64).sqrt())
    }
}

/// Queries with a bias for each head.
fn biased(q: &Tensor<4>, bias: &Param<Tensor<2>>) -> Tensor<4> {
    let [n_heads, d_k] = bias.dims();
    q.clone() + bias.val().reshape([1, n_heads, 1, d_k])
}

/// 1 for queries and keys of different segments, else 0.
///
/// # Shapes
/// - `token_type_ids`: `[batch, len]`; returns `[batch, 1, len, len]`
pub(crate) fn of_other_segments(token_type_ids: Tensor<2, Int>) -> Tensor<4> {
    let [batch, len] = token_type_ids.dims();
    let shape = [batch, 1, len, len];
    let of_queries = token_type_ids.clone().reshape([batch, 1, len, 1]).expand(shape);
    let of_keys = token_type_ids.reshape([batch, 1, 1, len]).expand(shape);
    of_queries.not_equal(of_keys).float()
}

/// Sinusoids for the distances between tokens, which every layer's attention maps to its own keys.
#[derive(Module, Debug)]
pub struct DistanceSinusoids {
    d_model: usize,
    clamp_len: Option<usize>,
}

impl DistanceSinusoids {
    /// Vectors of `d_model` features; `d_model` must be even.
    pub fn new(config: &TransformerXlConfig, d_model: usize) -> Self {
        Self { d_model, clamp_len: config.clamp_len }
    }

    /// The vectors, and the row of each pair among `len` tokens.
    pub fn forward(&self, len: usize, device: &Device) -> Distances {
        let vectors = super::distances::sinusoids(len, len, self.clamp_len, self.d_model, device);
        Distances::new(vectors, len, |distance| len as i64 - 1 + distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clamp_of_nothing_is_named() {
        TransformerXlConfig::default().validate().unwrap();
        let message = TransformerXlConfig { clamp_len: Some(0) }.validate().unwrap_err().to_string();
        assert!(message.contains("`transformer_xl.clamp_len` is 0"), "{message}");
    }
}
