//! Classification of texts or text pairs.

use maud::{Markup, html};
use serde_json::Value;

use super::{
    Baseline, Predictions, Table, Targets, html, matrix, mean, text_columns, text_values, unpredicted,
    without_losses,
};
use crate::confusion::ConfusionMatrix;
use crate::figures::Figures;
use crate::scores::{Average, ZeroDivision};

/// Examples with their gold and predicted classes.
#[derive(Clone, Debug)]
pub struct ClassPredictions {
    /// The class names by index.
    pub labels: Vec<String>,
    /// The class whose precision, recall and F1 are reported, such as the second of two.
    pub positive: Option<usize>,
    /// The examples; methods panic if a class is out of range.
    pub examples: Vec<ClassExample>,
}

/// An example of [`ClassPredictions`].
#[derive(Clone, Debug, PartialEq)]
pub struct ClassExample {
    /// Its name, such as its file and line.
    pub id: String,
    /// Its text, or its pair of texts.
    pub texts: Vec<String>,
    /// The gold class.
    pub gold: usize,
    /// The predicted class.
    pub predicted: usize,
    /// The predicted class's probability.
    pub score: f64,
    /// The gold class's cross-entropy in nats.
    pub loss: f64,
}

impl ClassPredictions {
    /// The confusion matrix.
    pub fn matrix(&self) -> ConfusionMatrix {
        let mut matrix = ConfusionMatrix::new(self.labels.len());
        self.examples.iter().for_each(|example| matrix.add(example.gold, example.predicted));
        matrix
    }

    /// What one class for every example scores; `of` tells where it is the most frequent.
    fn one_for_all(&self, class: usize, of: &str) -> Baseline {
        let example = |example: &ClassExample| ClassExample {
            id: String::new(),
            texts: Vec::new(),
            predicted: class,
            ..*example
        };
        let examples = self.examples.iter().map(example).collect();
        let of_one = Self { labels: self.labels.clone(), positive: self.positive, examples };
        Baseline {
            rule: format!("the most frequent class of {of}, `{}`, for every example", self.labels[class]),
            figures: without_losses(&of_one.figures()),
        }
    }

    fn n_texts(&self) -> usize {
        self.examples.iter().map(|example| example.texts.len()).max().unwrap_or(1)
    }
}

impl Predictions for ClassPredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `accuracy`; `f1`, `precision` and `recall` of the positive class, if any; those with `_macro`;
    /// `f1_micro`, `f1_weighted`, `matthews`, `loss`. Zero divisions give 0, as in scikit-learn.
    fn figures(&self) -> Figures {
        let matrix = self.matrix();
        let mut figures = vec![("accuracy", matrix.accuracy())];
        if let Some(positive) = self.positive {
            let scores = matrix.class(positive).scores(ZeroDivision::Zero);
            figures.extend([("f1", scores.f1), ("precision", scores.precision), ("recall", scores.recall)]);
        }
        let average = |average| matrix.average(average, ZeroDivision::Zero);
        let classes = average(Average::Macro);
        figures.extend([
            ("f1_macro", classes.f1),
            ("precision_macro", classes.precision),
            ("recall_macro", classes.recall),
            ("f1_micro", average(Average::Micro).f1),
            ("f1_weighted", average(Average::Weighted).f1),
            ("matthews", matrix.matthews()),
            ("loss", mean(self.examples.iter().map(|example| example.loss))),
        ]);
        Figures::new(self.len(), figures)
    }

    /// The most frequent gold class for every example.
    fn baseline(&self) -> Option<Baseline> {
        let mut counts = vec![0; self.labels.len()];
        self.examples.iter().for_each(|example| counts[example.gold] += 1);
        // Of equally frequent ones the first.
        let most =
            (0..counts.len()).rev().max_by_key(|class| counts[*class]).filter(|class| counts[*class] > 0)?;
        Some(self.one_for_all(most, "these examples"))
    }

    /// The most frequent class of the training data for every example.
    fn baseline_of(&self, training: &Targets) -> Option<Baseline> {
        let most = training.most_frequent()?;
        let class = self.labels.iter().position(|label| label == most)?;
        (!self.is_empty()).then(|| self.one_for_all(class, "the training data"))
    }

    fn warning(&self) -> Option<String> {
        let first = self.examples.first()?;
        let is_one = self.examples.iter().all(|example| example.predicted == first.predicted);
        let is_right = self.examples.iter().all(|example| example.gold == first.predicted);
        let one = (is_one && !is_right).then(|| {
            format!(
                "every example was given the class `{}`; train for more epochs, at another learning rate, or on more examples \
                 of the other classes",
                self.labels[first.predicted]
            )
        });
        let matrix = self.matrix();
        let counts = self.labels.iter().enumerate().map(|(class, name)| (name.as_str(), matrix.class(class)));
        one.or_else(|| unpredicted::warning("classes", counts))
    }

    fn set_names(&mut self, names: &[String]) {
        html::set_names(self.examples.iter_mut().map(|example| &mut example.id), names);
    }

    fn is_error(&self, example: usize) -> bool {
        self.examples[example].gold != self.examples[example].predicted
    }

    fn loss(&self, example: usize) -> f64 {
        self.examples[example].loss
    }

    fn columns(&self) -> Vec<String> {
        let mut columns = vec!["id".to_string()];
        columns.extend(text_columns(self.n_texts()));
        columns.extend(["gold", "predicted", "correct", "score", "loss"].map(String::from));
        columns
    }

    fn row(&self, example: usize) -> Vec<Value> {
        let ClassExample { id, texts, gold, predicted, score, loss } = &self.examples[example];
        let mut row = vec![id.as_str().into()];
        row.extend(text_values(texts, self.n_texts()));
        row.extend([self.labels[*gold].as_str().into(), self.labels[*predicted].as_str().into()]);
        row.extend([(gold == predicted).into(), (*score).into(), (*loss).into()]);
        row
    }

    fn tables(&self) -> Vec<Table> {
        let matrix = self.matrix();
        vec![matrix::confusion(&self.labels, &matrix), matrix::classes(&self.labels, &matrix)]
    }

    fn breakdown(&self) -> Markup {
        matrix::section("Confusion matrix", &self.labels, &self.matrix())
    }

    fn show(&self, example: usize) -> Markup {
        let wrong = self.is_error(example);
        let ClassExample { id, texts, gold, predicted, score, .. } = &self.examples[example];
        html! {
            (html::texts(id, texts))
            p.verdict {
                span { "gold " b.label dir="auto" { (self.labels[*gold]) } }
                span {
                    "predicted " b.label.wrong[wrong] dir="auto" { (self.labels[*predicted]) } " "
                    (html::percent(*score))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_class_is_that_of_the_training_data() {
        let example = |gold| ClassExample {
            id: String::new(),
            texts: vec!["a".into()],
            gold,
            predicted: 0,
            score: 1.0,
            loss: 0.1,
        };
        let labels = ["no", "yes", "unknown"].map(str::to_owned).to_vec();
        let predictions =
            ClassPredictions { labels, positive: None, examples: vec![example(1), example(1), example(0)] };
        let targets = |counts: &[(&str, u64)]| {
            Targets::Classes(counts.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect())
        };
        let Baseline { rule, figures } =
            predictions.baseline_of(&targets(&[("no", 9), ("yes", 4), ("unknown", 0)])).unwrap();
        assert_eq!(rule, "the most frequent class of the training data, `no`, for every example");
        assert_eq!((figures.get("accuracy"), figures.get("loss")), (Some(1.0 / 3.0), None));
        let of_its_own = predictions.baseline().unwrap();
        assert_eq!(of_its_own.rule, "the most frequent class of these examples, `yes`, for every example");
        assert_eq!(of_its_own.figures.get("accuracy"), Some(2.0 / 3.0));
        // Of equally frequent ones the first; none of what is unknown here or was never seen.
        let tie = predictions.baseline_of(&targets(&[("yes", 3), ("no", 3)])).unwrap();
        assert!(tie.rule.contains("`yes`"), "{}", tie.rule);
        for none in [&[("other", 3)][..], &[("no", 0)], &[]] {
            assert_eq!(predictions.baseline_of(&targets(none)), None, "{none:?}");
        }
    }

    #[test]
    fn one_class_for_all_examples_is_warned_of() {
        let predictions = |golds: &[usize], predicted: &[usize]| {
            let example = |(gold, predicted): (&usize, &usize)| ClassExample {
                id: String::new(),
                texts: Vec::new(),
                gold: *gold,
                predicted: *predicted,
                score: 1.0,
                loss: 0.0,
            };
            let examples = golds.iter().zip(predicted).map(example).collect();
            let labels = ["no", "yes", "unknown"].map(str::to_owned).to_vec();
            ClassPredictions { labels, positive: None, examples }
        };
        let warning = predictions(&[0, 1, 1], &[1, 1, 1]).warning().unwrap();
        assert!(warning.contains("`yes`"), "{warning}");
        assert_eq!(predictions(&[0, 1, 1], &[1, 0, 1]).warning(), None);
        let warning = predictions(&[0, 1, 2], &[1, 0, 1]).warning().unwrap();
        assert!(warning.starts_with("classes that were never predicted: `unknown` (of 1);"), "{warning}");
        // They may all be of one class.
        assert_eq!(predictions(&[1, 1], &[1, 1]).warning(), None);
        assert_eq!(predictions(&[], &[]).warning(), None);
    }
}
