//! Asking a saved model: JSON lines in and out, and labelled data that it is measured on.
//!
//! How each task reads a line and answers it is a file here that implements [`PredictTask`].

mod answers;
mod choices;
mod prompt;
mod tags;
mod texts;

#[cfg(test)]
pub(crate) mod testing;

use super::task::{Encoded, Task};
use crate::Result;
use cloze_data::SkipReport;
use cloze_data::labelled::LabelledSource;
use cloze_tokenizer::Tokenizer;
use serde_json::{Map, Value};
use std::fmt::Debug;

/// A task whose saved models can be asked.
pub trait PredictTask: Task<Example: Send + 'static, Features: Send + 'static> + Debug + Sized {
    /// What the answer to a line needs besides the example, as the text that its words were cut from.
    type Origin: Send + 'static;

    /// What a line of input looks like, as errors say it.
    fn input(&self) -> &'static str;

    /// The keys that are read of a line; a line that is a string has the value of the first.
    fn input_keys(&self) -> &'static [InputKey];

    /// The keys of an answer.
    fn answer_keys(&self) -> Vec<&'static str>;

    /// The example in a line.
    fn read_line(&self, line: Value) -> Read<(Self::Example, Self::Origin)>;

    /// Examples with their tokens, and how many of them had more than there is room for.
    ///
    /// # Errors
    /// Lengths that leave no room for a token.
    fn tokens(
        &self,
        tokenizer: &Tokenizer,
        examples: Vec<Self::Example>,
        max_len: usize,
    ) -> Result<Cut<Self>>;

    /// What is answered to each example; `origins` are in the order of the examples, `outputs` of the features.
    fn answer(
        &self,
        origins: &[Self::Origin],
        data: &Encoded<Self::Example, Self::Features>,
        outputs: &[Self::Output],
    ) -> Vec<Value>;

    /// The task as the section of a config has it measured, and labelled examples. What the model was trained
    /// to say stays as it is.
    ///
    /// # Errors
    /// Those of reading the data; settings that do not fit the model.
    fn labelled(
        &self,
        section: &Self::Section,
        source: &LabelledSource,
    ) -> Result<(Self, Vec<Self::Example>, SkipReport)>;

    /// Has answers say the labels whose probability is above `threshold`; whether the task's answers do.
    fn predict_above(&mut self, _threshold: f64) -> bool {
        false
    }

    /// Has answers list the `n` best; whether the task's answers do.
    fn list(&mut self, _n: usize) -> bool {
        false
    }
}

/// A key that is read of a line of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputKey {
    /// The key.
    pub name: &'static str,
    /// Whether each line has it. Of those that a line may lack, the task may need one.
    pub required: bool,
    /// Whether it holds a list of texts, and not a text.
    pub list: bool,
}

impl InputKey {
    /// A text that each line has.
    pub(super) const fn text(name: &'static str) -> Self {
        Self { name, required: true, list: false }
    }

    /// A list of texts that each line has.
    pub(super) const fn texts(name: &'static str) -> Self {
        Self { name, required: true, list: true }
    }

    /// The same, which a line may lack.
    pub(super) const fn or_none(self) -> Self {
        Self { required: false, ..self }
    }
}

/// Examples with their tokens, and how many of them were cut.
pub type Cut<T> = (Encoded<<T as Task>::Example, <T as Task>::Features>, usize);

/// What was read of a line, or what is wrong with it.
pub type Read<T> = std::result::Result<T, String>;

/// The keys and values of a line, each to be taken.
#[derive(Debug)]
pub struct LineFields(Map<String, Value>);

impl LineFields {
    /// Those of an object.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn of(line: Value) -> Read<Self> {
        match line {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err("not an object".into()),
        }
    }

    /// Those of an object, or a string as the value of `text`.
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

    /// Takes a string, if it is there.
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

    /// Takes a list of strings, if it is there.
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

    /// Refuses what was not taken.
    ///
    /// # Errors
    /// The first key that was not.
    pub fn end(self) -> Read<()> {
        match self.0.keys().next() {
            Some(key) => Err(format!("unknown key `{}`", key.escape_debug())),
            None => Ok(()),
        }
    }
}

/// What was taken, unless it is not there.
fn required<T>(key: &str, value: Option<T>) -> Read<T> {
    value.ok_or_else(|| format!("`{key}` is missing"))
}

/// A number with the digits that FP32 has; null for what is not finite.
fn number(value: f64) -> Value {
    (value as f32).to_string().parse::<f64>().map_or(Value::Null, Value::from)
}
