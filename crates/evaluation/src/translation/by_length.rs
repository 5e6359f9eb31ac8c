//! Scores by source length.

use super::python::words;
use super::{Corpus, Metric};
use crate::Result;

/// The statistics of a corpus, grouped by the number of words in source lines.
#[derive(Clone, Debug, PartialEq)]
pub struct ByLength {
    /// The maximum words of each group but the last, ascending.
    bounds: Vec<usize>,
    parts: Vec<Corpus>,
}

/// The score of sentences of similar length.
#[derive(Clone, Debug, PartialEq)]
pub struct OfLength {
    /// The minimum number of words.
    pub from: usize,
    /// The maximum number of words; `None` for the longest sentences.
    pub to: Option<usize>,
    /// Number of lines.
    pub n_lines: usize,
    /// Their score.
    pub value: f64,
}

impl OfLength {
    /// The number of words: `11–20`, `5` or `> 60`.
    pub fn words(&self) -> String {
        match self.to {
            Some(to) if to == self.from => to.to_string(),
            Some(to) => format!("{}–{to}", self.from),
            None => format!("> {}", self.from.saturating_sub(1)),
        }
    }
}

impl ByLength {
    /// Groups of lines with at most these numbers of words, and one of all longer lines. Bounds may be in any
    /// order.
    pub fn new(bounds: &[usize]) -> Self {
        let mut bounds = bounds.to_vec();
        bounds.sort_unstable();
        bounds.dedup();
        let parts = vec![Corpus::of_sums(); bounds.len() + 1];
        Self { bounds, parts }
    }

    /// Adds a line of the source by its text and the translation's statistics, see [`Corpus::add`].
    pub fn add(&mut self, source: &str, statistics: &[f64], n_references: usize) {
        let n_words = words(source).count();
        let part = self.bounds.partition_point(|bound| *bound < n_words);
        self.parts[part].add(statistics, n_references);
    }

    /// The scores of the non-empty groups, from shortest to longest.
    ///
    /// # Errors
    /// Never for values made by this type.
    pub fn scores(&self, metric: &impl Metric) -> Result<Vec<OfLength>> {
        let mut from = 0;
        let mut scores = Vec::new();
        for (place, part) in self.parts.iter().enumerate() {
            let to = self.bounds.get(place).copied();
            if part.n_lines() > 0 {
                let value = part.score(metric)?.value;
                scores.push(OfLength { from, to, n_lines: part.n_lines(), value });
            }
            from = to.map_or(0, |to| to + 1);
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bleu, score};
    use super::*;

    #[test]
    fn lines_are_scored_with_those_of_their_length() {
        let lines =
            [("a", "x y", "x y"), ("a b c", "x y z u v", "x y z u w"), ("", "x", "y"), ("a b c d", "z", "z")];
        let metric = Bleu::default();
        let mut by_length = ByLength::new(&[3, 1, 3]);
        for (source, hypothesis, reference) in lines {
            let mut statistics = Vec::new();
            metric.statistics(hypothesis, &[reference], &mut statistics);
            by_length.add(source, &statistics, 1);
        }
        let scores = by_length.scores(&metric).unwrap();
        let shown: Vec<(String, usize)> = scores.iter().map(|of| (of.words(), of.n_lines)).collect();
        assert_eq!(shown, [("0–1".to_owned(), 2), ("2–3".to_owned(), 1), ("> 3".to_owned(), 1)]);
        let of_middle = score(&metric, &[lines[1].1], &[[lines[1].2]]).unwrap().value;
        assert_eq!(scores[1].value, of_middle);
        assert!(ByLength::new(&[]).scores(&metric).unwrap().is_empty());
    }
}
