//! Reranks texts for a query.

use std::path::Path;

use burn::tensor::Device;
use cloze_trainer::finetune::{Predictor, TaskSection};
use serde_json::{Value, json};

use crate::predictions::{for_task, predict_lines};
use crate::{Error, Result, names};

/// A tokenizer and a cross-encoder, which reads a query and a text together and scores how well the text fits.
/// Can be shared between threads.
///
/// It is slower than comparing vectors, and better: an [`Embedder`](crate::Embedder) or an index retrieves
/// candidates, a reranker sorts them.
///
/// ```no_run
/// let device = cloze::device::open(None)?;
/// let reranker = cloze::Reranker::load("cross-encoder/ms-marco-MiniLM-L6-v2", &device)?;
/// let texts = ["Berlin has 3.6 million inhabitants.", "Bread is baked at night."];
/// for ranked in reranker.rank("How many people live in Berlin?", &texts)? {
///     println!("{:.3} {}", ranked.score, texts[ranked.place]);
/// }
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct Reranker {
    predictor: Predictor,
    /// The class whose probability is the score; none for a model with one output.
    positive: Option<String>,
}

/// A text's index and score.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Ranked {
    /// The text's index among those given.
    pub place: usize,
    /// The score: the model's only output, or the probability of the second or positive of two classes.
    pub score: f64,
}

impl Ranked {
    /// The text at an index, with its score.
    pub fn new(place: usize, score: f64) -> Self {
        Self { place, score }
    }
}

/// The ranked texts of several queries.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rankings {
    /// The texts of each query, the best first. Ties keep the given order.
    pub queries: Vec<Vec<Ranked>>,
    /// The number of query–text pairs that were truncated to the model's maximum length.
    pub truncated: usize,
}

impl Reranker {
    /// Loads a model folder, or a model by its hub name (see [`names::find`]): one that gives a number for a
    /// pair of texts, or has two classes. For 8-bit weights, construct one from a [`Predictor`].
    ///
    /// # Errors
    /// Those of [`names::find`]; a missing or damaged file in the folder; [`Error::WrongTask`].
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Predictor::load(&names::find(model)?, device, false)?.try_into()
    }

    /// The texts ranked for a query, the best first.
    ///
    /// # Errors
    /// [`Error::Input`] for a model of single texts, and for text that the tokenizer fails on.
    pub fn rank<T: AsRef<str>>(&self, query: &str, texts: &[T]) -> Result<Vec<Ranked>> {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        Ok(self.rank_all(&[(query, texts)])?.queries.swap_remove(0))
    }

    /// The ranked texts of each query.
    ///
    /// # Errors
    /// Those of [`rank`](Self::rank), with the index of the first query concerned.
    pub fn rank_all<Q: AsRef<str>, T: AsRef<str>>(&self, queries: &[(Q, Vec<T>)]) -> Result<Rankings> {
        let pairs = queries.iter().flat_map(|(query, texts)| {
            texts.iter().map(|text| json!({ "text": query.as_ref(), "pair": text.as_ref() }))
        });
        let (values, truncated) = predict_lines(&self.predictor, pairs).map_err(|error| match error {
            Error::Input { place, source } => Error::Input { place: owner(queries, place), source },
            other => other,
        })?;
        let mut scores = values.iter().map(|value| self.score(value));
        let ranked = queries.iter().map(|(_, texts)| {
            let scores = scores.by_ref().take(texts.len()).enumerate();
            let mut ranked: Vec<Ranked> = scores.map(|(place, score)| Ranked { place, score }).collect();
            ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
            ranked
        });
        Ok(Rankings { queries: ranked.collect(), truncated })
    }

    /// The maximum tokens of a query and a text together, special tokens included.
    pub fn max_len(&self) -> usize {
        self.predictor.max_len()
    }

    /// The score in the model's answer.
    fn score(&self, answer: &Value) -> f64 {
        let score = match &self.positive {
            None => answer.get("value"),
            Some(class) => answer.get("scores").and_then(|all| all.get(class)),
        };
        score.and_then(Value::as_f64).unwrap_or(f64::NAN)
    }
}

/// The query of the pair at an index.
fn owner<Q, T>(queries: &[(Q, Vec<T>)], place: usize) -> usize {
    let mut before = 0;
    let is_of = |(_, texts): &(Q, Vec<T>)| {
        before += texts.len();
        place < before
    };
    queries.iter().position(is_of).unwrap_or_default()
}

impl TryFrom<Predictor> for Reranker {
    type Error = Error;

    fn try_from(predictor: Predictor) -> Result<Self> {
        let is_expected = |task: &TaskSection| match task {
            TaskSection::Regression { .. } => true,
            TaskSection::Classification { labels, .. } => labels.len() == 2,
            _ => false,
        };
        let predictor = for_task(predictor, "regression, or classification with two classes", is_expected)?;
        let positive = match predictor.task() {
            Some(TaskSection::Classification { labels, positive, .. }) => {
                positive.clone().or_else(|| labels.get(1).cloned())
            }
            _ => None,
        };
        Ok(Self { predictor, positive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_of_its_query() {
        let queries = [("a", vec!["1", "2"]), ("b", vec![]), ("c", vec!["3"])];
        assert_eq!([0, 1, 2].map(|place| owner(&queries, place)), [0, 0, 2]);
    }
}
