//! Whether similar tasks are those that transfer.

use crate::correlation::{ranks, spearman};

/// How well the similarity of tasks tells what training on one gives another.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    /// For each target.
    pub targets: Vec<TargetAgreement>,
}

/// The agreement for one target, over all sources but the target itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetAgreement {
    /// Spearman's correlation of the sources' similarity with their scores; NaN for fewer than two sources, or if one of
    /// the two does not vary.
    pub correlation: f64,
    /// The rank by its scores of the source that is most similar, from 1 for the best, as Luo et al. 2022 measure it. Sources
    /// with one score share a mean rank. NaN without sources.
    pub rank_of_most_similar: f64,
}

impl Agreement {
    /// Compares the similarity of sources and targets with scores of the targets after training on the sources. `own` has
    /// the source that each target is itself, if any, which is left out. A score that is NaN is left out too.
    ///
    /// # Shapes
    /// - `similarity`, `scores`: `[sources][targets]`
    /// - `own`: `[targets]`
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn of(similarity: &[Vec<f64>], scores: &[Vec<f64>], own: &[Option<usize>]) -> Self {
        assert_eq!(similarity.len(), scores.len(), "sources");
        let of_target = |target: usize| {
            let sources = (0..scores.len()).filter(|source| own[target] != Some(*source));
            let pairs = sources.map(|source| (similarity[source][target], scores[source][target]));
            let (similar, scores): (Vec<f64>, Vec<f64>) =
                pairs.filter(|(similar, score)| !similar.is_nan() && !score.is_nan()).unzip();
            // The best score has the first rank.
            let falling: Vec<f64> = scores.iter().map(|score| -score).collect();
            let ranks = ranks(&falling);
            // Of equally similar ones the first.
            let most = (0..similar.len()).rev().max_by(|a, b| similar[*a].total_cmp(&similar[*b]));
            TargetAgreement {
                correlation: spearman(&similar, &scores),
                rank_of_most_similar: most.map_or(f64::NAN, |source| ranks[source]),
            }
        };
        Self { targets: (0..own.len()).map(of_target).collect() }
    }

    /// The mean correlation of the targets that have one; NaN if none has.
    pub fn mean_correlation(&self) -> f64 {
        mean(self.targets.iter().map(|target| target.correlation))
    }

    /// The mean rank of the most similar source.
    pub fn mean_rank(&self) -> f64 {
        mean(self.targets.iter().map(|target| target.rank_of_most_similar))
    }
}

/// The mean of the values that are numbers.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::super::golden::{assert_close, golden};
    use super::*;

    /// The published matrix of 12 tasks.
    #[test]
    fn as_scipy_and_pandas_have_it() {
        let golden = golden().agreement;
        let own: Vec<Option<usize>> = (0..golden.tasks.len()).map(Some).collect();
        let ours = Agreement::of(&golden.similarity, &golden.transfer, &own);
        assert_eq!(ours.targets.len(), 12);
        for (target, (correlation, rank)) in
            ours.targets.iter().zip(golden.correlations.into_iter().zip(golden.chosen_ranks))
        {
            assert_close(target.correlation, correlation);
            assert_close(target.rank_of_most_similar, rank);
        }
        assert_close(ours.mean_correlation(), golden.mean_correlation);
        assert_close(ours.mean_rank(), golden.mean_rank);
    }

    #[test]
    fn without_sources_there_is_no_agreement() {
        let none = Agreement::of(&[vec![1.0]], &[vec![0.5]], &[Some(0)]);
        assert!(none.mean_correlation().is_nan() && none.mean_rank().is_nan());
        // A source that was not measured is none.
        let one = Agreement::of(&[vec![0.1], vec![0.9]], &[vec![0.5], vec![f64::NAN]], &[None]);
        assert!(one.mean_correlation().is_nan());
        assert_eq!(one.mean_rank(), 1.0);
    }
}
