//! The statistics of a corpus: sums over its lines, and each line's where they are drawn again.

use super::lines::Lines;
use super::samples::Samples;
use super::{Metric, Score, Signature};
use crate::{EvaluationError, Result};

/// The statistics of a corpus under one metric, line after line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Corpus {
    sums: Vec<f64>,
    n_lines: usize,
    /// How many references the lines have: least and most.
    n_references: Option<(usize, usize)>,
    /// Each line's statistics, unless sums are enough.
    lines: Option<Lines>,
}

impl Corpus {
    /// An empty corpus of which the sums are kept alone: it takes no more memory however many lines are added.
    pub fn of_sums() -> Self {
        Self::default()
    }

    /// An empty corpus that keeps the statistics of its lines, as resampling needs them: [`Metric::width`] numbers of
    /// four bytes a line, of eight where a mean over several references is no binary fraction.
    pub fn of_lines() -> Self {
        Self { lines: Some(Lines::default()), ..Self::default() }
    }

    /// Hypotheses and references, the lines' statistics kept.
    ///
    /// # Errors
    /// [`EvaluationError::LineCount`] of references that have another number of lines, and
    /// [`EvaluationError::NoLines`], also without any references.
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

    /// Adds a line by its statistics ([`Metric::statistics`]) and the number of its references.
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

    /// The score of all lines, with how far it can be trusted: from `n_samples` samples of the lines with replacement
    /// (Koehn 2004).
    ///
    /// As sacreBLEU's on NumPy 2, the random numbers too. There a score of single precision and one that is exactly 0,
    /// both among the samples, are an error; here they have a mean.
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
