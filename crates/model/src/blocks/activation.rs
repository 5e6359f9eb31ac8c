use crate::ops::{self, Gate};
use burn::tensor::{Tensor, activation};
use serde::{Deserialize, Serialize};

/// The non-linearity of a feed-forward block or a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Activation {
    /// `x · Φ(x)` (Hendrycks & Gimpel 2016): BERT's, and Hugging Face's `"gelu"`.
    #[default]
    Gelu,
    /// The hyperbolic-tangent form of the same: Hugging Face's `"gelu_new"`.
    GeluTanh,
    /// `max(x, 0)`: the original Transformer's (Vaswani et al. 2017, eq. 2).
    Relu,
    /// The hyperbolic tangent: of poolers and RoBERTa's heads.
    Tanh,
    /// `x · σ(x)`, also called Swish (Elfwing et al. 2018): Llama's and Marian's.
    Silu,
}

impl Activation {
    /// Applies it element by element; any shape.
    pub fn forward<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Gelu => ops::gelu(x),
            Self::GeluTanh => ops::gelu_tanh(x),
            Self::Relu => activation::relu(x),
            Self::Tanh => x.tanh(),
            Self::Silu => activation::silu(x),
        }
    }

    /// The activation of `gate` times `x`: the middle of a gated feed-forward network (Shazeer 2020, eq. 5).
    ///
    /// # Shapes
    /// - `gate`, `x`: the same shape, any; returns the same shape
    pub fn gated<const D: usize>(self, gate: Tensor<D>, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Gelu => ops::gated(gate, x, Gate::Gelu),
            Self::GeluTanh => ops::gated(gate, x, Gate::GeluTanh),
            Self::Silu => ops::gated(gate, x, Gate::Silu),
            Self::Relu | Self::Tanh => self.forward(gate) * x,
        }
    }
}
