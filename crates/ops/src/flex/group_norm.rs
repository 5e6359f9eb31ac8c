//! Group normalisation of images, optionally with the residual connection and the ReLU after it.

use super::vector::vectorised;
use super::{Input, dense, filled, op, output, register, tensor, values, values_mut};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// A group's mean and the inverse of its standard deviation.
type Statistics = [f32; 2];

/// The least length of the rows that loops run over: an image's places are few numbers each, so several make a row.
const ROW: usize = 256;

vectorised! {
    /// `total += x`, row by row.
    fn add_rows(x: &[f32], total: &mut [f32]) {
        for row in x.chunks(total.len().max(1)) {
            total.iter_mut().zip(row).for_each(|(total, x)| *total += x);
        }
    }

    /// `total += (x − mean)²`
    fn add_squares(x: &[f32], mean: &[f32], total: &mut [f32]) {
        for row in x.chunks(total.len().max(1)) {
            for ((total, x), mean) in total.iter_mut().zip(row).zip(mean) {
                *total += (x - mean) * (x - mean);
            }
        }
    }

    /// `y = x · scale + shift`
    fn scale_rows(x: &[f32], scale: &[f32], shift: &[f32], y: &mut [MaybeUninit<f32>]) {
        for (x, y) in x.chunks(scale.len().max(1)).zip(y.chunks_mut(scale.len().max(1))) {
            for (((y, x), scale), shift) in y.iter_mut().zip(x).zip(scale).zip(shift) {
                y.write(x * scale + shift);
            }
        }
    }

    /// `y = ReLU(x · scale + shift)`
    fn scale_relu_rows(x: &[f32], scale: &[f32], shift: &[f32], y: &mut [MaybeUninit<f32>]) {
        for (x, y) in x.chunks(scale.len().max(1)).zip(y.chunks_mut(scale.len().max(1))) {
            for (((y, x), scale), shift) in y.iter_mut().zip(x).zip(scale).zip(shift) {
                let sum = x * scale + shift;
                // Not `max`, which turns NaN into 0.
                y.write(if sum <= 0.0 { 0.0 } else { sum });
            }
        }
    }

    /// `y = ReLU(residual + x · scale + shift)`
    fn add_scale_relu_rows(x: &[f32], residual: &[f32], scale: &[f32], shift: &[f32], y: &mut [MaybeUninit<f32>]) {
        let row = scale.len().max(1);
        for ((x, y), residual) in x.chunks(row).zip(y.chunks_mut(row)).zip(residual.chunks(row)) {
            for ((((y, x), residual), scale), shift) in y.iter_mut().zip(x).zip(residual).zip(scale).zip(shift) {
                let sum = residual + (x * scale + shift);
                y.write(if sum <= 0.0 { 0.0 } else { sum });
            }
        }
    }

    /// Zeros the gradient where the output is.
    fn relu_backward(y: &[f32], gradient: &mut [f32]) {
        for (gradient, y) in gradient.iter_mut().zip(y) {
            *gradient = if *y <= 0.0 { 0.0 } else { *gradient };
        }
    }

    /// `products += gradient · (x − mean)`, `sums += gradient`
    fn add_products(gradient: &[f32], x: &[f32], mean: &[f32], products: &mut [f32], sums: &mut [f32]) {
        let row = mean.len().max(1);
        for (gradient, x) in gradient.chunks(row).zip(x.chunks(row)) {
            let sums = products.iter_mut().zip(sums.iter_mut());
            for ((((products, sums), gradient), x), mean) in sums.zip(gradient).zip(x).zip(mean) {
                *products += gradient * (x - mean);
                *sums += gradient;
            }
        }
    }

    /// `dx = gradient · scale + (x − mean) · slope + shift`
    fn input_gradient(gradient: &[f32], x: &[f32], mean: &[f32], factors: [&[f32]; 3], dx: &mut [MaybeUninit<f32>]) {
        let ([scale, slope, shift], row) = (factors, mean.len().max(1));
        for ((gradient, x), dx) in gradient.chunks(row).zip(x.chunks(row)).zip(dx.chunks_mut(row)) {
            let numbers = dx.iter_mut().zip(gradient).zip(x).zip(mean);
            for ((((((dx, gradient), x), mean), scale), slope), shift) in numbers.zip(scale).zip(slope).zip(shift) {
                dx.write(gradient * scale + ((x - mean) * slope + shift));
            }
        }
    }
}

/// The sizes of an image.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    places: usize,
    channels: usize,
    groups: usize,
}

impl Sizes {
    fn image(&self) -> usize {
        self.places * self.channels
    }

    /// Numbers of a group.
    fn group(&self) -> f32 {
        (self.image() / self.groups) as f32
    }

    /// The group of a channel.
    fn group_of(&self, channel: usize) -> usize {
        channel / (self.channels / self.groups)
    }

    /// A row: the values of the channels, several times.
    fn row(&self, value: impl Fn(usize) -> f32) -> Vec<f32> {
        let once: Vec<f32> = (0..self.channels).map(value).collect();
        once.repeat(ROW.div_ceil(self.channels.max(1)))
    }

    /// A row of zeros.
    fn zeros(&self) -> Vec<f32> {
        self.row(|_| 0.0)
    }

    /// The sums of a row by channel.
    fn by_channel(&self, row: &[f32]) -> Vec<f32> {
        let mut total = vec![0.0; self.channels];
        add_rows(row, &mut total);
        total
    }

    /// The sums of channels by group.
    fn by_group(&self, channels: impl Iterator<Item = f32>) -> Vec<f32> {
        let mut total = vec![0.0; self.groups];
        channels.enumerate().for_each(|(channel, x)| total[self.group_of(channel)] += x);
        total
    }

    fn statistics(&self, x: &[f32], epsilon: f32) -> Vec<Statistics> {
        let mut total = self.zeros();
        add_rows(x, &mut total);
        let sums = self.by_group(self.by_channel(&total).into_iter());
        let mean = self.row(|channel| sums[self.group_of(channel)] / self.group());
        total.fill(0.0);
        add_squares(x, &mean, &mut total);
        let squares = self.by_group(self.by_channel(&total).into_iter());
        let inverse = |squares: f32| 1.0 / (squares / self.group() + epsilon).sqrt();
        sums.iter().zip(squares).map(|(sum, squares)| [sum / self.group(), inverse(squares)]).collect()
    }
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    x: FlexTensor,
    gamma: FlexTensor,
    /// The output, if a ReLU comes after.
    y: Option<FlexTensor>,
    sizes: Sizes,
    /// Of each image's groups.
    statistics: Vec<Vec<Statistics>>,
}

impl State {
    /// The gradients of the input, the residual, the scale and the shift.
    fn gradients(&self, mut gradient: FlexTensor) -> [FlexTensor; 4] {
        let (sizes, x, gamma) = (self.sizes, values(&self.x), values(&self.gamma));
        let (shape, n, channels) = (gradient.layout().shape().clone(), sizes.image().max(1), sizes.channels);
        let y = self.y.as_ref().map(values);
        let mut parts: Vec<Vec<f32>> = Vec::new();
        // SAFETY: the tasks cover the whole, and `input_gradient` writes each element of its image.
        let dx = unsafe {
            filled(x.len(), |dx| {
                let tasks = dx.par_chunks_mut(n).zip(values_mut(&mut gradient).par_chunks_mut(n));
                let tasks = tasks.zip(x.par_chunks(n)).zip(&self.statistics).enumerate();
                let tasks = tasks.map(|(image, (((dx, gradient), x), statistics))| {
                    if let Some(y) = y {
                        relu_backward(&y[image * n..][..n], gradient);
                    }
                    let [mean, inverse] =
                        [0, 1].map(|which| sizes.row(|channel| statistics[sizes.group_of(channel)][which]));
                    let (mut products, mut sums) = (sizes.zeros(), sizes.zeros());
                    add_products(gradient, x, &mean, &mut products, &mut sums);
                    let (products, sums) = (sizes.by_channel(&products), sizes.by_channel(&sums));
                    // Of the group: the means of the scaled gradient, and of its products with the normalised input.
                    let means = |of: &[f32]| {
                        let mut total = sizes.by_group(of.iter().zip(gamma).map(|(of, gamma)| of * gamma));
                        total.iter_mut().for_each(|total| *total /= sizes.group());
                        total
                    };
                    let (a, b) = (means(&sums), means(&products));
                    let scale = sizes.row(|channel| inverse[channel] * gamma[channel]);
                    let slope = sizes.row(|channel| -inverse[channel].powi(3) * b[sizes.group_of(channel)]);
                    let shift = sizes.row(|channel| -inverse[channel] * a[sizes.group_of(channel)]);
                    input_gradient(gradient, x, &mean, [&scale, &slope, &shift], dx);
                    let of_gamma = products.iter().zip(&inverse).map(|(product, inverse)| product * inverse);
                    of_gamma.chain(sums.iter().copied()).collect()
                });
                parts = tasks.collect();
            })
        };
        let mut total = vec![0.0; 2 * channels];
        for part in parts {
            total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
        }
        let beta = total.split_off(channels);
        let of_channels = |x| tensor(x, Shape::new([channels]));
        [tensor(dx, shape), gradient, of_channels(total), of_channels(beta)]
    }
}

#[derive(Debug)]
struct GroupNorm;

impl Backward<Flex, 3> for GroupNorm {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("group_norm_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let [x, _, gamma, beta] = ops.state.gradients(gradient);
        register(grads, &ops, [x, gamma, beta]);
    }
}

#[derive(Debug)]
struct AddGroupNorm;

impl Backward<Flex, 4> for AddGroupNorm {
    type State = State;

    fn backward(self, ops: Ops<State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("add_group_norm_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let gradients = ops.state.gradients(gradient);
        register(grads, &ops, gradients);
    }
}

pub(crate) fn group_norm(
    x: Tensor<4>,
    groups: usize,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<4> {
    normed(x, None, false, groups, [gamma, beta], epsilon)
}

pub(crate) fn group_norm_relu(
    x: Tensor<4>,
    residual: Option<Tensor<4>>,
    groups: usize,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<4> {
    normed(x, residual, true, groups, [gamma, beta], epsilon)
}

/// A residual comes with a ReLU.
fn normed(
    x: Tensor<4>,
    residual: Option<Tensor<4>>,
    has_relu: bool,
    groups: usize,
    [gamma, beta]: [Tensor<1>; 2],
    epsilon: f64,
) -> Tensor<4> {
    op!("group_norm");
    let [_, rows, columns, channels] = x.dims();
    let sizes = Sizes { places: rows * columns, channels, groups };
    let (x, residual) = (Input::dense(x), residual.map(Input::dense));
    let [gamma, beta] = [gamma, beta].map(Input::dense);
    let shape = x.value.layout().shape().clone();
    assert_eq!(values(&gamma.value).len(), channels, "gamma has another width than x");
    assert_eq!(values(&beta.value).len(), channels, "beta has another width than x");
    let (from, scale, shift) = (values(&x.value), values(&gamma.value), values(&beta.value));
    let past = residual.as_ref().map(|residual| {
        assert_eq!(*residual.value.layout().shape(), shape, "the residual has another shape than x");
        values(&residual.value)
    });
    let n = sizes.image().max(1);
    let mut statistics = Vec::new();
    // SAFETY: the tasks cover the whole, and each writes every element of its image.
    let y = unsafe {
        filled(from.len(), |y| {
            let tasks = y.par_chunks_mut(n).zip(from.par_chunks(n)).enumerate();
            let tasks = tasks.map(|(image, (y, x))| {
                let statistics = sizes.statistics(x, epsilon as f32);
                let of = |channel: usize| statistics[sizes.group_of(channel)];
                let scale = sizes.row(|channel| of(channel)[1] * scale[channel]);
                let shift = sizes.row(|channel| shift[channel] - of(channel)[0] * scale[channel]);
                match past {
                    Some(past) => add_scale_relu_rows(x, &past[image * n..][..n], &scale, &shift, y),
                    None if has_relu => scale_relu_rows(x, &scale, &shift, y),
                    None => scale_rows(x, &scale, &shift, y),
                }
                statistics
            });
            statistics = tasks.collect();
        })
    };
    let y = tensor(y, shape);
    let kept = has_relu.then(|| y.clone());
    let state = || State { x: x.value, gamma: gamma.value, y: kept, sizes, statistics };
    match residual {
        Some(residual) => output(AddGroupNorm, [x.node, residual.node, gamma.node, beta.node], y, state),
        None => output(GroupNorm, [x.node, gamma.node, beta.node], y, state),
    }
}
