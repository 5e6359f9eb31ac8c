//! Text classification.

use std::path::Path;

use burn::tensor::Device;
use cloze_trainer::finetune::{Predictor, TaskSection};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::predictions::{for_task, predict};
use crate::{Error, Result, names};

/// A tokenizer and a model that classifies texts or pairs of texts. Can be shared between threads.
///
/// ```no_run
/// let device = cloze::device::open(None)?;
/// let model = "distilbert/distilbert-base-uncased-finetuned-sst-2-english";
/// for class in cloze::Classifier::load(model, &device)?.classify(&["One long string of cliches."])? {
///     println!("{}: {:.3}", class.label, class.score);
/// }
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct Classifier(Predictor);

/// The class of a text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Class {
    /// The likeliest class.
    pub label: String,
    /// Its probability.
    pub score: f64,
    /// The probability of every class, in the model's order.
    pub scores: Vec<(String, f64)>,
}

#[derive(Deserialize)]
struct Answered {
    label: String,
    score: f64,
    scores: Map<String, Value>,
}

impl Classifier {
    /// Loads a model folder, or a model by its hub name (see [`names::find`]); prompt-based models work too.
    /// For 8-bit weights, construct one from a [`Predictor`].
    ///
    /// # Errors
    /// Those of [`names::find`]; a missing or damaged file in the folder; [`Error::WrongTask`].
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Predictor::load(&names::find(model)?, device, false)?.try_into()
    }

    /// The class of each text.
    ///
    /// # Errors
    /// [`Error::Input`] with the first text that the model cannot read: any text, for a model of pairs.
    pub fn classify<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Class>> {
        self.predict(texts.iter().map(|text| json!({ "text": text.as_ref() })))
    }

    /// The class of each pair of texts.
    ///
    /// # Errors
    /// [`Error::Input`] with the first pair that the model cannot read: any pair, for a model of single texts.
    pub fn classify_pairs<A: AsRef<str>, B: AsRef<str>>(&self, pairs: &[(A, B)]) -> Result<Vec<Class>> {
        self.predict(pairs.iter().map(|(a, b)| json!({ "text": a.as_ref(), "pair": b.as_ref() })))
    }

    fn predict(&self, inputs: impl Iterator<Item = Value>) -> Result<Vec<Class>> {
        let classes = predict(&self.0, inputs)?.into_iter().map(|Answered { label, score, scores }| {
            let scores = scores.into_iter().map(|(name, score)| (name, score.as_f64().unwrap_or(f64::NAN)));
            Class { label, score, scores: scores.collect() }
        });
        Ok(classes.collect())
    }
}

impl TryFrom<Predictor> for Classifier {
    type Error = Error;

    fn try_from(predictor: Predictor) -> Result<Self> {
        let is_expected =
            |task: &TaskSection| matches!(task, TaskSection::Classification { .. } | TaskSection::Prompt(_));
        for_task(predictor, "classification", is_expected).map(Self)
    }
}
