use super::Score;
use crate::linear_maps;
use burn::module::Module;
use burn::tensor::Tensor;

/// `q·h` (Luong et al. 2015, eq. 8), or `q·h / √d` (Vaswani et al. 2017, eq. 1). Queries have as many features as states.
#[derive(Module, Debug)]
pub struct DotScore {
    /// Whether the product is divided by the square root of its width.
    pub scaled: bool,
}

linear_maps!(DotScore {});

impl DotScore {
    /// The unscaled product.
    pub fn new() -> Self {
        Self { scaled: false }
    }

    /// The product divided by the square root of its width.
    pub fn scaled() -> Self {
        Self { scaled: true }
    }
}

impl Default for DotScore {
    fn default() -> Self {
        Self::new()
    }
}

impl Score for DotScore {
    fn keys(&self, memory: Tensor<3>) -> Tensor<3> {
        memory
    }

    fn scores(&self, query: Tensor<3>, keys: Tensor<3>) -> Tensor<3> {
        let [_, _, d] = query.dims();
        assert_eq!(keys.dims()[2], d, "queries have as many features as the memory");
        let query = if self.scaled { query / (d as f64).sqrt() } else { query };
        query.matmul(keys.swap_dims(1, 2))
    }
}
