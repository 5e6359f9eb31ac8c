//! Distributions of span lengths.

use crate::random::Random;

/// A distribution over integers from a minimum up, as a table.
#[derive(Debug, Clone)]
pub(super) struct Lengths {
    least: usize,
    /// Running sums of the weights.
    cumulative: Vec<f64>,
}

impl Lengths {
    /// `least + i` with a probability proportional to the weight `i`.
    fn new(least: usize, weights: impl Iterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        let cumulative: Vec<f64> = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        assert!(sum > 0.0 && sum.is_finite(), "a distribution of lengths needs a weight");
        Self { least, cumulative }
    }

    /// `1..=most` with `P(n) ∝ p·(1 − p)ⁿ⁻¹`.
    pub fn geometric(p: f64, most: usize) -> Self {
        assert!(p > 0.0 && p <= 1.0, "a geometric distribution has a probability above 0, at most 1");
        Self::new(1, (0..most).map(|i| p * (1.0 - p).powi(i as i32)))
    }

    /// `1..=most` with `P(n) ∝ 1/n`.
    pub fn harmonic(most: usize) -> Self {
        Self::new(1, (1..=most).map(|n| 1.0 / n as f64))
    }

    /// `0..` with `P(n) ∝ λⁿ/n!`, truncated where the remaining probability is below 10⁻⁹.
    pub fn poisson(mean: f64) -> Self {
        assert!(
            mean > 0.0 && mean <= 100.0,
            "a Poisson distribution of lengths has a mean above 0, at most 100"
        );
        let most = (mean + 10.0 * mean.sqrt() + 15.0) as usize;
        let weights = (1..=most).scan(1.0, |weight, n| {
            *weight *= mean / n as f64;
            Some(*weight)
        });
        Self::new(0, std::iter::once(1.0).chain(weights))
    }

    /// A length.
    pub fn draw(&self, random: &mut Random) -> usize {
        self.draw_of(self.cumulative.len(), random)
    }

    /// A length of at most `most`, with renormalised probabilities.
    pub fn draw_at_most(&self, most: usize, random: &mut Random) -> usize {
        self.draw_of((most + 1 - self.least).min(self.cumulative.len()), random)
    }

    /// One of the first `n` lengths.
    fn draw_of(&self, n: usize, random: &mut Random) -> usize {
        let sums = &self.cumulative[..n];
        let draw = random.unit() * sums[n - 1];
        self.least + sums.partition_point(|sum| *sum <= draw).min(n - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corruption::tests::assert_share;

    const DRAWS: u64 = 200_000;

    /// Draws lengths, compares each one's share with `expected`, and returns the mean.
    fn drawn(draw: impl Fn(&mut Random) -> usize, expected: impl Fn(usize) -> f64) -> f64 {
        let (mut counts, mut random) = ([0u64; 100], Random::derive(7, &[]));
        for _ in 0..DRAWS {
            counts[draw(&mut random)] += 1;
        }
        for (length, count) in counts.iter().enumerate() {
            assert_share(*count, DRAWS, expected(length));
        }
        counts.iter().enumerate().map(|(length, count)| length as f64 * *count as f64).sum::<f64>()
            / DRAWS as f64
    }

    #[test]
    fn spanbert_draws_3_8_words_on_average() {
        let lengths = Lengths::geometric(0.2, 10);
        let all = 1.0 - 0.8f64.powi(10);
        let expected = |n: usize| match n {
            1..=10 => 0.2 * 0.8f64.powi(n as i32 - 1) / all,
            _ => 0.0,
        };
        let mean = drawn(|random| lengths.draw(random), expected);
        assert!((mean - 3.797).abs() < 0.03, "{mean}: the paper has 3.8");
    }

    #[test]
    fn albert_draws_n_with_1_by_n() {
        let lengths = Lengths::harmonic(3);
        let mean =
            drawn(|random| lengths.draw(random), |n| [0.0, 6.0, 3.0, 2.0].get(n).unwrap_or(&0.0) / 11.0);
        assert!((mean - 18.0 / 11.0).abs() < 0.01, "{mean}");
        drawn(|random| lengths.draw_at_most(2, random), |n| [0.0, 2.0, 1.0].get(n).unwrap_or(&0.0) / 3.0);
        drawn(
            |random| lengths.draw_at_most(9, random),
            |n| [0.0, 6.0, 3.0, 2.0].get(n).unwrap_or(&0.0) / 11.0,
        );
    }

    #[test]
    fn bart_draws_3_tokens_on_average() {
        let lengths = Lengths::poisson(3.0);
        let factorial = |n: usize| (1..=n).map(|n| n as f64).product::<f64>();
        let expected = |n: usize| (-3.0f64).exp() * 3.0f64.powi(n as i32) / factorial(n);
        // 35 and more never happen.
        let mean = drawn(|random| lengths.draw(random), |n| if n < 35 { expected(n) } else { 0.0 });
        assert!((mean - 3.0).abs() < 0.02, "{mean}");
        assert!((drawn_mean(100.0) - 100.0).abs() < 0.2 && (drawn_mean(1.0) - 1.0).abs() < 0.02);
    }

    fn drawn_mean(mean: f64) -> f64 {
        let (lengths, mut random) = (Lengths::poisson(mean), Random::derive(9, &[]));
        (0..DRAWS).map(|_| lengths.draw(&mut random) as f64).sum::<f64>() / DRAWS as f64
    }
}
