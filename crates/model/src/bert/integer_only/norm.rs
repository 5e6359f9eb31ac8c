//! A sum that is normalised and rounded.

use super::parts::IntegerNorm;
use crate::ops::integer_only::{Dyadic, IntegerLayerNorm, Ratios, saturated};

/// A layer normalisation whose results are rounded to 8 bits.
#[derive(Debug, Clone)]
pub(super) struct RoundedNorm {
    norm: IntegerLayerNorm,
    /// From the scale of each feature to that of the result.
    to_output: Ratios,
    /// What is added then: the shift, where it is not in the norm.
    later: Vec<i16>,
}

impl RoundedNorm {
    pub fn new(parts: &IntegerNorm, output_scale: f64) -> Result<Self, String> {
        let n = parts.gamma.len();
        let norm = IntegerLayerNorm::new(&parts.gamma, &parts.beta, parts.shift);
        let features = parts.gamma.iter().zip(&parts.beta).zip(norm.is_shifted());
        let to_output = features.map(|((gamma, beta), is_shifted)| {
            let later = if *is_shifted { 0.0 } else { (beta / output_scale).round_ties_even() };
            let ratio = Dyadic::new(IntegerLayerNorm::output_scale(*gamma, n) / single(output_scale))?;
            Ok((ratio, saturated(later as i64, 9) as i16))
        });
        let (ratios, later) = to_output.collect::<Result<Vec<_>, String>>()?.into_iter().unzip();
        Ok(Self { to_output: Ratios::new(ratios), later, norm })
    }

    /// Normalises a token.
    pub fn apply(&self, token: &[i32], to: &mut [i8]) {
        self.norm.apply_to_8_bits(token, &self.to_output, &self.later, to);
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
