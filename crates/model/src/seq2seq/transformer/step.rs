//! Decoding: one token more a row.

use super::Transformer;
use crate::blocks::LayerCache;
use crate::generate::{NextToken, StepOutput};
use crate::ops::AttentionMask;
use crate::seq2seq::DecodeOptions;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// What a [`Transformer`] keeps of the rows that it writes: keys and values of the sources, computed once, and of the tokens
/// so far.
#[derive(Debug, Clone)]
pub struct TransformerState {
    /// How many tokens each row's source has.
    source_lengths: Vec<usize>,
    /// How many tokens each row has: where its next token stands.
    lengths: Vec<usize>,
    /// One of each decoder layer. Rows of tokens are filled up at their beginnings, sources at their ends.
    caches: Vec<LayerCache>,
    alignment: bool,
    device: Device,
}

impl TransformerState {
    /// Rows without a token, of sources whose keys and values the `caches` have.
    pub(super) fn new(
        caches: Vec<LayerCache>,
        source_lengths: &[usize],
        options: DecodeOptions,
        device: &Device,
    ) -> Self {
        Self {
            source_lengths: source_lengths.to_vec(),
            lengths: vec![0; source_lengths.len()],
            caches,
            alignment: options.alignment,
            device: device.clone(),
        }
    }

    fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }
}

impl NextToken for Transformer {
    type State = TransformerState;

    /// # Panics
    /// If there are not as many tokens as rows, or a row is longer than the model's positions.
    fn step(&self, tokens: &[i32], state: &mut TransformerState) -> StepOutput {
        let device = state.device.clone();
        assert_eq!(tokens.len(), state.lengths.len(), "a token for each row");
        let (longest, most) = (state.longest(), self.config.max_positions);
        assert!(longest < most, "a row has {most} tokens, as many as the model has positions");
        let ids = Tensor::<2, Int>::from_data(TensorData::new(tokens.to_vec(), [tokens.len(), 1]), &device);
        let x = self.decoder_input.forward_at(&self.target_embeddings, ids, &state.lengths);
        let mut mask = AttentionMask::default().with_causal();
        // The new token is a key as well.
        mask.pad_mask = ignored(&state.lengths, longest + 1, |key, len| key + len < longest, &device);
        let memory_len = state.caches[0].memory.len();
        let mut memory_mask = AttentionMask::default();
        memory_mask.pad_mask = ignored(&state.source_lengths, memory_len, |key, len| key >= len, &device);
        let caches = Some(&mut state.caches[..]);
        let output = self.decoder.forward(x, &mask, None, &memory_mask, caches, state.alignment);
        state.lengths.iter_mut().for_each(|len| *len += 1);
        // `[rows, n_heads, 1, longest]` → `[rows, longest]`
        let alignment = output.weights.map(|weights| weights.mean_dim(1).flatten::<2>(0, 2));
        let logits = self.project(output.last_hidden_state.squeeze_dim::<2>(1));
        StepOutput::new(logits).with_alignment(alignment)
    }

    fn select(&self, state: &mut TransformerState, rows: &[usize]) {
        let of = |values: &[usize]| -> Vec<usize> { rows.iter().map(|row| values[*row]).collect() };
        (state.source_lengths, state.lengths) = (of(&state.source_lengths), of(&state.lengths));
        let longest = state.longest();
        for LayerCache { own, memory } in &mut state.caches {
            own.select(rows);
            own.keep_last(longest);
            memory.select(rows);
        }
    }

    fn join(&self, state: &mut TransformerState, other: TransformerState) {
        let rows = [state.lengths.len(), other.lengths.len()];
        state.source_lengths.extend(other.source_lengths);
        state.lengths.extend(other.lengths);
        for (cache, other) in state.caches.iter_mut().zip(other.caches) {
            cache.own.join(other.own, rows);
            cache.memory.join(other.memory, rows);
        }
    }

    fn max_tokens(&self) -> Option<usize> {
        Some(self.config.max_positions)
    }
}

/// `[rows, len]`, `true` = ignored; none if no key of any row is.
fn ignored(
    lengths: &[usize],
    len: usize,
    is_ignored: impl Fn(usize, usize) -> bool,
    device: &Device,
) -> Option<Tensor<2, Bool>> {
    let mut all = Vec::with_capacity(lengths.len() * len);
    for row in lengths {
        all.extend((0..len).map(|key| is_ignored(key, *row)));
    }
    let shape = [lengths.len(), len];
    all.contains(&true).then(|| Tensor::from_data(TensorData::new(all, shape), device))
}
