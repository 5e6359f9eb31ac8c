//! The losses of an output layer, whichever kind it is: a softmax over the vocabulary, whole or among drawn pieces, or an
//! adaptive one.

use super::{AdaptiveSoftmax, SampledSoftmax};
use crate::ops;
use burn::tensor::{Int, Tensor, TensorData};

/// An output layer, as far as losses need it.
pub(crate) struct OutputLayer<'a, L, R> {
    /// The adaptive softmax, if it is one; nothing else is used then.
    pub adaptive: Option<&'a AdaptiveSoftmax>,
    /// `[n, d]` → `[n, vocab_size]`
    pub logits: L,
    /// The weights of some pieces, `[pieces]` → `[pieces, d]`.
    pub rows: R,
    /// `[vocab_size]`
    pub bias: Option<Tensor<1>>,
    /// Pieces in the vocabulary.
    pub vocab_size: usize,
}

impl<L, R> OutputLayer<'_, L, R>
where
    L: FnOnce(Tensor<2>) -> Tensor<2>,
    R: FnOnce(Tensor<1, Int>) -> Tensor<2>,
{
    /// The cross-entropy of each piece, `−log P`, in nats; among drawn ones, if they are drawn.
    ///
    /// # Shapes
    /// - `read`: the layer's input, `[n, d]`; `next`: `n` ids; returns `[n]`
    ///
    /// # Panics
    /// If the numbers of ids and inputs differ, or `sampled` is not [valid](SampledSoftmax::validate) or beside an adaptive
    /// softmax.
    pub fn losses(self, read: Tensor<2>, next: &[i32], sampled: Option<SampledSoftmax>) -> Tensor<1> {
        match (self.adaptive, sampled) {
            (Some(_), Some(_)) => panic!("an adaptive output is not sampled"),
            (Some(adaptive), None) => adaptive.losses(read, next),
            (None, Some(sampled)) => sampled.losses(read, next, self.vocab_size, self.rows, self.bias),
            (None, None) => cross_entropy((self.logits)(read), next),
        }
    }
}

/// The loss of each row of logits.
pub(crate) fn cross_entropy(logits: Tensor<2>, next: &[i32]) -> Tensor<1> {
    assert_eq!(next.len(), logits.dims()[0], "the ids that follow, and the tokens");
    let next = TensorData::new(next.to_vec(), [next.len()]);
    let next = Tensor::<1, Int>::from_data(next, &logits.device());
    ops::cross_entropy(logits, next)
}
