use super::Linear;
use crate::ParamInit;
use crate::ops::{self, AttentionMask};
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Int, Tensor};
use std::sync::Arc;

/// What an attention block returns.
#[derive(Debug, Clone)]
pub struct AttentionOutput {
    /// `[batch, q_len, d_model]`
    pub context: Tensor<3>,
    /// `[batch, n_heads, q_len, k_len]`, only where they were asked for.
    pub weights: Option<Tensor<4>>,
}

/// Some tokens of a batch, where the others' states are not wanted.
#[derive(Debug, Clone)]
pub struct Selection {
    /// `[n]`, each `row · len + column`, of packed sequences the token's number.
    pub tokens: Tensor<1, Int>,
    /// Of packed sequences how many tokens of each, where `tokens` come in the sequences' order.
    pub counts: Option<Arc<[usize]>>,
}

impl Selection {
    /// # Shapes
    /// - `x`: `[batch, len, d]`; returns `[1, n, d]`
    pub fn of(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, len, d] = x.dims();
        x.reshape([batch * len, d]).select(0, self.tokens.clone()).unsqueeze_dim::<3>(0)
    }
}

/// Self-attention as an encoder layer sees it: the one piece to implement for another attention.
pub trait SelfAttention: Module + ModuleDisplay + 'static {
    /// Mixes every position of `hidden` with the positions that `mask` lets it see.
    ///
    /// # Shapes
    /// - `hidden`: `[batch, len, d_model]`; the context has the same shape
    fn forward(&self, hidden: Tensor<3>, mask: &AttentionMask, need_weights: bool) -> AttentionOutput;

    /// The context of some tokens alone, which see what they see among all.
    ///
    /// Unless implemented it is made for all of them.
    ///
    /// # Shapes
    /// - `hidden`: `[batch, len, d_model]`; returns `[1, n, d_model]`
    fn forward_some(&self, hidden: Tensor<3>, mask: &AttentionMask, tokens: &Selection) -> Tensor<3> {
        tokens.of(self.forward(hidden, mask, false).context)
    }

    /// Whether `hidden` may be packed, `[1, n_tokens, d_model]` with [`AttentionMask::packing`], and is
    /// faster so than padded. Of an attention that says no, as it does unless implemented, the model pads
    /// its input.
    fn takes_packed(&self) -> bool {
        false
    }

    /// Its linear maps by name: those that adapters are attached to and that may multiply in 8 bits. None
    /// unless implemented.
    fn linears_mut(&mut self) -> Vec<(&'static str, &mut Linear)> {
        Vec::new()
    }
}

/// Configuration of [`MultiHeadAttention`].
#[derive(Debug, Clone)]
pub struct MultiHeadAttentionConfig {
    /// Features of the input and of the output.
    pub d_model: usize,
    /// Heads that attend side by side.
    pub n_heads: usize,
    /// Features of a query and a key in one head.
    pub d_k: usize,
    /// Features of a value in one head.
    pub d_v: usize,
    /// Dropout on the attention probabilities.
    pub dropout: f64,
}

impl MultiHeadAttentionConfig {
    /// The usual division, `d_k = d_v = d_model / n_heads`, without dropout.
    ///
    /// # Panics
    /// If `n_heads` does not divide `d_model`.
    pub fn new(d_model: usize, n_heads: usize) -> Self {
        assert!(
            n_heads > 0 && d_model.is_multiple_of(n_heads),
            "{n_heads} heads do not divide d_model = {d_model}"
        );
        let d_head = d_model / n_heads;
        Self { d_model, n_heads, d_k: d_head, d_v: d_head, dropout: 0.0 }
    }

    /// Other widths for keys and values.
    pub fn with_widths(mut self, d_k: usize, d_v: usize) -> Self {
        (self.d_k, self.d_v) = (d_k, d_v);
        self
    }

    /// Dropout on the probabilities.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// A new block.
    pub fn init(&self, init: &mut ParamInit) -> MultiHeadAttention {
        let Self { d_model, n_heads, d_k, d_v, dropout } = *self;
        MultiHeadAttention {
            query: Linear::new(d_model, n_heads * d_k, init),
            key: Linear::new(d_model, n_heads * d_k, init),
            value: Linear::new(d_model, n_heads * d_v, init),
            output: Linear::new(n_heads * d_v, d_model, init),
            n_heads,
            dropout,
        }
    }
}

/// Multi-head attention, `Concat(head₁ … headₕ)·Wᴼ` with
/// `headᵢ = Attention(Q·Wᵢ^Q, K·Wᵢ^K, V·Wᵢ^V)` (Vaswani et al. 2017, §3.2.2).
#[derive(Module, Debug)]
pub struct MultiHeadAttention {
    /// `[d_model, n_heads · d_k]`
    pub query: Linear,
    /// `[d_model, n_heads · d_k]`
    pub key: Linear,
    /// `[d_model, n_heads · d_v]`
    pub value: Linear,
    /// `[n_heads · d_v, d_model]`
    pub output: Linear,
    n_heads: usize,
    dropout: f64,
}

impl MultiHeadAttention {
    /// Attends from `query` to `memory`, which are the same tensor in self-attention and the
    /// decoder's and the encoder's states in cross-attention.
    ///
    /// # Shapes
    /// - `query`: `[batch, q_len, d_model]`; `memory`: `[batch, k_len, d_model]`
    pub fn attend(
        &self,
        query: Tensor<3>,
        memory: Tensor<3>,
        mask: &AttentionMask,
        need_weights: bool,
    ) -> AttentionOutput {
        let q = self.split_heads(self.query.forward(query));
        let k = self.split_heads(self.key.forward(memory.clone()));
        let v = self.split_heads(self.value.forward(memory));
        let (context, weights) = match need_weights {
            true => {
                let (context, weights) = ops::attention_with_weights(q, k, v, mask, self.dropout);
                (context, Some(weights))
            }
            false => (ops::attention(q, k, v, mask, self.dropout), None),
        };
        let [batch, n_heads, q_len, d_v] = context.dims();
        let context = context.swap_dims(1, 2).reshape([batch, q_len, n_heads * d_v]);
        AttentionOutput { context: self.output.forward(context), weights }
    }

    /// `[batch, len, n_heads · d]` → `[batch, n_heads, len, d]`
    fn split_heads(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, len, width] = x.dims();
        x.reshape([batch, len, self.n_heads, width / self.n_heads]).swap_dims(1, 2)
    }
}

impl SelfAttention for MultiHeadAttention {
    fn forward(&self, hidden: Tensor<3>, mask: &AttentionMask, need_weights: bool) -> AttentionOutput {
        self.attend(hidden.clone(), hidden, mask, need_weights)
    }

    fn forward_some(&self, hidden: Tensor<3>, mask: &AttentionMask, tokens: &Selection) -> Tensor<3> {
        if tokens.counts.is_none() || mask.causal || mask.window.is_some() {
            return tokens.of(self.forward(hidden, mask, false).context);
        }
        let mask = AttentionMask { query_lengths: tokens.counts.clone(), ..mask.clone() };
        self.attend(tokens.of(hidden.clone()), hidden, &mask, false).context
    }

    fn takes_packed(&self) -> bool {
        ops::takes_packed(&self.query.weight.val())
    }

    fn linears_mut(&mut self) -> Vec<(&'static str, &mut Linear)> {
        let Self { query, key, value, output, .. } = self;
        vec![("query", query), ("key", key), ("value", value), ("output", output)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Packing;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn cross_attention_with_separate_widths() {
        let device = Device::flex();
        let mut init = ParamInit::new(&device, 1);
        let block = MultiHeadAttentionConfig::new(12, 3).with_widths(5, 7).init(&mut init);
        let query = Tensor::random([2, 4, 12], Distribution::Default, &device);
        let memory = Tensor::random([2, 6, 12], Distribution::Default, &device);
        let mask = AttentionMask::default();
        let out = block.attend(query.clone(), memory.clone(), &mask, true);
        assert_eq!(out.context.dims(), [2, 4, 12]);
        let weights = out.weights.expect("asked for");
        assert_eq!(weights.dims(), [2, 3, 4, 6]);
        for sum in weights.sum_dim(3).into_data().iter::<f32>() {
            assert!((sum - 1.0).abs() < 1e-5);
        }
        assert!(block.attend(query, memory, &mask, false).weights.is_none());
    }

    #[test]
    fn some_tokens_see_the_window_that_they_see_among_all() {
        let device = Device::flex();
        let block = MultiHeadAttentionConfig::new(12, 3).init(&mut ParamInit::new(&device, 1));
        let hidden = Tensor::random([1, 9, 12], Distribution::Default, &device);
        let packing = Some(Packing::new([6, 3]));
        let mask = AttentionMask { window: Some(1), packing, ..AttentionMask::default() };
        let tokens =
            Selection { tokens: Tensor::from_data([0, 4, 8], &device), counts: Some([2, 1].to_vec().into()) };
        let all = tokens.of(block.forward(hidden.clone(), &mask, false).context);
        let some = block.forward_some(hidden, &mask, &tokens);
        some.into_data().assert_approx_eq::<f32>(&all.into_data(), Tolerance::absolute(1e-5));
    }
}
