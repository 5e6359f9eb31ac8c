use super::relative::{alibi_bias, alibi_slopes, distances};
use super::{
    Attention, AttentionInput, AttentionOutput, Disentangled, DisentangledConfig, Distances, KeyValueCache,
    Linear, RelativeConfig, RelativePositions, ScoreParts, SeenAttention, TransformerXl,
    is_attention_observed, recorded, show_attention,
};
use crate::ops::{self, AttentionMask, Queries, Rotary, TokenPositions};
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use std::borrow::Cow;

/// Configuration of [`MultiHeadAttention`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MultiHeadAttentionConfig {
    /// Features of the input and of the output.
    pub d_model: usize,
    /// Parallel heads.
    pub n_heads: usize,
    /// Features of a query and of a key in one head.
    pub d_k: usize,
    /// Features of a value in one head.
    pub d_v: usize,
    /// Key–value heads, each shared by the same number of query heads. Fewer of them make smaller caches
    /// (Ainslie et al. 2023, "GQA"; with one, Shazeer 2019).
    pub n_kv_heads: usize,
    /// Whether the maps to queries, keys and values have biases.
    pub input_bias: bool,
    /// Whether the output map has a bias.
    pub output_bias: bool,
    /// Rotary positions, which rotate the queries and keys of self-attention.
    pub rotary: Option<Rotary>,
    /// [Relative positions](RelativePositions) of self-attention.
    pub relative: Option<RelativeConfig>,
    /// Whether scores of self-attention decrease with the distance, with a separate slope for each head
    /// (Press et al. 2022, "ALiBi"). This is a score bias, so attention is composed on every device.
    pub alibi: bool,
    /// The terms of [disentangled attention](Disentangled), and the dropout on the distances' vectors.
    pub disentangled: Option<(DisentangledConfig, f64)>,
    /// Whether scores are divided by `√d_k`; in T5 they are not, and its queries' map starts from smaller weights
    /// instead.
    pub scaled: bool,
    /// Whether the scores have the terms of [Transformer-XL](TransformerXl).
    pub transformer_xl: bool,
    /// Number of keys that a query of self-attention sees in each direction, see [`AttentionMask::window`];
    /// `None`: all.
    pub window: Option<usize>,
    /// Dropout on the attention probabilities.
    pub dropout: f64,
}

impl MultiHeadAttentionConfig {
    /// The usual division, `d_k = d_v = d_model / n_heads`, with biases and without dropout.
    ///
    /// # Panics
    /// If `n_heads` does not divide `d_model`.
    pub fn new(d_model: usize, n_heads: usize) -> Self {
        assert!(
            n_heads > 0 && d_model.is_multiple_of(n_heads),
            "{n_heads} heads do not divide d_model = {d_model}"
        );
        let d_head = d_model / n_heads;
        Self {
            d_model,
            n_heads,
            d_k: d_head,
            d_v: d_head,
            n_kv_heads: n_heads,
            input_bias: true,
            output_bias: true,
            rotary: None,
            relative: None,
            alibi: false,
            disentangled: None,
            scaled: true,
            transformer_xl: false,
            window: None,
            dropout: 0.0,
        }
    }

    /// Sets the width of the heads; `n_heads · d_head` may differ from `d_model`.
    pub fn of_heads(d_model: usize, n_heads: usize, d_head: usize) -> Self {
        Self { d_model, ..Self::new(n_heads * d_head, n_heads) }
    }

    /// Sets the number of heads and of key–value heads, of the same width as before.
    pub fn with_heads(mut self, n_heads: usize) -> Self {
        (self.n_heads, self.n_kv_heads) = (n_heads, n_heads);
        self
    }

    /// Sets the widths of keys and values.
    pub fn with_widths(mut self, d_k: usize, d_v: usize) -> Self {
        (self.d_k, self.d_v) = (d_k, d_v);
        self
    }

    /// Sets the number of key–value heads, see [`n_kv_heads`](Self::n_kv_heads).
    pub fn with_kv_heads(mut self, n_kv_heads: usize) -> Self {
        self.n_kv_heads = n_kv_heads;
        self
    }

    /// Sets whether the maps to queries, keys and values have biases, and whether the output map has one.
    pub fn with_biases(mut self, input: bool, output: bool) -> Self {
        (self.input_bias, self.output_bias) = (input, output);
        self
    }

    /// Sets rotary positions, made by [`RotaryConfig::init`](super::RotaryConfig::init) with this `d_k`; clone one
    /// value for all layers.
    pub fn with_rotary(mut self, rotary: Rotary) -> Self {
        self.rotary = Some(rotary);
        self
    }

    /// Sets relative positions.
    pub fn with_relative(mut self, relative: RelativeConfig) -> Self {
        self.relative = Some(relative);
        self
    }

    /// Sets scores that decrease with the distance, see [`alibi`](Self::alibi).
    pub fn with_alibi(mut self) -> Self {
        self.alibi = true;
        self
    }

    /// Adds the terms of disentangled attention, with this dropout on the distances' vectors.
    pub fn with_disentangled(mut self, config: DisentangledConfig, dropout: f64) -> Self {
        self.disentangled = Some((config, dropout));
        self
    }

    /// Does not scale scores, see [`scaled`](Self::scaled).
    pub fn without_scale(mut self) -> Self {
        self.scaled = false;
        self
    }

    /// Adds the terms of Transformer-XL.
    pub fn with_transformer_xl(mut self) -> Self {
        self.transformer_xl = true;
        self
    }

    /// Sets the number of keys that a query sees in each direction.
    pub fn with_window(mut self, window: usize) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets the dropout on the probabilities.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// A new block.
    ///
    /// # Panics
    /// If `n_kv_heads` does not divide `n_heads`, or more features are rotated than a key has.
    pub fn init(&self, init: &mut ParamInit) -> MultiHeadAttention {
        let Self { d_model, n_heads, d_k, d_v, n_kv_heads, input_bias, output_bias, dropout, .. } = *self;
        assert!(
            n_kv_heads > 0 && n_heads.is_multiple_of(n_kv_heads),
            "{n_heads} heads of queries cannot share {n_kv_heads} heads of keys and values"
        );
        if let Some(rotary) = &self.rotary {
            assert!(rotary.width() <= d_k, "keys of {d_k} features, of which {} are rotated", rotary.width());
        }
        MultiHeadAttention {
            query: Linear::with_bias(input_bias, d_model, n_heads * d_k, init),
            key: Linear::with_bias(input_bias, d_model, n_kv_heads * d_k, init),
            value: Linear::with_bias(input_bias, d_model, n_kv_heads * d_v, init),
            output: Linear::with_bias(output_bias, n_heads * d_v, d_model, init),
            n_heads,
            n_kv_heads,
            dropout,
            rotary: self.rotary.clone(),
            relative: self.relative.map(|relative| relative.init(d_k, d_v, init)),
            alibi: self.alibi.then(|| alibi_slopes(n_heads)),
            disentangled: self
                .disentangled
                .map(|(config, dropout)| Disentangled::new(&config, [d_model, n_heads * d_k], dropout, init)),
            transformer_xl: self.transformer_xl.then(|| TransformerXl::new(d_model, [n_heads, d_k], init)),
            window: self.window,
            query_scale: if self.scaled { 1.0 } else { (d_k as f64).sqrt() },
        }
    }
}

/// Multi-head attention, `Concat(head₁ … headₕ)·Wᴼ` with
/// `headᵢ = Attention(Q·Wᵢ^Q, K·Wᵢ^K, V·Wᵢ^V)` (Vaswani et al. 2017, §3.2.2).
///
/// Rotary positions rotate queries and keys of self-attention by their positions
/// ([`AttentionMask::query_positions`]), and a cache holds rotated keys. In cross-attention, where queries
/// and keys come from different sequences, nothing is rotated.
#[derive(Module, Debug)]
pub struct MultiHeadAttention {
    /// `[d_model, n_heads · d_k]`
    pub query: Linear,
    /// `[d_model, n_kv_heads · d_k]`
    pub key: Linear,
    /// `[d_model, n_kv_heads · d_v]`
    pub value: Linear,
    /// `[n_heads · d_v, d_model]`
    pub output: Linear,
    n_heads: usize,
    n_kv_heads: usize,
    dropout: f64,
    #[module(skip)]
    rotary: Option<Rotary>,
    /// Relative positions, if any.
    pub relative: Option<RelativePositions>,
    /// Each head's slope, for ALiBi.
    #[module(skip)]
    pub(super) alibi: Option<Vec<f32>>,
    /// The terms of disentangled attention, if it has any.
    pub disentangled: Option<Disentangled>,
    /// The terms of Transformer-XL, if it has them.
    pub transformer_xl: Option<TransformerXl>,
    window: Option<usize>,
    /// The factor for queries: it undoes the division of scores by `√d_k` if scores are unscaled.
    query_scale: f64,
}

linear_maps!(MultiHeadAttention { query, key, value, output, transformer_xl; disentangled });

impl MultiHeadAttention {
    /// The keys and values of a memory for later queries, one sequence per row: see
    /// [`KeyValueCache::of_memory`] for its shapes. Calls with such a cache need no memory.
    pub fn remember(&self, memory: Tensor<3>, lengths: &[usize]) -> KeyValueCache {
        let keys = self.split_heads(self.key.forward(memory.clone()), self.n_kv_heads, None);
        let values = self.split_heads(self.value.forward(memory), self.n_kv_heads, None);
        KeyValueCache::of_memory([keys, values], lengths)
    }

    /// The block with only these of its heads, by their numbers, in ascending order: the others' queries, keys and values, and
    /// their rows of the output map, are gone. A head's output is added to those of the others, so this computes
    /// what the whole block computes with zeros in those rows.
    ///
    /// # Panics
    /// If a head is not there, if heads share keys, or if they have parts of the scores by distance.
    pub fn keeping_heads(self, heads: &[usize]) -> Self {
        let by_distance =
            self.relative.is_some() || self.disentangled.is_some() || self.transformer_xl.is_some();
        assert!(self.n_kv_heads == self.n_heads && !by_distance, "heads that share parameters");
        let columns = |map: Linear| {
            let [_, width] = map.weight.dims();
            map.keeping_outputs(&features_of(heads, width / self.n_heads))
        };
        let [width, _] = self.output.weight.dims();
        let rows = features_of(heads, width / self.n_heads);
        let alibi = self.alibi.as_ref().map(|slopes| heads.iter().map(|head| slopes[*head]).collect());
        Self {
            query: columns(self.query),
            key: columns(self.key),
            value: columns(self.value),
            output: self.output.keeping_inputs(&rows),
            n_heads: heads.len(),
            n_kv_heads: heads.len(),
            alibi,
            ..self
        }
    }

    /// The number of heads.
    pub fn n_heads(&self) -> usize {
        self.n_heads
    }

    /// Whether a token's rotary positions depend on the length of its sequence.
    pub fn depends_on_length(&self) -> bool {
        self.rotary.as_ref().is_some_and(Rotary::depends_on_length)
    }

    /// Whether a query sees only some keys, see [`MultiHeadAttentionConfig::window`].
    pub fn has_window(&self) -> bool {
        self.window.is_some()
    }

    /// Whether its positions act as a score bias.
    fn is_biased(&self) -> bool {
        self.relative.is_some() || self.alibi.is_some()
    }

    /// The terms of the scores that distances add to `q·k`, `[batch, n_heads, q_len, k_len]`, for queries and keys that
    /// were split into heads.
    fn disentangled_scores(
        &self,
        terms: &Disentangled,
        [q, k]: [&Tensor<4>; 2],
        distances: &Distances,
    ) -> Option<Tensor<4>> {
        let vectors = ops::dropout(distances.vectors.clone(), terms.dropout).unsqueeze_dim::<3>(0);
        let split = |map: &Linear| self.split_heads(map.forward(vectors.clone()), self.n_heads, None);
        let keys = terms.content_to_position.then(|| split(terms.key.as_ref().unwrap_or(&self.key)));
        let queries = terms.position_to_content.then(|| split(terms.query.as_ref().unwrap_or(&self.query)));
        terms.scores([q, k], [keys, queries], &distances.rows)
    }

    /// The scores that distances and segments add to those of content, likewise.
    fn transformer_xl_scores(
        &self,
        terms: &TransformerXl,
        q: &Tensor<4>,
        distances: &Distances,
    ) -> Tensor<4> {
        let keys = terms.position.forward(distances.vectors.clone().unsqueeze_dim::<3>(0));
        terms.scores(q, self.split_heads(keys, self.n_heads, None), distances)
    }

    /// The mask, with the bias of the positions added.
    fn biased(&self, mask: AttentionMask, query: &Tensor<4>, distances: &Tensor<4, Int>) -> AttentionMask {
        let relative = self.relative.as_ref().map(|relative| relative.scores(query.clone(), distances));
        let alibi = self.alibi.as_ref().map(|slopes| alibi_bias(slopes, distances));
        with_bias(with_bias(mask, relative), alibi)
    }

    /// `[batch, len, n_heads · d]` → `[batch, n_heads, len, d]`, rotated if there are rotary positions.
    fn split_heads(&self, x: Tensor<3>, n_heads: usize, positions: Option<&TokenPositions>) -> Tensor<4> {
        let [batch, len, width] = x.dims();
        let x = x.reshape([batch, len, n_heads, width / n_heads]);
        let x = match (positions, &self.rotary) {
            (Some(positions), Some(rotary)) => ops::rotate(x, positions, rotary),
            _ => x,
        };
        x.swap_dims(1, 2)
    }
}

impl Attention for MultiHeadAttention {
    fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
        let is_observed = is_attention_observed() && input.cache.is_none();
        let wanted_weights = input.need_weights;
        let input = AttentionInput { need_weights: wanted_weights || is_observed, ..input };
        let alone = wanted_alone(&input).filter(|_| self.window.is_none());
        let AttentionInput { queries, memory, mask, cache, distances: given, wanted, need_weights } = input;
        let is_cross = memory.is_some() || cache.as_ref().is_some_and(|cache| cache.is_memory());
        let some_tokens = alone.is_some();
        assert!(
            self.disentangled.is_none() && self.transformer_xl.is_none() || !is_cross && cache.is_none(),
            "attention by vectors of distances is for encoders: it has neither a memory nor a cache"
        );
        let (queries, memory, mask, wanted) = match (alone, wanted) {
            (Some(mask), Some(wanted)) => (wanted.select(queries.clone()), queries, Cow::Owned(mask), None),
            _ => (queries.clone(), memory.unwrap_or(queries), Cow::Borrowed(mask), wanted),
        };
        let ([_, q_len, _], [_, n_new, _]) = (queries.dims(), memory.dims());
        let k_len = match &mask.packing {
            Some(packing) => packing.n_tokens(),
            None => cache.as_ref().map_or(0, |cache| cache.len()) + n_new,
        };
        let positions = self.rotary.as_ref().filter(|_| !is_cross).map(|_| {
            let of_queries = mask.query_positions(q_len, k_len);
            // The new keys are those of the queries' tokens, unless only some tokens are queries.
            let of_keys = if some_tokens { mask.key_positions(k_len) } else { of_queries.clone() };
            [of_queries, of_keys]
        });
        let [of_queries, of_keys] = positions.map_or([None, None], |of| of.map(Some));
        let q = self.split_heads(self.query.forward(queries), self.n_heads, of_queries.as_ref());
        // All terms of disentangled scores are divided by the root of their number.
        let n_terms = self.disentangled.as_ref().map_or(1, |terms| terms.n_terms());
        let scale = self.query_scale / (n_terms as f64).sqrt();
        let q = if scale == 1.0 { q } else { q.mul_scalar(scale) };
        let mask = match self.window.filter(|_| !is_cross) {
            Some(window) => Cow::Owned(mask.into_owned().with_window(window)),
            None => mask,
        };
        let project = || {
            let k = self.key.forward(memory.clone());
            let k = self.split_heads(k, self.n_kv_heads, of_keys.as_ref());
            [k, self.split_heads(self.value.forward(memory), self.n_kv_heads, None)]
        };
        let distances = (self.is_biased() && !is_cross).then(|| distances(&mask, q_len, k_len, &q.device()));
        let mask = match &distances {
            Some(distances) => Cow::Owned(self.biased(mask.into_owned(), &q, distances)),
            None => mask,
        };
        let of_values = self.relative.as_ref().filter(|relative| !is_cross && relative.values.is_some());
        let need_weights = need_weights || of_values.is_some();
        let (context, weights) = match cache {
            Some(cache) if is_cross => cache.attend_to_memory(q, project, &mask, need_weights),
            Some(cache) => cache.attend(q, project(), &mask, need_weights),
            None => {
                let [k, v] = project();
                let mask = match &self.disentangled {
                    Some(terms) => {
                        let distances = given.expect("disentangled attention needs distances");
                        let scores = self.disentangled_scores(terms, [&q, &k], distances);
                        Cow::Owned(with_bias(mask.into_owned(), scores))
                    }
                    None => mask,
                };
                let (q, mask) = match &self.transformer_xl {
                    Some(terms) => {
                        let distances = given.expect("attention of Transformer-XL needs distances");
                        let scores = self.transformer_xl_scores(terms, &q, distances);
                        (terms.of_content(&q), Cow::Owned(with_bias(mask.into_owned(), Some(scores))))
                    }
                    None => (q, mask),
                };
                if !is_cross {
                    recorded(|pass| pass.add_heads([&q, &k, &v], mask.bias.clone()));
                }
                match need_weights {
                    true if is_observed => {
                        let weights = shown([&q, &k], &mask, scale, is_cross);
                        (ops::attention_context(weights.clone(), v), Some(weights))
                    }
                    true => {
                        let (context, weights) = ops::attention_with_weights(q, k, v, &mask, self.dropout);
                        (context, Some(weights))
                    }
                    false => (ops::attention(q, k, v, &mask, self.dropout), None),
                }
            }
        };
        let context = match (of_values, &weights, &distances) {
            (Some(relative), Some(weights), Some(distances)) => {
                let added = relative.context(weights.clone(), distances).expect("vectors of values");
                context + added
            }
            _ => context,
        };
        let weights = weights.filter(|_| wanted_weights);
        let [batch, n_heads, q_len, d_v] = context.dims();
        let context = context.swap_dims(1, 2).reshape([batch, q_len, n_heads * d_v]);
        AttentionOutput::new(self.output.forward(context), wanted).with_weights(weights)
    }

    fn takes_packed(&self) -> bool {
        let by_distances = self.disentangled.is_some() || self.transformer_xl.is_some();
        // A weight may be integers, which nothing should turn into floats.
        let like_it = || Tensor::<1>::zeros([1], &self.query.weight.lazy_device());
        !self.is_biased() && !by_distances && ops::takes_packed(&like_it())
    }
}

/// The features of some heads of this width.
fn features_of(heads: &[usize], width: usize) -> Vec<usize> {
    heads.iter().flat_map(|head| head * width..(head + 1) * width).collect()
}

/// The mask with one more bias, if there is one.
fn with_bias(mask: AttentionMask, bias: Option<Tensor<4>>) -> AttentionMask {
    match (mask.bias.clone(), bias) {
        (Some(sum), Some(bias)) => mask.with_bias(sum + bias),
        (None, Some(bias)) => mask.with_bias(bias),
        (_, None) => mask,
    }
}

/// The probabilities, after an observer has seen and perhaps replaced them. Queries were multiplied by `factor`.
fn shown([q, k]: [&Tensor<4>; 2], mask: &AttentionMask, factor: f64, is_cross: bool) -> Tensor<4> {
    let [.., d_k] = q.dims();
    let probabilities = ops::attention_probabilities(q.clone(), k.clone(), mask);
    let scores = ScoreParts {
        queries: if factor == 1.0 { q.clone() } else { q.clone().div_scalar(factor) },
        keys: k.clone(),
        scale: (d_k as f64).sqrt() / factor,
        positions: mask.bias.clone(),
    };
    let seen = SeenAttention { is_cross, probabilities: Some(probabilities.clone()), scores: Some(scores) };
    show_attention(seen).unwrap_or(probabilities)
}

/// The mask if only the wanted tokens are queries. None if all tokens are queries and the wanted contexts are selected
/// afterwards: fused attention cannot handle positions of some tokens, and the other inputs gain little.
fn wanted_alone(input: &AttentionInput<'_>) -> Option<AttentionMask> {
    let AttentionInput { memory, mask, cache, wanted, need_weights, .. } = input;
    let numbers = wanted.as_ref()?.numbers.clone()?;
    let by_position = mask.is_by_position() || mask.bias.is_some();
    let all = mask.packing.is_some() && mask.queries == Queries::Last && memory.is_none() && cache.is_none();
    let alone = all && !by_position && !need_weights;
    alone.then(|| (*mask).clone().with_queries(Queries::Tokens(numbers)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{RotaryConfig, WantedTokens};
    use crate::ops::Packing;
    use burn::tensor::{Bool, Device, Distribution, TensorData, Tolerance};

    fn close(found: Tensor<3>, expected: Tensor<3>) {
        found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
    }

    fn devices() -> Vec<Device> {
        // Where activations are checkpointed, operations are composed.
        vec![Device::flex(), Device::flex().autodiff().gradient_checkpointing()]
    }

    fn block(device: &Device) -> MultiHeadAttention {
        MultiHeadAttentionConfig::new(12, 3).init(&mut ParamInit::new(device, 1).with_std(0.4))
    }

    /// A plain block, and one with rotary positions and shared key–value heads.
    fn blocks(device: &Device) -> [MultiHeadAttention; 2] {
        let rotary = RotaryConfig { theta: 20.0, n_features: Some(4), ..RotaryConfig::default() };
        let config = MultiHeadAttentionConfig::of_heads(12, 4, 6).with_kv_heads(2).with_biases(true, false);
        let config = config.with_rotary(rotary.init(6));
        [block(device), config.init(&mut ParamInit::new(device, 1).with_std(0.4))]
    }

    fn states(len: usize, device: &Device) -> Tensor<3> {
        let values: Vec<f32> = (0..2 * len * 12).map(|i| (i as f32 * 0.53).sin() * 1.5).collect();
        Tensor::from_data(TensorData::new(values, [2, len, 12]), device)
    }

    #[test]
    fn cross_attention_with_separate_widths() {
        let device = Device::flex();
        let mut init = ParamInit::new(&device, 1);
        let block = MultiHeadAttentionConfig::new(12, 3).with_widths(5, 7).init(&mut init);
        let query = Tensor::random([2, 4, 12], Distribution::Default, &device);
        let memory = Tensor::random([2, 6, 12], Distribution::Default, &device);
        let mask = AttentionMask::default();
        let input = || AttentionInput::new(query.clone(), &mask).with_memory(memory.clone());
        let out = block.forward(input().with_weights());
        assert_eq!(out.context.dims(), [2, 4, 12]);
        let weights = out.weights.expect("asked for");
        assert_eq!(weights.dims(), [2, 3, 4, 6]);
        for sum in weights.sum_dim(3).into_data().iter::<f32>() {
            assert!((sum - 1.0).abs() < 1e-5);
        }
        assert!(block.forward(input()).weights.is_none());
    }

    #[test]
    fn wanted_tokens_see_what_they_see_among_all() {
        let device = Device::flex();
        let hidden = states(9, &device).narrow(0, 0, 1);
        let packed = || AttentionMask::default().with_packing(Packing::new([6, 3]));
        let bias = Tensor::<4>::random([1, 1, 9, 9], Distribution::Default, &device);
        let masks = [
            packed(),
            packed().with_window(1),
            packed().with_causal(),
            packed().with_bias(bias),
            AttentionMask::default(),
        ];
        for (mask, block) in masks.iter().flat_map(|mask| blocks(&device).map(|block| (mask, block))) {
            let all = block.forward(AttentionInput::new(hidden.clone(), mask)).context;
            for wanted in [
                WantedTokens::packed([0, 4, 8], &device),
                WantedTokens::new(Tensor::from_data([8, 0, 4], &device)),
            ] {
                let some = block.forward(AttentionInput::new(hidden.clone(), mask).with_wanted(&wanted));
                close(some.context, wanted.select(all.clone()));
            }
        }
    }

    #[test]
    fn cached_decoding_is_uncached() {
        let pack = |parts: [Tensor<3>; 2]| Tensor::cat(parts.to_vec(), 1);
        for (device, block) in devices().iter().flat_map(|device| blocks(device).map(|block| (device, block)))
        {
            let hidden = states(7, device);
            // The second row's first two tokens are padding.
            let ignored: Vec<bool> = (0..14).map(|i| i == 7 || i == 8).collect();
            let pad_mask = Tensor::<2, Bool>::from_data(TensorData::new(ignored, [2, 7]), device);
            for (window, padded) in [(None, false), (Some(2), false), (None, true)] {
                let mut mask = AttentionMask::default().with_causal();
                mask.window = window;
                let seen = |len: usize| match padded {
                    true => mask.clone().with_pad_mask(pad_mask.clone().narrow(1, 0, len)),
                    false => mask.clone(),
                };
                let whole = block.forward(AttentionInput::new(hidden.clone(), &seen(7))).context;
                let mut cache = KeyValueCache::new();
                // A prompt, then token by token, then two at a time.
                for (start, n) in [(0, 3), (3, 1), (4, 1), (5, 2)] {
                    let mask = seen(start + n);
                    let input = AttentionInput::new(hidden.clone().narrow(1, start, n), &mask);
                    let context = block.forward(input.with_cache(&mut cache)).context;
                    // A query of padding sees no key, and its context is nobody's.
                    let of_tokens = |x: Tensor<3>| match padded && start == 0 {
                        true => pack([x.clone().narrow(0, 0, 1), x.narrow(0, 1, 1).narrow(1, 2, 1)]),
                        false => x,
                    };
                    close(of_tokens(context), of_tokens(whole.clone().narrow(1, start, n)));
                }
                assert_eq!(cache.len(), 7);
            }
        }
    }

    #[test]
    fn packed_sequences_are_decoded_with_a_cache() {
        for (device, block) in devices().iter().flat_map(|device| blocks(device).map(|block| (device, block)))
        {
            let rows = states(6, device);
            let row = |sequence: usize, start: usize, n: usize| {
                rows.clone().narrow(0, sequence, 1).narrow(1, start, n)
            };
            let pack = |parts: [Tensor<3>; 2]| Tensor::cat(parts.to_vec(), 1);
            let packed = |lengths: [usize; 2]| {
                AttentionMask::default().with_causal().with_packing(Packing::new(lengths))
            };
            let all = pack([row(0, 0, 4), row(1, 0, 6)]);
            let whole = block.forward(AttentionInput::new(all, &packed([4, 6]))).context;
            let mut cache = KeyValueCache::new();
            let prompt = packed([3, 2]);
            let input = AttentionInput::new(pack([row(0, 0, 3), row(1, 0, 2)]), &prompt);
            let context = block.forward(input.with_cache(&mut cache)).context;
            close(context, pack([whole.clone().narrow(1, 0, 3), whole.clone().narrow(1, 4, 2)]));
            let rest = packed([4, 6]).with_queries(Queries::Counts([1, 4].into()));
            let input = AttentionInput::new(pack([row(0, 3, 1), row(1, 2, 4)]), &rest);
            let context = block.forward(input.with_cache(&mut cache)).context;
            close(context, pack([whole.clone().narrow(1, 3, 1), whole.narrow(1, 6, 4)]));
        }
    }

    #[test]
    fn rotary_positions_count_from_each_sequences_first_token() {
        for device in devices() {
            let [_, block] = blocks(&device);
            let all = states(6, &device);
            let row = |number: usize, len: usize| all.clone().narrow(0, number, 1).narrow(1, 0, len);
            let causal = AttentionMask::default().with_causal();
            let alone = |number: usize, len: usize| {
                block.forward(AttentionInput::new(row(number, len), &causal)).context
            };
            // Packed, and with padding before the second row's tokens and behind them.
            let packed = causal.clone().with_packing(Packing::new([6, 4]));
            let both = Tensor::cat(vec![row(0, 6), row(1, 4)], 1);
            let context = block.forward(AttentionInput::new(both, &packed)).context;
            close(context.clone().narrow(1, 0, 6), alone(0, 6));
            close(context.narrow(1, 6, 4), alone(1, 4));
            for (first, start) in [(true, 2), (false, 0)] {
                let padding = row(0, 2);
                let parts = if first { vec![padding, row(1, 4)] } else { vec![row(1, 4), padding] };
                let ignored = (0..6).map(|i| i < start || i >= start + 4).collect();
                let pad_mask = Tensor::from_data(TensorData::new(ignored, [1, 6]), &device);
                let padded = causal.clone().with_pad_mask(pad_mask);
                let context = block.forward(AttentionInput::new(Tensor::cat(parts, 1), &padded)).context;
                close(context.narrow(1, start, 4), alone(1, 4));
            }
            // The order of tokens matters, as it does not without positions.
            let seen = AttentionMask::default();
            let order = Tensor::<1, Int>::from_data([1, 0, 2, 3], &device);
            let swapped = row(0, 4).select(1, order);
            let last = |x| block.forward(AttentionInput::new(x, &seen)).context.narrow(1, 3, 1);
            let difference = (last(swapped) - last(row(0, 4))).abs().max().into_scalar::<f32>();
            assert!(difference > 1e-2, "{difference}");
        }
    }

    #[test]
    fn padding_behind_a_prompt_moves_no_position() {
        for device in devices() {
            let [_, block] = blocks(&device);
            let rows = states(5, &device);
            // The second row has two tokens less before the last one.
            let ignored: Vec<bool> = (0..10).map(|i| i == 7 || i == 8).collect();
            let pad_mask = Tensor::<2, Bool>::from_data(TensorData::new(ignored, [2, 5]), &device);
            let mask = |len| {
                AttentionMask::default().with_causal().with_pad_mask(pad_mask.clone().narrow(1, 0, len))
            };
            let mut cache = KeyValueCache::new();
            let [prompt, all] = [4, 5].map(mask);
            let input = AttentionInput::new(rows.clone().narrow(1, 0, 4), &prompt);
            block.forward(input.with_cache(&mut cache));
            let input = AttentionInput::new(rows.clone().narrow(1, 4, 1), &all);
            let context = block.forward(input.with_cache(&mut cache)).context;
            let causal = AttentionMask::default().with_causal();
            let row = |number| rows.clone().narrow(0, number, 1);
            let short = Tensor::cat(vec![row(1).narrow(1, 0, 2), row(1).narrow(1, 4, 1)], 1);
            let whole = block.forward(AttentionInput::new(row(0), &causal)).context.narrow(1, 4, 1);
            let short = block.forward(AttentionInput::new(short, &causal)).context.narrow(1, 2, 1);
            close(context, Tensor::cat(vec![whole, short], 0));
        }
    }

    #[test]
    fn a_memory_is_projected_once_and_may_be_packed() {
        for device in devices() {
            let (block, queries, memory) = (block(&device), states(3, &device), states(5, &device));
            let seen = AttentionMask::default();
            let input = || AttentionInput::new(queries.clone(), &seen).with_memory(memory.clone());
            let expected = block.forward(input()).context;
            let mut cache = KeyValueCache::new();
            close(block.forward(input().with_cache(&mut cache)).context, expected.clone());
            let other = input().with_memory(memory.zeros_like());
            close(block.forward(other.with_cache(&mut cache)).context, expected.clone());
            assert_eq!(cache.len(), 5);

            let one_row = |x: &Tensor<3>| x.clone().reshape([1, -1, 12]);
            let packed = AttentionMask::default()
                .with_packing(Packing::new([5, 5]))
                .with_queries(Queries::Counts([3, 3].into()));
            let input = AttentionInput::new(one_row(&queries), &packed).with_memory(one_row(&memory));
            close(block.forward(input).context, one_row(&expected));
        }
    }
}
