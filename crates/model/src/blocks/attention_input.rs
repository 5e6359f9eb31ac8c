use super::{Distances, KeyValueCache, LinearMaps};
use crate::ops::AttentionMask;
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Device, Int, Tensor};
use std::sync::Arc;

/// The trait to implement for a custom attention: the attention as a layer sees it.
pub trait Attention: Module + LinearMaps + ModuleDisplay + Sync + 'static {
    /// Computes the context of each query over the positions that the mask lets it see.
    ///
    /// An encoder passes neither a memory nor a cache, so an attention for encoders only may ignore both.
    /// [`AttentionOutput::new`] takes the context of all queries and selects the wanted ones.
    fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput;

    /// Whether the attention accepts packed input, `[1, n_tokens, d_model]` with [`AttentionMask::packing`], and is
    /// faster with it. If not, as by default, the model pads its input.
    fn takes_packed(&self) -> bool {
        false
    }
}

/// The input of an attention: self-, cross- or causal attention, padded or packed, with or without a cache.
#[derive(Debug)]
#[non_exhaustive]
pub struct AttentionInput<'a> {
    /// The states that queries are made of, `[batch, q_len, d_model]`.
    pub queries: Tensor<3>,
    /// The states that keys and values are made of in cross-attention, `[batch, k_len, d_model]`. None in
    /// self-attention, where these are the queries' states, and if the cache [holds](KeyValueCache::is_memory) a
    /// memory.
    pub memory: Option<Tensor<3>>,
    /// What each query sees. With a cache, the mask covers all keys: those of the cache, then those of the queries.
    pub mask: &'a AttentionMask,
    /// The keys and values of earlier calls. Self-attention adds those of the queries; cross-attention computes those
    /// of the memory once.
    pub cache: Option<&'a mut KeyValueCache>,
    /// The distances between queries and keys, with a vector for each, if the model has such vectors.
    pub distances: Option<&'a Distances>,
    /// The queries whose context is wanted; none: all queries.
    pub wanted: Option<&'a WantedTokens>,
    /// Whether the attention probabilities are wanted as well.
    pub need_weights: bool,
}

impl<'a> AttentionInput<'a> {
    /// Self-attention.
    pub fn new(queries: Tensor<3>, mask: &'a AttentionMask) -> Self {
        Self { queries, memory: None, mask, cache: None, distances: None, wanted: None, need_weights: false }
    }

    /// Cross-attention to the states `memory`.
    pub fn with_memory(mut self, memory: Tensor<3>) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Keeps keys and values in `cache` for later calls.
    pub fn with_cache(mut self, cache: &'a mut KeyValueCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Restricts the output to the context of these queries.
    pub fn with_wanted(mut self, wanted: &'a WantedTokens) -> Self {
        self.wanted = Some(wanted);
        self
    }

    /// Asks for the attention probabilities as well.
    pub fn with_weights(mut self) -> Self {
        self.need_weights = true;
        self
    }
}

/// The output of an attention.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttentionOutput {
    /// `[batch, q_len, d_model]`, or `[1, n, d_model]` for `n` wanted tokens.
    pub context: Tensor<3>,
    /// The probabilities of all queries, `[batch, n_heads, q_len, k_len]`, if they were asked for and the attention has
    /// any.
    pub weights: Option<Tensor<4>>,
}

impl AttentionOutput {
    /// Takes the context of all queries and selects the wanted ones.
    ///
    /// # Shapes
    /// - `context`: `[batch, q_len, d_model]`
    pub fn new(context: Tensor<3>, wanted: Option<&WantedTokens>) -> Self {
        Self { context: WantedTokens::pick(wanted, context), weights: None }
    }

    /// Sets the probabilities.
    pub fn with_weights(self, weights: Option<Tensor<4>>) -> Self {
        Self { weights, ..self }
    }
}

/// Some tokens of a batch, for when the outputs of the others are not needed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WantedTokens {
    /// `[n]`: each is `row · len + column`, or the token's index in packed sequences.
    pub tokens: Tensor<1, Int>,
    /// The same indices on the host, in ascending order, for packed sequences.
    pub numbers: Option<Arc<[usize]>>,
}

impl WantedTokens {
    /// Tokens of padded sequences, `[n]`, each `row · len + column`, in any order.
    pub fn new(tokens: Tensor<1, Int>) -> Self {
        Self { tokens, numbers: None }
    }

    /// Tokens of packed sequences, in ascending order, so that the attention can skip the others.
    ///
    /// # Panics
    /// If they are not in ascending order.
    pub fn packed(numbers: impl Into<Arc<[usize]>>, device: &Device) -> Self {
        let numbers = numbers.into();
        assert!(numbers.is_sorted(), "wanted tokens of packed sequences are in ascending order");
        let tokens: Vec<i32> = numbers.iter().map(|number| *number as i32).collect();
        Self { tokens: Tensor::from_data(tokens.as_slice(), device), numbers: Some(numbers) }
    }

    /// # Shapes
    /// - `x`: `[batch, len, d]`; returns `[1, n, d]`
    pub fn select(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, len, d] = x.dims();
        x.reshape([batch * len, d]).select(0, self.tokens.clone()).unsqueeze_dim::<3>(0)
    }

    /// [`select`](Self::select), or all tokens if none are named.
    pub(super) fn pick(wanted: Option<&Self>, x: Tensor<3>) -> Tensor<3> {
        match wanted {
            Some(wanted) => wanted.select(x),
            None => x,
        }
    }
}
