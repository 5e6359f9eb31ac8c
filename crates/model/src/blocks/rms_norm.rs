use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// Normalisation by the root of the mean square over the last axis with a learned scale (Zhang & Sennrich 2019): Llama's.
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// The scale, `[d]`, ones at first.
    pub gamma: Param<Tensor<1>>,
    epsilon: f64,
}

impl RmsNorm {
    /// A new normalisation of `d` features; `epsilon` is added to the mean square.
    pub fn new(d: usize, epsilon: f64, init: &mut ParamInit) -> Self {
        Self { gamma: init.ones([d]), epsilon }
    }

    /// # Shapes
    /// - `x`: `[..., d]`; returns the same
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        ops::rms_norm(x, self.gamma.val(), self.epsilon)
    }
}
