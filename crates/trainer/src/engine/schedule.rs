//! Learning-rate schedules: the rate as a pure function of the step.
//!
//! Steps count from 1: step 1 is the first update, step `steps` the last. A schedule has no state, so resuming
//! a run needs only the step. Every schedule warms up linearly and **peaks at its last step of warm-up** (at step 1
//! without a warm-up); [`Schedule::factor`] is 1 there. The warm-up is a number of steps, or a fraction of all of them.
//!
//! # Deviations
//! BERT's code counts steps from 0, so that its first update has rate 0, and multiplies warm-up and decay
//! instead of joining them (`optimization.py`): after the warm-up its rate drops by `warmup / steps`. Here no
//! update is wasted on rate 0, and the decay starts at the peak.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::config::validate::{Check, ensure, share};

/// The learning rate as a function of the step: a `[schedule]` table.
///
/// `final_fraction` is the fraction of the peak that the decay reaches one step after the last, so that the
/// last update still learns if it is 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Schedule {
    /// Linear from the peak to `final_fraction` of it (BERT, RoBERTa).
    Linear {
        /// Steps of linear warm-up, from 0 to the peak. Default 0.
        #[serde(default)]
        warmup_steps: u64,
        /// The warm-up as a fraction of all steps, in place of `warmup_steps`: 0.1 is a tenth, rounded to whole steps.
        /// Default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup_fraction: Option<f64>,
        /// End of the decay, as a fraction of the peak. Default 0.
        #[serde(default)]
        final_fraction: f64,
    },
    /// Half a cosine from the peak to `final_fraction` of it (Loshchilov & Hutter 2017, eq. 5, one cycle).
    Cosine {
        /// Steps of linear warm-up, from 0 to the peak. Default 0.
        #[serde(default)]
        warmup_steps: u64,
        /// The warm-up as a fraction of all steps, in place of `warmup_steps`: 0.1 is a tenth, rounded to whole steps.
        /// Default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup_fraction: Option<f64>,
        /// End of the decay, as a fraction of the peak. Default 0.
        #[serde(default)]
        final_fraction: f64,
    },
    /// Constant at the peak.
    Constant {
        /// Steps of linear warm-up, from 0 to the peak. Default 0.
        #[serde(default)]
        warmup_steps: u64,
        /// The warm-up as a fraction of all steps, in place of `warmup_steps`: 0.1 is a tenth, rounded to whole steps.
        /// Default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup_fraction: Option<f64>,
    },
    /// Decays with the inverse square root of the step, `peak · min(step / warmup, √(warmup / step))`:
    /// Vaswani et al. 2017, §5.3, whose peak is `(d_model · warmup)^-0.5`.
    #[serde(alias = "noam")]
    InverseSqrt {
        /// Steps of linear warm-up, from which on the rate decays. Default 0; required without `warmup_fraction`.
        #[serde(default)]
        warmup_steps: u64,
        /// The warm-up as a fraction of all steps, in place of `warmup_steps`: 0.1 is a tenth, rounded to whole steps.
        /// Default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup_fraction: Option<f64>,
    },
    /// Constant at the peak, with a decay only over the last steps: warm-up, stable, decay (Hu et al. 2024,
    /// "MiniCPM", §4.2). ModernBERT's schedule, whose decay follows a square root. A run can be extended from a
    /// checkpoint of the stable part without restarting the rate.
    #[serde(alias = "wsd")]
    Trapezoidal {
        /// Steps of linear warm-up, from 0 to the peak. Default 0.
        #[serde(default)]
        warmup_steps: u64,
        /// The warm-up as a fraction of all steps, in place of `warmup_steps`: 0.1 is a tenth, rounded to whole steps.
        /// Default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup_fraction: Option<f64>,
        /// Number of final steps over which the rate decays; in a shorter run, all steps after the warm-up.
        decay_steps: u64,
        /// The shape of the decay. Default `"linear"`.
        #[serde(default)]
        decay: Decay,
        /// End of the decay, as a fraction of the peak. Default 0.
        #[serde(default)]
        final_fraction: f64,
    },
    /// Slanted triangles (Howard & Ruder 2018, §3.2, eq. 3): `peak · (1 + p · (ratio − 1)) / ratio`, where `p` rises
    /// from 0 to 1 over the warm-up and falls back to 0 over the rest. The paper warms up over a tenth of the steps.
    ///
    /// Deviation: `p` reaches 0 one step after the last, as with every schedule here, not at the last.
    SlantedTriangular {
        /// Steps of linear warm-up: the paper's `cut`. Default 0.
        #[serde(default)]
        warmup_steps: u64,
        /// The warm-up as a fraction of all steps, in place of `warmup_steps`: 0.1 is a tenth, rounded to whole steps.
        /// Default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup_fraction: Option<f64>,
        /// Ratio of the peak rate to the lowest, at which it begins and ends. Default 32, the paper's.
        #[serde(default = "ratio")]
        ratio: f64,
    },
}

/// The decay of a [trapezoidal](Schedule::Trapezoidal) schedule; `p` is the completed fraction of the decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Decay {
    /// `1 − p`
    #[default]
    Linear,
    /// `1 − √p` (Hägele et al. 2024, eq. 1), as in ModernBERT.
    Sqrt,
}

impl Decay {
    fn factor(self, progress: f64) -> f64 {
        match self {
            Self::Linear => 1.0 - progress,
            Self::Sqrt => 1.0 - progress.sqrt(),
        }
    }
}

fn ratio() -> f64 {
    32.0
}

impl Schedule {
    /// The keys of the warm-up: its steps, and its fraction of all steps.
    fn warmup_keys(&self) -> (u64, Option<f64>) {
        match *self {
            Self::Linear { warmup_steps, warmup_fraction, .. }
            | Self::Cosine { warmup_steps, warmup_fraction, .. }
            | Self::Constant { warmup_steps, warmup_fraction }
            | Self::InverseSqrt { warmup_steps, warmup_fraction }
            | Self::Trapezoidal { warmup_steps, warmup_fraction, .. }
            | Self::SlantedTriangular { warmup_steps, warmup_fraction, .. } => {
                (warmup_steps, warmup_fraction)
            }
        }
    }

    /// The warm-up's fraction of all steps, if it is given as one.
    pub fn warmup_fraction(&self) -> Option<f64> {
        self.warmup_keys().1
    }

    /// Steps of linear warm-up in a run of `steps`; the last of them has the peak rate.
    pub fn warmup_steps(&self, steps: u64) -> u64 {
        match self.warmup_keys() {
            (warmup_steps, None) => warmup_steps,
            (_, Some(fraction)) => (fraction * steps as f64).round() as u64,
        }
    }

    /// What to do for a longer warm-up, by the key that gives it.
    pub(crate) fn longer_warmup(&self) -> String {
        match self.warmup_keys() {
            (_, Some(fraction)) => format!("raise `schedule.warmup_fraction`, which is {fraction}"),
            (0, None) => "set `schedule.warmup_fraction`, such as to 0.1: there is no warm-up".into(),
            (steps, None) => format!("raise `schedule.warmup_steps`, which is {steps}"),
        }
    }

    /// Checks the warm-up of a run of `steps`: the rule of every kind of run. Without steps no warm-up is too long.
    pub(crate) fn check_warmup(&self, steps: u64) -> Check {
        let (given, fraction) = self.warmup_keys();
        if let Some(fraction) = fraction {
            let key = "schedule.warmup_fraction";
            share(key, fraction)?;
            let expected = format!("none with `schedule.warmup_steps`, which is {given}: remove one of them");
            ensure(given == 0, key, fraction, expected)?;
        } else if matches!(self, Self::InverseSqrt { .. }) {
            let expected = "a whole number of 1 or more, or `schedule.warmup_fraction` in its place";
            ensure(given > 0, "schedule.warmup_steps", given, expected)?;
        }
        let expected = format!(
            "at most {steps}, the steps of the run: lower it, or set `schedule.warmup_fraction`, such as 0.1, in its place"
        );
        ensure(steps == 0 || self.warmup_steps(steps) <= steps, "schedule.warmup_steps", given, expected)
    }

    /// The fraction of the peak rate at `step` (from 1) of `steps`; beyond `steps` the rate stays constant.
    pub fn factor(&self, step: u64, steps: u64) -> f64 {
        let peak_step = self.warmup_steps(steps).max(1);
        if step < peak_step {
            return self.above_lowest(step as f64 / peak_step as f64);
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
            Self::Trapezoidal { decay_steps, decay, final_fraction, .. } => {
                let last_of_peak = (steps + 1).saturating_sub(decay_steps).max(peak_step);
                match step <= last_of_peak {
                    true => 1.0,
                    false => {
                        let left = decay.factor(progress(step, last_of_peak, steps));
                        final_fraction + (1.0 - final_fraction) * left
                    }
                }
            }
            Self::SlantedTriangular { .. } => self.above_lowest(1.0 - progress(step, peak_step, steps)),
        }
    }

    /// The factor at a fraction of the way from the lowest rate (0 except for slanted triangles) to the peak.
    fn above_lowest(&self, share: f64) -> f64 {
        match *self {
            Self::SlantedTriangular { ratio, .. } => (1.0 + share * (ratio - 1.0)) / ratio,
            _ => share,
        }
    }

    /// The learning rate of update `step` (from 1) in a run of `steps` with the given peak.
    pub fn learning_rate(&self, peak: f64, step: u64, steps: u64) -> f64 {
        peak * self.factor(step, steps)
    }
}

/// Progress of the decay: 0 at the peak, 1 one step after the last.
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
        let schedule = Schedule::Linear { warmup_steps: 4, warmup_fraction: None, final_fraction: 0.0 };
        // Decay over 8 + 1 - 4 = 5 steps of a fifth each.
        assert_eq!(percents(&schedule, 8), [25, 50, 75, 100, 80, 60, 40, 20]);
        assert_eq!(schedule.factor(9, 8), 0.0);
        assert_eq!(schedule.factor(50, 8), 0.0);
    }

    #[test]
    fn a_longer_warmup_names_the_key_that_the_run_has() {
        let of = |warmup_steps, warmup_fraction| {
            Schedule::Constant { warmup_steps, warmup_fraction }.longer_warmup()
        };
        assert_eq!(of(0, Some(0.1)), "raise `schedule.warmup_fraction`, which is 0.1");
        assert_eq!(of(20, None), "raise `schedule.warmup_steps`, which is 20");
        assert!(of(0, None).starts_with("set `schedule.warmup_fraction`"));
    }

    #[test]
    fn a_fraction_of_the_steps_is_as_many_steps() {
        let of = |warmup_steps, warmup_fraction| Schedule::Cosine {
            warmup_steps,
            warmup_fraction,
            final_fraction: 0.1,
        };
        for (fraction, steps, warmup) in
            [(0.1, 50, 5), (0.07, 100, 7), (0.25, 9, 2), (1.0, 8, 8), (0.1, 3, 0)]
        {
            let [by_fraction, by_steps] = [of(0, Some(fraction)), of(warmup, None)];
            assert_eq!(by_fraction.warmup_steps(steps), warmup);
            for step in 1..=steps + 1 {
                assert_eq!(by_fraction.factor(step, steps), by_steps.factor(step, steps));
            }
        }
    }

    #[test]
    fn a_warm_up_fits_the_run() {
        let linear = |warmup_steps, warmup_fraction| Schedule::Linear {
            warmup_steps,
            warmup_fraction,
            final_fraction: 0.0,
        };
        for (schedule, steps) in [
            (linear(10, None), 10),
            (linear(0, None), 1),
            (linear(0, Some(1.0)), 3),
            // Nothing is trained.
            (linear(10, None), 0),
        ] {
            assert_eq!(schedule.check_warmup(steps), Ok(()));
        }
        let refused = |schedule: Schedule, steps| {
            let complaint = schedule.check_warmup(steps).unwrap_err();
            (complaint.key, complaint.found, complaint.expected)
        };
        let (key, found, expected) = refused(linear(11, None), 10);
        assert_eq!((&*key, &*found), ("schedule.warmup_steps", "11"));
        assert!(expected.starts_with("at most 10, the steps of the run: lower it"), "{expected}");
        assert_eq!(refused(linear(2, Some(0.1)), 10).0, "schedule.warmup_fraction");
        assert_eq!(refused(linear(0, Some(1.1)), 10).1, "1.1");
        assert_eq!(refused(linear(0, Some(f64::NAN)), 10).1, "NaN");
        assert_eq!(refused(Schedule::InverseSqrt { warmup_steps: 0, warmup_fraction: None }, 10).1, "0");
    }

    #[test]
    fn linear_without_warmup_starts_at_the_peak() {
        let schedule = Schedule::Linear { warmup_steps: 0, warmup_fraction: None, final_fraction: 0.0 };
        assert_eq!(percents(&schedule, 4), [100, 75, 50, 25]);
    }

    #[test]
    fn linear_ends_at_its_final_fraction() {
        let schedule = Schedule::Linear { warmup_steps: 1, warmup_fraction: None, final_fraction: 0.2 };
        assert_eq!(percents(&schedule, 4), [100, 80, 60, 40]);
        assert!((schedule.factor(5, 4) - 0.2).abs() < 1e-15);
    }

    #[test]
    fn cosine_is_half_way_in_the_middle() {
        let schedule = Schedule::Cosine { warmup_steps: 2, warmup_fraction: None, final_fraction: 0.1 };
        // Decay over 4 steps from step 2: cos 0, π/4, π/2, 3π/4 → 1, 0.8536, 0.5, 0.1464 of the way down
        // to 0.1.
        assert_eq!(percents(&schedule, 5), [50, 100, 87, 55, 23]);
        assert!((schedule.factor(6, 5) - 0.1).abs() < 1e-15);
    }

    #[test]
    fn constant_stays_at_the_peak() {
        let schedule = Schedule::Constant { warmup_steps: 2, warmup_fraction: None };
        assert_eq!(percents(&schedule, 4), [50, 100, 100, 100]);
    }

    #[test]
    fn inverse_sqrt_is_the_papers_formula() {
        let schedule = Schedule::InverseSqrt { warmup_steps: 4_000, warmup_fraction: None };
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
    fn trapezoidal_stays_at_the_peak_until_the_decay() {
        let of = |decay, final_fraction| Schedule::Trapezoidal {
            warmup_steps: 2,
            warmup_fraction: None,
            decay_steps: 4,
            decay,
            final_fraction,
        };
        // The decay ends one step after the last: the 4 last of 8 steps are at 3/4, 1/2, 1/4 of the way up, after a
        // step at the peak.
        assert_eq!(percents(&of(Decay::Linear, 0.0), 8), [50, 100, 100, 100, 100, 75, 50, 25]);
        assert_eq!(percents(&of(Decay::Linear, 0.2), 8), [50, 100, 100, 100, 100, 80, 60, 40]);
        // 1 − √¼, 1 − √½, 1 − √¾
        assert_eq!(percents(&of(Decay::Sqrt, 0.0), 8), [50, 100, 100, 100, 100, 50, 29, 13]);
        assert_eq!(of(Decay::Sqrt, 0.1).factor(9, 8), 0.1);
        // A decay longer than the run begins at the peak.
        let all = Schedule::Trapezoidal {
            warmup_steps: 1,
            warmup_fraction: None,
            decay_steps: 50,
            decay: Decay::Linear,
            final_fraction: 0.0,
        };
        assert_eq!(percents(&all, 4), [100, 75, 50, 25]);
    }

    #[test]
    fn slanted_triangles_rise_from_a_share_of_the_peak_and_fall_back_to_it() {
        let schedule = Schedule::SlantedTriangular { warmup_steps: 4, warmup_fraction: None, ratio: 32.0 };
        for step in 0..=13 {
            // The paper's p, with cut = 4 and the end at 13.
            let p = if step < 4 { f64::from(step) / 4.0 } else { 1.0 - f64::from(step - 4) / 9.0 };
            let expected = (1.0 + p * 31.0) / 32.0;
            assert!((schedule.factor(step as u64, 12) - expected).abs() < 1e-12, "{step}");
        }
        assert_eq!(schedule.factor(0, 12), 1.0 / 32.0);
        assert_eq!(schedule.factor(13, 12), 1.0 / 32.0);
    }

    #[test]
    fn a_schedule_longer_than_the_run_never_leaves_zero_to_one() {
        for schedule in [
            Schedule::Linear { warmup_steps: 10, warmup_fraction: None, final_fraction: 0.0 },
            Schedule::Cosine { warmup_steps: 10, warmup_fraction: None, final_fraction: 0.5 },
            Schedule::InverseSqrt { warmup_steps: 10, warmup_fraction: None },
            Schedule::SlantedTriangular { warmup_steps: 10, warmup_fraction: None, ratio: 8.0 },
            Schedule::Trapezoidal {
                warmup_steps: 10,
                warmup_fraction: None,
                decay_steps: 10,
                decay: Decay::Sqrt,
                final_fraction: 0.0,
            },
        ] {
            for step in 0..40 {
                assert!((0.0..=1.0).contains(&schedule.factor(step, 5)));
            }
        }
    }
}
