use super::Linear;
use super::distances::scores_of_distances;
use crate::sizes::check_sizes;
use crate::{ModelError, ParamInit, Result, linear_maps};
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

/// Configuration of disentangled attention (He et al. 2021, "DeBERTa", §3.1), whose scores have
/// content–distance terms in addition to content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisentangledConfig {
    /// Number of distance buckets in each direction: exact up to half of it, logarithmic beyond. `None`: each
    /// distance up to `max_distance` has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_buckets: Option<usize>,
    /// The maximum distance of the buckets.
    pub max_distance: usize,
    /// Whether queries attend to the keys of distances.
    pub content_to_position: bool,
    /// Whether keys are attended by the queries of distances.
    pub position_to_content: bool,
    /// Whether the layer's own maps project the distance vectors to keys and queries (v2, v3), rather than
    /// separate maps.
    pub share_maps: bool,
    /// Whether the distances' vectors are normalised.
    pub norm: bool,
}

impl DisentangledConfig {
    /// DeBERTa v3's: 256 buckets for 512 positions, both terms.
    pub fn v3() -> Self {
        Self {
            n_buckets: Some(256),
            max_distance: 512,
            content_to_position: true,
            position_to_content: true,
            share_maps: true,
            norm: true,
        }
    }

    /// Number of vectors in each direction.
    pub fn span(&self) -> usize {
        self.n_buckets.unwrap_or(self.max_distance)
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_sizes([
            ("disentangled.n_buckets", self.span()),
            ("disentangled.max_distance", self.max_distance),
        ])?;
        if let Some(n) = self.n_buckets {
            if n < 4 {
                return Err(ModelError::setting("disentangled.n_buckets", n, "at least 4, or none"));
            }
            if self.max_distance <= n / 2 + 1 {
                let expected = format!("more than {}, half of `n_buckets` and 1", n / 2 + 1);
                return Err(ModelError::setting("disentangled.max_distance", self.max_distance, expected));
            }
        }
        if !(self.content_to_position || self.position_to_content) {
            let expected = "true, unless `position_to_content` is";
            return Err(ModelError::setting("disentangled.content_to_position", false, expected));
        }
        Ok(())
    }
}

/// The terms that distances add to the scores of a layer: `q_i · K(r) + k_j · Q(r)`, where `r` is the vector of the
/// distance from `i` to `j`, and `K` and `Q` are maps to keys and queries (He et al. 2021, eq. 4).
///
/// All terms are divided by `√(d_k · n)`, where `n` is their number including the content term.
#[derive(Module, Debug)]
pub struct Disentangled {
    /// `K`, `[d_model, n_heads · d_k]`; `None`: the layer's own map, or no such term.
    pub key: Option<Linear>,
    /// `Q`, likewise.
    pub query: Option<Linear>,
    pub(super) content_to_position: bool,
    pub(super) position_to_content: bool,
    pub(super) dropout: f64,
}

linear_maps!(Disentangled { key, query });

impl Disentangled {
    /// New maps for `config`, of this width.
    pub(super) fn new(
        config: &DisentangledConfig,
        [d_in, d_out]: [usize; 2],
        dropout: f64,
        init: &mut ParamInit,
    ) -> Self {
        let mut map = |there: bool| (there && !config.share_maps).then(|| Linear::new(d_in, d_out, init));
        Self {
            key: map(config.content_to_position),
            query: map(config.position_to_content),
            content_to_position: config.content_to_position,
            position_to_content: config.position_to_content,
            dropout,
        }
    }

    /// The number of the scores' terms.
    pub(super) fn n_terms(&self) -> usize {
        1 + usize::from(self.content_to_position) + usize::from(self.position_to_content)
    }

    /// The sum of the terms whose distance keys or queries are given; `None` without any. The queries `q` are
    /// already divided by the root of the number of terms.
    ///
    /// # Shapes
    /// - `q`, `k`: `[batch, n_heads, len, d_k]`; `keys`, `queries`: `[1, n_heads, n_rows, d_k]`; `rows`:
    ///   `[1, 1, len, len]`; returns `[batch, n_heads, len, len]`
    pub(super) fn scores(
        &self,
        [q, k]: [&Tensor<4>; 2],
        [keys, queries]: [Option<Tensor<4>>; 2],
        rows: &Tensor<4, Int>,
    ) -> Option<Tensor<4>> {
        let root = (q.dims()[3] as f64).sqrt();
        let of_queries = keys.map(|keys| scores_of_distances(q, keys, rows.clone()).mul_scalar(1.0 / root));
        let of_keys = queries.map(|queries| {
            // A key's row of scores is over queries: its distances are the columns.
            let scores = scores_of_distances(k, queries, rows.clone().swap_dims(2, 3)).swap_dims(2, 3);
            scores.mul_scalar(1.0 / (root * (self.n_terms() as f64).sqrt()))
        });
        match (of_queries, of_keys) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let v3 = DisentangledConfig::v3();
        v3.validate().unwrap();
        DisentangledConfig { n_buckets: None, ..v3 }.validate().unwrap();
        let none = DisentangledConfig { content_to_position: false, position_to_content: false, ..v3 };
        for (config, key) in [
            (DisentangledConfig { n_buckets: Some(2), ..v3 }, "n_buckets"),
            (DisentangledConfig { max_distance: 129, ..v3 }, "max_distance"),
            (DisentangledConfig { max_distance: 0, ..v3 }, "max_distance"),
            (none, "content_to_position"),
        ] {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(&format!("`disentangled.{key}`")), "{message}");
        }
    }
}
