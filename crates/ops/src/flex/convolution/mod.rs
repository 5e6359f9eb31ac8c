//! Convolutions of images without their windows: neither pass writes them.
//!
//! Each image is put between zeros in a buffer that stays in its core's cache, and tiles of the result are summed from there. The backward
//! pass keeps the input and the weight alone. The input's gradient is the convolution of the output's with the weight turned round; the
//! weight's is a sum over the places of all images.

mod image;
mod tile;

use super::{Input, dense, filled, op, output, tensor, values};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use image::{Padded, Panels, Sizes, add_weight_gradient, convolve};
use rayon::prelude::*;

/// Images of a task: fixed, so that sums do not depend on the number of threads.
const IMAGES: usize = 4;

#[derive(Debug, Clone)]
struct State {
    x: FlexTensor,
    weight: FlexTensor,
    batch: usize,
    sizes: Sizes,
}

impl State {
    fn flops(&self) -> usize {
        2 * self.batch * self.sizes.output() * self.sizes.window()
    }

    /// The gradients of the input and of the weight, if wanted.
    fn gradients(&self, gradient: &[f32], wanted: [bool; 2]) -> [Option<FlexTensor>; 2] {
        let (sizes, x) = (&self.sizes, values(&self.x));
        let (n_in, n_out, padded) = (sizes.input(), sizes.output(), sizes.padded_out());
        let turned = wanted[0].then(|| Panels::of_turned(sizes, values(&self.weight)));
        let n_weights = if wanted[1] { sizes.window() * padded } else { 0 };
        let mut parts: Vec<Vec<f32>> = Vec::new();
        // SAFETY: the tasks cover the whole, and `convolve` writes all of its image.
        let dx = unsafe {
            filled(if wanted[0] { self.batch * n_in } else { 0 }, |dx| {
                let mut chunks = dx.chunks_mut((IMAGES * n_in).max(1));
                let dx: Vec<_> = (0..self.batch.div_ceil(IMAGES)).map(|_| chunks.next()).collect();
                let tasks = dx.into_par_iter().enumerate().map(|(task, mut dx)| {
                    let (mut input, mut output) = (Padded::input(sizes), Padded::gradient(sizes));
                    let mut total = vec![0.0; n_weights];
                    for (place, image) in (task * IMAGES..self.batch.min((task + 1) * IMAGES)).enumerate() {
                        output.set(
                            &gradient[image * n_out..][..n_out],
                            sizes.columns_out(),
                            sizes.channels_out,
                        );
                        if let (Some(turned), Some(dx)) = (&turned, &mut dx) {
                            let dx = &mut dx[place * n_in..][..n_in];
                            convolve(&output, sizes.width, 1, [sizes.rows, sizes.columns], turned, dx);
                        }
                        if wanted[1] {
                            input.set(&x[image * n_in..][..n_in], sizes.columns, sizes.channels);
                            add_weight_gradient(sizes, &input, &output, &mut total);
                        }
                    }
                    total
                });
                parts = tasks.collect();
            })
        };
        let dw = || {
            let mut total = vec![0.0f32; n_weights];
            for part in parts {
                total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
            }
            let rows = total.chunks_exact(padded.max(1));
            let dw: Vec<f32> = rows.flat_map(|row| &row[..sizes.channels_out]).copied().collect();
            tensor(dw, self.weight.layout().shape().clone())
        };
        [wanted[0].then(|| tensor(dx, self.x.layout().shape().clone())), wanted[1].then(dw)]
    }
}

#[derive(Debug)]
struct Convolution;

impl Backward<Flex, 2> for Convolution {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let wanted = [0, 1].map(|parent| ops.parents[parent].is_some());
        let n_wanted = wanted.into_iter().filter(|wanted| *wanted).count();
        op!("image_convolution_backward", n_wanted * ops.state.flops());
        let found = ops.state.gradients(values(&gradient), wanted);
        for (parent, gradient) in ops.parents.iter().zip(found) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

/// `weight` is `[width · width · channels, channels_out]`.
pub(crate) fn image_convolution(x: Tensor<4>, weight: Tensor<2>, width: usize, stride: usize) -> Tensor<4> {
    let [batch, rows, columns, channels] = x.dims();
    let [_, channels_out] = weight.dims();
    let sizes = Sizes { rows, columns, channels, channels_out, width, stride };
    let (x, weight) = (Input::dense(x), Input::dense(weight));
    let state = State { x: x.value, weight: weight.value, batch, sizes };
    op!("image_convolution", state.flops());
    let panels = Panels::of_weight(&sizes, values(&state.weight));
    let (n_in, n_out) = (sizes.input(), sizes.output());
    let (size, from) = ([sizes.rows_out(), sizes.columns_out()], values(&state.x));
    // SAFETY: the tasks cover the whole, and `convolve` writes all of its image.
    let y = unsafe {
        filled(batch * n_out, |y| {
            y.par_chunks_mut((IMAGES * n_out).max(1)).enumerate().for_each(|(task, y)| {
                let mut input = Padded::input(&sizes);
                for (place, y) in y.chunks_exact_mut(n_out).enumerate() {
                    input.set(&from[(task * IMAGES + place) * n_in..][..n_in], columns, channels);
                    convolve(&input, width, stride, size, &panels, y);
                }
            });
        })
    };
    let y = tensor(y, Shape::new([batch, size[0], size[1], channels_out]));
    output(Convolution, [x.node, weight.node], y, || state)
}
