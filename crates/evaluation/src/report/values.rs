//! Regression: numbers predicted for texts or text pairs.

use maud::{Markup, html};
use serde_json::Value;

use super::{Baseline, Predictions, Table, Targets, html, mean, scatter, text_columns, text_values};
use crate::correlation::{pearson, spearman};
use crate::figures::{Figures, shown};

/// Examples with their gold and predicted values.
#[derive(Clone, Debug, Default)]
pub struct ValuePredictions {
    /// The examples.
    pub examples: Vec<ValueExample>,
}

/// An example of [`ValuePredictions`]. Its loss is the squared error.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueExample {
    /// Its name, such as its file and line.
    pub id: String,
    /// Its text, or its pair of texts.
    pub texts: Vec<String>,
    /// The gold value.
    pub gold: f64,
    /// The predicted value.
    pub predicted: f64,
}

impl ValueExample {
    fn error(&self) -> f64 {
        self.predicted - self.gold
    }
}

impl ValuePredictions {
    /// What one value for every example scores, which is the mean `of` some examples.
    fn one_for_all(&self, value: f64, of: &str) -> Baseline {
        let errors = || self.examples.iter().map(|example| value - example.gold);
        let figures =
            [("mse", mean(errors().map(|error| error * error))), ("mae", mean(errors().map(f64::abs)))];
        Baseline {
            rule: format!("the mean of {of}, {}, for every example", shown(value)),
            figures: Figures::new(self.len(), figures),
        }
    }

    fn n_texts(&self) -> usize {
        self.examples.iter().map(|example| example.texts.len()).max().unwrap_or(1)
    }
}

impl Predictions for ValuePredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `pearson`, `spearman`, `mse` and `mae`.
    fn figures(&self) -> Figures {
        let (gold, predicted): (Vec<f64>, Vec<f64>) =
            self.examples.iter().map(|example| (example.gold, example.predicted)).unzip();
        let errors = || self.examples.iter().map(ValueExample::error);
        let figures = [
            ("pearson", pearson(&gold, &predicted)),
            ("spearman", spearman(&gold, &predicted)),
            ("mse", mean(errors().map(|error| error * error))),
            ("mae", mean(errors().map(f64::abs))),
        ];
        Figures::new(self.len(), figures)
    }

    /// The mean of the gold values for every example.
    fn baseline(&self) -> Option<Baseline> {
        let predicted = mean(self.examples.iter().map(|example| example.gold));
        (!self.is_empty()).then(|| self.one_for_all(predicted, "these examples"))
    }

    /// The mean of the training data's values for every example.
    fn baseline_of(&self, training: &Targets) -> Option<Baseline> {
        let Targets::Mean(predicted) = training else { return None };
        (!self.is_empty()).then(|| self.one_for_all(*predicted, "the training data"))
    }

    fn set_names(&mut self, names: &[String]) {
        html::set_names(self.examples.iter_mut().map(|example| &mut example.id), names);
    }

    fn is_error(&self, example: usize) -> bool {
        self.examples[example].gold != self.examples[example].predicted
    }

    fn loss(&self, example: usize) -> f64 {
        self.examples[example].error().powi(2)
    }

    fn columns(&self) -> Vec<String> {
        let mut columns = vec!["id".to_string()];
        columns.extend(text_columns(self.n_texts()));
        columns.extend(["gold", "predicted", "error", "loss"].map(String::from));
        columns
    }

    fn row(&self, example: usize) -> Vec<Value> {
        let loss = self.loss(example);
        let example = &self.examples[example];
        let mut row = vec![example.id.as_str().into()];
        row.extend(text_values(&example.texts, self.n_texts()));
        row.extend([example.gold, example.predicted, example.error(), loss].map(Value::from));
        row
    }

    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    fn breakdown(&self) -> Markup {
        let points: Vec<(f64, f64)> =
            self.examples.iter().map(|example| (example.gold, example.predicted)).collect();
        html! {
            section {
                h2 { "Gold and predicted values" }
                div.scroll { (scatter::plot(&points, "gold", "predicted")) }
            }
        }
    }

    fn show(&self, example: usize) -> Markup {
        let example = &self.examples[example];
        html! {
            (html::texts(&example.id, &example.texts))
            p.verdict {
                span { "gold " b { (shown(example.gold)) } }
                span { "predicted " b { (shown(example.predicted)) } }
                span { "error " b { (shown(example.error())) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_errors() {
        let example =
            |gold, predicted| ValueExample { id: String::new(), texts: vec!["a".into(); 2], gold, predicted };
        let predictions =
            ValuePredictions { examples: vec![example(1.0, 2.0), example(2.0, 2.5), example(3.0, 3.0)] };
        let figures = predictions.figures();
        assert_eq!(figures.get("mae"), Some(0.5));
        assert_eq!(figures.get("mse"), Some(1.25 / 3.0));
        assert_eq!(figures.main().0, "pearson");
        assert!((figures.main().1 - 1.0).abs() < 1e-12);
        assert_eq!([0, 1, 2].map(|i| predictions.is_error(i)), [true, true, false]);
        assert_eq!(predictions.columns(), ["id", "text_1", "text_2", "gold", "predicted", "error", "loss"]);
        assert_eq!(predictions.row(0).len(), 7);
        assert!(ValuePredictions::default().figures().main().1.is_nan());
        let of_training = predictions.baseline_of(&Targets::Mean(1.0)).unwrap();
        assert_eq!(of_training.rule, "the mean of the training data, 1.0000, for every example");
        assert_eq!(
            (of_training.figures.get("mae"), of_training.figures.get("mse")),
            (Some(1.0), Some(5.0 / 3.0))
        );
        assert_eq!(predictions.baseline().unwrap().figures.get("mae"), Some(2.0 / 3.0));
    }
}
