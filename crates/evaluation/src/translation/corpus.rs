//! The statistics of a corpus: sums over its lines, and each line's for resampling.

use super::lines::Lines;
use super::samples::Samples;
use super::{Metric, Score, Signature};
use crate::{EvaluationError, Result};

/// The statistics of a corpus under one metric, accumulated by line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Corpus {
    sums: Vec<f64>,
    n_lines: usize,
    /// The minimum and maximum number of references per line.
    n_references: Option<(usize, usize)>,
    /// Each line's statistics, unless only sums are kept.
    lines: Option<Lines>,
}

impl Corpus {
    /// An empty corpus that keeps only sums, in constant memory.
    pub fn of_sums() -> Self {
        Self::default()
    }

    /// An empty corpus that keeps its lines' statistics for resampling: [`Metric::width`] numbers per line,
    /// of four bytes each, or eight if a mean over several references is not a binary fraction.
    pub fn of_lines() -> Self {
        Self { lines: Some(Lines::default()), ..Self::default() }
    }

    /// The corpus of hypotheses and references, keeping the lines' statistics.
    ///
    /// # Errors
    /// [`EvaluationError::LineCount`] for references with a different number of lines, and
    /// [`EvaluationError::NoLines`], also without references.
    pub fn of<R: AsRef<[S]>, S: AsRef<str>>(
        metric: &impl Metric,
        hypotheses: &[impl AsRef<str>],
        references: &[R],
    ) -> Result<Self> {
        if hypotheses.is_empty() || references.is_empty() {
            return Err(EvaluationError::NoLines);
        }
        let expected = hypotheses.len();
        if let Some(found) = references.iter().map(|lines| lines.as_ref().len()).find(|n| *n != expected) {
            return Err(EvaluationError::LineCount { what: "references", found, expected });
        }
        let mut corpus = Self::of_lines();
        let mut statistics = Vec::with_capacity(metric.width());
        for (place, hypothesis) in hypotheses.iter().enumerate() {
            let references: Vec<&str> =
                references.iter().map(|lines| lines.as_ref()[place].as_ref()).collect();
            statistics.clear();
            metric.statistics(hypothesis.as_ref(), &references, &mut statistics);
            corpus.add(&statistics, references.len());
        }
        Ok(corpus)
    }

    /// Adds a line by its statistics ([`Metric::statistics`]) and its number of references.
    pub fn add(&mut self, statistics: &[f64], n_references: usize) {
        self.sums.resize(statistics.len(), 0.0);
        self.sums.iter_mut().zip(statistics).for_each(|(sum, value)| *sum += value);
        self.n_lines += 1;
        let (least, most) = self.n_references.unwrap_or((n_references, n_references));
        self.n_references = Some((least.min(n_references), most.max(n_references)));
        if let Some(lines) = &mut self.lines {
            lines.extend(statistics);
        }
    }

    /// How many lines there are.
    pub fn n_lines(&self) -> usize {
        self.n_lines
    }

    /// The sums of the lines' statistics.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// The score of all lines.
    ///
    /// # Errors
    /// [`EvaluationError::NoLines`].
    pub fn score(&self, metric: &impl Metric) -> Result<Score> {
        let signature = self.signature(metric)?;
        Ok(Score {
            name: metric.name(),
            value: metric.value(&self.sums),
            verbose: metric.verbose(&self.sums),
            signature,
            confidence: None,
        })
    }

    /// The score of all lines with a confidence interval, from `n_samples` bootstrap samples of the lines
    /// (Koehn 2004).
    ///
    /// Equals sacreBLEU's on NumPy 2, including the random numbers. There, mixing single-precision scores
    /// with one of exactly 0 among the samples is an error; here they have a mean.
    ///
    /// # Errors
    /// [`EvaluationError::NoLines`].
    ///
    /// # Panics
    /// Without [its lines](Self::of_lines), and without samples.
    pub fn score_with_confidence(&self, metric: &impl Metric, n_samples: usize, seed: u64) -> Result<Score> {
        assert!(n_samples > 0, "no samples to draw");
        let mut score = self.score(metric)?;
        score.confidence = Some(Samples::bootstrap(metric, self.lines(), n_samples, seed).confidence());
        score.signature.sampled("bs", n_samples, seed);
        Ok(score)
    }

    pub(crate) fn lines(&self) -> &Lines {
        let Some(lines) = &self.lines else { panic!("the corpus has kept sums alone") };
        lines
    }

    pub(crate) fn signature(&self, metric: &impl Metric) -> Result<Signature> {
        let (least, most) = self.n_references.ok_or(EvaluationError::NoLines)?;
        Ok(Signature::new((least == most).then_some(least), metric.settings()))
    }
}
