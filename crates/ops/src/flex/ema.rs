//! An exponential moving average in one pass, in place.

use super::adamw::TASK;
use super::vector::vectorised;
use super::{Input, op, values, values_mut};
use burn::tensor::Tensor;
use burn_flex::Flex;
use rayon::prelude::*;

vectorised! {
    fn update(average: &mut [f32], value: &[f32], decay: f32, rest: f32) {
        for (average, value) in average.iter_mut().zip(value) {
            *average = decay * *average + rest * value;
        }
    }
}

pub(crate) fn moving_average(average: Tensor<1>, value: Tensor<1>, decay: f64) -> Tensor<1> {
    op!("moving_average");
    let (decay, rest) = (decay as f32, (1.0 - decay) as f32);
    let [mut average, value] = [average, value].map(|x| Input::dense(x).value);
    values_mut(&mut average)
        .par_chunks_mut(TASK)
        .zip(values(&value).par_chunks(TASK))
        .for_each(|(average, value)| update(average, value, decay, rest));
    Tensor::from_primitive::<Flex>(average)
}
