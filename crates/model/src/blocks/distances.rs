use super::{DisentangledConfig, Embedding, LayerNorm};
use crate::sizes::check_sizes;
use crate::{ModelError, ParamInit, Result};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// How distances are bucketed, with one number per bucket and head (Raffel et al. 2020, §2.1): in an encoder
/// half of the buckets are for keys up to the query and half for keys after it; in a decoder all are for keys
/// up to the query. Half of each direction's buckets are exact distances; the others are logarithmic up to
/// `max_distance`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelativeBiasConfig {
    /// The number of buckets (32 in MPNet and T5).
    pub n_buckets: usize,
    /// All distances from here up share the last bucket (128 in MPNet and T5).
    pub max_distance: usize,
}

impl RelativeBiasConfig {
    /// A new table for `n_heads` heads of an encoder.
    pub fn init(&self, n_heads: usize, init: &mut ParamInit) -> RelativeBias {
        let table = Embedding::new(self.n_buckets, n_heads, init);
        RelativeBias { table, max_distance: self.max_distance, causal: false }
    }

    /// A new table for `n_heads` heads of a decoder, with all buckets for keys up to the query.
    pub fn init_causal(&self, n_heads: usize, init: &mut ParamInit) -> RelativeBias {
        RelativeBias { causal: true, ..self.init(n_heads, init) }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_sizes([
            ("relative_bias.n_buckets", self.n_buckets),
            ("relative_bias.max_distance", self.max_distance),
        ])?;
        if self.n_buckets < 4 || !self.n_buckets.is_multiple_of(2) {
            let expected = "an even number, at least 4";
            return Err(ModelError::setting("relative_bias.n_buckets", self.n_buckets, expected));
        }
        let exact = self.n_buckets / 4;
        if self.max_distance <= exact {
            let expected = format!("more than a quarter of `n_buckets`, which is {exact}");
            return Err(ModelError::setting("relative_bias.max_distance", self.max_distance, expected));
        }
        Ok(())
    }
}

/// A number for each head and bucket of distances, which is added to the scores of every layer: T5's relative
/// positions (Raffel et al. 2020, §2.1), also used by MPNet (Song et al. 2020).
#[derive(Module, Debug)]
pub struct RelativeBias {
    /// `[n_buckets, n_heads]`
    pub table: Embedding,
    max_distance: usize,
    causal: bool,
}

impl RelativeBias {
    /// The bias of the scores among `len` tokens. Attention with it is composed on every device.
    ///
    /// # Shapes
    /// - returns `[1, n_heads, len, len]`
    pub fn forward(&self, len: usize, device: &Device) -> Tensor<4> {
        let [n_buckets, n_heads] = self.table.weight.dims();
        let row = |distance| self.bucket(distance, n_buckets);
        let rows = pairs(len, row, device).reshape([1, len * len]);
        self.table.forward(rows).reshape([1, len, len, n_heads]).permute([0, 3, 1, 2])
    }

    /// The score bias for keys 0, 1 and so on up to `furthest` places before their query, or up to the
    /// distance where it becomes constant: the input of a [cache](super::KeyValueCache::with_bias) for new
    /// tokens.
    ///
    /// # Shapes
    /// - returns `[n_heads, n]`
    pub fn before(&self, furthest: usize, device: &Device) -> Tensor<2> {
        let n_buckets = self.table.weight.dims()[0];
        let most = furthest.min(self.max_distance) as i64;
        let rows: Vec<i32> = (0..=most).map(|distance| self.bucket(-distance, n_buckets) as i32).collect();
        let rows = Tensor::<1, Int>::from_data(rows.as_slice(), device);
        self.table.weight.val().select(0, rows).transpose()
    }

    /// The table's row for the distance from a query to a key, negative if the key is before the query.
    pub fn row(&self, distance: i64) -> i64 {
        self.bucket(distance, self.table.weight.lazy_shape()[0])
    }

    /// The distance from which the row is the same for all keys on one side of the query.
    pub fn max_distance(&self) -> usize {
        self.max_distance
    }

    /// The bucket of a distance.
    fn bucket(&self, distance: i64, n_buckets: usize) -> i64 {
        let half = n_buckets / 2;
        match (self.causal, distance > 0) {
            // Nothing that stands after its query is seen.
            (true, after) => bucket(if after { 0 } else { -distance }, n_buckets, self.max_distance),
            (false, false) => bucket(-distance, half, self.max_distance),
            (false, true) => half as i64 + bucket(distance, half, self.max_distance),
        }
    }
}

/// Vectors for the distances between tokens, which every layer's attention maps to its own keys and queries
/// (He et al. 2021, "DeBERTa", §3.1).
#[derive(Module, Debug)]
pub struct DistanceVectors {
    /// `[2 · span, d_model]`: row `span + r` is for queries `r` places after their key.
    pub table: Embedding,
    /// The normalisation of the table, in DeBERTa v2 and v3.
    pub norm: Option<LayerNorm>,
    max_distance: usize,
    is_bucketed: bool,
}

impl DistanceVectors {
    /// New vectors for `config`.
    pub fn new(config: &DisentangledConfig, d_model: usize, epsilon: f64, init: &mut ParamInit) -> Self {
        Self {
            table: Embedding::new(2 * config.span(), d_model, init),
            norm: config.norm.then(|| LayerNorm::new(d_model, epsilon, init)),
            max_distance: config.max_distance,
            is_bucketed: config.n_buckets.is_some(),
        }
    }

    /// The table's row for the distance from a query to a key, negative if the key is before the query.
    pub fn row(&self, distance: i64) -> i64 {
        let span = (self.table.weight.lazy_shape()[0] / 2) as i64;
        let distance = match self.is_bucketed {
            true => log_bucket(-distance, span as usize, self.max_distance),
            false => -distance,
        };
        (distance + span).clamp(0, 2 * span - 1)
    }

    /// The vectors, and the row of each pair among `len` tokens.
    pub fn forward(&self, len: usize) -> Distances {
        let vectors = self.table.weight.val();
        let vectors = match &self.norm {
            Some(norm) => norm.forward(vectors),
            None => vectors,
        };
        Distances::new(vectors, len, |distance| self.row(distance))
    }
}

/// The distances between the tokens of padded sequences, each with a vector.
#[derive(Debug, Clone)]
pub struct Distances {
    /// `[n_rows, d_model]`
    pub vectors: Tensor<2>,
    /// The row of each query and key, `[1, 1, len, len]`.
    pub rows: Tensor<4, Int>,
    /// 1 where a key belongs to another segment than its query, else 0, `[batch, 1, len, len]`; `None` if the
    /// attention does not need it.
    pub of_others: Option<Tensor<4>>,
}

impl Distances {
    /// Vectors and the rows of `len` tokens' distances; a distance is negative if the key is before the query.
    pub(super) fn new(vectors: Tensor<2>, len: usize, row: impl Fn(i64) -> i64) -> Self {
        let rows = pairs(len, row, &vectors.device()).reshape([1, 1, len, len]);
        Self { vectors, rows, of_others: None }
    }
}

/// The unscaled scores of queries with their keys' distance vectors.
///
/// # Shapes
/// - `q`: `[batch, n_heads, len, d_k]`; `of_distances`: `[1, n_heads, n_rows, d_k]`; `rows`: `[1, 1, len, len]`; returns
///   `[batch, n_heads, len, len]`
pub(super) fn scores_of_distances(q: &Tensor<4>, of_distances: Tensor<4>, rows: Tensor<4, Int>) -> Tensor<4> {
    let ([batch, n_heads, len, d_k], [_, _, n_rows, _]) = (q.dims(), of_distances.dims());
    let of_distances = of_distances.expand([batch, n_heads, n_rows, d_k]);
    let scores = q.clone().matmul(of_distances.swap_dims(2, 3));
    scores.gather(3, rows.expand([batch, n_heads, len, len]))
}

/// The sinusoids of all distances between `len` queries and `k_len` keys, where the queries are at the last
/// keys' positions: row `p` is for the distance `k_len − 1 − p`, negative if the key is after its query.
///
/// Sines fill the first half of a row and cosines the second, as in the reference code; Vaswani et al. (2017, §3.5)
/// alternate them. Distances beyond `clamp` count as `clamp`.
///
/// # Shapes
/// - returns `[k_len + len, d_model]`
pub(crate) fn sinusoids(
    len: usize,
    k_len: usize,
    clamp: Option<usize>,
    d_model: usize,
    device: &Device,
) -> Tensor<2> {
    let frequencies: Vec<f32> =
        (0..d_model / 2).map(|i| 1.0 / 10_000f32.powf((2 * i) as f32 / d_model as f32)).collect();
    let mut values = Vec::with_capacity((k_len + len) * d_model);
    for p in 0..k_len + len {
        let mut distance = k_len as i64 - 1 - p as i64;
        if let Some(clamp) = clamp {
            distance = distance.clamp(-(clamp as i64), clamp as i64);
        }
        values.extend(frequencies.iter().map(|frequency| (distance as f32 * frequency).sin()));
        values.extend(frequencies.iter().map(|frequency| (distance as f32 * frequency).cos()));
    }
    Tensor::from_data(TensorData::new(values, [k_len + len, d_model]), device)
}

/// `row` of the distance from each query to each key, negative if the key is before the query, `[len · len]`.
fn pairs(len: usize, row: impl Fn(i64) -> i64, device: &Device) -> Tensor<1, Int> {
    let n = len as i64;
    let of_distance: Vec<i32> = (1 - n..n).map(|distance| row(distance) as i32).collect();
    // The keys of a query are a run of all distances, which begins at that of the first key.
    let rows: Vec<i32> =
        (0..len).flat_map(|query| of_distance[len - 1 - query..][..len].iter().copied()).collect();
    Tensor::from_data(rows.as_slice(), device)
}

/// The bucket of how `far` a key is, of `n_buckets` for its direction, in FP32 as in transformers
/// (`T5Attention._relative_position_bucket`).
fn bucket(far: i64, n_buckets: usize, max_distance: usize) -> i64 {
    let n = n_buckets as i64;
    let exact = n / 2;
    if far < exact {
        return far;
    }
    let logs = (far as f32 / exact as f32).ln() / (max_distance as f64 / exact as f64).ln() as f32;
    (exact + (logs * (n - exact) as f32) as i64).min(n - 1)
}

/// Keeps distances up to half of `n_buckets`; larger ones are logarithmic, with `max_distance − 1`
/// mapped to `n_buckets − 1` (transformers' `make_log_bucket_position`, in FP32).
fn log_bucket(distance: i64, n_buckets: usize, max_distance: usize) -> i64 {
    let middle = (n_buckets / 2) as i64;
    let far = distance.abs();
    if far <= middle {
        return distance;
    }
    let scale = ((max_distance as f64 - 1.0) / middle as f64) as f32;
    let logs = (far as f32 / middle as f32).ln() / scale.ln() * (middle - 1) as f32;
    (logs.ceil() as i64 + middle) * distance.signum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;

    #[test]
    fn a_row_is_that_of_its_distance() {
        let device = Device::flex();
        let table = sinusoids(2, 3, None, 4, &device);
        assert_eq!(table.dims(), [5, 4]);
        // Distances 2, 1, 0, −1, −2; frequencies 1 and 0.01.
        for (row, distance) in [2f32, 1.0, 0.0, -1.0, -2.0].into_iter().enumerate() {
            let expected = [distance.sin(), (distance * 0.01).sin(), distance.cos(), (distance * 0.01).cos()];
            table
                .clone()
                .narrow(0, row, 1)
                .into_data()
                .assert_approx_eq::<f32>(&TensorData::from([expected]), Tolerance::absolute(1e-6));
        }
        let clamped: Vec<f32> = sinusoids(2, 3, Some(1), 4, &device).into_data().iter::<f32>().collect();
        assert_eq!(clamped[..4], clamped[4..8]);
        assert_eq!(clamped[12..16], clamped[16..]);
    }

    #[test]
    fn rows_are_of_the_distance_from_query_to_key() {
        let device = Device::flex();
        let rows = pairs(3, |distance| distance + 10, &device).into_data();
        assert_eq!(rows.iter::<i64>().collect::<Vec<_>>(), [10, 11, 12, 9, 10, 11, 8, 9, 10]);
    }

    #[test]
    fn buckets_are_those_of_transformers() {
        // T5Attention._relative_position_bucket of −20 … 20 with 8 buckets and a greatest distance of 16.
        let init = &mut ParamInit::new(&Device::flex(), 1);
        let config = RelativeBiasConfig { n_buckets: 8, max_distance: 16 };
        let of = |bias: RelativeBias| (-20..=20).map(|distance| bias.bucket(distance, 8)).collect::<Vec<_>>();
        let both = of(config.init(1, init));
        let causal = of(config.init_causal(1, init));
        let expected = [
            [vec![3; 15], vec![2, 2, 2, 2, 1, 0, 5, 6, 6, 6, 6], vec![7; 15]].concat(),
            [vec![7; 9], vec![6, 6, 6, 6, 5, 5, 4, 4, 3, 2, 1], vec![0; 21]].concat(),
        ];
        assert_eq!([both, causal], expected);
    }

    #[test]
    fn the_bias_of_keys_before_a_query_is_a_row_of_that_of_all() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 1).with_std(1.0);
        let config = RelativeBiasConfig { n_buckets: 6, max_distance: 5 };
        for bias in [config.init(2, init), config.init_causal(2, init)] {
            let last = bias.forward(9, &device).slice([0..1, 0..2, 8..9, 0..9]).reshape([2, 9]).flip([1]);
            let found = bias.before(8, &device);
            assert_eq!(found.dims(), [2, 6]);
            assert_eq!(found.clone().into_data(), last.clone().narrow(1, 0, 6).into_data());
            let furthest = found.narrow(1, 5, 1).expand([2, 3]);
            assert_eq!(furthest.into_data(), last.clone().narrow(1, 6, 3).into_data());
            assert_eq!(bias.before(2, &device).into_data(), last.narrow(1, 0, 3).into_data());
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (n_buckets, max_distance, key) in
            [(0, 128, "n_buckets"), (2, 128, "n_buckets"), (7, 128, "n_buckets"), (32, 8, "max_distance")]
        {
            let message = RelativeBiasConfig { n_buckets, max_distance }.validate().unwrap_err().to_string();
            assert!(message.contains(&format!("`relative_bias.{key}`")), "{message}");
        }
        RelativeBiasConfig { n_buckets: 32, max_distance: 128 }.validate().unwrap();
    }
}
