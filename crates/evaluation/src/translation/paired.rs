//! Paired significance tests of two systems on the same lines.

use super::generator::Generator;
use super::lines::Lines;
use super::number::Whole;
use super::samples::{Samples, share_of_chance};
use super::{Confidence, Corpus, Metric, Signature};
use crate::{EvaluationError, Result};

/// A paired significance test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairedTest {
    /// Paired bootstrap resampling (Koehn 2004): samples of the lines, with replacement, the same for both systems.
    Bootstrap,
    /// Approximate randomisation (Riezler and Maxwell 2005): each line's translations are swapped or not.
    Randomization,
}

impl PairedTest {
    /// sacreBLEU's default number of samples.
    pub fn usual_samples(self) -> usize {
        match self {
            Self::Bootstrap => 1_000,
            Self::Randomization => 10_000,
        }
    }

    /// Its key in a signature.
    fn key(self) -> &'static str {
        match self {
            Self::Bootstrap => "bs",
            Self::Randomization => "ar",
        }
    }
}

/// A system's score compared with a baseline's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Its score.
    pub value: f64,
    /// The probability of a difference at least as large if both were equally good; `None` for the baseline
    /// itself.
    pub p_value: Option<f64>,
    /// The score's confidence interval, from [`PairedTest::Bootstrap`].
    pub confidence: Option<Confidence>,
}

/// The baseline, then each system compared with it, and the test's signature. Corpora must keep their lines
/// ([`Corpus::of_lines`]).
///
/// Everything equals sacreBLEU, including the random numbers, with two exceptions. There, seed 0 means no
/// seed. And with [`PairedTest::Randomization`] of TER against three or more references, whose mean lengths
/// are not binary fractions, sums are rounded by the machine's linear algebra library, so a p-value may
/// differ if two scores are nearly equal.
///
/// # Errors
/// [`EvaluationError::NoLines`], and [`EvaluationError::LineCount`] for a system with a different number of
/// lines than the baseline.
///
/// # Panics
/// If a corpus keeps only sums.
pub fn compare(
    metric: &impl Metric,
    test: PairedTest,
    baseline: &Corpus,
    systems: &[Corpus],
    n_samples: usize,
    seed: u64,
) -> Result<(Signature, Vec<Compared>)> {
    let mut signature = baseline.signature(metric)?;
    signature.sampled(test.key(), n_samples, seed);
    let lines = baseline.lines();
    let value = |corpus: &Corpus| -> f64 { metric.value(corpus.sums()) };
    let samples = |lines: &Lines| Samples::bootstrap(metric, lines, n_samples, seed);
    let of_baseline = (test == PairedTest::Bootstrap).then(|| samples(lines));
    let confidence = of_baseline.as_ref().map(Samples::confidence_of_paired);
    let mut compared = vec![Compared { value: value(baseline), p_value: None, confidence }];
    for system in systems {
        if system.n_lines() != baseline.n_lines() {
            let (found, expected) = (system.n_lines(), baseline.n_lines());
            return Err(EvaluationError::LineCount { what: "another system", found, expected });
        }
        let difference = (value(baseline) - value(system)).abs();
        let (p_value, confidence) = match &of_baseline {
            Some(of_baseline) => {
                let of_system = samples(system.lines());
                (of_system.p_value(of_baseline, difference), Some(of_system.confidence_of_paired()))
            }
            None => {
                let p = match (lines, system.lines()) {
                    (Lines::Single(a), Lines::Single(b)) => {
                        randomization(metric, a, b, difference, n_samples, seed)
                    }
                    (Lines::Single(a), Lines::Double(b)) => {
                        randomization(metric, a, b, difference, n_samples, seed)
                    }
                    (Lines::Double(a), Lines::Single(b)) => {
                        randomization(metric, a, b, difference, n_samples, seed)
                    }
                    (Lines::Double(a), Lines::Double(b)) => {
                        randomization(metric, a, b, difference, n_samples, seed)
                    }
                };
                (p, None)
            }
        };
        compared.push(Compared { value: value(system), p_value: Some(p_value), confidence });
    }
    Ok((signature, compared))
}

/// The p-value: how often two mixtures of the systems' lines differ by more than the systems do.
fn randomization(
    metric: &impl Metric,
    baseline: &[impl Copy + Into<f64>],
    system: &[impl Copy + Into<f64>],
    difference: f64,
    n_samples: usize,
    seed: u64,
) -> f64 {
    let width = metric.width();
    let totals = [total(baseline, width), total(system, width)];
    let mut bits = Generator::new(seed).bits();
    let mut chosen = [vec![0.0; width], vec![0.0; width]];
    let mut larger = 0;
    for _ in 0..n_samples {
        chosen.iter_mut().for_each(|sums| sums.fill(0.0));
        for (of_baseline, of_system) in baseline.chunks_exact(width).zip(system.chunks_exact(width)) {
            if bits.next() == Some(true) {
                add(&mut chosen[0], of_baseline);
                add(&mut chosen[1], of_system);
            }
        }
        // One mixture has the chosen lines of the baseline and the others of the system, the other one the rest.
        let mixture = |first: usize| -> f64 {
            let second = 1 - first;
            let sums = (0..width).map(|at| chosen[first][at] + (totals[second][at] - chosen[second][at]));
            metric.value(&sums.map(Whole).collect::<Vec<_>>()).into()
        };
        larger += usize::from((mixture(0) - mixture(1)).abs() > difference);
    }
    share_of_chance(larger, n_samples)
}

fn total(lines: &[impl Copy + Into<f64>], width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; width];
    lines.chunks_exact(width).for_each(|line| add(&mut sums, line));
    sums
}

fn add(sums: &mut [f64], line: &[impl Copy + Into<f64>]) {
    sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += Into::<f64>::into(*value));
}
