//! Extractive question answering.

use std::ops::Range;
use std::path::Path;

use burn::tensor::Device;
use cloze_trainer::finetune::{Predictor, TaskSection};
use serde::Deserialize;
use serde_json::json;

use crate::predictions::{ByteOffsets, for_task, predict};
use crate::{Error, Result, names};

/// A tokenizer and a question-answering model, for texts of any length. Can be shared between threads.
///
/// ```no_run
/// let device = cloze::device::open(None)?;
/// let answerer = cloze::Answerer::load("deepset/bert-base-cased-squad2", &device)?;
/// for answer in answerer.answer(&[("Where does Ann live?", "Ann lives in Rome.")])? {
///     println!("{}", answer.map_or("no answer".into(), |answer| answer.text));
/// }
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct Answerer(Predictor);

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The answer, a span of the text.
    pub text: String,
    /// Its byte range in the text.
    pub bytes: Range<usize>,
    /// Its probability among the candidates.
    pub score: f64,
}

#[derive(Deserialize)]
struct Answered {
    answer: String,
    start: Option<usize>,
    end: Option<usize>,
    score: Option<f64>,
}

impl Answerer {
    /// Loads a model folder, or a model by its hub name (see [`names::find`]). For 8-bit weights, construct one
    /// from a [`Predictor`].
    ///
    /// # Errors
    /// Those of [`names::find`]; a missing or damaged file in the folder; [`Error::WrongTask`].
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        Predictor::load(&names::find(model)?, device, false)?.try_into()
    }

    /// The answer to each question about its text, `(question, text)`; `None` where the model finds none.
    ///
    /// # Errors
    /// Non-finite model outputs.
    pub fn answer<Q: AsRef<str>, T: AsRef<str>>(&self, questions: &[(Q, T)]) -> Result<Vec<Option<Answer>>> {
        let inputs = questions
            .iter()
            .map(|(question, text)| json!({ "question": question.as_ref(), "context": text.as_ref() }));
        let answers: Vec<Answered> = predict(&self.0, inputs)?;
        let found = questions.iter().zip(answers).map(|((_, text), answered)| {
            let (start, end) = (answered.start?, answered.end?);
            let bytes = ByteOffsets::of(text.as_ref(), [start, end]).range(start, end)?;
            Some(Answer { text: answered.answer, bytes, score: answered.score? })
        });
        Ok(found.collect())
    }
}

impl TryFrom<Predictor> for Answerer {
    type Error = Error;

    fn try_from(predictor: Predictor) -> Result<Self> {
        for_task(predictor, "answers", |task| matches!(task, TaskSection::Answers { .. })).map(Self)
    }
}
