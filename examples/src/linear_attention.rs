//! A custom attention in BERT: linear attention (Katharopoulos et al. 2020, "Transformers are RNNs", eq. 5).
//!
//! ```text
//! context_i = φ(q_i)ᵀ · Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ · Σ_j φ(k_j),    φ(x) = elu(x) + 1
//! ```
//!
//! The sums over `j` are the same for every query, so time and memory grow with the length and not with its square.
//! All that an encoder layer asks of an attention is [`Attention`]; the pretraining recipe, its batches, losses,
//! evaluation and curve are those of any BERT.

use burn::module::Module;
use burn::tensor::Tensor;
use cloze_model::blocks::{Attention, AttentionInput, AttentionOutput, Linear};
use cloze_model::{ParamInit, linear_maps};
use cloze_trainer::Result;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::metrics::progress::RunProgress;

/// Linear attention with several heads.
#[derive(Module, Debug)]
pub struct LinearAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    n_heads: usize,
}

impl LinearAttention {
    /// A new one for states of `d_model` features.
    pub fn new(d_model: usize, n_heads: usize, init: &mut ParamInit) -> Self {
        let mut linear = || Linear::new(d_model, d_model, init);
        Self { query: linear(), key: linear(), value: linear(), output: linear(), n_heads }
    }

    /// `[batch, len, d_model]` → `[batch, n_heads, len, d_head]`
    fn heads(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, len, d_model] = x.dims();
        x.reshape([batch, len, self.n_heads, d_model / self.n_heads]).swap_dims(1, 2)
    }
}

/// `elu(x) + 1`, which is positive: `x + 1` above 0, `eˣ` below.
fn feature_map(x: Tensor<4>) -> Tensor<4> {
    x.clone().clamp_min(0.0) + x.clamp_max(0.0).exp()
}

linear_maps!(LinearAttention { query, key, value, output });

impl Attention for LinearAttention {
    fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
        let AttentionInput { queries: hidden, mask, wanted, .. } = input;
        let [batch, len, d_model] = hidden.dims();
        let q = feature_map(self.heads(self.query.forward(hidden.clone())));
        let k = feature_map(self.heads(self.key.forward(hidden.clone())));
        let v = self.heads(self.value.forward(hidden));
        // Padding adds nothing to the sums.
        let k = match &mask.pad_mask {
            Some(ignored) => k * ignored.clone().bool_not().float().reshape([batch, 1, len, 1]),
            None => k,
        };
        let keys = k.clone().sum_dim(2); // [batch, heads, 1, d_head]
        let memory = k.swap_dims(2, 3).matmul(v); // [batch, heads, d_head, d_head]
        let total = (q.clone() * keys).sum_dim(3); // [batch, heads, len, 1]
        let context = q.matmul(memory) / total.add_scalar(1e-6);
        let context = context.swap_dims(1, 2).reshape([batch, len, d_model]);
        AttentionOutput::new(self.output.forward(context), wanted)
    }
}

/// Pretrains a BERT with this attention, and loads it again.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    crate::pretrain("linear-attention", steps, options, progress, |bert, init| {
        bert.init_with(init, |init| LinearAttention::new(bert.d_model, bert.n_heads, init))
    })
}
