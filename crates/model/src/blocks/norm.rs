use crate::ParamInit;
use crate::ops::{self, Residual};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// The kind of a model's normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NormKind {
    /// [Layer normalisation](super::LayerNorm).
    #[default]
    Layer,
    /// Normalisation by the [root mean square](super::RmsNorm).
    Rms,
}

/// A normalisation of the configured kind.
///
/// A struct rather than an enum of modules: burn would put the variant's name into the parameters' paths.
#[derive(Module, Debug)]
pub struct Norm {
    /// The scale, `[d]`, initially ones.
    pub gamma: Param<Tensor<1>>,
    /// The shift, `[d]`, initially zeros; none in an RMS norm, nor in ModernBERT's layer normalisations.
    pub beta: Option<Param<Tensor<1>>>,
    epsilon: f64,
    #[module(skip)]
    kind: NormKind,
}

impl Norm {
    /// A new normalisation of `d` features; `epsilon` is added to the variance or to the mean square.
    pub fn new(kind: NormKind, d: usize, epsilon: f64, init: &mut ParamInit) -> Self {
        let gamma = init.ones([d]);
        let beta = match kind {
            NormKind::Layer => Some(init.zeros([d])),
            NormKind::Rms => None,
        };
        Self { gamma, beta, epsilon, kind }
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
        match self.kind {
            NormKind::Layer => ops::layer_norm(x, self.gamma.val(), self.shift(), self.epsilon),
            NormKind::Rms => ops::rms_norm(x, self.gamma.val(), self.epsilon),
        }
    }

    /// Normalises the sum of a sub-layer's output `x` and the residual connection.
    ///
    /// # Shapes
    /// - `x`: `[..., d]`; returns the same
    pub fn add_forward<const D: usize>(&self, x: Tensor<D>, residual: Residual<D>) -> Tensor<D> {
        match self.kind {
            NormKind::Layer => ops::add_layer_norm(x, residual, self.gamma.val(), self.shift(), self.epsilon),
            NormKind::Rms => self.forward(ops::dropout_add(x, residual.input, residual.dropout)),
        }
    }
}
