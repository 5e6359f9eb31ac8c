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
    /// `x · Φ(x)`, cut off below −10 and above 10: Hugging Face's `"gelu_10"`.
    GeluClipped,
    /// `x · σ(1.702 x)` (Hendrycks & Gimpel 2016, §2): CLIP's.
    QuickGelu,
    /// `max(x, 0)²` (So et al. 2021).
    ReluSquared,
    /// `min(max(x, 0), 6)` (Howard et al. 2017).
    Relu6,
    /// `x`, but `x / 100` below 0 (Maas et al. 2013).
    LeakyRelu,
    /// `x · tanh(log(1 + eˣ))` (Misra 2020).
    Mish,
    /// `(1 + erf((x − µ) / (σ √2))) / 2` with `µ = 0.707107` and `σ = 0.282095` (Ma et al. 2023, eq. 16).
    Laplace,
    /// `x · min(max(x + 3, 0), 6) / 6` (Howard et al. 2019, eq. 1).
    HardSwish,
    /// `σ(x)`.
    Sigmoid,
    /// `x`: Hugging Face's `"linear"`.
    Identity,
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
            Self::GeluClipped => ops::gelu(x).clamp(-10.0, 10.0),
            Self::QuickGelu => x.clone() * activation::sigmoid(x * 1.702),
            Self::ReluSquared => activation::relu(x).square(),
            Self::Relu6 => x.clamp(0.0, 6.0),
            Self::LeakyRelu => activation::leaky_relu(x, 0.01),
            Self::Mish => {
                // log(1 + eˣ) without an eˣ that overflows.
                let softplus = activation::relu(x.clone()) + x.clone().abs().neg().exp().log1p();
                x * softplus.tanh()
            }
            Self::Laplace => {
                // As transformers rounds them.
                const MEAN: f64 = 707_107e-6;
                ((x - MEAN) / (0.282_095 * std::f64::consts::SQRT_2)).erf().add_scalar(1.0) * 0.5
            }
            Self::HardSwish => x.clone() * x.add_scalar(3.0).clamp(0.0, 6.0) / 6.0,
            Self::Sigmoid => activation::sigmoid(x),
            Self::Identity => x,
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
            _ => self.forward(gate) * x,
        }
    }
}
