use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};

/// A table of vectors, looked up by index.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[n, d]`: one row for each index.
    pub weight: Param<Tensor<2>>,
}

impl Embedding {
    /// A new table of `n` vectors of `d` features, initially truncated-normal.
    pub fn new(n: usize, d: usize, init: &mut ParamInit) -> Self {
        Self { weight: init.truncated_normal([n, d]) }
    }

    /// # Shapes
    /// - `ids`: `[batch, len]`, each below `n`; returns `[batch, len, d]`
    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        ops::embedding(self.weight.val(), ids)
    }
}
