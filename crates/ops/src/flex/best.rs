//! The best logits and their normalisation in one pass, a block at a time while it is cached.

use super::vector::{exp, max, sum, vectorised};
use crate::best::Running;

/// Logits per block.
const BLOCK: usize = 256;

vectorised! {
    /// Takes all logits.
    pub(crate) fn take(best: &mut Running, logits: &[f32]) {
        for (number, block) in logits.chunks(BLOCK).enumerate() {
            let greatest = max(block);
            if greatest > best.greatest {
                best.sum *= exp(best.greatest - greatest);
                best.greatest = greatest;
            }
            let shift = best.greatest;
            if shift > f32::NEG_INFINITY {
                best.sum += sum([block], |[logit]| exp(logit - shift));
            } else if block.iter().any(|logit| logit.is_nan()) {
                best.sum = f32::NAN;
            }
            // Later blocks seldom have one of the best.
            if best.is_best(greatest) {
                best.take(number * BLOCK, block);
            }
        }
    }

    /// `exp((logit − greatest) · scale)` in place; returns the sum.
    pub(crate) fn exponentials(logits: &mut [f32], greatest: f32, scale: f32) -> f32 {
        for logit in logits.iter_mut() {
            let hidden = *logit == f32::NEG_INFINITY;
            let e = exp((*logit - greatest) * scale);
            *logit = if hidden { 0.0 } else { e };
        }
        sum([logits], |[e]| e)
    }
}
