use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// A linear map `B` under which squared norms match a dependency tree (Hewitt & Manning 2019, §2): distances
/// `(B·(h_i − h_j))ᵀ·(B·(h_i − h_j))` and depths `(B·h_i)ᵀ·(B·h_i)`.
///
/// Deviation: distances are computed from products, `‖x‖² + ‖y‖² − 2·x·y`, without a tensor of all
/// differences. Equal states may differ by a rounding error.
#[derive(Module, Debug)]
pub struct StructuralProbe {
    /// `[d, rank]`: the transpose of `B`.
    pub map: Param<Tensor<2>>,
}

impl StructuralProbe {
    /// A new probe; the map is uniform between ±0.05, as in the authors' code.
    pub fn new(d: usize, rank: usize, init: &mut ParamInit) -> Self {
        Self { map: init.uniform([d, rank], 0.05) }
    }

    /// The squared distance between each two words.
    ///
    /// # Shapes
    /// - `states`: `[batch, n_words, d]`; returns `[batch, n_words, n_words]`
    pub fn distances(&self, states: Tensor<3>) -> Tensor<3> {
        let mapped = self.mapped(states);
        let squares = mapped.clone().powi_scalar(2).sum_dim(2);
        let products = mapped.clone().matmul(mapped.swap_dims(1, 2));
        let [batch, n_words, _] = squares.dims();
        let shape = [batch, n_words, n_words];
        squares.clone().expand(shape) + squares.swap_dims(1, 2).expand(shape) - products * 2.0
    }

    /// The squared length of each word.
    ///
    /// # Shapes
    /// - `states`: `[batch, n_words, d]`; returns `[batch, n_words]`
    pub fn depths(&self, states: Tensor<3>) -> Tensor<2> {
        self.mapped(states).powi_scalar(2).sum_dim(2).squeeze_dim::<2>(2)
    }

    /// `[batch, n_words, rank]`
    fn mapped(&self, states: Tensor<3>) -> Tensor<3> {
        ops::linear(states, self.map.val(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn distances_and_depths_are_squared_lengths() {
        let device = Device::flex();
        let map = Tensor::<2>::from_data([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], &device);
        let probe = StructuralProbe { map: Param::from_tensor(map) };
        // Mapped to (1, 0), (0, 2) and (2, 3).
        let states = Tensor::<3>::from_data([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]], &device);
        let depths = probe.depths(states.clone()).into_data();
        depths.assert_approx_eq::<f32>(&[[1.0_f32, 4.0, 13.0]].into(), Tolerance::absolute(1e-5));
        let expected = [[[0.0_f32, 5.0, 10.0], [5.0, 0.0, 5.0], [10.0, 5.0, 0.0]]];
        let distances = probe.distances(states).into_data();
        distances.assert_approx_eq::<f32>(&expected.into(), Tolerance::absolute(1e-5));
    }
}
