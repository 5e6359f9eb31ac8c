//! Prediction with a saved model: JSON lines in and out, and evaluation on labelled data.
//!
//! Each task has a file here that implements [`PredictTask`], i.e. how it reads and answers a line.

mod answers;
mod choices;
mod prompt;
mod tags;
mod texts;

#[cfg(test)]
pub(crate) mod testing;

use super::task::{Encoded, Task};
use crate::Result;
use cloze_data::labelled::{LabelledSource, Loaded};
use cloze_tokenizer::Tokenizer;
use serde_json::{Map, Value};
use std::fmt::Debug;

/// A task with prediction support.
pub trait PredictTask: Task<Example: Send + 'static, Features: Send + 'static> + Debug + Sized {
    /// What the answer to a line needs besides the example, such as the original text of its words.
    type Origin: Send + 'static;

    /// The expected form of an input line, for error messages.
    fn input(&self) -> &'static str;

    /// The keys read from a line; a line that is a string is the value of the first.
    fn input_keys(&self) -> &'static [InputKey];

    /// The keys of an answer.
    fn answer_keys(&self) -> Vec<&'static str>;

    /// Parses the example in a line.
    fn read_line(&self, line: Value) -> Read<(Self::Example, Self::Origin)>;

    /// Examples with their tokens, and how many of them were truncated.
    ///
    /// # Errors
    /// Lengths too short for a token.
    fn tokens(
        &self,
        tokenizer: &Tokenizer,
        examples: Vec<Self::Example>,
        max_len: usize,
    ) -> Result<Cut<Self>>;

    /// The answer to each example; `origins` are in the order of the examples, `outputs` in that of the
    /// features.
    fn answer(
        &self,
        origins: &[Self::Origin],
        data: &Encoded<Self::Example, Self::Features>,
        outputs: &[Self::Output],
    ) -> Vec<Value>;

    /// The task configured by a config's section for evaluation, and labelled examples. What the model was
    /// trained to predict is unchanged.
    ///
    /// # Errors
    /// Those of reading the data; settings that do not fit the model.
    fn labelled(
        &self,
        section: &Self::Section,
        source: &LabelledSource,
    ) -> Result<(Self, Loaded<Self::Example>)>;

    /// Sets the probability threshold of predicted labels; returns whether the task supports it.
    fn predict_above(&mut self, _threshold: f64) -> bool {
        false
    }

    /// Sets the number of best answers to list; returns whether the task supports it.
    fn list(&mut self, _n: usize) -> bool {
        false
    }
}

/// A key read from an input line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputKey {
    /// The key.
    pub name: &'static str,
    /// Whether every line must have it. The task may still require an optional one.
    pub required: bool,
    /// Whether it holds a list of texts instead of one text.
    pub list: bool,
}

impl InputKey {
    /// A required text.
    pub(crate) const fn text(name: &'static str) -> Self {
        Self { name, required: true, list: false }
    }

    /// A required list of texts.
    pub(super) const fn texts(name: &'static str) -> Self {
        Self { name, required: true, list: true }
    }

    /// The same key, made optional.
    pub(super) const fn or_none(self) -> Self {
        Self { required: false, ..self }
    }
}

/// Examples with their tokens, and how many were truncated.
pub type Cut<T> = (Encoded<<T as Task>::Example, <T as Task>::Features>, usize);

/// A value read from a line, or an error message.
pub type Read<T> = std::result::Result<T, String>;

/// The keys and values of a line, to be taken one by one.
#[derive(Debug)]
pub struct LineFields(Map<String, Value>);

impl LineFields {
    /// The fields of an object.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn of(line: Value) -> Read<Self> {
        match line {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err("not an object".into()),
        }
    }

    /// The fields of an object, or a string as the value of `text`.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn or_text(line: Value) -> Read<Self> {
        match line {
            Value::String(text) => Ok(Self(Map::from_iter([("text".to_owned(), Value::String(text))]))),
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err("neither an object nor a string".into()),
        }
    }

    /// Takes a string, if present.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn text(&mut self, key: &str) -> Read<Option<String>> {
        match self.0.shift_remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{key}` is not a string")),
        }
    }

    /// Takes a list of strings, if present.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn texts(&mut self, key: &str) -> Read<Option<Vec<String>>> {
        let bad = || format!("`{key}` is not a list of strings");
        let text = |value| match value {
            Value::String(text) => Ok(text),
            _ => Err(bad()),
        };
        match self.0.shift_remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(values)) => values.into_iter().map(text).collect::<Read<_>>().map(Some),
            Some(_) => Err(bad()),
        }
    }

    /// Takes words, if present: a list of strings, or a string of words that white space separates, as a table has it.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn words(&mut self, key: &str) -> Read<Option<Vec<String>>> {
        if let Some(Value::String(text)) = self.0.get(key) {
            let words = text.split_whitespace().map(str::to_owned).collect();
            self.0.shift_remove(key);
            return Ok(Some(words));
        }
        self.texts(key)
    }

    /// Rejects any remaining keys.
    ///
    /// # Errors
    /// The first remaining key.
    pub fn end(self) -> Read<()> {
        match self.0.keys().next() {
            Some(key) => Err(format!("unknown key `{}`", key.escape_debug())),
            None => Ok(()),
        }
    }
}

/// The value, or an error if it is missing.
fn required<T>(key: &str, value: Option<T>) -> Read<T> {
    value.ok_or_else(|| format!("`{key}` is missing"))
}

/// A number with FP32 precision; null if not finite.
fn number(value: f64) -> Value {
    (value as f32).to_string().parse::<f64>().map_or(Value::Null, Value::from)
}
