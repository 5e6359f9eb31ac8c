use crate::ops::{LongFrequencies, Rotary, RotaryPairs};
use crate::{ModelError, Result};
use serde::{Deserialize, Serialize};
use std::f32::consts::TAU;
use std::sync::Arc;

/// Configuration of rotary positions (Su et al. 2021), by which attention rotates queries and keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RotaryConfig {
    /// Pair `i` of `n / 2` is rotated by `theta^(−2i/n)` radians per position. Default 10,000, as in the
    /// paper.
    pub theta: f64,
    /// Number of rotated features per head, `n`. Default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_features: Option<usize>,
    /// Whether a pair is two neighbouring features, as in the paper and GPT-J, or one feature of each half,
    /// as in GPT-NeoX and Llama. Default false: of each half.
    pub interleaved: bool,
    /// How the angles change for sequences longer than in pretraining. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RotaryScaling>,
}

/// How a model is extended to sequences longer than in pretraining, as in transformers'
/// `modeling_rope_utils`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Dynamic NTK: in sequences longer than in pretraining, `theta` grows with the length.
    ///
    /// Cached keys keep the angles from when their sequence was shorter, as in transformers. So beyond the
    /// pretraining length, token-by-token decoding differs from one pass over the whole sequence. Unlike in
    /// transformers, a sequence's angles depend neither on others in its batch nor on earlier calls.
    Dynamic {
        /// How fast the base grows, 1 or more.
        factor: f64,
        /// The number of positions in pretraining.
        original_positions: usize,
    },
    /// Angles are divided by a factor for pairs with few rotations within the pretraining positions, kept for
    /// pairs with many, and interpolated in between (Peng et al. 2023, "YaRN").
    Yarn {
        /// The divisor.
        factor: f64,
        /// The number of positions in pretraining.
        original_positions: usize,
        /// Pairs with more rotations than this within `original_positions` keep their angles.
        beta_fast: f64,
        /// Pairs with fewer rotations than this have their angles divided.
        beta_slow: f64,
        /// Whether the bounds between these pairs are whole numbers of pairs.
        truncate: bool,
        /// The factor for rotated features.
        magnitude: f64,
    },
    /// Each pair's angle is divided by its own factor, with separate factors for sequences longer than in
    /// pretraining (Ding et al. 2024, "LongRoPE"). The notes on caches and batches at
    /// [`Dynamic`](Self::Dynamic) also apply.
    LongRope {
        /// The divisors in sequences of up to `original_positions` tokens, one per pair.
        short_factors: Vec<f64>,
        /// The divisors in longer ones.
        long_factors: Vec<f64>,
        /// The number of positions in pretraining.
        original_positions: usize,
        /// The factor for rotated features, in sequences of any length.
        magnitude: f64,
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
        // How many positions a pair needs to turn by 1.
        let period = |i: usize| {
            let exponent = (2 * i) as f32 / n as f32;
            self.theta.powf(exponent.into()) as f32
        };
        let pairs = if self.interleaved { RotaryPairs::Neighbours } else { RotaryPairs::Halves };
        let of = |frequency: &dyn Fn(usize) -> f32| (0..n / 2).map(frequency).collect::<Arc<[f32]>>();
        let rotary = |frequency: &dyn Fn(usize) -> f32| Rotary::new(of(frequency), pairs);
        match &self.scaling {
            None => rotary(&|i| 1.0 / period(i)),
            Some(RotaryScaling::Linear { factor }) => rotary(&|i| 1.0 / period(i) / *factor as f32),
            Some(RotaryScaling::Llama3 {
                factor,
                low_frequency_factor,
                high_frequency_factor,
                original_positions,
            }) => rotary(&|i| {
                let (low, high) = (*low_frequency_factor as f32, *high_frequency_factor as f32);
                let frequency = 1.0 / period(i);
                let (positions, wave) = (*original_positions as f32, TAU / frequency);
                let long = frequency / *factor as f32;
                if wave > positions / low {
                    long
                } else if wave < positions / high {
                    frequency
                } else {
                    let smooth = (positions / wave - low) / (high - low);
                    (1.0 - smooth) * long + smooth * frequency
                }
            }),
            Some(RotaryScaling::Dynamic { factor, original_positions }) => rotary(&|i| 1.0 / period(i))
                .with_long(*original_positions, LongFrequencies::Ntk { theta: self.theta, factor: *factor }),
            Some(RotaryScaling::Yarn {
                factor,
                original_positions,
                beta_fast,
                beta_slow,
                truncate,
                magnitude,
            }) => {
                // The pair, as a real number, that turns so often within the positions of pretraining.
                let pair = |turns: f64| {
                    let period = *original_positions as f64 / (turns * std::f64::consts::TAU);
                    n as f64 * period.ln() / (2.0 * self.theta.ln())
                };
                let (first, last) = match truncate {
                    true => (pair(*beta_fast).floor(), pair(*beta_slow).ceil()),
                    false => (pair(*beta_fast), pair(*beta_slow)),
                };
                let (first, last) = (first.max(0.0), last.min((n - 1) as f64));
                // The reference avoids a division by 0 so.
                let last = if first == last { last + 0.001 } else { last };
                let yarn = |i: usize| {
                    let slow = ((i as f32 - first as f32) / (last - first) as f32).clamp(0.0, 1.0);
                    let (kept, divided) = (1.0 / period(i), 1.0 / (*factor as f32 * period(i)));
                    divided * slow + kept * (1.0 - slow)
                };
                rotary(&yarn).with_magnitude(*magnitude as f32)
            }
            Some(RotaryScaling::LongRope { short_factors, long_factors, original_positions, magnitude }) => {
                let divided = |by: &[f64], i: usize| 1.0 / (by[i] as f32 * period(i));
                let long = LongFrequencies::Fixed(of(&|i| divided(long_factors, i)));
                rotary(&|i| divided(short_factors, i))
                    .with_long(*original_positions, long)
                    .with_magnitude(*magnitude as f32)
            }
        }
    }

    /// Checks that the values are consistent and suit heads of `d_k` features.
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
        let number = |key, x: f64, bound: f64, expected: &str| match above(bound)(x) {
            true => Ok(()),
            false => refuse(key, x.to_string(), expected.into()),
        };
        let positive = |key, x: f64| number(key, x, 0.0, "a number above 0");
        let positions = |n: usize, least: usize| match n >= least {
            true => Ok(()),
            false => refuse("rotary.scaling.original_positions", n.to_string(), format!("at least {least}")),
        };
        const FACTOR: &str = "rotary.scaling.factor";
        const MAGNITUDE: &str = "rotary.scaling.magnitude";
        match &self.scaling {
            None => Ok(()),
            Some(RotaryScaling::Linear { factor }) => positive(FACTOR, *factor),
            Some(RotaryScaling::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_positions,
            }) => {
                positive(FACTOR, *factor)?;
                positive("rotary.scaling.low_frequency_factor", *low)?;
                let expected = format!("a number above `low_frequency_factor`, which is {low}");
                number("rotary.scaling.high_frequency_factor", *high, *low, &expected)?;
                positions(*original_positions, 1)
            }
            Some(RotaryScaling::Dynamic { factor, original_positions }) => {
                if n < 4 {
                    let expected = "at least 4: a growing base needs two pairs".into();
                    return refuse("rotary.n_features", n.to_string(), expected);
                }
                if !(factor.is_finite() && *factor >= 1.0) {
                    return refuse(FACTOR, factor.to_string(), "a number, 1 or more".into());
                }
                positions(*original_positions, 1)
            }
            Some(RotaryScaling::Yarn {
                factor, original_positions, beta_fast, beta_slow, magnitude, ..
            }) => {
                // Which pairs turn how often is a logarithm to this base.
                number("rotary.theta", self.theta, 1.0, "a number above 1")?;
                positive(FACTOR, *factor)?;
                positive("rotary.scaling.beta_slow", *beta_slow)?;
                if !(beta_fast.is_finite() && beta_fast >= beta_slow) {
                    let expected = format!("at least `beta_slow`, which is {beta_slow}");
                    return refuse("rotary.scaling.beta_fast", beta_fast.to_string(), expected);
                }
                positive(MAGNITUDE, *magnitude)?;
                positions(*original_positions, 1)
            }
            Some(RotaryScaling::LongRope { short_factors, long_factors, original_positions, magnitude }) => {
                for (key, factors) in [
                    ("rotary.scaling.short_factors", short_factors),
                    ("rotary.scaling.long_factors", long_factors),
                ] {
                    if factors.len() != n / 2 {
                        let expected = format!("{} numbers, one a pair of features", n / 2);
                        return refuse(key, format!("{} numbers", factors.len()), expected);
                    }
                    factors.iter().try_for_each(|factor| positive(key, *factor))?;
                }
                positive(MAGNITUDE, *magnitude)?;
                positions(*original_positions, 1)
            }
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
        let scaled = |scaling| RotaryConfig { scaling: Some(scaling), ..base.clone() };
        let yarn = |beta_fast, beta_slow, magnitude| RotaryScaling::Yarn {
            factor: 4.0,
            original_positions: 8,
            beta_fast,
            beta_slow,
            truncate: true,
            magnitude,
        };
        let long = |short_factors, long_factors| RotaryScaling::LongRope {
            short_factors,
            long_factors,
            original_positions: 8,
            magnitude: 1.0,
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
            (scaled(llama(0.0, 4.0, 8)), "low_frequency_factor"),
            (scaled(llama(4.0, 4.0, 8)), "high_frequency_factor"),
            (scaled(llama(1.0, 4.0, 0)), "original_positions"),
            (scaled(RotaryScaling::Dynamic { factor: 0.5, original_positions: 8 }), "rotary.scaling.factor"),
            (scaled(RotaryScaling::Dynamic { factor: 2.0, original_positions: 0 }), "original_positions"),
            (
                RotaryConfig {
                    n_features: Some(2),
                    ..scaled(RotaryScaling::Dynamic { factor: 2.0, original_positions: 8 })
                },
                "rotary.n_features",
            ),
            (RotaryConfig { theta: 1.0, ..scaled(yarn(32.0, 1.0, 1.0)) }, "rotary.theta"),
            (scaled(yarn(1.0, 2.0, 1.0)), "beta_fast"),
            (scaled(yarn(32.0, 0.0, 1.0)), "beta_slow"),
            (scaled(yarn(32.0, 1.0, f64::NAN)), "magnitude"),
            (scaled(long([1.0, 2.0, 0.0].into(), vec![1.0; 3])), "short_factors"),
            (scaled(long(vec![1.0; 3], vec![1.0; 2])), "long_factors"),
        ] {
            let message = config.validate(6).unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
        assert!(base.validate(7).is_err());
    }
}
