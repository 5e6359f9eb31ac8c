//! A head over sequences of integers.

use super::norm::ratios;
use super::parts::IntegerClassifierParts;
use crate::ops::integer_only::{Dyadic, IntegerLinear, IntegerTanh, saturated};

#[derive(Debug, Clone)]
pub(super) struct Classifier {
    dense: IntegerLinear,
    to_16: Vec<Dyadic>,
    tanh: IntegerTanh,
    output: IntegerLinear,
    /// The scale of each logit.
    scales: Vec<f32>,
}

impl Classifier {
    /// The head for states of this scale.
    pub fn new(parts: &IntegerClassifierParts, input_scale: f64) -> Result<Self, String> {
        let scales = parts.output.scales.iter().map(|scale| (scale * IntegerTanh::OUTPUT_SCALE) as f32);
        Ok(Self {
            dense: IntegerLinear::new(&parts.dense.matrix, &parts.dense.bias)?,
            to_16: ratios(&parts.dense.scales, input_scale, parts.dense_scale)?,
            tanh: IntegerTanh::new(parts.dense_scale)?,
            output: IntegerLinear::new(&parts.output.matrix, &parts.output.bias)?,
            scales: scales.collect(),
        })
    }

    /// The logits, whose integers are multiplied with their scales at last.
    ///
    /// # Shapes
    /// - `states`: `[n, d_model]`; returns `[n, n_outputs]`
    pub fn forward(&self, states: &[i8]) -> Vec<f32> {
        let [_, d] = self.dense.dims();
        let sums = self.dense.forward(states);
        let rounded = sums.chunks_exact(d).flat_map(|sums| {
            let pooled = |(sum, ratio): (&i32, &Dyadic)| {
                self.tanh.apply(saturated(ratio.apply_narrow(i64::from(*sum)), 16))
            };
            sums.iter().zip(&self.to_16).map(pooled)
        });
        let pooled: Vec<i8> = rounded.collect();
        let logits = self.output.forward(&pooled);
        let scales = self.scales.iter().cycle();
        logits.iter().zip(scales).map(|(logit, scale)| *logit as f32 * scale).collect()
    }

    pub fn n_outputs(&self) -> usize {
        self.scales.len()
    }
}
