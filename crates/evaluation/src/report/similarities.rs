//! Sentence embeddings: the similarities they assign to texts.

use maud::{Markup, html};
use serde_json::Value;

use super::{Baseline, Predictions, Table, html, mean, scatter, text_columns, text_values};
use crate::correlation::{pearson, spearman};
use crate::figures::{Figures, shown};

/// The kind of gold data of [`SimilarityPredictions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimilarityKind {
    /// A score for each pair.
    Scored,
    /// Each text is more similar to its second than to its negatives.
    Triplets,
    /// Each text is more similar to its second than to those of other pairs.
    Pairs,
}

/// Pairs of texts with the similarity of their embeddings.
#[derive(Clone, Debug)]
pub struct SimilarityPredictions {
    /// The kind of gold data.
    pub kind: SimilarityKind,
    /// The pairs.
    pub examples: Vec<SimilarityExample>,
}

/// A pair of [`SimilarityPredictions`].
#[derive(Clone, Debug, PartialEq)]
pub struct SimilarityExample {
    /// Its name, such as its line.
    pub id: String,
    /// Its texts.
    pub texts: Vec<String>,
    /// Its score; NaN if there is none.
    pub gold: f64,
    /// The cosine of the two embeddings.
    pub similarity: f64,
    /// The rank of the second text among all candidates by similarity to the first, from 1.
    pub rank: usize,
}

impl SimilarityPredictions {
    fn n_texts(&self) -> usize {
        self.examples.iter().map(|example| example.texts.len()).max().unwrap_or(2)
    }
}

impl Predictions for SimilarityPredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `spearman` and `pearson` for scored pairs; for triplets `accuracy`, how often the second text is the
    /// most similar; for pairs also `mrr`, the mean of `1 / rank`.
    fn figures(&self) -> Figures {
        let (gold, found): (Vec<f64>, Vec<f64>) =
            self.examples.iter().map(|example| (example.gold, example.similarity)).unzip();
        let accuracy = || mean(self.examples.iter().map(|example| f64::from(u8::from(example.rank == 1))));
        let figures = match self.kind {
            SimilarityKind::Scored => {
                vec![("spearman", spearman(&gold, &found)), ("pearson", pearson(&gold, &found))]
            }
            SimilarityKind::Triplets => vec![("accuracy", accuracy())],
            SimilarityKind::Pairs => {
                let mrr = mean(self.examples.iter().map(|example| 1.0 / example.rank as f64));
                vec![("mrr", mrr), ("accuracy", accuracy())]
            }
        };
        Figures::new(self.len(), figures)
    }

    /// For triplets, one of the other texts at random.
    fn baseline(&self) -> Option<Baseline> {
        let right =
            self.examples.iter().map(|example| 1.0 / example.texts.len().saturating_sub(1).max(1) as f64);
        (self.kind == SimilarityKind::Triplets && !self.is_empty()).then(|| Baseline {
            rule: "one of the other texts at random".into(),
            figures: Figures::new(self.len(), [("accuracy", mean(right))]),
        })
    }

    fn set_names(&mut self, names: &[String]) {
        html::set_names(self.examples.iter_mut().map(|example| &mut example.id), names);
    }

    fn is_error(&self, example: usize) -> bool {
        self.kind != SimilarityKind::Scored && self.examples[example].rank != 1
    }

    /// For a scored pair the dissimilarity of its texts, so that the least similar come first; else `1 − 1 /
    /// rank`.
    fn loss(&self, example: usize) -> f64 {
        let example = &self.examples[example];
        match self.kind {
            SimilarityKind::Scored => 1.0 - example.similarity,
            _ => 1.0 - 1.0 / example.rank as f64,
        }
    }

    fn columns(&self) -> Vec<String> {
        let mut columns = vec!["id".to_string()];
        columns.extend(text_columns(self.n_texts()));
        columns.push(if self.kind == SimilarityKind::Scored { "gold" } else { "rank" }.into());
        columns.extend(["similarity", "loss"].map(String::from));
        columns
    }

    fn row(&self, example: usize) -> Vec<Value> {
        let loss = self.loss(example);
        let example = &self.examples[example];
        let mut row = vec![example.id.as_str().into()];
        row.extend(text_values(&example.texts, self.n_texts()));
        row.push(match self.kind {
            SimilarityKind::Scored => example.gold.into(),
            _ => example.rank.into(),
        });
        row.extend([example.similarity, loss].map(Value::from));
        row
    }

    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    fn breakdown(&self) -> Markup {
        let points: Vec<(f64, f64)> =
            self.examples.iter().map(|example| (example.gold, example.similarity)).collect();
        html! {
            @if self.kind == SimilarityKind::Scored {
                section {
                    h2 { "Scores and similarities" }
                    div.scroll { (scatter::plot(&points, "score", "similarity")) }
                }
            }
        }
    }

    fn show(&self, example: usize) -> Markup {
        let example = &self.examples[example];
        html! {
            (html::texts(&example.id, &example.texts))
            p.verdict {
                @if self.kind == SimilarityKind::Scored {
                    span { "gold " b { (shown(example.gold)) } }
                } @else {
                    span { "rank " b { (example.rank) } }
                }
                span { "similarity " b { (shown(example.similarity)) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_figures() {
        let example = |gold, similarity, rank| SimilarityExample {
            id: String::new(),
            texts: vec!["a".into(); 2],
            gold,
            similarity,
            rank,
        };
        let examples = vec![example(1.0, 0.1, 1), example(2.0, 0.7, 2), example(3.0, 0.9, 4)];
        let of = |kind| SimilarityPredictions { kind, examples: examples.clone() };
        let scored = of(SimilarityKind::Scored);
        assert_eq!(scored.figures().main().0, "spearman");
        assert!((scored.figures().main().1 - 1.0).abs() < 1e-12);
        assert!(!scored.is_error(2));
        let pairs = of(SimilarityKind::Pairs);
        assert_eq!(pairs.figures().main(), ("mrr", (1.0 + 0.5 + 0.25) / 3.0));
        assert_eq!(pairs.figures().get("accuracy"), Some(1.0 / 3.0));
        assert!(pairs.is_error(1) && pairs.columns().len() == pairs.row(0).len());
        assert_eq!(of(SimilarityKind::Triplets).figures().main(), ("accuracy", 1.0 / 3.0));
    }
}
