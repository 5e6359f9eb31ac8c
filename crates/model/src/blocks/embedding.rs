use super::inspected::replaced;
use crate::huggingface::QuantizedTensor;
use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use std::sync::Arc;

/// A table of vectors, looked up by index.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[n, d]`: one row for each index.
    pub weight: Param<Tensor<2>>,
    /// The rows in integers, if they were read from a file: for inference.
    #[module(skip)]
    integers: Option<Arc<QuantizedTensor>>,
}

impl Embedding {
    /// A new table of `n` vectors of `d` features, initially truncated-normal.
    pub fn new(n: usize, d: usize, init: &mut ParamInit) -> Self {
        Self::from_weight(init.truncated_normal([n, d]))
    }

    /// A table with these rows, `[n, d]`.
    pub fn from_weight(weight: Param<Tensor<2>>) -> Self {
        Self { weight, integers: None }
    }

    /// The same rows in integers, of which only those that are looked up become floats.
    pub(crate) fn set_integers(&mut self, integers: Arc<QuantizedTensor>) {
        self.integers = Some(integers);
    }

    /// The rows in integers, if they were read from a file as such.
    pub fn integers(&self) -> Option<&Arc<QuantizedTensor>> {
        self.integers.as_ref()
    }

    /// # Shapes
    /// - `ids`: `[batch, len]`, each below `n`; returns `[batch, len, d]`
    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        let looked_up =
            self.integers.as_ref().and_then(|table| ops::embedding_integer(&table.matrix, ids.clone()));
        replaced(self.weight.id, looked_up.unwrap_or_else(|| ops::embedding(self.weight.val(), ids)))
    }
}
