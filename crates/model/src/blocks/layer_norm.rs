use crate::ParamInit;
use crate::ops::{self, Residual};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// Layer normalisation over the last axis with a learned scale and, usually, a learned shift (Ba et al. 2016).
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// The scale, `[d]`, initially ones.
    pub gamma: Param<Tensor<1>>,
    /// The shift, `[d]`, initially zeros; ModernBERT's have none.
    pub beta: Option<Param<Tensor<1>>>,
    epsilon: f64,
}

impl LayerNorm {
    /// A new normalisation of `d` features; `epsilon` is added to the variance (BERT: 1e-12).
    pub fn new(d: usize, epsilon: f64, init: &mut ParamInit) -> Self {
        Self { gamma: init.ones([d]), beta: Some(init.zeros([d])), epsilon }
    }

    /// The same normalisation, without its shift unless `has_bias`.
    pub fn with_bias(self, has_bias: bool) -> Self {
        Self { beta: self.beta.filter(|_| has_bias), ..self }
    }

    fn shift(&self) -> Tensor<1> {
        self.beta.as_ref().map_or_else(|| self.gamma.val().zeros_like(), |beta| beta.val())
    }

    /// # Shapes
    /// - `x`: `[..., d]`; returns the same
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        ops::layer_norm(x, self.gamma.val(), self.shift(), self.epsilon)
    }

    /// Normalises the sum of a sub-layer's output `x` and the residual connection.
    ///
    /// # Shapes
    /// - `x`: `[..., d]`; returns the same
    pub fn add_forward<const D: usize>(&self, x: Tensor<D>, residual: Residual<D>) -> Tensor<D> {
        ops::add_layer_norm(x, residual, self.gamma.val(), self.shift(), self.epsilon)
    }
}
