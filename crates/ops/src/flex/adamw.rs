//! AdamW's update in one pass, and the sum of squares that clipping needs.

use super::vector::vectorised;
use super::{BLOCK, Input, op, tensor, values, values_mut};
use crate::AdamStep;
pub(super) use crate::adam::Constants;
use burn::tensor::{Shape, Tensor};
use burn_flex::Flex;
use rayon::prelude::*;

/// Elements per task: four arrays are read and three written.
pub(crate) const TASK: usize = 4 * BLOCK;

vectorised! {
    fn update(value: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32], c: Constants) {
        let n = value.len();
        let (gradient, first, second) = (&gradient[..n], &mut first[..n], &mut second[..n]);
        for i in 0..n {
            let gradient = gradient[i] * c.scale;
            let m = c.beta1 * first[i] + (1.0 - c.beta1) * gradient;
            let v = c.beta2 * second[i] + (1.0 - c.beta2) * gradient * gradient;
            (first[i], second[i]) = (m, v);
            value[i] = value[i] * c.keep - c.rate * m / (v.sqrt() * c.correction + c.eps);
        }
    }

    fn squares(x: &[f32]) -> f32 {
        // More sums side by side than a register holds: an addition waits for the one before it.
        const SUMS: usize = 64;
        let (whole, rest) = x.as_chunks::<SUMS>();
        let mut sums = [0f32; SUMS];
        for chunk in whole {
            sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x * x);
        }
        rest.iter().zip(&mut sums).for_each(|(x, sum)| *sum += x * x);
        sums.iter().sum()
    }
}

pub(crate) fn adamw(
    value: Tensor<1>,
    gradient: Tensor<1>,
    moments: [Tensor<1>; 2],
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    op!("adamw");
    let constants = Constants::from(step);
    let [mut value, gradient] = [value, gradient].map(|x| Input::dense(x).value);
    let [mut first, mut second] = moments.map(|x| Input::dense(x).value);
    values_mut(&mut value)
        .par_chunks_mut(TASK)
        .zip(values(&gradient).par_chunks(TASK))
        .zip(values_mut(&mut first).par_chunks_mut(TASK))
        .zip(values_mut(&mut second).par_chunks_mut(TASK))
        .for_each(|(((value, gradient), first), second)| update(value, gradient, first, second, constants));
    let [value, first, second] = [value, first, second].map(Tensor::from_primitive::<Flex>);
    (value, [first, second])
}

pub(crate) fn squared_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let total = parts(x).into_iter().map(f64::from).sum::<f64>();
    Tensor::from_primitive::<Flex>(tensor(vec![total as f32], Shape::new([1])))
}

/// A sum for each started [`TASK`] elements.
pub(crate) fn squared_sums<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let parts = parts(x);
    let shape = Shape::new([parts.len()]);
    Tensor::from_primitive::<Flex>(tensor(parts, shape))
}

fn parts<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    op!("squared_sum");
    let x = Input::dense(x).value;
    values(&x).par_chunks(TASK).map(squares).collect()
}
