use super::{Activation, Linear};
use crate::ParamInit;
use burn::module::Module;
use burn::tensor::Tensor;

/// Configuration of [`FeedForward`].
#[derive(Debug, Clone)]
pub struct FeedForwardConfig {
    /// Features of the input and of the output.
    pub d_model: usize,
    /// Features in between, usually `4 · d_model`.
    pub d_ff: usize,
    /// The non-linearity in between.
    pub activation: Activation,
}

impl FeedForwardConfig {
    /// A new block.
    pub fn init(&self, init: &mut ParamInit) -> FeedForward {
        FeedForward {
            up: Linear::new(self.d_model, self.d_ff, init),
            down: Linear::new(self.d_ff, self.d_model, init),
            activation: self.activation,
        }
    }
}

/// The position-wise feed-forward network, `f(x·W₁ + b₁)·W₂ + b₂` (Vaswani et al. 2017, eq. 2).
///
/// There is no dropout inside, as in BERT.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// `[d_model, d_ff]`
    pub up: Linear,
    /// `[d_ff, d_model]`
    pub down: Linear,
    #[module(skip)]
    activation: Activation,
}

impl FeedForward {
    /// # Shapes
    /// - `x`: `[..., d_model]`; returns the same
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        self.down.forward(self.activation.forward(self.up.forward(x)))
    }
}
