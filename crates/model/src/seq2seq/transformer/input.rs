use super::{PositionsConfig, TransformerConfig};
use crate::blocks::{Embedding, LayerNorm, LearnedPositions, NoPositions, Positions, SinusoidalPositions};
use crate::ops::Packing;
use crate::{ParamInit, ops};
use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor};

/// What makes the states of an encoder or a decoder of tokens: their embeddings, scaled or not, with positions added to
/// them, normalised or not, and dropout (Vaswani et al. 2017, §3.4, §3.5 and §5.4).
///
/// The table of embeddings is handed in, for encoder, decoder and output layer may share it.
#[derive(Module, Debug)]
pub struct StackInput {
    /// What is added for each position.
    pub positions: StackPositions,
    /// Over the sum, in BART.
    pub norm: Option<LayerNorm>,
    scale: f64,
    dropout: f64,
}

/// The positions that are added to embeddings.
#[derive(Module, Debug)]
pub enum StackPositions {
    /// Fixed sinusoids.
    Sinusoidal(SinusoidalPositions),
    /// A learned table, `[offset + max_positions, d_model]`.
    Learned(LearnedPositions),
    /// Nothing: the attention knows positions itself, or nobody does.
    None(NoPositions),
}

impl StackInput {
    /// A new one for `config`.
    pub fn new(config: &TransformerConfig, init: &mut ParamInit) -> Self {
        let d = config.d_model;
        let positions = match config.positions {
            PositionsConfig::Sinusoidal { order } => {
                StackPositions::Sinusoidal(SinusoidalPositions::new(d).with_order(order))
            }
            PositionsConfig::Learned { offset } => {
                StackPositions::Learned(LearnedPositions::with_offset(config.max_positions, offset, d, init))
            }
            PositionsConfig::None => StackPositions::None(NoPositions {}),
        };
        Self {
            positions,
            norm: config.embedding_norm.then(|| LayerNorm::new(d, config.layer_norm_eps, init)),
            scale: if config.scaled_embeddings { (d as f64).sqrt() } else { 1.0 },
            dropout: config.dropout,
        }
    }

    /// The states of tokens that stand from position `start` on, or of packed sequences that begin at 0.
    ///
    /// # Shapes
    /// - `ids`: `[batch, len]`, or `[1, n_tokens]` if `packing` says so; returns `[batch, len, d_model]`
    /// - `padding`: the same, `true` where an id is the padding piece's and so its embedding is not trained; none if there
    ///   is no such
    ///
    /// # Panics
    /// If a position is beyond what the encoding covers.
    pub fn forward(
        &self,
        table: &Embedding,
        ids: Tensor<2, Int>,
        padding: Option<Tensor<2, Bool>>,
        packing: Option<&Packing>,
        start: usize,
    ) -> Tensor<3> {
        let embeddings = table.forward(ids);
        let embeddings = match padding {
            Some(padding) if embeddings.device().is_autodiff() => {
                let shape = embeddings.dims();
                let padding = padding.unsqueeze_dim::<3>(2).expand(shape);
                embeddings.clone().mask_where(padding, embeddings.detach())
            }
            _ => embeddings,
        };
        let scaled = if self.scale == 1.0 { embeddings } else { embeddings.mul_scalar(self.scale) };
        let sum = match &self.positions {
            StackPositions::Sinusoidal(positions) => add(positions, scaled, packing, start),
            StackPositions::Learned(positions) => add(positions, scaled, packing, start),
            StackPositions::None(_) => scaled,
        };
        let sum = match &self.norm {
            Some(norm) => norm.forward(sum),
            None => sum,
        };
        ops::dropout(sum, self.dropout)
    }
}

fn add(positions: &impl Positions, x: Tensor<3>, packing: Option<&Packing>, start: usize) -> Tensor<3> {
    match (packing, start) {
        (None, start) if start > 0 => {
            let ([_, len, _], device) = (x.dims(), x.device());
            x + positions.range(start..start + len, &device)
        }
        (packing, _) => positions.add_to(x, packing),
    }
}
