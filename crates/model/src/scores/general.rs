use super::Score;
use crate::blocks::Linear;
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

/// `q·W h` (Luong et al. 2015, eq. 8).
#[derive(Module, Debug)]
pub struct GeneralScore {
    /// `W`, `[d_memory, d_query]`
    pub key: Linear,
}

linear_maps!(GeneralScore { key });

impl GeneralScore {
    /// A score for queries of `d_query` and states of `d_memory` features.
    pub fn new(d_query: usize, d_memory: usize, init: &mut ParamInit) -> Self {
        let bound = 1.0 / (d_memory.max(1) as f64).sqrt();
        Self { key: Linear::from_parts(init.uniform([d_memory, d_query], bound), None) }
    }
}

impl Score for GeneralScore {
    fn keys(&self, memory: Tensor<3>) -> Tensor<3> {
        self.key.forward(memory)
    }

    fn scores(&self, query: Tensor<3>, keys: Tensor<3>) -> Tensor<3> {
        query.matmul(keys.swap_dims(1, 2))
    }
}
