//! Multi-label classification of texts or text pairs.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::{
    Baseline, Predictions, Table, Targets, html, mean, text_columns, text_values, unpredicted, without_losses,
};
use crate::embeddings::pairs::average_precision;
use crate::figures::{Figures, shown};
use crate::scores::{self, Average, Counts, Scores, ZeroDivision};

/// Examples with their gold and predicted labels.
#[derive(Clone, Debug)]
pub struct LabelPredictions {
    /// The label names by index.
    pub labels: Vec<String>,
    /// A label is predicted if its probability is above this.
    pub threshold: f64,
    /// The examples; methods panic if a label is out of range, or a probability is missing.
    pub examples: Vec<LabelExample>,
}

/// An example of [`LabelPredictions`].
#[derive(Clone, Debug, PartialEq)]
pub struct LabelExample {
    /// Its name, such as its file and line.
    pub id: String,
    /// Its text, or its pair of texts.
    pub texts: Vec<String>,
    /// Its gold labels, ascending.
    pub gold: Vec<usize>,
    /// Each label's probability.
    pub scores: Vec<f64>,
    /// The mean of the labels' binary cross-entropies, in nats.
    pub loss: f64,
}

const SCORES: [&str; 7] = ["label", "precision", "recall", "f1", "average precision", "gold", "predicted"];

impl LabelPredictions {
    /// The predicted labels of an example, ascending.
    fn predicted(&self, example: &LabelExample) -> Vec<usize> {
        (0..self.labels.len()).filter(|label| example.scores[*label] > self.threshold).collect()
    }

    /// Counts of gold, predicted and correct occurrences of each label.
    fn counts(&self) -> Vec<Counts> {
        let mut counts = vec![Counts::default(); self.labels.len()];
        for example in &self.examples {
            let predicted = self.predicted(example);
            example.gold.iter().for_each(|label| counts[*label].gold += 1);
            predicted.iter().for_each(|label| counts[*label].predicted += 1);
            let both = example.gold.iter().filter(|label| predicted.contains(label));
            both.for_each(|label| counts[*label].correct += 1);
        }
        counts
    }

    /// The mean of the examples' scores.
    fn of_samples(&self, score: impl Fn(Scores) -> f64) -> f64 {
        mean(self.examples.iter().map(|example| {
            let predicted = self.predicted(example);
            let correct = example.gold.iter().filter(|label| predicted.contains(label)).count() as u64;
            let (predicted, gold) = (predicted.len() as u64, example.gold.len() as u64);
            score(Counts { correct, predicted, gold }.scores(ZeroDivision::Zero))
        }))
    }

    /// The average precision of these labels' pooled probabilities; 0 if no example has any of them.
    fn average_precision(&self, labels: impl Iterator<Item = usize> + Clone) -> f64 {
        let rows = self.examples.iter().flat_map(|example| {
            labels.clone().map(move |label| (example.scores[label], example.gold.contains(&label)))
        });
        let mut rows: Vec<(f64, bool)> = rows.collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        let there = rows.iter().filter(|(_, there)| *there).count();
        average_precision(&rows, there)
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |(label, counts): (usize, Counts)| {
            let scores = counts.scores(ZeroDivision::Zero);
            let ranked = self.average_precision(std::iter::once(label));
            let [precision, recall, f1, ranked] =
                [scores.precision, scores.recall, scores.f1, ranked].map(shown);
            let [gold, predicted] = [counts.gold, counts.predicted].map(|count| count.to_string());
            vec![self.labels[label].clone(), precision, recall, f1, ranked, gold, predicted]
        };
        self.counts().into_iter().enumerate().map(row).collect()
    }

    fn names(&self, labels: &[usize]) -> String {
        labels.iter().map(|label| self.labels[*label].as_str()).collect::<Vec<_>>().join(", ")
    }

    /// What one label for every example scores; `of` tells where it is the most frequent.
    fn one_for_all(&self, label: usize, of: &str) -> Baseline {
        let scores: Vec<f64> =
            (0..self.labels.len()).map(|other| f64::from(u8::from(other == label))).collect();
        let example = |example: &LabelExample| LabelExample {
            id: String::new(),
            texts: Vec::new(),
            gold: example.gold.clone(),
            scores: scores.clone(),
            loss: f64::NAN,
        };
        let examples = self.examples.iter().map(example).collect();
        let of_one = Self { labels: self.labels.clone(), threshold: 0.5, examples };
        Baseline {
            rule: format!("the most frequent label of {of}, `{}`, for every example", self.labels[label]),
            figures: without_losses(&of_one.figures()),
        }
    }

    fn n_texts(&self) -> usize {
        self.examples.iter().map(|example| example.texts.len()).max().unwrap_or(1)
    }
}

impl Predictions for LabelPredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `f1_micro`, `f1_macro`, and `f1_samples`, the mean of the examples' F1; `precision_micro`,
    /// `recall_micro`; `average_precision`, the mean over labels, and `average_precision_micro`, over all
    /// labels pooled; `accuracy`, the share of examples with exactly the gold labels; `loss`. Zero divisions
    /// give 0, as in scikit-learn.
    fn figures(&self) -> Figures {
        let counts = self.counts();
        let micro = scores::average(&counts, Average::Micro, ZeroDivision::Zero);
        let n = self.labels.len();
        let right = mean((0..self.len()).map(|example| f64::from(u8::from(!self.is_error(example)))));
        let ranked = mean((0..n).map(|label| self.average_precision(std::iter::once(label))));
        Figures::new(
            self.len(),
            [
                ("f1_micro", micro.f1),
                ("f1_macro", scores::average(&counts, Average::Macro, ZeroDivision::Zero).f1),
                ("f1_samples", self.of_samples(|scores| scores.f1)),
                ("precision_micro", micro.precision),
                ("recall_micro", micro.recall),
                ("average_precision", ranked),
                ("average_precision_micro", self.average_precision(0..n)),
                ("accuracy", right),
                ("loss", mean(self.examples.iter().map(|example| example.loss))),
            ],
        )
    }

    /// The most frequent gold label for every example.
    fn baseline(&self) -> Option<Baseline> {
        let counts = self.counts();
        let most = (0..counts.len()).rev().max_by_key(|label| counts[*label].gold);
        let most = most.filter(|label| counts[*label].gold > 0)?;
        Some(self.one_for_all(most, "these examples"))
    }

    /// The most frequent label of the training data for every example.
    fn baseline_of(&self, training: &Targets) -> Option<Baseline> {
        let most = training.most_frequent()?;
        let label = self.labels.iter().position(|label| label == most)?;
        (!self.is_empty()).then(|| self.one_for_all(label, "the training data"))
    }

    fn warning(&self) -> Option<String> {
        let counts = self.counts();
        let is_none = counts.iter().all(|counts| counts.predicted == 0);
        let none = (is_none && counts.iter().any(|counts| counts.gold > 0)).then(|| {
            format!(
                "no example was given any label: no probability is above {}; train for more epochs, at another learning rate, or \
                 lower `task.threshold`",
                self.threshold
            )
        });
        let counts = self.labels.iter().map(String::as_str).zip(counts);
        none.or_else(|| unpredicted::warning("labels", counts))
    }

    fn set_names(&mut self, names: &[String]) {
        html::set_names(self.examples.iter_mut().map(|example| &mut example.id), names);
    }

    fn is_error(&self, example: usize) -> bool {
        self.predicted(&self.examples[example]) != self.examples[example].gold
    }

    fn loss(&self, example: usize) -> f64 {
        self.examples[example].loss
    }

    fn columns(&self) -> Vec<String> {
        let mut columns = vec!["id".to_string()];
        columns.extend(text_columns(self.n_texts()));
        columns.extend(["gold", "predicted", "correct", "loss", "scores"].map(String::from));
        columns
    }

    fn row(&self, index: usize) -> Vec<Value> {
        let example = &self.examples[index];
        let mut row = vec![example.id.as_str().into()];
        row.extend(text_values(&example.texts, self.n_texts()));
        row.extend([self.names(&example.gold).into(), self.names(&self.predicted(example)).into()]);
        row.extend([(!self.is_error(index)).into(), example.loss.into(), json!(example.scores)]);
        row
    }

    fn tables(&self) -> Vec<Table> {
        let mut rows = vec![SCORES.map(String::from).to_vec()];
        rows.extend(self.rows());
        vec![Table { file: "labels.tsv", rows }]
    }

    fn breakdown(&self) -> Markup {
        html! {
            section {
                h2 { "Labels" }
                p.note { "A label is predicted if its probability is above " (self.threshold) "." }
                (html::numbers(&SCORES, &self.rows()))
            }
        }
    }

    fn show(&self, index: usize) -> Markup {
        let example = &self.examples[index];
        let predicted = self.predicted(example);
        let marked = |these: &[usize], others: &[usize], only_wrong: bool| {
            html! {
                @for label in these {
                    " " b.label.wrong[only_wrong && !others.contains(label)] dir="auto" { (self.labels[*label]) }
                    " " (html::percent(example.scores[*label]))
                }
                @if these.is_empty() { " none" }
            }
        };
        html! {
            (html::texts(&example.id, &example.texts))
            p.verdict {
                span { "gold" (marked(&example.gold, &predicted, false)) }
                span { "predicted" (marked(&predicted, &example.gold, true)) }
            }
        }
    }
}
