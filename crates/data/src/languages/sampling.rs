//! Language sampling probabilities.

use crate::random::Random;

/// Sampling probabilities for languages with unequal amounts of text (Conneau & Lample 2019, §3.1): `q_i =
/// p_i^α / Σ_j p_j^α` with `p_i = n_i / Σ_k n_k`, where `n_i` is the number of sentences of language `i`.
///
/// α = 1 samples in proportion to the data, α = 0 uniformly. XLM uses 0.5, XLM-R 0.3 (Conneau et al. 2020,
/// §3) and multilingual BERT 0.7.
///
/// ```
/// # use cloze_data::LanguageSampling;
/// let sampling = LanguageSampling::new(&[900, 100], 0.5);
/// assert_eq!(sampling.shares(), [0.9, 0.1]);
/// assert!((sampling.probabilities()[0] - 0.75).abs() < 1e-12, "√0.9 / (√0.9 + √0.1)");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LanguageSampling {
    shares: Vec<f64>,
    probabilities: Vec<f64>,
    /// Running sums of the probabilities, the last of them 1.
    cumulative: Vec<f64>,
}

impl LanguageSampling {
    /// The default exponent.
    pub const ALPHA: f64 = 0.7;

    /// Sampling probabilities for languages with these numbers of sentences.
    ///
    /// # Panics
    /// If there is no language, a language has no sentence, or `alpha` is outside 0 to 1.
    pub fn new(sentences: &[u64], alpha: f64) -> Self {
        assert!(!sentences.is_empty() && sentences.iter().all(|n| *n > 0), "a language without a sentence");
        assert!((0.0..=1.0).contains(&alpha), "α is {alpha}, expected 0 to 1");
        let total: u64 = sentences.iter().sum();
        let shares: Vec<f64> = sentences.iter().map(|n| *n as f64 / total as f64).collect();
        let powers: Vec<f64> = shares.iter().map(|share| share.powf(alpha)).collect();
        let sum: f64 = powers.iter().sum();
        let probabilities: Vec<f64> = powers.iter().map(|power| power / sum).collect();
        let mut reached = 0.0;
        let mut cumulative: Vec<f64> = probabilities
            .iter()
            .map(|probability| {
                reached += probability;
                reached
            })
            .collect();
        if let Some(last) = cumulative.last_mut() {
            *last = 1.0;
        }
        Self { shares, probabilities, cumulative }
    }

    /// Each language's share `p_i` of all sentences.
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// Each language's sampling probability `q_i`.
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// How often to repeat each language's texts so that languages have the proportions `q` in the same total
    /// amount of text: `q_i / p_i`, above 1 for languages with little text.
    pub fn repetitions(&self) -> impl Iterator<Item = f64> {
        self.probabilities.iter().zip(&self.shares).map(|(probability, share)| probability / share)
    }

    /// Draws a language.
    pub fn draw(&self, random: &mut Random) -> usize {
        let drawn = random.unit();
        self.cumulative.partition_point(|reached| *reached <= drawn).min(self.cumulative.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_the_papers() {
        let counts = [8_000, 1_500, 500];
        let of = |alpha| LanguageSampling::new(&counts, alpha).probabilities().to_vec();
        let near = |found: &[f64], expected: [f64; 3]| {
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?}");
        };
        near(&of(1.0), [0.8, 0.15, 0.05]);
        near(&of(0.0), [1.0 / 3.0; 3]);
        // By hand: 0.8^0.5 = 0.89443, 0.15^0.5 = 0.38730, 0.05^0.5 = 0.22361; their sum is 1.50533.
        near(&of(0.5), [0.59417, 0.25728, 0.14854]);
        let sampling = LanguageSampling::new(&counts, 0.5);
        let text: f64 = sampling.repetitions().zip(counts).map(|(times, n)| times * n as f64).sum();
        assert!((text - 10_000.0).abs() < 1e-6, "as much text as there is: {text}");
    }

    #[test]
    fn languages_are_drawn_by_their_chances() {
        let sampling = LanguageSampling::new(&[90_000, 9_000, 1_000], 0.3);
        let (n, mut drawn) = (50_000u64, [0u64; 3]);
        for place in 0..n {
            drawn[sampling.draw(&mut Random::derive(7, &[place]))] += 1;
        }
        for (count, q) in drawn.iter().zip(sampling.probabilities()) {
            let (mean, deviation) = (n as f64 * q, (n as f64 * q * (1.0 - q)).sqrt());
            assert!(
                (*count as f64 - mean).abs() < 5.0 * deviation,
                "{drawn:?} of {:?}",
                sampling.probabilities()
            );
        }
    }
}
