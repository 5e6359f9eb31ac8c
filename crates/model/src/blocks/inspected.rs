//! Attention probabilities and word embeddings, seen and changed from outside.

use super::{Attention, AttentionInput, AttentionOutput};
use crate::ops::scoped;
use burn::module::ParamId;
use burn::tensor::Tensor;
use std::cell::RefCell;

/// What an attention does in one call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SeenAttention {
    /// Whether it is to the tokens of another sequence.
    pub is_cross: bool,
    /// `[batch, n_heads, q_len, k_len]`, before dropout; recurrent and convolutional models have one head. None if the
    /// attention shows nothing.
    pub probabilities: Option<Tensor<4>>,
    /// What the scores are made of, if the attention has queries and keys.
    pub scores: Option<ScoreParts>,
}

/// What scores are made of before the softmax: `q·k / scale + positions`, and a mask.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ScoreParts {
    /// `[batch, n_heads, q_len, d_k]`, rotated if positions rotate.
    pub queries: Tensor<4>,
    /// `[batch, n_kv_heads, k_len, d_k]`, likewise; each is shared by `n_heads / n_kv_heads` heads that follow each other.
    pub keys: Tensor<4>,
    /// What products are divided by: `√d_k`, times the root of the number of terms in disentangled attention, and 1 in T5.
    pub scale: f64,
    /// What positions and segments add, broadcastable to `[batch, n_heads, q_len, k_len]`, if they add anything.
    pub positions: Option<Tensor<4>>,
}

type Observer = dyn FnMut(SeenAttention) -> Option<Tensor<4>>;

type Replacement = dyn FnMut(Tensor<3>) -> Tensor<3>;

struct Observation {
    observer: Box<Observer>,
    n_seen: usize,
}

struct Words {
    tables: Vec<ParamId>,
    replacement: Box<Replacement>,
}

thread_local! {
    static ATTENTION: RefCell<Option<Observation>> = const { RefCell::new(None) };
    static WORDS: RefCell<Option<Words>> = const { RefCell::new(None) };
}

/// Runs `run` and shows `observer` every attention that is applied meanwhile on this thread, in order. Probabilities that it
/// returns take the place of those it was shown, so that gradients may be asked for there.
///
/// Meanwhile attention is composed on every device, and layers are not recomputed. Attention with a cache, as in decoding, is
/// not seen. An [`Attention`] of another crate is seen with the weights that it [gives](AttentionOutput::weights), which
/// cannot be replaced.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cloze_model::ParamInit;
/// use cloze_model::bert::{BertConfig, BertInput};
/// use cloze_model::blocks::observe_attention;
/// use std::{cell::RefCell, rc::Rc};
///
/// let device = Device::flex();
/// let bert = BertConfig::tiny(100).init_encoder(&mut ParamInit::new(&device, 1));
/// let shapes = Rc::new(RefCell::new(Vec::new()));
/// let seen = shapes.clone();
/// let observer = move |attention: cloze_model::blocks::SeenAttention| {
///     seen.borrow_mut().extend(attention.probabilities.map(|probabilities| probabilities.dims()));
///     None
/// };
/// observe_attention(observer, || bert.forward(BertInput::new(Tensor::from_data([[5, 6, 7]], &device))));
/// assert_eq!(shapes.borrow()[0], [1, 2, 3, 3]);
/// ```
///
/// # Panics
/// If attention is being observed on this thread.
pub fn observe_attention<R>(
    observer: impl FnMut(SeenAttention) -> Option<Tensor<4>> + 'static,
    run: impl FnOnce() -> R,
) -> R {
    assert!(!is_attention_observed(), "one observer at a time");
    let observation = Observation { observer: Box::new(observer), n_seen: 0 };
    scoped(&ATTENTION, Some(observation), run).0
}

/// Whether attention is being observed on this thread.
pub(crate) fn is_attention_observed() -> bool {
    ATTENTION.with_borrow(Option::is_some)
}

/// Shows an attention; returns the probabilities to go on with, if they are others.
pub(crate) fn show_attention(seen: SeenAttention) -> Option<Tensor<4>> {
    ATTENTION.with_borrow_mut(|observation| {
        let observation = observation.as_mut()?;
        observation.n_seen += 1;
        (observation.observer)(seen)
    })
}

/// An attention's output; an attention that does not show itself is shown with the weights that it gives.
pub(super) fn attend<A: Attention>(attention: &A, input: AttentionInput<'_>) -> AttentionOutput {
    let n_seen = || ATTENTION.with_borrow(|observation| observation.as_ref().map(|of| of.n_seen));
    let Some(before) = n_seen().filter(|_| input.cache.is_none()) else { return attention.forward(input) };
    let (is_cross, need_weights) = (input.memory.is_some(), input.need_weights);
    let output = attention.forward(AttentionInput { need_weights: true, ..input });
    if n_seen() == Some(before) {
        show_attention(SeenAttention { is_cross, probabilities: output.weights.clone(), scores: None });
    }
    AttentionOutput { weights: output.weights.filter(|_| need_weights), ..output }
}

/// Runs `run`; meanwhile on this thread, `replacement` replaces what the [`Embedding`](super::Embedding)s whose weights are
/// among `tables` look up, `[batch, len, d]`, in the order in which they are applied: an encoder–decoder looks up its
/// source first.
///
/// # Panics
/// If embeddings are being replaced on this thread.
pub fn replace_embeddings<R>(
    tables: impl Into<Vec<ParamId>>,
    replacement: impl FnMut(Tensor<3>) -> Tensor<3> + 'static,
    run: impl FnOnce() -> R,
) -> R {
    assert!(WORDS.with_borrow(Option::is_none), "one replacement at a time");
    let words = Words { tables: tables.into(), replacement: Box::new(replacement) };
    scoped(&WORDS, Some(words), run).0
}

/// What was looked up in a table, or its replacement.
pub(super) fn replaced(table: ParamId, found: Tensor<3>) -> Tensor<3> {
    WORDS.with_borrow_mut(|words| match words {
        Some(words) if words.tables.contains(&table) => (words.replacement)(found),
        _ => found,
    })
}
