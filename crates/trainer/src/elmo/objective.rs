//! ELMo's loss.

use crate::engine::{Objective, Term};
use crate::running_text::TextObjective;
use burn::tensor::{Device, Tensor};
use cloze_data::BlockBatch;
use cloze_model::Sequences;
use cloze_model::elmo::{Elmo, ElmoLosses};

/// The mean of the forward and the backward cross-entropy, in nats: `−1/2n · Σ_k (log P(x_k | x_(<k)) + log
/// P(x_k | x_(>k)))` (Peters et al. 2018, §3.1, whose sum is twice that).
///
/// In a block of `n` tokens and the next token, `n` are predicted forwards, all but the first, and `n`
/// backwards, all but the last.
#[derive(Debug, Clone, Copy, Default)]
pub struct BothDirections;

impl Objective for BothDirections {
    type Model = Elmo;
    type Batch = BlockBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        ["forward", "backward"].map(|name| Term::new(name).with_weight(0.5)).to_vec()
    }

    fn counts(&self, batch: &BlockBatch) -> Vec<f64> {
        vec![batch.ids.len() as f64; 2]
    }

    fn sums(&self, model: &Elmo, batch: &BlockBatch, device: &Device) -> Vec<Tensor<1>> {
        let ElmoLosses { next, previous } = model.losses(&texts(batch), device);
        vec![next.sum(), previous.sum()]
    }
}

impl TextObjective for BothDirections {
    const PREDICTION: &str = "prediction";

    fn losses(&self, model: &Elmo, batch: &BlockBatch, device: &Device) -> Tensor<1> {
        let ElmoLosses { next, previous } = model.losses(&texts(batch), device);
        Tensor::cat(vec![next, previous], 0)
    }

    fn n_tokens(batch: &BlockBatch) -> u64 {
        batch.ids.len() as u64
    }
}

/// The sequences of a batch, each with the next token.
fn texts(batch: &BlockBatch) -> Sequences {
    let mut texts = Sequences::new();
    let mut start = 0;
    for len in &batch.lengths {
        let end = start + len;
        texts.push(&[&batch.ids[start..end], &batch.next[end - 1..end]].concat());
        start = end;
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_what_is_behind_it() {
        let (ids, next) = (vec![3, 4, 5, 7], vec![4, 5, 6, 8]);
        let batch = BlockBatch { ids, next, lengths: vec![3, 1], prefixes: vec![0; 2] };
        let expected: Sequences = [&[3, 4, 5, 6][..], &[7, 8]].into_iter().collect();
        assert_eq!(texts(&batch), expected);
        assert_eq!(BothDirections.counts(&batch), [4.0, 4.0]);
    }
}
