//! LAMB's update: one pass for moments and norms, one for the values.

use super::adamw::{Constants, TASK};
use super::vector::{sum, vectorised};
use super::{Input, op, values, values_mut};
use crate::AdamStep;
use crate::lamb::trust_ratio;
use burn::tensor::Tensor;
use burn_flex::Flex;
use rayon::prelude::*;

/// The direction that an element of the moments gives.
#[inline(always)]
fn direction(value: f32, first: f32, second: f32, c: Constants) -> f32 {
    first * c.first_correction / (second.sqrt() * c.correction + c.eps) + c.weight_decay * value
}

vectorised! {
    /// Updates the moments; returns the sums of squares of values and directions.
    fn moments(value: &[f32], gradient: &[f32], first: &mut [f32], second: &mut [f32], c: Constants) -> [f32; 2] {
        let n = value.len();
        let (gradient, first, second) = (&gradient[..n], &mut first[..n], &mut second[..n]);
        for i in 0..n {
            let gradient = gradient[i] * c.scale;
            first[i] = c.beta1 * first[i] + (1.0 - c.beta1) * gradient;
            second[i] = c.beta2 * second[i] + (1.0 - c.beta2) * gradient * gradient;
        }
        let (first, second): (&[f32], &[f32]) = (first, second);
        [
            sum([value], |[value]| value * value),
            sum([value, first, second], |[value, first, second]| {
                let r = direction(value, first, second, c);
                r * r
            }),
        ]
    }

    fn update(value: &mut [f32], first: &[f32], second: &[f32], rate: f32, c: Constants) {
        let n = value.len();
        let (first, second) = (&first[..n], &second[..n]);
        for i in 0..n {
            value[i] -= rate * direction(value[i], first[i], second[i], c);
        }
    }
}

pub(crate) fn lamb(
    value: Tensor<1>,
    gradient: Tensor<1>,
    [first, second]: [Tensor<1>; 2],
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    op!("lamb");
    let constants = Constants::from(step);
    let [mut value, gradient] = [value, gradient].map(|x| Input::dense(x).value);
    let [mut first, mut second] = [first, second].map(|x| Input::dense(x).value);
    let (m, v) = (values_mut(&mut first), values_mut(&mut second));
    let squares: Vec<[f32; 2]> = values(&value)
        .par_chunks(TASK)
        .zip(values(&gradient).par_chunks(TASK))
        .zip(m.par_chunks_mut(TASK))
        .zip(v.par_chunks_mut(TASK))
        .map(|(((value, gradient), first), second)| moments(value, gradient, first, second, constants))
        .collect();
    let norm = |part: usize| squares.iter().map(|s| f64::from(s[part])).sum::<f64>().sqrt();
    let rate = constants.lr * trust_ratio(norm(0), norm(1)) as f32;
    values_mut(&mut value)
        .par_chunks_mut(TASK)
        .zip(m.par_chunks(TASK))
        .zip(v.par_chunks(TASK))
        .for_each(|((value, first), second)| update(value, first, second, rate, constants));
    let [value, first, second] = [value, first, second].map(Tensor::from_primitive::<Flex>);
    (value, [first, second])
}
