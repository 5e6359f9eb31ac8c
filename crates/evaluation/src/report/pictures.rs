//! Predictions for images, shown with them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use maud::{Markup, html};
use serde_json::Value;

use super::{Baseline, Predictions, Selection, Table, Targets};
use crate::figures::Figures;

/// A picture on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// What it is, such as `original`; empty if it is the only one.
    pub caption: &'static str,
    /// The PNG file.
    pub png: Vec<u8>,
}

/// Predictions of any kind, with pictures of each example on the page. Pictures are made for the examples that the page
/// shows alone.
pub struct WithPictures<'a, P> {
    predictions: P,
    pictures: Box<dyn Fn(usize) -> Vec<Picture> + 'a>,
}

impl<'a, P: Predictions> WithPictures<'a, P> {
    /// Predictions, and what makes the pictures of an example.
    pub fn new(predictions: P, pictures: impl Fn(usize) -> Vec<Picture> + 'a) -> Self {
        Self { predictions, pictures: Box::new(pictures) }
    }
}

impl<P: Predictions> Predictions for WithPictures<'_, P> {
    fn len(&self) -> usize {
        self.predictions.len()
    }

    fn figures(&self) -> Figures {
        self.predictions.figures()
    }

    fn warning(&self) -> Option<String> {
        self.predictions.warning()
    }

    fn is_error(&self, example: usize) -> bool {
        self.predictions.is_error(example)
    }

    fn loss(&self, example: usize) -> f64 {
        self.predictions.loss(example)
    }

    fn columns(&self) -> Vec<String> {
        self.predictions.columns()
    }

    fn row(&self, example: usize) -> Vec<Value> {
        self.predictions.row(example)
    }

    fn tables(&self) -> Vec<Table> {
        self.predictions.tables()
    }

    fn breakdown(&self) -> Markup {
        self.predictions.breakdown()
    }

    fn show(&self, example: usize) -> Markup {
        html! {
            div.pictures {
                @for Picture { caption, png } in (self.pictures)(example) {
                    figure {
                        img alt=(caption) src={ "data:image/png;base64," (BASE64_STANDARD.encode(png)) };
                        @if !caption.is_empty() { figcaption { (caption) } }
                    }
                }
            }
            (self.predictions.show(example))
        }
    }

    fn set_names(&mut self, names: &[String]) {
        self.predictions.set_names(names);
    }

    fn corner(&self, example: usize) -> String {
        self.predictions.corner(example)
    }

    fn is_judged(&self) -> bool {
        self.predictions.is_judged()
    }

    fn baseline(&self) -> Option<Baseline> {
        self.predictions.baseline()
    }

    fn named_by(&self) -> &'static str {
        self.predictions.named_by()
    }

    fn baseline_of(&self, training: &Targets) -> Option<Baseline> {
        self.predictions.baseline_of(training)
    }

    fn selections(&self, worst: &[usize]) -> Vec<Selection> {
        self.predictions.selections(worst)
    }

    fn has_pictures(&self) -> bool {
        true
    }
}

/// Images of which a part was restored.
#[derive(Clone, Debug, Default)]
pub struct RestoredPredictions {
    /// The images.
    pub examples: Vec<RestoredExample>,
}

/// An image of [`RestoredPredictions`].
#[derive(Clone, Debug, PartialEq)]
pub struct RestoredExample {
    /// Its name, such as its file.
    pub id: String,
    /// The mean squared error of what was restored.
    pub loss: f64,
}

/// Images on the page.
const SHOWN: usize = 24;

impl Predictions for RestoredPredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `loss`.
    fn figures(&self) -> Figures {
        let losses = self.examples.iter().map(|example| example.loss);
        Figures::new(self.len(), [("loss", super::mean(losses))])
    }

    /// None is right or wrong.
    fn is_error(&self, _: usize) -> bool {
        false
    }

    fn is_judged(&self) -> bool {
        false
    }

    fn loss(&self, example: usize) -> f64 {
        self.examples[example].loss
    }

    fn columns(&self) -> Vec<String> {
        ["id", "loss"].map(String::from).into()
    }

    fn row(&self, example: usize) -> Vec<Value> {
        let RestoredExample { id, loss } = &self.examples[example];
        vec![id.as_str().into(), (*loss).into()]
    }

    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    fn breakdown(&self) -> Markup {
        html! {}
    }

    fn show(&self, example: usize) -> Markup {
        html! { p.text { (self.examples[example].id) } }
    }

    fn selections(&self, _: &[usize]) -> Vec<Selection> {
        let examples = super::html::sample(self.len(), SHOWN);
        let note = format!("{} of {} images, evenly spaced.", examples.len(), self.len());
        vec![Selection { title: "Restored images".into(), note, examples, ranked: false }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    #[test]
    fn a_page_shows_pictures_and_loads_nothing() {
        let example = |number: usize| RestoredExample { id: format!("{number}.png"), loss: number as f64 };
        let predictions = RestoredPredictions { examples: (0..40).map(example).collect() };
        let figures = predictions.figures();
        assert_eq!(figures.get("loss"), Some(19.5));
        let asked = std::cell::RefCell::new(Vec::new());
        let pictures = |example: usize| {
            asked.borrow_mut().push(example);
            vec![Picture { caption: "original", png: vec![1, 2, 3] }]
        };
        let predictions = WithPictures::new(predictions, pictures);
        let folder = tempfile::tempdir().unwrap();
        let report =
            Report { title: "run: dev", facts: &[], figures: &figures, predictions: Some(&predictions) };
        report.write(folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
        assert_eq!(page.matches("src=\"data:image/png;base64,AQID\"").count(), SHOWN);
        assert!(page.contains("img-src data:") && page.contains("38.png") && !page.contains("39.png"));
        assert_eq!(asked.borrow().len(), SHOWN);
        let plain = Report { predictions: None, ..report };
        plain.write(folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
        assert!(!page.contains("img-src"));
    }
}
