use super::Score;
use crate::blocks::Linear;
use crate::{ParamInit, linear_maps, ops};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// `v·tanh(W q + U h)` (Bahdanau et al. 2015, §A.1.2).
#[derive(Module, Debug)]
pub struct AdditiveScore {
    /// `W`, `[d_query, d]`
    pub query: Linear,
    /// `U`, `[d_memory, d]`
    pub key: Linear,
    /// `[d]`
    pub v: Param<Tensor<1>>,
}

linear_maps!(AdditiveScore { query, key });

impl AdditiveScore {
    /// A score for queries of `d_query` and states of `d_memory` features, compared in `d`
    /// features.
    pub fn new(d_query: usize, d_memory: usize, d: usize, init: &mut ParamInit) -> Self {
        let mut map = |d_in: usize| {
            Linear::from_parts(init.uniform([d_in, d], 1.0 / (d_in.max(1) as f64).sqrt()), None)
        };
        let (query, key) = (map(d_query), map(d_memory));
        Self { query, key, v: init.uniform([d], 1.0 / (d.max(1) as f64).sqrt()) }
    }
}

impl Score for AdditiveScore {
    fn keys(&self, memory: Tensor<3>) -> Tensor<3> {
        self.key.forward(memory)
    }

    fn scores(&self, query: Tensor<3>, keys: Tensor<3>) -> Tensor<3> {
        ops::additive_scores(self.query.forward(query), keys, self.v.val())
    }

    fn as_additive(&self) -> Option<&Self> {
        Some(self)
    }
}
