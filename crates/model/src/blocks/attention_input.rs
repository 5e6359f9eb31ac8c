use super::{KeyValueCache, Linear};
use crate::ops::AttentionMask;
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Device, Int, Tensor};
use std::sync::Arc;

/// An attention as a layer sees it: the one piece to implement for another attention.
pub trait Attention: Module + ModuleDisplay + Sync + 'static {
    /// Lets each query look at the positions of the memory that the mask shows it.
    ///
    /// An encoder gives neither a memory nor a cache, so an attention for encoders alone may leave them unread.
    /// [`AttentionOutput::new`] takes the context of all queries and picks those that are wanted.
    fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput;

    /// Whether the input may be packed, `[1, n_tokens, d_model]` with [`AttentionMask::packing`], and is faster so than
    /// padded. If an attention says no, as it does unless implemented, the model pads its input.
    fn takes_packed(&self) -> bool {
        false
    }

    /// Its linear maps by name: those that adapters are attached to and that may multiply in 8 bits. None
    /// unless implemented.
    fn linears_mut(&mut self) -> Vec<(&'static str, &mut Linear)> {
        Vec::new()
    }
}

/// What an attention works on: self-, cross- and causal attention, padded or packed, with or without a cache.
#[derive(Debug)]
#[non_exhaustive]
pub struct AttentionInput<'a> {
    /// The states that look, `[batch, q_len, d_model]`.
    pub queries: Tensor<3>,
    /// The states they look at in cross-attention, `[batch, k_len, d_model]`; none in self-attention, where they look at
    /// the queries themselves, or at the memory that the cache [holds](KeyValueCache::is_memory).
    pub memory: Option<Tensor<3>>,
    /// What each query sees. With a cache it is about all keys: those of the cache, then those of the queries.
    pub mask: &'a AttentionMask,
    /// The keys and values of earlier calls: in self-attention those of the queries are added to them, in
    /// cross-attention those of the memory are computed once.
    pub cache: Option<&'a mut KeyValueCache>,
    /// The queries whose context is wanted; none: all of them.
    pub wanted: Option<&'a WantedTokens>,
    /// Whether the attention's probabilities are wanted as well.
    pub need_weights: bool,
}

impl<'a> AttentionInput<'a> {
    /// Self-attention.
    pub fn new(queries: Tensor<3>, mask: &'a AttentionMask) -> Self {
        Self { queries, memory: None, mask, cache: None, wanted: None, need_weights: false }
    }

    /// Cross-attention: the queries look at these states.
    pub fn with_memory(mut self, memory: Tensor<3>) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Keeps keys and values for the calls to come.
    pub fn with_cache(mut self, cache: &'a mut KeyValueCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Asks for the context of these queries alone.
    pub fn with_wanted(mut self, wanted: &'a WantedTokens) -> Self {
        self.wanted = Some(wanted);
        self
    }

    /// Asks for the probabilities as well.
    pub fn with_weights(mut self) -> Self {
        self.need_weights = true;
        self
    }
}

/// What an attention returns.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttentionOutput {
    /// `[batch, q_len, d_model]`; of `n` wanted tokens `[1, n, d_model]`.
    pub context: Tensor<3>,
    /// Of all queries `[batch, n_heads, q_len, k_len]`, if they were asked for and the attention has such.
    pub weights: Option<Tensor<4>>,
}

impl AttentionOutput {
    /// The context of all queries, of which those that are wanted are picked.
    ///
    /// # Shapes
    /// - `context`: `[batch, q_len, d_model]`
    pub fn new(context: Tensor<3>, wanted: Option<&WantedTokens>) -> Self {
        Self { context: WantedTokens::pick(wanted, context), weights: None }
    }

    /// The probabilities, if there are any.
    pub fn with_weights(self, weights: Option<Tensor<4>>) -> Self {
        Self { weights, ..self }
    }
}

/// Some tokens of a batch, if the outputs of the others are not needed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WantedTokens {
    /// `[n]`, each `row · len + column`, of packed sequences the token's number.
    pub tokens: Tensor<1, Int>,
    /// The same of packed sequences in ascending order, on the host.
    pub numbers: Option<Arc<[usize]>>,
}

impl WantedTokens {
    /// Tokens of padded sequences, `[n]`, each `row · len + column`, in any order.
    pub fn new(tokens: Tensor<1, Int>) -> Self {
        Self { tokens, numbers: None }
    }

    /// Tokens of packed sequences, in ascending order: the attention then need not work on the others.
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

    /// [`select`](Self::select), or all where no tokens are named.
    pub(super) fn pick(wanted: Option<&Self>, x: Tensor<3>) -> Tensor<3> {
        match wanted {
            Some(wanted) => wanted.select(x),
            None => x,
        }
    }
}
