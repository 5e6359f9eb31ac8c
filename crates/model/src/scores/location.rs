use super::Score;
use crate::blocks::Linear;
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

/// `W q`, with one row per memory position, regardless of the states (Luong et al. 2015, eq. 8).
#[derive(Module, Debug)]
pub struct LocationScore {
    /// `W`, `[d_query, max_tokens]`
    pub query: Linear,
}

linear_maps!(LocationScore { query });

impl LocationScore {
    /// A score for queries of `d_query` features and memories of up to `max_tokens` tokens.
    pub fn new(d_query: usize, max_tokens: usize, init: &mut ParamInit) -> Self {
        let bound = 1.0 / (d_query.max(1) as f64).sqrt();
        Self { query: Linear::from_parts(init.uniform([d_query, max_tokens], bound), None) }
    }
}

impl Score for LocationScore {
    fn keys(&self, memory: Tensor<3>) -> Tensor<3> {
        memory
    }

    fn scores(&self, query: Tensor<3>, keys: Tensor<3>) -> Tensor<3> {
        let [_, k_len, _] = keys.dims();
        self.query.forward(query).narrow(2, 0, k_len)
    }

    fn max_memory_tokens(&self) -> Option<usize> {
        Some(self.query.weight.dims()[1])
    }
}
