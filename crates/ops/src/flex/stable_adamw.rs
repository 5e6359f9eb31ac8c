//! StableAdamW's update: one pass for the moments and the second one's lag, one for the values.

use super::adamw::{Constants, TASK};
use super::vector::{sum, vectorised};
use super::{Input, op, values, values_mut};
use crate::AdamStep;
use crate::stable_adamw::clipping;
use burn::tensor::Tensor;
use burn_flex::Flex;
use rayon::prelude::*;

vectorised! {
    /// Updates the moments; returns the sum of `g² / max(v̂, ε²)`.
    fn moments(gradient: &[f32], first: &mut [f32], second: &mut [f32], c: Constants) -> f32 {
        let n = gradient.len();
        let (first, second) = (&mut first[..n], &mut second[..n]);
        for i in 0..n {
            let gradient = gradient[i] * c.scale;
            first[i] = c.beta1 * first[i] + (1.0 - c.beta1) * gradient;
            second[i] = c.beta2 * second[i] + (1.0 - c.beta2) * gradient * gradient;
        }
        let (correct, least) = (c.correction * c.correction, c.eps * c.eps);
        sum([gradient, &*second], |[gradient, second]| {
            let gradient = gradient * c.scale;
            gradient * gradient / (second * correct).max(least)
        })
    }

    fn update(value: &mut [f32], first: &[f32], second: &[f32], keep: f32, rate: f32, c: Constants) {
        let n = value.len();
        let (first, second) = (&first[..n], &second[..n]);
        for i in 0..n {
            value[i] = value[i] * keep - rate * first[i] / (second[i].sqrt() * c.correction + c.eps);
        }
    }
}

pub(crate) fn stable_adamw(
    value: Tensor<1>,
    gradient: Tensor<1>,
    [first, second]: [Tensor<1>; 2],
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    op!("stable_adamw");
    let constants = Constants::from(step);
    let [mut value, gradient] = [value, gradient].map(|x| Input::dense(x).value);
    let [mut first, mut second] = [first, second].map(|x| Input::dense(x).value);
    let (m, v) = (values_mut(&mut first), values_mut(&mut second));
    let gradient = values(&gradient);
    let sums: Vec<f32> = gradient
        .par_chunks(TASK)
        .zip(m.par_chunks_mut(TASK))
        .zip(v.par_chunks_mut(TASK))
        .map(|((gradient, first), second)| moments(gradient, first, second, constants))
        .collect();
    let mean = sums.into_iter().map(f64::from).sum::<f64>() / gradient.len().max(1) as f64;
    let lr = step.lr * clipping(mean);
    let keep = (1.0 - lr * step.weight_decay) as f32;
    let rate = (lr / step.corrections()[0]) as f32;
    values_mut(&mut value)
        .par_chunks_mut(TASK)
        .zip(m.par_chunks(TASK))
        .zip(v.par_chunks(TASK))
        .for_each(|((value, first), second)| update(value, first, second, keep, rate, constants));
    let [value, first, second] = [value, first, second].map(Tensor::from_primitive::<Flex>);
    (value, [first, second])
}
