//! Multiple choice.

use maud::{Markup, html};
use serde_json::Value;

use super::{Baseline, Predictions, Table, html, matrix, mean};
use crate::confusion::ConfusionMatrix;
use crate::figures::Figures;

/// Examples with their gold and predicted choices.
#[derive(Clone, Debug, Default)]
pub struct ChoicePredictions {
    /// The examples; methods panic if a choice's index is out of range.
    pub examples: Vec<ChoiceExample>,
}

/// An example of [`ChoicePredictions`].
#[derive(Clone, Debug, PartialEq)]
pub struct ChoiceExample {
    /// Its name, such as its file and line.
    pub id: String,
    /// The text that the choices complete or answer.
    pub prompt: String,
    /// The choices.
    pub choices: Vec<String>,
    /// The gold choice, from 0.
    pub gold: usize,
    /// The predicted choice, from 0.
    pub predicted: usize,
    /// The predicted choice's probability.
    pub score: f64,
    /// The gold choice's cross-entropy in nats.
    pub loss: f64,
}

impl ChoicePredictions {
    /// The choices' indices as names, and their confusion matrix, which reveals a model's positional
    /// preference.
    fn places(&self) -> (Vec<String>, ConfusionMatrix) {
        let n = self.examples.iter().map(|example| example.choices.len()).max().unwrap_or(0);
        let mut matrix = ConfusionMatrix::new(n);
        self.examples.iter().for_each(|example| matrix.add(example.gold, example.predicted));
        ((1..=n).map(|place| format!("choice {place}")).collect(), matrix)
    }
}

impl Predictions for ChoicePredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `accuracy` and `loss`.
    fn figures(&self) -> Figures {
        let right =
            self.examples.iter().map(|example| f64::from(u8::from(example.gold == example.predicted)));
        let loss = self.examples.iter().map(|example| example.loss);
        Figures::new(self.len(), [("accuracy", mean(right)), ("loss", mean(loss))])
    }

    /// A choice at random.
    fn baseline(&self) -> Option<Baseline> {
        let right = self.examples.iter().map(|example| 1.0 / example.choices.len() as f64);
        (!self.is_empty()).then(|| Baseline {
            rule: "a choice at random".into(),
            figures: Figures::new(self.len(), [("accuracy", mean(right))]),
        })
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
        ["id", "prompt", "gold", "predicted", "correct", "score", "loss", "choices"]
            .map(String::from)
            .to_vec()
    }

    fn row(&self, example: usize) -> Vec<Value> {
        let correct = !self.is_error(example);
        let ChoiceExample { id, prompt, choices, gold, predicted, score, loss } = &self.examples[example];
        vec![
            id.as_str().into(),
            prompt.as_str().into(),
            choices[*gold].as_str().into(),
            choices[*predicted].as_str().into(),
            correct.into(),
            (*score).into(),
            (*loss).into(),
            choices.clone().into(),
        ]
    }

    fn tables(&self) -> Vec<Table> {
        let (places, matrix) = self.places();
        vec![matrix::confusion(&places, &matrix)]
    }

    fn breakdown(&self) -> Markup {
        let (places, matrix) = self.places();
        matrix::section("Places of the right and the predicted choice", &places, &matrix)
    }

    fn show(&self, example: usize) -> Markup {
        let ChoiceExample { id, prompt, choices, gold, predicted, score, .. } = &self.examples[example];
        html! {
            (html::texts(id, std::slice::from_ref(prompt)))
            ol {
                @for (place, choice) in choices.iter().enumerate() {
                    li.gold[place == *gold].chosen[place == *predicted] dir="auto" {
                        (html::clipped(choice))
                        @if place == *gold { " " span.label { "gold" } }
                        @if place == *predicted {
                            " " span.label.wrong[gold != predicted] { "predicted " (html::percent(*score)) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_may_differ_in_number() {
        let example = |n: usize, gold, predicted| ChoiceExample {
            id: "x".into(),
            prompt: "a <b>".into(),
            choices: (0..n).map(|i| format!("<i>{i}")).collect(),
            gold,
            predicted,
            score: 0.5,
            loss: 1.0,
        };
        let predictions = ChoicePredictions { examples: vec![example(2, 1, 1), example(4, 3, 0)] };
        assert_eq!(predictions.figures().get("accuracy"), Some(0.5));
        assert_eq!(predictions.tables()[0].rows.len(), 5);
        assert_eq!(predictions.row(1)[2], "<i>3");
        let html = predictions.show(1).into_string();
        assert!(html.contains("&lt;i&gt;3") && !html.contains("<i>") && !html.contains("<b>"), "{html}");
        assert!(ChoicePredictions::default().figures().get("accuracy").unwrap().is_nan());
    }
}
