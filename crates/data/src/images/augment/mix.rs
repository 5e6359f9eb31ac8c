//! Mixup and CutMix: an input and its label mixed with those of another example.

use super::{DrawKey, Stream, invalid, probability};
use crate::images::PixelValues;
use crate::{Random, Result};
use serde::{Deserialize, Serialize};

/// Examples mixed with others. Default none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MixConfig {
    /// `α` of mixup (Zhang et al. 2018): the share of the own input is drawn from Beta(α, α). 0 for none. Default 0.
    pub mixup_alpha: f64,
    /// `α` of CutMix (Yun et al. 2019). 0 for none. Default 0.
    pub cutmix_alpha: f64,
    /// The probability that an example is mixed. Default 1.
    pub probability: f64,
    /// With both, the probability that a mixed example is CutMix's. Default 0.5.
    pub cutmix_share: f64,
}

impl Default for MixConfig {
    fn default() -> Self {
        Self { mixup_alpha: 0.0, cutmix_alpha: 0.0, probability: 1.0, cutmix_share: 0.5 }
    }
}

/// How an example is mixed with another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixing {
    /// The other example.
    pub partner: u64,
    kind: Kind,
    /// The drawn share of the own example.
    share: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Mixup,
    /// The cut rectangle's centre, as shares of the width and the height.
    CutMix(f64, f64),
}

impl MixConfig {
    /// Checks that values are in range.
    ///
    /// # Errors
    /// [`DataError::AugmentSetting`](crate::DataError::AugmentSetting) with the key.
    pub fn check(&self) -> Result<()> {
        for (key, alpha) in [("mix.mixup_alpha", self.mixup_alpha), ("mix.cutmix_alpha", self.cutmix_alpha)] {
            if !(0.0..=100.0).contains(&alpha) {
                return Err(invalid(key, alpha, "a number from 0 to 100"));
            }
        }
        probability("mix.probability", self.probability)?;
        probability("mix.cutmix_share", self.cutmix_share)
    }

    /// How the example of `key` is mixed with one of the epoch's `n_examples`; `None` if it is not.
    ///
    /// Deviation from the papers' code, which draws once for a batch and mixes within it: each example has its own draw
    /// and a partner from the whole epoch, so that neither depends on the batch.
    pub fn draw(&self, key: DrawKey, n_examples: u64) -> Option<Mixing> {
        let mut random = key.random(Stream::Mix);
        let (mixup, cutmix) = (self.mixup_alpha > 0.0, self.cutmix_alpha > 0.0);
        if n_examples == 0 || !(mixup || cutmix) || !random.chance(self.probability) {
            return None;
        }
        let partner = random.below(n_examples);
        match cutmix && (!mixup || random.chance(self.cutmix_share)) {
            true => {
                let kind = Kind::CutMix(random.unit(), random.unit());
                Some(Mixing { partner, kind, share: beta(self.cutmix_alpha, &mut random) })
            }
            false => Some(Mixing { partner, kind: Kind::Mixup, share: beta(self.mixup_alpha, &mut random) }),
        }
    }
}

impl Mixing {
    /// Mixes the partner's input into `input`, and returns the own label's weight, from 0 to 1: the partner's has the
    /// rest.
    ///
    /// # Panics
    /// If the inputs differ in size.
    pub fn apply(&self, input: &mut PixelValues, partner: &PixelValues) -> f32 {
        let (height, width) = (input.height, input.width);
        assert_eq!((height, width), (partner.height, partner.width), "sizes of mixed inputs");
        let (centre_x, centre_y) = match self.kind {
            Kind::Mixup => {
                let share = self.share as f32;
                for (value, other) in input.values.iter_mut().zip(&partner.values) {
                    *value = share * *value + (1.0 - share) * other;
                }
                return share;
            }
            Kind::CutMix(x, y) => ((x * width as f64) as usize, (y * height as f64) as usize),
        };
        // Its sides are the image's times √(1 − λ), cut off at the border; the weight is that of the area that is left.
        let side = (1.0 - self.share).max(0.0).sqrt();
        let range = |centre: usize, length: usize| {
            let cut = (length as f64 * side) as usize;
            centre.saturating_sub(cut / 2)..(centre + cut / 2).min(length)
        };
        let (columns, rows) = (range(centre_x, width), range(centre_y, height));
        let planes =
            input.values.chunks_exact_mut(height * width).zip(partner.values.chunks_exact(height * width));
        for (plane, other) in planes {
            for row in rows.clone() {
                let cells = row * width + columns.start..row * width + columns.end;
                plane[cells.clone()].copy_from_slice(&other[cells]);
            }
        }
        1.0 - (columns.len() * rows.len()) as f32 / (height * width) as f32
    }
}

/// A number from Beta(α, α).
fn beta(alpha: f64, random: &mut Random) -> f64 {
    if alpha == 1.0 {
        return random.unit();
    }
    if alpha < 1.0 {
        // Jöhnk (1964), with logarithms: the powers of a small α are too small for numbers.
        loop {
            let (x, y) = (log_unit(random) / alpha, log_unit(random) / alpha);
            let most = x.max(y);
            let log_sum = most + ((x - most).exp() + (y - most).exp()).ln();
            if log_sum <= 0.0 {
                return (x - log_sum).exp();
            }
        }
    }
    let (x, y) = (gamma(alpha, random), gamma(alpha, random));
    x / (x + y)
}

/// The logarithm of a uniform number above 0.
fn log_unit(random: &mut Random) -> f64 {
    (1.0 - random.unit()).ln()
}

/// A number from Gamma(α, 1) with α of 1 or more (Marsaglia & Tsang 2000).
fn gamma(alpha: f64, random: &mut Random) -> f64 {
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        // Box & Muller (1958).
        let radius = (-2.0 * log_unit(random)).sqrt();
        let normal = radius * (std::f64::consts::TAU * random.unit()).cos();
        let v = (1.0 + c * normal).powi(3);
        if v > 0.0 && log_unit(random) < 0.5 * normal * normal + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean 1/2 and variance 1/(4·(2α + 1)).
    #[test]
    fn shares_have_the_moments_of_beta() {
        let n = 40_000;
        for alpha in [0.01, 0.2, 0.8, 1.0, 1.5, 8.0] {
            let mut random = Random::new(7);
            let draws: Vec<f64> = (0..n).map(|_| beta(alpha, &mut random)).collect();
            assert!(draws.iter().all(|draw| (0.0..=1.0).contains(draw)));
            let mean = draws.iter().sum::<f64>() / f64::from(n);
            let variance = draws.iter().map(|draw| (draw - 0.5).powi(2)).sum::<f64>() / f64::from(n);
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            // Five standard deviations; of a squared distance, at most 1/8.
            let spread = 5.0 * (expected / f64::from(n)).sqrt();
            assert!((mean - 0.5).abs() < spread, "{alpha}: mean {mean}");
            assert!(
                (variance - expected).abs() < 5.0 * 0.125 / f64::from(n).sqrt(),
                "{alpha}: variance {variance}"
            );
        }
    }
}
