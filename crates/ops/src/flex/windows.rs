//! The windows of packed sequences' tokens.

use super::{Input, dense, filled, op, output, register, rows, rows_per_task, tensor, values};
use crate::Packing;
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::Flex;
use rayon::prelude::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Which windows.
#[derive(Debug, Clone)]
struct Windows {
    packing: Packing,
    width: usize,
    before: usize,
}

impl Windows {
    /// Each token's position, and its sequence's length.
    fn tokens(&self) -> Vec<(usize, usize)> {
        self.packing
            .lengths()
            .iter()
            .flat_map(|len| (0..*len).map(move |position| (position, *len)))
            .collect()
    }

    /// The positions in a window that have a token.
    fn filled(&self, position: usize, len: usize) -> Range<usize> {
        self.before.saturating_sub(position)..self.width.min(self.before + len - position)
    }
}

#[derive(Debug)]
struct Unfold;

impl Backward<Flex, 1> for Unfold {
    type State = Windows;

    fn backward(self, ops: Ops<Windows, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("windows_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let windows = &ops.state;
        let (n_tokens, in_window) = rows(&gradient);
        let gradient = values(&gradient);
        let d = in_window / windows.width;
        let tokens = windows.tokens();
        let per_task = rows_per_task(in_window);
        let mut dx = vec![0.0; n_tokens * d];
        let tasks = dx.par_chunks_mut((per_task * d).max(1)).zip(tokens.par_chunks(per_task)).enumerate();
        tasks.for_each(|(task, (dx, tokens))| {
            let rows = dx.chunks_exact_mut(d).zip(tokens).enumerate();
            for (i, (dx, (position, len))) in rows {
                let token = task * per_task + i;
                // At `place` in the window of the token that stands `place − before` earlier.
                for place in 0..windows.width {
                    let owner = (position + windows.before).checked_sub(place);
                    if owner.is_some_and(|owner| owner < *len) {
                        let owner = token + windows.before - place;
                        let part = &gradient[owner * in_window + place * d..][..d];
                        dx.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
                    }
                }
            }
        });
        register(grads, &ops, [tensor(dx, Shape::new([n_tokens, d]))]);
    }
}

pub(crate) fn windows(x: Tensor<2>, packing: &Packing, width: usize, before: usize) -> Tensor<2> {
    op!("windows");
    let x = Input::dense(x);
    let (n_tokens, d) = rows(&x.value);
    let from = values(&x.value);
    let windows = Windows { packing: packing.clone(), width, before };
    let tokens = windows.tokens();
    let in_window = width * d;
    let per_task = rows_per_task(in_window);
    // SAFETY: the tasks cover the whole, and each window is written before, in and behind its sequence.
    let y = unsafe {
        filled(n_tokens * in_window, |y| {
            let tasks = y.par_chunks_mut((per_task * in_window).max(1)).zip(tokens.par_chunks(per_task));
            tasks.enumerate().for_each(|(task, (y, tokens))| {
                for (i, (y, (position, len))) in y.chunks_exact_mut(in_window).zip(tokens).enumerate() {
                    let (token, places) = (task * per_task + i, windows.filled(*position, *len));
                    let (outside, inside) = y.split_at_mut(places.start * d);
                    let (inside, behind) = inside.split_at_mut(places.len() * d);
                    let first = token + places.start - before;
                    for (y, x) in inside.iter_mut().zip(&from[first * d..]) {
                        y.write(*x);
                    }
                    outside.fill(MaybeUninit::new(0.0));
                    behind.fill(MaybeUninit::new(0.0));
                }
            });
        })
    };
    let y = tensor(y, Shape::new([n_tokens, in_window]));
    output(Unfold, [x.node], y, || windows)
}
