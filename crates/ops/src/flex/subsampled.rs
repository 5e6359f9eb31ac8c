//! Every few places of images, with zeros for new channels.

use super::{Input, dense, filled, op, output, register, tensor, values};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::Flex;
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// The sizes of the images, and what is taken of them.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    shape: [usize; 4],
    stride: usize,
    channels: usize,
}

impl Sizes {
    /// Rows and columns that are taken.
    fn taken(&self) -> [usize; 2] {
        [self.shape[1], self.shape[2]].map(|n| n.div_ceil(self.stride))
    }
}

#[derive(Debug)]
struct Subsampled;

impl Backward<Flex, 1> for Subsampled {
    type State = Sizes;

    fn backward(self, ops: Ops<Sizes, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("subsampled_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let from = values(&gradient);
        let Sizes { shape: [batch, rows, columns, d], stride, channels } = ops.state;
        let [_, columns_out] = ops.state.taken();
        let (row, row_out) = (columns * d, columns_out * channels);
        // SAFETY: the tasks cover the whole; each row is written place by place, or zeroed.
        let dx = unsafe {
            filled(batch * rows * row, |dx| {
                dx.par_chunks_mut((rows * row).max(1)).enumerate().for_each(|(image, dx)| {
                    let rows_out = rows.div_ceil(stride);
                    for (i, dx) in dx.chunks_exact_mut(row).enumerate() {
                        dx.fill(MaybeUninit::new(0.0));
                        if !i.is_multiple_of(stride) {
                            continue;
                        }
                        let from = &from[(image * rows_out + i / stride) * row_out..][..row_out];
                        for (dx, from) in dx.chunks_mut(stride * d).zip(from.chunks_exact(channels)) {
                            dx[..d].iter_mut().zip(from).for_each(|(dx, x)| _ = dx.write(*x));
                        }
                    }
                });
            })
        };
        register(grads, &ops, [tensor(dx, Shape::new(ops.state.shape))]);
    }
}

pub(crate) fn subsampled(x: Tensor<4>, stride: usize, channels: usize) -> Tensor<4> {
    op!("subsampled");
    let sizes = Sizes { shape: x.dims(), stride, channels };
    let ([batch, rows, columns, d], [rows_out, columns_out]) = (sizes.shape, sizes.taken());
    let x = Input::dense(x);
    let from = values(&x.value);
    let row = columns_out * channels;
    // SAFETY: the tasks cover the whole; each place is written, its channels and then the zeros.
    let y = unsafe {
        filled(batch * rows_out * row, |y| {
            y.par_chunks_mut((rows_out * row).max(1)).enumerate().for_each(|(image, y)| {
                for (place, y) in y.chunks_exact_mut(channels.max(1)).enumerate() {
                    let (i, j) = (place / columns_out * stride, place % columns_out * stride);
                    let from = &from[((image * rows + i) * columns + j) * d..][..d];
                    let (taken, new) = y.split_at_mut(d);
                    taken.iter_mut().zip(from).for_each(|(y, x)| _ = y.write(*x));
                    new.fill(MaybeUninit::new(0.0));
                }
            });
        })
    };
    let y = tensor(y, Shape::new([batch, rows_out, columns_out, channels]));
    output(Subsampled, [x.node], y, || sizes)
}
