use super::AdditiveScore;
use crate::blocks::{LinearMaps, SeenAttention, is_attention_observed, show_attention};
use crate::ops::Packing;
use crate::recurrent::{pad_mask, padded};
use burn::module::{Module, ModuleDisplay};
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Int, Tensor};

/// A score of a query and a memory state.
pub trait Score: Module + LinearMaps + ModuleDisplay + Sync + 'static {
    /// The query-independent part of the scores, computed once per memory.
    ///
    /// # Shapes
    /// - `memory`: `[batch, k_len, d_memory]`; returns `[batch, k_len, d_key]`
    fn keys(&self, memory: Tensor<3>) -> Tensor<3>;

    /// The scores of all pairs, before the softmax.
    ///
    /// # Shapes
    /// - `query`: `[batch, q_len, d_query]`; `keys`: `[batch, k_len, d_key]`; returns `[batch, q_len, k_len]`
    fn scores(&self, query: Tensor<3>, keys: Tensor<3>) -> Tensor<3>;

    /// This score as an additive one, for which decoders have a special [operation](crate::ops::attentive);
    /// `None` for any other.
    fn as_additive(&self) -> Option<&AdditiveScore> {
        None
    }

    /// Maximum number of memory tokens; `None` if there is no limit.
    fn max_memory_tokens(&self) -> Option<usize> {
        None
    }
}

/// What queries attend to: one sequence of states per row.
#[derive(Debug, Clone)]
pub struct Memory {
    /// `[batch, k_len, d_memory]`
    values: Tensor<3>,
    /// `[batch, k_len, d_key]`
    keys: Tensor<3>,
    /// `[batch, k_len]`, `true` = ignored; `None` if there is no padding.
    pad_mask: Option<Tensor<2, Bool>>,
}

impl Memory {
    /// A memory of packed states, with the keys of a score.
    ///
    /// # Shapes
    /// - `states`: `[n_tokens, d_memory]`
    ///
    /// # Panics
    /// If a sequence has more tokens than the score [takes](Score::max_memory_tokens).
    pub fn new<S: Score>(score: &S, states: Tensor<2>, packing: &Packing) -> Self {
        let mask = pad_mask(packing, &states.device());
        Self::padded(score, padded(states, packing), mask)
    }

    /// A memory of padded states.
    ///
    /// # Shapes
    /// - `states`: `[batch, k_len, d_memory]`; `pad_mask`: `[batch, k_len]`, `true` = ignored
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn padded<S: Score>(score: &S, states: Tensor<3>, pad_mask: Option<Tensor<2, Bool>>) -> Self {
        if let Some(most) = score.max_memory_tokens() {
            let [_, len, _] = states.dims();
            assert!(len <= most, "a memory of {len} tokens, but the attention takes {most}");
        }
        Self { keys: score.keys(states.clone()), values: states, pad_mask }
    }

    /// A memory of packed states with separate keys.
    ///
    /// # Shapes
    /// - `keys`: `[n_tokens, d_key]`; `values`: `[n_tokens, d_memory]`
    pub fn with_keys(keys: Tensor<2>, values: Tensor<2>, packing: &Packing) -> Self {
        let mask = pad_mask(packing, &values.device());
        Self { values: padded(values, packing), keys: padded(keys, packing), pad_mask: mask }
    }

    /// Number of rows, and tokens of the longest.
    pub fn dims(&self) -> [usize; 2] {
        let [batch, len, _] = self.values.dims();
        [batch, len]
    }

    /// Selects rows: row `i` is the former row `rows[i]`.
    pub fn select(self, rows: Tensor<1, Int>) -> Self {
        Self {
            values: self.values.select(0, rows.clone()),
            keys: self.keys.select(0, rows.clone()),
            pad_mask: self.pad_mask.map(|mask| mask.select(0, rows)),
        }
    }

    /// The first `n` rows.
    pub(crate) fn first(self, n: usize) -> Self {
        if self.dims()[0] == n {
            return self;
        }
        Self {
            values: self.values.narrow(0, 0, n),
            keys: self.keys.narrow(0, 0, n),
            pad_mask: self.pad_mask.map(|mask| mask.narrow(0, 0, n)),
        }
    }

    /// Appends the rows of another memory.
    pub fn join(self, other: Self) -> Self {
        let len = self.dims()[1].max(other.dims()[1]);
        let [a, b] = [self, other].map(|memory| memory.lengthened(len));
        let mask = match (a.pad_mask.clone(), b.pad_mask.clone()) {
            (None, None) => None,
            _ => Some(joined(a.mask(), b.mask(), 0)),
        };
        Self {
            values: Tensor::cat(vec![a.values, b.values], 0),
            keys: Tensor::cat(vec![a.keys, b.keys], 0),
            pad_mask: mask,
        }
    }

    fn mask(&self) -> Tensor<2, Bool> {
        let device = self.values.device();
        let none = || Tensor::<2>::zeros(self.dims(), &device).greater_elem(0.5);
        self.pad_mask.clone().unwrap_or_else(none)
    }

    /// Pads to `len` tokens.
    fn lengthened(self, len: usize) -> Self {
        let [batch, own] = self.dims();
        if own == len {
            return self;
        }
        let device = self.values.device();
        let longer = |x: Tensor<3>| {
            let [_, _, d] = x.dims();
            Tensor::cat(vec![x, Tensor::zeros([batch, len - own, d], &device)], 1)
        };
        let padding = Tensor::<2>::ones([batch, len - own], &device).greater_elem(0.5);
        Self {
            pad_mask: Some(joined(self.mask(), padding, 1)),
            values: longer(self.values),
            keys: longer(self.keys),
        }
    }
}

/// Concatenates two masks. Via numbers, since burn's flex (0.22.1) cannot concatenate masks of different
/// storage, such as one from data and one from a comparison.
fn joined(a: Tensor<2, Bool>, b: Tensor<2, Bool>, axis: usize) -> Tensor<2, Bool> {
    Tensor::cat(vec![a.float(), b.float()], axis).greater_elem(0.5)
}

/// The output of [`attend`].
#[derive(Debug, Clone)]
pub struct Attended {
    /// The weighted mean of the memory's states, `[batch, q_len, d_memory]`.
    pub context: Tensor<3>,
    /// The softmax of the scores, `[batch, q_len, k_len]`: 0 for padding.
    pub weights: Tensor<3>,
}

/// The context of each query, `Σ softmax(score(q, h))·h`.
///
/// # Shapes
/// - `query`: `[batch, q_len, d_query]`
pub fn attend<S: Score>(score: &S, query: Tensor<3>, memory: &Memory) -> Attended {
    let scores = score.scores(query, memory.keys.clone());
    let scores = match &memory.pad_mask {
        Some(ignored) => {
            let ignored = ignored.clone().unsqueeze_dim::<3>(1).expand(scores.dims());
            scores.mask_fill(ignored, f32::MIN)
        }
        None => scores,
    };
    let weights = shown(softmax(scores, 2));
    Attended { context: weights.clone().matmul(memory.values.clone()), weights }
}

/// The weights, after an observer has seen and perhaps replaced them.
fn shown(weights: Tensor<3>) -> Tensor<3> {
    if !is_attention_observed() {
        return weights;
    }
    let probabilities = Some(weights.clone().unsqueeze_dim::<4>(1));
    let others = show_attention(SeenAttention { is_cross: true, probabilities, scores: None });
    others.map_or(weights, |others| others.squeeze_dim::<3>(1))
}
