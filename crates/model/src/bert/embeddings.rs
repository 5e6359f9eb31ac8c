use super::BertConfig;
use crate::blocks::{Embedding, LayerNorm, LearnedPositions, Positions};
use crate::ops::Packing;
use crate::{ParamInit, ops};
use burn::module::Module;
use burn::tensor::{Int, Tensor};

/// The sum of piece, segment and position embeddings, normalised (Devlin et al. 2019, figure 2).
#[derive(Module, Debug)]
pub struct BertEmbeddings {
    /// `[vocab_size, d_model]`; the masked-LM head projects onto this same parameter.
    pub tokens: Embedding,
    /// `[n_token_types, d_model]`
    pub token_types: Embedding,
    /// `[max_positions, d_model]`
    pub positions: LearnedPositions,
    /// Over the sum.
    pub norm: LayerNorm,
    dropout: f64,
}

impl BertEmbeddings {
    /// New tables for `config`.
    pub fn new(config: &BertConfig, init: &mut ParamInit) -> Self {
        Self {
            tokens: Embedding::new(config.vocab_size, config.d_model, init),
            token_types: Embedding::new(config.n_token_types, config.d_model, init),
            positions: LearnedPositions::new(config.max_positions, config.d_model, init),
            norm: LayerNorm::new(config.d_model, config.layer_norm_eps, init),
            dropout: config.hidden_dropout,
        }
    }

    /// # Shapes
    /// - `input_ids`, `token_type_ids`: `[batch, len]`, packed where `packing` says so; returns
    ///   `[batch, len, d_model]`
    ///
    /// # Panics
    /// If a sequence is longer than `max_positions`.
    pub fn forward(
        &self,
        input_ids: Tensor<2, Int>,
        token_type_ids: Tensor<2, Int>,
        packing: Option<&Packing>,
    ) -> Tensor<3> {
        let [_, len] = input_ids.dims();
        let positions = match packing {
            Some(packing) => self.positions.packed(packing, &input_ids.device()),
            None => self.positions.forward(len, &input_ids.device()),
        };
        let sum = self.tokens.forward(input_ids) + self.token_types.forward(token_type_ids) + positions;
        ops::dropout(self.norm.forward(sum), self.dropout)
    }
}
