use crate::ops::{Rotary, RotaryPairs};
use crate::{ModelError, Result};
use serde::{Deserialize, Serialize};
use std::f32::consts::TAU;

/// Configuration of rotary positions (Su et al. 2021), by which [`MultiHeadAttention`](super::MultiHeadAttention)
/// rotates queries and keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RotaryConfig {
    /// Pair `i` of `n / 2` is rotated by `theta^(−2i/n)` radians a position (10,000 in the paper).
    pub theta: f64,
    /// How many features of a head are rotated, `n`; none: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_features: Option<usize>,
    /// Whether a pair is two neighbouring features, as in the paper and GPT-J, or one feature of each half, as in
    /// GPT-NeoX and Llama.
    pub interleaved: bool,
    /// How the angles change for sequences that are longer than those of pretraining.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RotaryScaling>,
}

/// How a model is extended to longer sequences than those of pretraining.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RotaryScaling {
    /// All angles are divided by a factor (Chen et al. 2023, "Extending Context Window of Large Language Models via
    /// Position Interpolation").
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Angles of long waves are divided, those of short waves kept, and those in between interpolated (Llama 3.1).
    Llama3 {
        /// The divisor of long waves' angles.
        factor: f64,
        /// Waves longer than `original_positions` divided by this factor are long.
        low_frequency_factor: f64,
        /// Waves shorter than `original_positions` divided by this factor are short.
        high_frequency_factor: f64,
        /// The number of positions in pretraining.
        original_positions: usize,
    },
}

impl Default for RotaryConfig {
    /// Llama's configuration: all features, in halves, `theta` = 10,000.
    fn default() -> Self {
        Self { theta: 10_000.0, n_features: None, interleaved: false, scaling: None }
    }
}

impl RotaryConfig {
    /// Rotary positions for heads of `d_k` features. Clone the value for all layers, which then share its tables.
    ///
    /// The frequencies are computed in FP32 as in transformers' `modeling_rope_utils`.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, d_k: usize) -> Rotary {
        assert!(self.validate(d_k).is_ok(), "invalid rotary positions of {d_k} features: {self:?}");
        let n = self.n_features.unwrap_or(d_k);
        let frequency = |i: usize| {
            let exponent = (2 * i) as f32 / n as f32;
            1.0 / (self.theta.powf(exponent.into()) as f32)
        };
        let scaled = |frequency: f32| match self.scaling {
            None => frequency,
            Some(RotaryScaling::Linear { factor }) => frequency / factor as f32,
            Some(RotaryScaling::Llama3 {
                factor,
                low_frequency_factor,
                high_frequency_factor,
                original_positions,
            }) => {
                let (low, high) = (low_frequency_factor as f32, high_frequency_factor as f32);
                let (positions, wave) = (original_positions as f32, TAU / frequency);
                let long = frequency / factor as f32;
                if wave > positions / low {
                    long
                } else if wave < positions / high {
                    frequency
                } else {
                    let smooth = (positions / wave - low) / (high - low);
                    (1.0 - smooth) * long + smooth * frequency
                }
            }
        };
        let frequencies: Vec<f32> = (0..n / 2).map(frequency).map(scaled).collect();
        let pairs = if self.interleaved { RotaryPairs::Neighbours } else { RotaryPairs::Halves };
        Rotary::new(frequencies, pairs)
    }

    /// Checks that the values fit together and suit heads of `d_k` features.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self, d_k: usize) -> Result<()> {
        let refuse = |key, found: String, expected: String| Err(ModelError::Setting { key, found, expected });
        let n = self.n_features.unwrap_or(d_k);
        if n == 0 || n > d_k || !n.is_multiple_of(2) {
            let expected = format!("an even number up to the width of a head, which is {d_k}");
            return refuse("rotary.n_features", n.to_string(), expected);
        }
        let above = |bound: f64| move |x: f64| x.is_finite() && x > bound;
        if !above(0.0)(self.theta) {
            return refuse("rotary.theta", self.theta.to_string(), "a number above 0".into());
        }
        match self.scaling {
            Some(RotaryScaling::Linear { factor } | RotaryScaling::Llama3 { factor, .. })
                if !above(0.0)(factor) =>
            {
                refuse("rotary.scaling.factor", factor.to_string(), "a number above 0".into())
            }
            Some(RotaryScaling::Llama3 { low_frequency_factor: low, .. }) if !above(0.0)(low) => {
                refuse("rotary.scaling.low_frequency_factor", low.to_string(), "a number above 0".into())
            }
            Some(RotaryScaling::Llama3 {
                low_frequency_factor: low, high_frequency_factor: high, ..
            }) if !above(low)(high) => {
                let expected = format!("a number above `low_frequency_factor`, which is {low}");
                refuse("rotary.scaling.high_frequency_factor", high.to_string(), expected)
            }
            Some(RotaryScaling::Llama3 { original_positions: 0, .. }) => {
                refuse("rotary.scaling.original_positions", "0".into(), "at least 1".into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let base = RotaryConfig::default();
        base.validate(6).unwrap();
        let llama = |low_frequency_factor, high_frequency_factor, original_positions| RotaryScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor,
            high_frequency_factor,
            original_positions,
        };
        for (config, key) in [
            (RotaryConfig { n_features: Some(8), ..base.clone() }, "rotary.n_features"),
            (RotaryConfig { n_features: Some(3), ..base.clone() }, "rotary.n_features"),
            (RotaryConfig { theta: 0.0, ..base.clone() }, "rotary.theta"),
            (RotaryConfig { theta: f64::NAN, ..base.clone() }, "rotary.theta"),
            (
                RotaryConfig { scaling: Some(RotaryScaling::Linear { factor: -1.0 }), ..base.clone() },
                "rotary.scaling.factor",
            ),
            (RotaryConfig { scaling: Some(llama(0.0, 4.0, 8)), ..base.clone() }, "low_frequency_factor"),
            (RotaryConfig { scaling: Some(llama(4.0, 4.0, 8)), ..base.clone() }, "high_frequency_factor"),
            (RotaryConfig { scaling: Some(llama(1.0, 4.0, 0)), ..base.clone() }, "original_positions"),
        ] {
            let message = config.validate(6).unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
        assert!(base.validate(7).is_err());
    }
}
