//! The most likely tokens, on the host.

#[cfg(feature = "flex")]
use crate::flex;

/// The best tokens of a row of logits, and the normaliser of their log-probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// `log Σ exp(logit)` over all tokens: a token's log-probability is its logit minus this. Not finite if a
    /// logit is NaN or plus infinity, or all are minus infinity.
    pub log_sum: f32,
    /// Tokens with their logits, highest first; ties by ascending token.
    pub tokens: Vec<(u32, f32)>,
}

/// The `k` best of a row of logits (all, if there are fewer), in one pass.
///
/// ```
/// let best = cloze_ops::best(&[1.0, 3.0, f32::NEG_INFINITY, 2.0], 2);
/// assert_eq!(best.tokens, [(1, 3.0), (3, 2.0)]);
/// assert!((best.log_sum - 3.4076_f32).abs() < 1e-4);
/// ```
pub fn best(logits: &[f32], k: usize) -> Best {
    let mut best = Running {
        greatest: f32::NEG_INFINITY,
        sum: 0.0,
        k,
        tokens: Vec::with_capacity(k.min(logits.len()) + 1),
    };
    #[cfg(feature = "flex")]
    flex::best::take(&mut best, logits);
    #[cfg(not(feature = "flex"))]
    plain(&mut best, logits);
    Best { log_sum: best.greatest + best.sum.ln(), tokens: best.tokens }
}

/// The running state over the logits so far.
pub(crate) struct Running {
    pub greatest: f32,
    /// The sum of the exponentials of the logits minus the maximum.
    pub sum: f32,
    k: usize,
    tokens: Vec<(u32, f32)>,
}

impl Running {
    /// Whether a logit is among the best so far; ties go to the first.
    #[inline(always)]
    pub fn is_best(&self, logit: f32) -> bool {
        match self.tokens.last() {
            Some((_, least)) if self.tokens.len() == self.k => logit > *least,
            _ => self.k > 0,
        }
    }

    /// Adds these tokens, numbered from `first`.
    pub fn take(&mut self, first: usize, logits: &[f32]) {
        for (i, logit) in logits.iter().enumerate() {
            if self.is_best(*logit) {
                let place = self.tokens.partition_point(|(_, other)| *other >= *logit);
                self.tokens.insert(place, ((first + i) as u32, *logit));
                self.tokens.truncate(self.k);
            }
        }
    }
}

#[cfg(not(feature = "flex"))]
fn plain(best: &mut Running, logits: &[f32]) {
    best.greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    best.sum = logits.iter().map(|logit| (logit - best.greatest).exp()).sum();
    best.take(0, logits);
}

/// Turns logits into `exp((logit − greatest) / temperature)` and returns the sum, for sampling from all
/// tokens.
///
/// # Panics
/// Unless the temperature is positive.
pub fn exponentials(logits: &mut [f32], temperature: f32) -> f32 {
    assert!(temperature > 0.0, "a temperature is positive");
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    #[cfg(feature = "flex")]
    return flex::best::exponentials(logits, greatest, 1.0 / temperature);
    #[cfg(not(feature = "flex"))]
    {
        logits.iter_mut().for_each(|logit| *logit = ((*logit - greatest) / temperature).exp());
        logits.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_those_of_a_sorted_list() {
        for n in [0, 1, 2, 255, 256, 257, 3001] {
            // Many are the same.
            let logits: Vec<f32> = (0..n)
                .map(|i| ((i * 7919 % 613) as f32 * 0.1).sin().mul_add(20.0, -3.0).round() + 0.0)
                .collect();
            let mut sorted: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
            sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
            let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
            for k in [0, 1, 5, 40, 4000] {
                let found = best(&logits, k);
                assert_eq!(found.tokens, sorted[..k.min(n)]);
                if n > 0 {
                    assert!(
                        (f64::from(found.log_sum) - sum.ln()).abs() < 1e-5,
                        "{} {}",
                        found.log_sum,
                        sum.ln()
                    );
                }
            }
            let mut exps = logits.clone();
            let total = exponentials(&mut exps, 2.0);
            for (e, logit) in exps.iter().zip(&logits) {
                let expected = (f64::from(*logit - sorted[0].1) / 2.0).exp();
                assert!((f64::from(*e) - expected).abs() < 1e-6);
            }
            assert!((total - exps.iter().sum::<f32>()).abs() <= 1e-4 * total);
        }
    }

    #[test]
    fn what_is_not_finite_is_told() {
        for bad in [f32::NAN, f32::INFINITY] {
            for place in [0, 3, 700] {
                let mut logits = vec![0.5; 900];
                logits[place] = bad;
                assert!(!best(&logits, 3).log_sum.is_finite());
            }
        }
        assert!(!best(&[f32::NEG_INFINITY; 40], 3).log_sum.is_finite());
        let mut logits = vec![f32::NEG_INFINITY; 900];
        logits[500] = 2.0;
        assert!((best(&logits, 1).log_sum - 2.0).abs() < 1e-6);
    }
}
