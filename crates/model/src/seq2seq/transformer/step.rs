//! Decoding: one token per row in each step.

use super::Transformer;
use crate::blocks::LayerCache;
use crate::generate::{NextToken, StepOutput};
use crate::seq2seq::DecodeOptions;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// The decoding state of a [`Transformer`]: keys and values of the sources, computed once, and of the tokens so far.
#[derive(Debug, Clone)]
pub struct TransformerState {
    /// One cache for each decoder layer; at least one.
    caches: Vec<LayerCache>,
    options: DecodeOptions,
    device: Device,
}

impl TransformerState {
    /// Rows without tokens, for sources whose keys and values are in `caches`.
    pub(super) fn new(caches: Vec<LayerCache>, options: DecodeOptions, device: &Device) -> Self {
        Self { caches, options, device: device.clone() }
    }
}

impl NextToken for Transformer {
    type State = TransformerState;

    /// # Panics
    /// If the numbers of tokens and rows differ, or a row is longer than the model's positions.
    fn step(&self, tokens: &[i32], state: &mut TransformerState) -> StepOutput {
        let LayerCache { own, memory } = &state.caches[0];
        let (positions, most) = (own.lengths(), self.config.max_positions);
        assert_eq!(tokens.len(), positions.len(), "a token for each row");
        let is_full = positions.iter().any(|position| *position >= most);
        assert!(!is_full, "a row has {most} tokens, as many as the model has positions");
        // All rows are packed, with one new token each.
        let (mask, memory_mask) = (own.step_mask(), memory.step_mask());
        let ids = TensorData::new(tokens.to_vec(), [1, tokens.len()]);
        let ids = Tensor::<2, Int>::from_data(ids, &state.device);
        let x = self.decoder_input.forward_at(&self.target_embeddings, ids, &positions);
        let caches = Some(&mut state.caches[..]);
        let output = self.decoder.forward(x, &mask, None, &memory_mask, caches, state.options.alignment);
        // `[1, n_heads, rows, longest]` → `[rows, longest]`
        let alignment = output.weights.map(|weights| weights.mean_dim(1).flatten::<2>(0, 2));
        let logits = self.project(output.last_hidden_state.squeeze_dim::<2>(0));
        StepOutput::new(logits).with_alignment(alignment)
    }

    fn select(&self, state: &mut TransformerState, rows: &[usize]) {
        state.caches.iter_mut().for_each(|cache| cache.select(rows));
    }

    fn join(&self, state: &mut TransformerState, other: TransformerState) {
        state.caches.iter_mut().zip(other.caches).for_each(|(cache, other)| cache.join(other));
    }

    fn max_tokens(&self) -> Option<usize> {
        Some(self.config.max_positions)
    }
}
