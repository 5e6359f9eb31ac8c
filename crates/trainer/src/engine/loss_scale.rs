//! Loss scaling for FP16 products.

use serde::{Deserialize, Serialize};

/// The initial scale in FP16.
const FIRST: f64 = 65_536.0;
/// Steps without overflow after which the scale is doubled.
const GROWS_AFTER: u64 = 2_000;
/// The maximum scale, more than any loss's gradients need.
const MOST: f64 = 16_777_216.0;

/// The scale of the loss, and so of all gradients (Micikevicius et al. 2018, §3.2): FP16 cannot represent
/// numbers below 6·10⁻⁸, which many gradients are. It is a power of two, so that scaling is exact within range.
///
/// On overflow, gradients are not finite: the step leaves the weights unchanged, and the scale is halved. After
/// 2,000 steps in a row without overflow it is doubled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// The factor.
    pub scale: f64,
    /// Steps since it last changed.
    pub steps: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: FIRST, steps: 0 }
    }
}

impl LossScale {
    /// The scale of the next step, after one with finite or non-finite gradients.
    pub fn after(self, is_finite: bool) -> Self {
        let Self { scale, steps } = self;
        match is_finite {
            false => Self { scale: (scale / 2.0).max(1.0), steps: 0 },
            true if steps + 1 >= GROWS_AFTER => Self { scale: (scale * 2.0).min(MOST), steps: 0 },
            true => Self { scale, steps: steps + 1 },
        }
    }

    /// Whether the scale can still be reduced.
    pub fn can_shrink(self) -> bool {
        self.scale > 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_halves_it_and_two_thousand_good_steps_double_it() {
        let first = LossScale::default();
        assert_eq!(first.after(false), LossScale { scale: 32_768.0, steps: 0 });
        let before = (0..1_999).fold(first, |scale, _| scale.after(true));
        assert_eq!(before, LossScale { scale: 65_536.0, steps: 1_999 });
        assert_eq!(before.after(true), LossScale { scale: 131_072.0, steps: 0 });
        // An overflow begins the count anew.
        let again = (0..1_999).fold(before.after(false), |scale, _| scale.after(true));
        assert_eq!(again, LossScale { scale: 32_768.0, steps: 1_999 });
    }

    #[test]
    fn it_stays_between_one_and_what_is_enough() {
        let least = (0..40).fold(LossScale::default(), |scale, _| scale.after(false));
        assert_eq!((least.scale, least.can_shrink()), (1.0, false));
        let most = (0..20 * 2_000).fold(LossScale::default(), |scale, _| scale.after(true));
        assert_eq!(most.scale, MOST);
    }
}
