//! The scores of additive attention.

use super::vector::{sum, tanh, vectorised};
use super::{Input, dense, filled, op, output, register, tensor, values};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

vectorised! {
    fn score(query: &[f32], key: &[f32], v: &[f32]) -> f32 {
        sum([query, key, v], |[query, key, v]| tanh(query + key) * v)
    }

    /// Adds to the gradients of query, key and `v`.
    fn score_backward(
        query: &[f32], key: &[f32], v: &[f32], gradient: f32, dq: &mut [f32], dk: &mut [f32], dv: &mut [f32]
    ) {
        let d = query.len();
        let (key, v, dq, dk, dv) = (&key[..d], &v[..d], &mut dq[..d], &mut dk[..d], &mut dv[..d]);
        for i in 0..d {
            let t = tanh(query[i] + key[i]);
            let of_sum = gradient * v[i] * (1.0 - t * t);
            dq[i] += of_sum;
            dk[i] += of_sum;
            dv[i] += gradient * t;
        }
    }
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    query: FlexTensor,
    key: FlexTensor,
    v: FlexTensor,
    /// Queries, keys and features per batch row.
    sizes: [usize; 3],
}

impl State {
    /// The gradients of query, key and `v`.
    fn gradients(&self, gradient: &FlexTensor) -> [FlexTensor; 3] {
        let [q_len, k_len, d] = self.sizes;
        let (query, key, v) = (values(&self.query), values(&self.key), values(&self.v));
        let mut dq = vec![0.0; query.len()];
        let mut dk = vec![0.0; key.len()];
        // A row of the batch a task: nothing is added across threads.
        let rows = dq.par_chunks_mut((q_len * d).max(1)).zip(dk.par_chunks_mut((k_len * d).max(1)));
        let gradients = values(gradient).par_chunks((q_len * k_len).max(1));
        let parts = rows.zip(gradients).enumerate().map(|(row, ((dq, dk), gradients))| {
            let mut dv = vec![0.0; d];
            for (pair, gradient) in gradients.iter().enumerate() {
                // A key that is padding has none.
                if *gradient != 0.0 {
                    let (q, k) = (pair / k_len * d, pair % k_len * d);
                    let query = &query[row * q_len * d + q..][..d];
                    let key = &key[row * k_len * d + k..][..d];
                    score_backward(query, key, v, *gradient, &mut dq[q..], &mut dk[k..], &mut dv);
                }
            }
            dv
        });
        let mut dv = vec![0.0; d];
        for part in parts.collect::<Vec<_>>() {
            dv.iter_mut().zip(part).for_each(|(total, part)| *total += part);
        }
        let shape = |x: &FlexTensor| x.layout().shape().clone();
        [tensor(dq, shape(&self.query)), tensor(dk, shape(&self.key)), tensor(dv, shape(&self.v))]
    }
}

#[derive(Debug)]
struct AdditiveScores;

impl Backward<Flex, 3> for AdditiveScores {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("additive_scores_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        register(grads, &ops, ops.state.gradients(&gradient));
    }
}

pub(crate) fn additive_scores(query: Tensor<3>, key: Tensor<3>, v: Tensor<1>) -> Tensor<3> {
    op!("additive_scores");
    let ([batch, q_len, d], [_, k_len, _]) = (query.dims(), key.dims());
    let (query, key, v) = (Input::dense(query), Input::dense(key), Input::dense(v));
    let (queries, keys, factors) = (values(&query.value), values(&key.value), values(&v.value));
    // SAFETY: the tasks cover the whole, and each score is written.
    let scores = unsafe {
        filled(batch * q_len * k_len, |scores| {
            scores.par_chunks_mut(k_len.max(1)).enumerate().for_each(|(q, scores)| {
                let query = &queries[q * d..][..d];
                for (k, to) in scores.iter_mut().enumerate() {
                    let key = &keys[(q / q_len * k_len + k) * d..][..d];
                    to.write(score(query, key, factors));
                }
            });
        })
    };
    let scores = tensor(scores, Shape::new([batch, q_len, k_len]));
    let sizes = [q_len, k_len, d];
    output(AdditiveScores, [query.node, key.node, v.node], scores, || State {
        query: query.value,
        key: key.value,
        v: v.value,
        sizes,
    })
}
