//! Sampling of a token by its probability.

use super::Sampling;
use crate::ops;

/// The number of candidates to try first if it is unknown how many suffice.
const FIRST: usize = 256;

impl Sampling {
    /// Draws a token. `unit` is uniform in `0.0..1.0`; the logits are overwritten.
    pub(super) fn draw(&self, logits: &mut [f32], unit: f64) -> u32 {
        if self.top_k == 0 && self.top_p >= 1.0 && self.min_p <= 0.0 {
            let total = ops::exponentials(logits, self.temperature);
            return draw((0u32..).zip(logits.iter().map(|p| f64::from(*p))), f64::from(total), unit);
        }
        if self.temperature != 1.0 {
            logits.iter_mut().for_each(|logit| *logit /= self.temperature);
        }
        let mut n = if self.top_k > 0 { self.top_k } else { FIRST };
        loop {
            let ops::Best { log_sum, tokens } = ops::best(logits, n);
            let greatest = f64::from(tokens[0].1);
            let relative = |logit: f32| (f64::from(logit) - greatest).exp();
            // Of the top k, or of all.
            let total = match self.top_k {
                0 => (f64::from(log_sum) - greatest).exp(),
                _ => tokens.iter().map(|(_, logit)| relative(*logit)).sum(),
            };
            let (mut kept, mut sum) = (0, 0.0);
            for (_, logit) in &tokens {
                let p = relative(*logit);
                // The most likely token is always kept.
                if kept > 0 && (sum >= f64::from(self.top_p) * total || p < f64::from(self.min_p)) {
                    break;
                }
                (kept, sum) = (kept + 1, sum + p);
            }
            if kept == tokens.len() && self.top_k == 0 && n < logits.len() {
                n = n.saturating_mul(8);
                continue;
            }
            let kept = tokens[..kept].iter().map(|(token, logit)| (*token, relative(*logit)));
            return draw(kept, sum, unit);
        }
    }
}

/// The token at which the sum of the weights exceeds `unit · total`.
fn draw(weights: impl Iterator<Item = (u32, f64)>, total: f64, unit: f64) -> u32 {
    let (mut rest, mut last) = (unit * total, 0);
    for (token, weight) in weights.filter(|(_, weight)| *weight > 0.0) {
        last = token;
        if rest < weight {
            break;
        }
        rest -= weight;
    }
    // Rounding may leave a little behind the last.
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::random::Random;

    /// The probabilities after transformers' processors, applied in order.
    fn expected(sampling: &Sampling, logits: &[f32]) -> Vec<f64> {
        let softmax = |x: &[f64]| {
            let greatest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let e: Vec<f64> = x.iter().map(|x| (x - greatest).exp()).collect();
            let total: f64 = e.iter().sum();
            e.into_iter().map(|e| e / total).collect::<Vec<_>>()
        };
        let mut x: Vec<f64> = logits.iter().map(|x| f64::from(*x / sampling.temperature)).collect();
        let mut order: Vec<usize> = (0..x.len()).collect();
        order.sort_by(|a, b| x[*b].total_cmp(&x[*a]));
        if sampling.top_k > 0 {
            order.iter().skip(sampling.top_k).for_each(|i| x[*i] = f64::NEG_INFINITY);
        }
        let p = softmax(&x);
        let mut sum = 0.0;
        for i in &order {
            if sum >= f64::from(sampling.top_p) {
                x[*i] = f64::NEG_INFINITY;
            }
            sum += p[*i];
        }
        let p = softmax(&x);
        let greatest = p.iter().copied().fold(0.0, f64::max);
        for (x, p) in x.iter_mut().zip(&p) {
            if *p < f64::from(sampling.min_p) * greatest {
                *x = f64::NEG_INFINITY;
            }
        }
        softmax(&x)
    }

    #[test]
    fn tokens_are_drawn_by_what_the_filters_leave() {
        let logits: Vec<f32> = (0..40).map(|i| (i as f32 * 2.3).sin() * 2.0).collect();
        let plain = Sampling::default();
        for sampling in [
            plain.clone(),
            Sampling { temperature: 0.5, ..plain.clone() },
            Sampling { temperature: 2.0, top_k: 5, ..plain.clone() },
            Sampling { top_p: 0.6, ..plain.clone() },
            Sampling { min_p: 0.3, ..plain.clone() },
            Sampling { temperature: 1.4, top_k: 20, top_p: 0.8, min_p: 0.1 },
            Sampling { top_p: 1e-9, ..plain },
        ] {
            let mut random = Random::new(7, &[1]);
            let n = 40_000;
            let mut counts = vec![0.0; logits.len()];
            for _ in 0..n {
                counts[sampling.draw(&mut logits.clone(), random.unit()) as usize] += 1.0;
            }
            for (count, p) in counts.iter().zip(expected(&sampling, &logits)) {
                let deviation = (p * (1.0 - p) / f64::from(n)).sqrt();
                assert!(
                    (count / f64::from(n) - p).abs() <= 5.0 * deviation,
                    "{count} of {n}, p = {p}: {sampling:?}"
                );
            }
        }
    }

    #[test]
    fn a_flat_distribution_needs_more_candidates() {
        let sampling = Sampling { top_p: 0.9, ..Sampling::default() };
        let mut random = Random::new(1, &[]);
        let (mut least, mut greatest) = (u32::MAX, 0);
        for _ in 0..2_000 {
            let token = sampling.draw(&mut [0.5; 3000], random.unit());
            (least, greatest) = (least.min(token), greatest.max(token));
        }
        assert!(least < 20 && (2600..2701).contains(&greatest), "{least} {greatest}");
    }

    #[test]
    fn the_ends_of_the_unit_are_tokens() {
        for unit in [0.0, 1.0 - f64::EPSILON] {
            let mut logits = [f32::NEG_INFINITY, 1.0, 2.0, f32::NEG_INFINITY];
            let token = Sampling::default().draw(&mut logits, unit);
            assert_eq!(token, if unit == 0.0 { 1 } else { 2 });
        }
    }
}
