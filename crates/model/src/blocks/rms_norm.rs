use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// Normalisation by the root mean square over the last axis with a learned scale (Zhang & Sennrich 2019), as in Llama.
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// The scale, `[d]`, initially ones.
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
