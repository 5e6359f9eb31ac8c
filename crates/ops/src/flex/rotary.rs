//! Rotary positions: in-place rotation of feature pairs.

use super::vector::vectorised;
use super::{Input, dense, op, output, rows_per_task, values_mut};
use crate::{Rotary, RotaryPairs, TokenPositions};
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::sync::Arc;

vectorised! {
    /// Rotates the pairs of one head; `sign` is −1 to rotate back.
    fn turn_halves(x: &mut [f32], cosines: &[f32], sines: &[f32], sign: f32) {
        let n = cosines.len();
        let (first, rest) = x.split_at_mut(n);
        let second = &mut rest[..n];
        for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
            let sin = sign * sin;
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }

    /// As [`turn_halves`].
    fn turn_neighbours(x: &mut [f32], cosines: &[f32], sines: &[f32], sign: f32) {
        let (pairs, _) = x.as_chunks_mut::<2>();
        for (([a, b], cos), sin) in pairs.iter_mut().zip(cosines).zip(sines) {
            let sin = sign * sin;
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

/// State for both passes.
#[derive(Debug, Clone)]
struct State {
    positions: Positions,
    rotary: Rotary,
    table: Arc<[f32]>,
}

/// Each token's position.
#[derive(Debug, Clone)]
enum Positions {
    From { start: usize, len: usize },
    Each(Arc<[usize]>),
}

impl Positions {
    fn of(&self, token: usize) -> usize {
        match self {
            Self::From { start, len } => start + token % len,
            Self::Each(positions) => positions[token],
        }
    }

    /// One more than the largest position.
    fn end(&self) -> usize {
        match self {
            Self::From { start, len } => start + len,
            Self::Each(positions) => positions.iter().max().map_or(0, |position| position + 1),
        }
    }
}

impl State {
    /// Rotates `[batch, len, n_heads, d]` in place, or in a copy if shared.
    fn turn(&self, mut x: FlexTensor, sign: f32) -> FlexTensor {
        let shape = x.layout().shape().clone();
        let (n_heads, d) = (shape[2], shape[3]);
        let (width, n) = (n_heads * d, self.rotary.width() / 2);
        let turn = match self.rotary.pairs() {
            RotaryPairs::Halves => turn_halves,
            RotaryPairs::Neighbours => turn_neighbours,
        };
        let per_task = rows_per_task(width);
        values_mut(&mut x).par_chunks_mut((per_task * width).max(1)).enumerate().for_each(
            |(number, tokens)| {
                for (token, heads) in tokens.chunks_exact_mut(width).enumerate() {
                    let row = &self.table[self.positions.of(number * per_task + token) * 2 * n..][..2 * n];
                    let (cosines, sines) = row.split_at(n);
                    heads.chunks_exact_mut(d).for_each(|head| turn(head, cosines, sines, sign));
                }
            },
        );
        x
    }
}

#[derive(Debug)]
struct Rotate;

impl Backward<Flex, 1> for Rotate {
    type State = State;

    fn backward(self, ops: Ops<State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("rotate_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        if let [Some(x)] = ops.parents {
            // The inverse of a turn, which is its transpose.
            grads.register::<Flex>(x.id, ops.state.turn(gradient, -1.0));
        }
    }
}

pub(crate) fn rotate(x: Tensor<4>, positions: &TokenPositions, rotary: &Rotary) -> Tensor<4> {
    op!("rotate");
    let [batch, len, _, _] = x.dims();
    let (positions, long) = match positions {
        TokenPositions::From(start) => {
            let end = start + len;
            (Positions::From { start: *start, len }, rotary.table_of((*start..end).map(|at| (at, end))))
        }
        TokenPositions::Packed { positions, lengths } => {
            let tokens = positions.iter().copied().zip(lengths.iter().copied());
            (Positions::Each(positions.clone()), rotary.table_of(tokens))
        }
        TokenPositions::Rows { positions, pad_mask } => {
            let positions: Arc<[usize]> = super::indices(positions.clone()).into();
            let lengths = super::indices(pad_mask.clone().bool_not().int().sum_dim(1));
            let tokens = positions.iter().enumerate().map(|(token, at)| (*at, lengths[token / len]));
            let table = rotary.table_of(tokens);
            (Positions::Each(positions), table)
        }
    };
    // The table of long sequences has a row a token.
    let (positions, table) = match (long, positions) {
        (Some(table), Positions::From { .. }) => (Positions::From { start: 0, len }, table),
        (Some(table), Positions::Each(_)) => (Positions::Each((0..batch * len).collect()), table),
        (None, positions) => {
            let table = rotary.table(positions.end());
            (positions, table)
        }
    };
    let Input { value, node } = Input::dense(x);
    let state = State { positions, rotary: rotary.clone(), table };
    let y = state.turn(value, 1.0);
    output(Rotate, [node], y, || state)
}
