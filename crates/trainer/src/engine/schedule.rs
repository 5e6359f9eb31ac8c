//! Learning-rate schedules: the rate as a pure function of the step.
//!
//! Steps count from 1: step 1 is the first update, step `steps` the last. A schedule holds no state, so
//! resuming a run needs the step alone. Every schedule warms up linearly and **peaks at step
//! `warmup_steps`** (at step 1 without a warm-up); [`Schedule::factor`] is 1 there.
//!
//! # Deviations
//! BERT's code counts steps from 0, so that its first update has rate 0, and multiplies the warm-up by
//! peak instead of joining it to the decay (`optimization.py`): after the warm-up its rate drops by
//! `warmup / steps`. Here no update is wasted on rate 0, and the decay starts at the peak.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// How the learning rate follows the step: a `[schedule]` table.
///
/// `final_fraction` is the share of the peak that the decay reaches one step after the last, so that the
/// last update still learns when it is 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Schedule {
    /// Straight from the peak to `final_fraction` of it (BERT, RoBERTa).
    Linear {
        /// Steps of linear warm-up.
        #[serde(default)]
        warmup_steps: u64,
        /// Where the decay ends, as a share of the peak.
        #[serde(default)]
        final_fraction: f64,
    },
    /// Half a cosine from the peak to `final_fraction` of it (Loshchilov & Hutter 2017, eq. 5, one cycle).
    Cosine {
        /// Steps of linear warm-up.
        #[serde(default)]
        warmup_steps: u64,
        /// Where the decay ends, as a share of the peak.
        #[serde(default)]
        final_fraction: f64,
    },
    /// The peak, to the end.
    Constant {
        /// Steps of linear warm-up.
        #[serde(default)]
        warmup_steps: u64,
    },
    /// Falls with the inverse square root of the step, `peak · min(step / warmup, √(warmup / step))`: Vaswani
    /// et al. 2017, §5.3, whose peak is `(d_model · warmup)^-0.5`. Also spelled `noam`.
    #[serde(alias = "noam")]
    InverseSqrt {
        /// Steps of linear warm-up; the decay is measured in them too.
        warmup_steps: u64,
    },
}

impl Schedule {
    /// Steps of linear warm-up; the rate peaks at the last of them.
    pub fn warmup_steps(&self) -> u64 {
        match *self {
            Self::Linear { warmup_steps, .. }
            | Self::Cosine { warmup_steps, .. }
            | Self::Constant { warmup_steps }
            | Self::InverseSqrt { warmup_steps } => warmup_steps,
        }
    }

    /// The share of the peak rate at `step` (from 1) of `steps`; past `steps` the decay stands still.
    pub fn factor(&self, step: u64, steps: u64) -> f64 {
        let peak_step = self.warmup_steps().max(1);
        if step < peak_step {
            return step as f64 / peak_step as f64;
        }
        match *self {
            Self::Linear { final_fraction, .. } => {
                1.0 - (1.0 - final_fraction) * progress(step, peak_step, steps)
            }
            Self::Cosine { final_fraction, .. } => {
                let fall = (1.0 + (PI * progress(step, peak_step, steps)).cos()) / 2.0;
                final_fraction + (1.0 - final_fraction) * fall
            }
            Self::Constant { .. } => 1.0,
            Self::InverseSqrt { .. } => (peak_step as f64 / step as f64).sqrt(),
        }
    }

    /// The learning rate of update `step` (from 1) in a run of `steps` with the given peak.
    pub fn learning_rate(&self, peak: f64, step: u64, steps: u64) -> f64 {
        peak * self.factor(step, steps)
    }
}

/// How far the decay has come: 0 at the peak, 1 one step after the last.
fn progress(step: u64, peak_step: u64, steps: u64) -> f64 {
    let length = (steps + 1).saturating_sub(peak_step).max(1);
    ((step - peak_step) as f64 / length as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factors of steps 1, 2, … as multiples of one hundredth, rounded.
    fn percents(schedule: &Schedule, steps: u64) -> Vec<i64> {
        (1..=steps).map(|step| (schedule.factor(step, steps) * 100.0).round() as i64).collect()
    }

    #[test]
    fn linear_rises_to_the_peak_and_falls_to_zero_one_step_after_the_end() {
        let schedule = Schedule::Linear { warmup_steps: 4, final_fraction: 0.0 };
        // Decay over 8 + 1 - 4 = 5 steps of a fifth each.
        assert_eq!(percents(&schedule, 8), [25, 50, 75, 100, 80, 60, 40, 20]);
        assert_eq!(schedule.factor(9, 8), 0.0);
        assert_eq!(schedule.factor(50, 8), 0.0);
    }

    #[test]
    fn linear_without_warmup_starts_at_the_peak() {
        let schedule = Schedule::Linear { warmup_steps: 0, final_fraction: 0.0 };
        assert_eq!(percents(&schedule, 4), [100, 75, 50, 25]);
    }

    #[test]
    fn linear_ends_at_its_final_fraction() {
        let schedule = Schedule::Linear { warmup_steps: 1, final_fraction: 0.2 };
        assert_eq!(percents(&schedule, 4), [100, 80, 60, 40]);
        assert!((schedule.factor(5, 4) - 0.2).abs() < 1e-15);
    }

    #[test]
    fn cosine_is_half_way_in_the_middle() {
        let schedule = Schedule::Cosine { warmup_steps: 2, final_fraction: 0.1 };
        // Decay over 4 steps from step 2: cos 0, π/4, π/2, 3π/4 → 1, 0.8536, 0.5, 0.1464 of the way down
        // to 0.1.
        assert_eq!(percents(&schedule, 5), [50, 100, 87, 55, 23]);
        assert!((schedule.factor(6, 5) - 0.1).abs() < 1e-15);
    }

    #[test]
    fn constant_stays_at_the_peak() {
        let schedule = Schedule::Constant { warmup_steps: 2 };
        assert_eq!(percents(&schedule, 4), [50, 100, 100, 100]);
    }

    #[test]
    fn inverse_sqrt_is_the_papers_formula() {
        let schedule = Schedule::InverseSqrt { warmup_steps: 4_000 };
        let peak = (512.0_f64 * 4_000.0).powf(-0.5);
        for step in [1, 100, 3_999, 4_000, 4_001, 16_000, 100_000] {
            let s = step as f64;
            let paper = 512.0_f64.powf(-0.5) * s.powf(-0.5).min(s * 4_000.0_f64.powf(-1.5));
            let ours = schedule.learning_rate(peak, step, 100_000);
            assert!((ours / paper - 1.0).abs() < 1e-12, "step {step}: {ours} is not {paper}");
        }
        // By hand: a quarter of the warm-up, and four times it.
        assert_eq!(schedule.factor(1_000, 100_000), 0.25);
        assert_eq!(schedule.factor(16_000, 100_000), 0.5);
    }

    #[test]
    fn a_schedule_longer_than_the_run_never_leaves_zero_to_one() {
        for schedule in [
            Schedule::Linear { warmup_steps: 10, final_fraction: 0.0 },
            Schedule::Cosine { warmup_steps: 10, final_fraction: 0.5 },
            Schedule::InverseSqrt { warmup_steps: 10 },
        ] {
            for step in 0..40 {
                assert!((0.0..=1.0).contains(&schedule.factor(step, 5)));
            }
        }
    }
}
