//! A sum that is normalised and rounded.

use super::parts::IntegerNorm;
use crate::ops::integer_only::{Dyadic, IntegerLayerNorm, saturated};

/// A layer normalisation whose results are rounded to 8 bits.
#[derive(Debug, Clone)]
pub(super) struct RoundedNorm {
    norm: IntegerLayerNorm,
    /// From the scale of each feature to that of the result, and what is added then: the shift, where it is not in the norm.
    to_output: Vec<(Dyadic, i64)>,
}

impl RoundedNorm {
    pub fn new(parts: &IntegerNorm, output_scale: f64) -> Result<Self, String> {
        let n = parts.gamma.len();
        let norm = IntegerLayerNorm::new(&parts.gamma, &parts.beta, parts.shift);
        let features = parts.gamma.iter().zip(&parts.beta).zip(norm.is_shifted());
        let to_output = features.map(|((gamma, beta), is_shifted)| {
            let later = if *is_shifted { 0.0 } else { (beta / output_scale).round_ties_even() };
            let ratio = Dyadic::new(IntegerLayerNorm::output_scale(*gamma, n) / single(output_scale))?;
            Ok((ratio, saturated(later as i64, 9)))
        });
        Ok(Self { to_output: to_output.collect::<Result<_, String>>()?, norm })
    }

    /// Normalises a token; `wide` is memory for as many integers.
    pub fn apply(&self, token: &[i32], wide: &mut [i64], to: &mut [i8]) {
        self.norm.apply(token, wide);
        for ((q, (ratio, later)), to) in wide.iter().zip(&self.to_output).zip(to) {
            *to = saturated(ratio.apply_narrow(*q) + later, 8) as i8;
        }
    }
}

/// A scale in single precision, in which the reference divides by it.
pub(super) fn single(scale: f64) -> f64 {
    f64::from(scale as f32)
}

/// The factor between two scales.
pub(super) fn ratio(from: f64, to: f64) -> Result<Dyadic, String> {
    Dyadic::new(from / single(to))
}

/// The factors from the scales of sums to another.
pub(super) fn ratios(scales: &[f64], input_scale: f64, to: f64) -> Result<Vec<Dyadic>, String> {
    scales.iter().map(|scale| ratio(scale * input_scale, to)).collect()
}
