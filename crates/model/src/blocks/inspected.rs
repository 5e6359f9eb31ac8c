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
/// source first. Words that are read by their characters have no table: an [`Elmo`](crate::elmo::Elmo)'s are named by its
/// projection's weights.
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
pub(crate) fn replaced(table: ParamId, found: Tensor<3>) -> Tensor<3> {
    WORDS.with_borrow_mut(|words| match words {
        Some(words) if words.tables.contains(&table) => (words.replacement)(found),
        _ => found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::bert::{BertConfig, BertInput};
    use crate::blocks::{Activation, NormPlacement};
    use crate::blocks::{
        EncoderLayerConfig, FeedForwardConfig, MultiHeadAttention, MultiHeadAttentionConfig, NormKind,
    };
    use crate::linear_maps;
    use crate::ops::AttentionMask;
    use burn::module::Module;
    use burn::tensor::{Device, Distribution};
    use std::rc::Rc;

    /// An attention that no observer knows, with or without weights to show.
    #[derive(Module, Debug)]
    struct Foreign {
        shows: bool,
    }

    linear_maps!(Foreign {});

    impl Attention for Foreign {
        fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
            let [batch, len, _] = input.queries.dims();
            let shares = Tensor::full([batch, 1, len, len], 1.0 / len as f32, &input.queries.device());
            let context = input.queries.clone().mean_dim(1).expand(input.queries.dims());
            let weights = (self.shows && input.need_weights).then_some(shares);
            AttentionOutput::new(context, input.wanted).with_weights(weights)
        }
    }

    /// The shapes that are seen while something runs.
    fn shapes<R>(run: impl FnOnce() -> R) -> (R, Vec<Option<[usize; 4]>>) {
        let all = Rc::new(RefCell::new(Vec::new()));
        let place = all.clone();
        let observer = move |seen: SeenAttention| {
            place.borrow_mut().push(seen.probabilities.map(|probabilities| probabilities.dims()));
            None
        };
        let result = observe_attention(observer, run);
        (result, all.take())
    }

    #[test]
    fn an_attention_of_another_crate_shows_what_it_has() {
        let device = Device::flex();
        let config = EncoderLayerConfig {
            feed_forward: FeedForwardConfig::new(4, 8, Activation::Gelu),
            attention_output_dropout: 0.0,
            feed_forward_output_dropout: 0.0,
            norm: NormPlacement::Post,
            norm_kind: NormKind::Layer,
            layer_norm_eps: 1e-12,
        };
        for shows in [true, false] {
            let layer = config.init(Foreign { shows }, &mut ParamInit::new(&device, 1));
            let x = Tensor::<3>::random([2, 5, 4], Distribution::Default, &device);
            let mask = AttentionMask::default();
            let (output, seen) = shapes(|| layer.forward(AttentionInput::new(x.clone(), &mask)));
            assert_eq!(seen, [shows.then_some([2, 1, 5, 5])]);
            assert!(output.weights.is_none());
        }
    }

    #[test]
    fn every_layer_is_seen_also_if_some_tokens_are_wanted() {
        let device = Device::flex();
        let config = BertConfig { n_heads: 2, d_ff: 16, ..BertConfig::new(20, 2, 8) };
        let bert = config.init_encoder(&mut ParamInit::new(&device, 3));
        let input = || BertInput::packed(&[3, 4, 5, 6, 7], &[5], &device);
        let (first, seen) = shapes(|| bert.first_states(input()));
        assert_eq!(seen, [Some([1, 2, 5, 5]); 2]);
        let apart = (first - bert.first_states(input())).abs().max().into_scalar::<f32>();
        assert!(apart < 1e-5, "{apart}");
        assert!(!is_attention_observed());
    }

    #[test]
    fn probabilities_that_are_returned_take_the_place_of_those_shown() {
        let device = Device::flex();
        let config = MultiHeadAttentionConfig::new(8, 2);
        let attention: MultiHeadAttention = config.init(&mut ParamInit::new(&device, 3).with_std(0.4));
        let x = Tensor::<3>::random([1, 3, 8], Distribution::Default, &device);
        let mask = AttentionMask::default();
        // Every query sees the second key alone.
        let observer = |seen: SeenAttention| {
            let shares = seen.probabilities?.zeros_like();
            let ones = Tensor::ones([1, 2, 3, 1], &shares.device());
            Some(shares.slice_assign([0..1, 0..2, 0..3, 1..2], ones))
        };
        let found =
            observe_attention(observer, || attention.forward(AttentionInput::new(x.clone(), &mask))).context;
        let values = attention.value.forward(x).narrow(1, 1, 1);
        let expected = attention.output.forward(values).expand([1, 3, 8]);
        assert!((found - expected).abs().max().into_scalar::<f32>() < 1e-6);
    }

    #[test]
    fn only_the_named_tables_are_replaced() {
        let device = Device::flex();
        let bert = BertConfig::tiny(20).init_encoder(&mut ParamInit::new(&device, 3));
        let calls = Rc::new(RefCell::new(0));
        let counted = calls.clone();
        let replacement = move |x: Tensor<3>| {
            *counted.borrow_mut() += 1;
            x
        };
        let table = bert.embeddings.tokens.weight.id;
        let ids = Tensor::from_data([[3, 4, 5]], &device);
        replace_embeddings([table], replacement, || bert.forward(BertInput::new(ids)));
        assert_eq!(*calls.borrow(), 1);
    }
}
