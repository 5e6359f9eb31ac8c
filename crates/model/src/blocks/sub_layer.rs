use super::{Norm, WantedTokens};
use crate::ops::{self, Residual};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Where a sub-layer is normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NormPlacement {
    /// `LN(x + f(x))`: the original Transformer and BERT.
    #[default]
    Post,
    /// `x + f(LN(x))` (Xiong et al. 2020): trains without warm-up; the stack then ends with a normalisation.
    Pre,
}

/// What surrounds a sub-layer of encoders and decoders: dropout on its output, the residual connection, and a
/// normalisation (Vaswani et al. 2017, §3.1 and §5.4).
pub(super) struct SubLayer<'a> {
    pub placement: NormPlacement,
    /// None: nothing is normalised.
    pub norm: Option<&'a Norm>,
    /// Dropout on the output, before it is added to the input.
    pub dropout: f64,
}

impl SubLayer<'_> {
    /// `LN(x + dropout(f(x)))` or `x + dropout(f(LN(x)))`. With `wanted`, both `f` and this function return the outputs
    /// of these tokens only.
    ///
    /// # Shapes
    /// - `x`: `[batch, len, d_model]`; returns the same, or `[1, n, d_model]` for `n` wanted tokens
    pub fn forward(
        &self,
        x: Tensor<3>,
        wanted: Option<&WantedTokens>,
        f: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        match self.placement {
            NormPlacement::Post => {
                let y = f(x.clone());
                let residual = Residual { input: WantedTokens::pick(wanted, x), dropout: self.dropout };
                match self.norm {
                    Some(norm) => norm.add_forward(y, residual),
                    None => ops::dropout_add(y, residual.input, residual.dropout),
                }
            }
            NormPlacement::Pre => {
                let normed = self.norm.map_or_else(|| x.clone(), |norm| norm.forward(x.clone()));
                let y = f(normed);
                ops::dropout_add(y, WantedTokens::pick(wanted, x), self.dropout)
            }
        }
    }
}
