//! Decoding: one token more a row.

use super::Transformer;
use crate::blocks::LayerCache;
use crate::generate::{NextToken, StepOutput};
use crate::ops::AttentionMask;
use crate::seq2seq::DecodeOptions;
use burn::tensor::{Bool, Int, Tensor, TensorData};

/// What a [`Transformer`] keeps of the rows that it writes: keys and values of the sources, computed once, and of the tokens
/// so far.
#[derive(Debug, Clone)]
pub struct TransformerState {
    /// `[rows, longest source, d_model]`, until the layers have its keys and values.
    memory: Tensor<3>,
    /// `[rows, longest source]`, `true` = ignored.
    pad_mask: Option<Tensor<2, Bool>>,
    /// One of each decoder layer.
    caches: Vec<LayerCache>,
    /// Tokens that each row has.
    n_tokens: usize,
    alignment: bool,
}

impl TransformerState {
    pub(super) fn new(
        memory: Tensor<3>,
        pad_mask: Option<Tensor<2, Bool>>,
        n_layers: usize,
        options: DecodeOptions,
    ) -> Self {
        let caches = vec![LayerCache::default(); n_layers];
        Self { memory, pad_mask, caches, n_tokens: 0, alignment: options.alignment }
    }
}

impl NextToken for Transformer {
    type State = TransformerState;

    /// # Panics
    /// If there are not as many tokens as rows, or a row is longer than the model's positions.
    fn step(&self, tokens: &[i32], state: &mut TransformerState) -> StepOutput {
        let device = state.memory.device();
        let most = self.config.max_positions;
        assert!(state.n_tokens < most, "a row has {most} tokens, as many as the model has positions");
        let ids = Tensor::<2, Int>::from_data(TensorData::new(tokens.to_vec(), [tokens.len(), 1]), &device);
        let x = self.decoder_input.forward(&self.target_embeddings, ids, None, None, state.n_tokens);
        let mask = AttentionMask::default().with_causal();
        let mut memory_mask = AttentionMask::default();
        memory_mask.pad_mask = state.pad_mask.clone();
        let output = self.decoder.forward(
            x,
            &mask,
            state.memory.clone(),
            &memory_mask,
            Some(&mut state.caches),
            state.alignment,
        );
        state.n_tokens += 1;
        // `[rows, n_heads, 1, longest]` → `[rows, longest]`
        let alignment = output.weights.map(|weights| weights.mean_dim(1).flatten::<2>(0, 2));
        let logits = self.project(output.last_hidden_state.squeeze_dim::<2>(1));
        StepOutput::new(logits).with_alignment(alignment)
    }

    fn select(&self, state: &mut TransformerState, rows: &[usize]) {
        let device = state.memory.device();
        let rows: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &device);
        // Once the layers have keys and values of the memory, nobody reads it any more.
        if state.n_tokens == 0 {
            state.memory = state.memory.clone().select(0, rows.clone());
        }
        state.pad_mask = state.pad_mask.take().map(|mask| mask.select(0, rows.clone()));
        state.caches.iter_mut().for_each(|cache| cache.select(&rows));
    }

    fn max_tokens(&self) -> Option<usize> {
        Some(self.config.max_positions)
    }
}
