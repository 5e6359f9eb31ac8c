//! A forward pass seen from outside: the states between the layers of a stack, and what its attentions compare.

use crate::ops::{AttentionMask, scoped};
use burn::tensor::{IndexingUpdateOp, Int, Tensor};
use std::cell::RefCell;

thread_local! {
    static PASS: RefCell<Option<Pass>> = const { RefCell::new(None) };
}

/// What was recorded of a stack's pass. Tokens are those of all sequences one after the other, without padding.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Pass {
    /// The lengths of the sequences, in tokens.
    pub lengths: Vec<usize>,
    /// The states that enter the first layer and leave each layer, `[tokens, d_model]`. Those that leave a pre-norm
    /// stack's last layer are normalised.
    pub states: Vec<Tensor<2>>,
    /// The heads of each layer's attention to its own tokens, of layers with
    /// [`MultiHeadAttention`](super::MultiHeadAttention).
    pub heads: Vec<Heads>,
    /// The places of the tokens in a padded batch; none if there is no padding.
    places: Option<Tensor<1, Int>>,
}

/// The projections of a layer's attention.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Heads {
    /// The number of heads of queries.
    pub n_heads: usize,
    /// `[tokens, n_heads · d_k]`, rotated if positions rotate; `q·k/√d_k` is the score of a query and a key.
    pub queries: Tensor<2>,
    /// `[tokens, n_heads · d_k]`, likewise.
    pub keys: Tensor<2>,
    /// `[tokens, n_heads · d_v]`
    pub values: Tensor<2>,
    /// What positions add to the scores; broadcastable to `[sequences, n_heads, longest, longest]`.
    pub bias: Option<Tensor<4>>,
}

/// Runs `run` and records the pass of an [`Encoder`](super::Encoder), a [`Decoder`](super::Decoder) or a
/// [`Gpt`](crate::gpt::Gpt) that is applied meanwhile on this thread; of several the last one, so of an encoder–decoder the
/// decoder. Gradients flow through what is recorded.
///
/// While it records, all tokens go through the last layer, also if only some are wanted.
///
/// # Panics
/// If a pass is being recorded on this thread.
pub fn record_pass<R>(run: impl FnOnce() -> R) -> (R, Pass) {
    assert!(!is_recording(), "one pass is recorded at a time");
    let (result, pass) = scoped(&PASS, Some(Pass::default()), run);
    (result, pass.unwrap_or_default())
}

/// Whether a pass is being recorded.
pub(crate) fn is_recording() -> bool {
    PASS.with_borrow(Option::is_some)
}

/// Changes what is recorded of the pass.
pub(crate) fn recorded(change: impl FnOnce(&mut Pass)) {
    PASS.with_borrow_mut(|pass| pass.as_mut().map(change));
}

impl Pass {
    /// Begins the pass of a stack with this input.
    pub(crate) fn begin(&mut self, x: &Tensor<3>, mask: &AttentionMask) {
        let [batch, len, _] = x.dims();
        let (lengths, places) = match (&mask.packing, &mask.pad_mask) {
            (Some(packing), _) => (packing.lengths().to_vec(), None),
            (None, None) => (vec![len; batch], None),
            (None, Some(ignored)) => {
                let ignored: Vec<bool> = ignored.to_data().iter::<bool>().collect();
                let lengths = ignored.chunks(len).map(|row| row.iter().filter(|ignored| !**ignored).count());
                let places = ignored.iter().enumerate().filter(|(_, ignored)| !**ignored);
                let places: Vec<i32> = places.map(|(place, _)| place as i32).collect();
                (lengths.collect(), Some(Tensor::from_data(places.as_slice(), &x.device())))
            }
        };
        *self = Self { lengths, places, ..Self::default() };
    }

    /// Adds the states between two layers.
    pub(crate) fn add_states(&mut self, x: &Tensor<3>) {
        self.states.push(self.tokens(x.clone()));
    }

    /// Adds the projections of a layer, split into heads.
    pub(super) fn add_heads(&mut self, [q, k, v]: [&Tensor<4>; 3], bias: Option<Tensor<4>>) {
        let [_, n_heads, _, _] = q.dims();
        let joined = |x: &Tensor<4>| {
            let [batch, heads, len, width] = x.dims();
            self.tokens(x.clone().swap_dims(1, 2).reshape([batch, len, heads * width]))
        };
        let (queries, keys, values) = (joined(q), joined(k), joined(v));
        self.heads.push(Heads { n_heads, queries, keys, values, bias });
    }

    fn tokens(&self, x: Tensor<3>) -> Tensor<2> {
        let [batch, len, width] = x.dims();
        let rows = x.reshape([batch * len, width]);
        match &self.places {
            Some(places) => rows.select(0, places.clone()),
            None => rows,
        }
    }

    /// The pass with the mean of each part of a sequence in place of its tokens: states, queries, keys and values. `parts` has
    /// for each sequence the part of each token, or none for tokens that are left out, and the number of parts. What positions
    /// add to scores is left out.
    ///
    /// # Panics
    /// If the parts are of other sequences.
    pub fn by_parts(self, parts: &[(&[Option<u32>], usize)]) -> Self {
        let lengths: Vec<usize> = parts.iter().map(|(tokens, _)| tokens.len()).collect();
        assert_eq!(self.lengths, lengths, "parts of the tokens that were recorded");
        let n_parts: usize = parts.iter().map(|(_, n)| n).sum();
        let mut sizes = vec![0f32; n_parts];
        let (mut tokens, mut of): (Vec<i32>, Vec<i32>) = (Vec::new(), Vec::new());
        let (mut token, mut first) = (0, 0);
        for (parts, n) in parts {
            for part in *parts {
                if let Some(part) = part {
                    let part = first + *part as usize;
                    sizes[part] += 1.0;
                    tokens.push(token);
                    of.push(part as i32);
                }
                token += 1;
            }
            first += n;
        }
        let shares: Vec<f32> = of.iter().map(|part| 1.0 / sizes[*part as usize]).collect();
        let mean = |x: Tensor<2>| {
            let (device, [_, width], n) = (x.device(), x.dims(), of.len());
            let indices = |of: &[i32]| Tensor::<1, Int>::from_data(of, &device);
            let shares = Tensor::<1>::from_data(&shares[..], &device).reshape([n, 1]);
            let shared = x.select(0, indices(&tokens)) * shares;
            Tensor::zeros([n_parts, width], &device).select_assign(
                0,
                indices(&of),
                shared,
                IndexingUpdateOp::Add,
            )
        };
        let heads = |Heads { n_heads, queries, keys, values, .. }| {
            let [queries, keys, values] = [queries, keys, values].map(&mean);
            Heads { n_heads, queries, keys, values, bias: None }
        };
        Self {
            lengths: parts.iter().map(|(_, n)| *n).collect(),
            states: self.states.into_iter().map(&mean).collect(),
            heads: self.heads.into_iter().map(heads).collect(),
            places: None,
        }
    }

    /// What was recorded without autodiff, as constants of a computation with it.
    pub fn from_inner(self) -> Self {
        let heads = |Heads { n_heads, queries, keys, values, bias }| {
            let [queries, keys, values] = [queries, keys, values].map(Tensor::from_inner);
            Heads { n_heads, queries, keys, values, bias: bias.map(Tensor::from_inner) }
        };
        Self {
            states: self.states.into_iter().map(Tensor::from_inner).collect(),
            heads: self.heads.into_iter().map(heads).collect(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::bert::{BertConfig, BertInput};
    use crate::blocks::EncoderTrace;
    use burn::tensor::{Device, TensorData, Tolerance};

    /// Packed and padded sequences give the same tokens, whose states are those of the trace, also where only some states are
    /// wanted.
    #[test]
    fn the_tokens_of_a_pass_are_recorded_without_padding() {
        let device = Device::flex();
        let config = BertConfig { n_heads: 2, d_ff: 16, ..BertConfig::new(20, 2, 8) };
        let bert = config.init_encoder(&mut ParamInit::new(&device, 3));
        let packed = || BertInput::packed(&[3, 4, 5, 6, 7], &[3, 2], &device);
        let ids = TensorData::new(vec![3, 4, 5, 6, 7, 0], [2, 3]);
        let ignored = TensorData::new(vec![false, false, false, false, false, true], [2, 3]);
        let padded = BertInput::new(Tensor::from_data(ids, &device))
            .with_pad_mask(Tensor::from_data(ignored, &device));
        let (output, pass) = record_pass(|| {
            bert.forward(packed().with_trace(EncoderTrace { hidden_states: true, attentions: false }))
        });
        let (first, of_some) = record_pass(|| bert.first_states(packed()));
        let (_, of_padded) = record_pass(|| bert.forward(padded));
        assert_eq!((pass.lengths.clone(), pass.states.len(), pass.heads.len()), (vec![3, 2], 3, 2));
        let same = |a: Tensor<2>, b: Tensor<2>| {
            a.into_data().assert_approx_eq::<f32>(&b.into_data(), Tolerance::absolute(1e-5));
        };
        for (layer, states) in output.hidden_states.into_iter().enumerate() {
            let states: Tensor<2> = states.squeeze_dim(0);
            for found in [&pass, &of_some, &of_padded] {
                same(found.states[layer].clone(), states.clone());
            }
        }
        same(first, bert.first_states(packed()));
        for (a, b) in pass.heads.iter().zip(&of_padded.heads) {
            same(a.queries.clone(), b.queries.clone());
            same(a.keys.clone(), b.keys.clone());
            same(a.values.clone(), b.values.clone());
            assert_eq!((a.n_heads, a.bias.is_none()), (2, true));
        }
        assert!(!is_recording());
    }

    /// A part's mean is that of its tokens, and of what is left out there is nothing.
    #[test]
    fn parts_are_means_of_their_tokens() {
        let device = Device::flex().autodiff();
        let rows = |rows: &[[f32; 2]]| {
            let flat: Vec<f32> = rows.iter().flatten().copied().collect();
            Tensor::<2>::from_data(TensorData::new(flat, [rows.len(), 2]), &device)
        };
        let states = rows(&[[1.0, 2.0], [3.0, 6.0], [9.0, 9.0], [5.0, 5.0], [7.0, 1.0]]).require_grad();
        let heads = Heads {
            n_heads: 1,
            queries: states.clone() * 2.0,
            keys: states.clone(),
            values: states.clone(),
            bias: None,
        };
        let pass =
            Pass { lengths: vec![3, 2], states: vec![states.clone()], heads: vec![heads], ..Pass::default() };
        let first = [Some(0), Some(0), None];
        let second = [Some(1), Some(0)];
        let pooled = pass.by_parts(&[(&first, 1), (&second, 2)]);
        assert_eq!(pooled.lengths, [1, 2]);
        let expected = rows(&[[2.0, 4.0], [7.0, 1.0], [5.0, 5.0]]);
        assert_eq!(pooled.states[0].to_data(), expected.to_data());
        assert_eq!(pooled.heads[0].queries.to_data(), (expected * 2.0).to_data());
        let gradient = states.grad(&pooled.states[0].clone().sum().backward()).unwrap();
        let expected = [[0.5, 0.5], [0.5, 0.5], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]];
        assert_eq!(gradient.to_data(), rows(&expected).to_data());
    }
}
