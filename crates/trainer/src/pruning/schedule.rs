//! The share of weights that are left, over the steps of a run.

/// The cubic schedule of Zhu & Gupta 2018, eq. 1, as movement pruning uses it (Sanh et al. 2020, eq. 6):
///
/// ```text
/// v(t) = 1                                     t < t_i
/// v(t) = v_f + (1 − v_f)·(1 − (t − t_i)/(T − t_i − t_f))³
/// v(t) = v_f                                   t ≥ T − t_f
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CubicSchedule {
    /// The share that is left in the end, `v_f`.
    pub left: f64,
    /// The steps before the first weight is pruned, `t_i`.
    pub warmup: u64,
    /// The first step with the final share, `T − t_f`.
    pub settled: u64,
}

impl CubicSchedule {
    /// The share that is left after `step` steps.
    pub fn share(&self, step: u64) -> f64 {
        if step >= self.settled {
            return self.left;
        }
        let past = step.saturating_sub(self.warmup) as f64;
        let all = self.settled.saturating_sub(self.warmup).max(1) as f64;
        self.left + (1.0 - self.left) * (1.0 - (past / all).min(1.0)).powi(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_falls_fast_and_settles() {
        let schedule = CubicSchedule { left: 0.2, warmup: 10, settled: 90 };
        assert_eq!([0, 10].map(|step| schedule.share(step)), [1.0, 1.0]);
        assert!((schedule.share(50) - (0.2 + 0.8 * 0.125)).abs() < 1e-12);
        assert_eq!([90, 100].map(|step| schedule.share(step)), [0.2, 0.2]);
        let at_once = CubicSchedule { left: 0.5, warmup: 0, settled: 0 };
        assert_eq!(at_once.share(0), 0.5);
    }
}
