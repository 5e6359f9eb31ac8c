//! Extractive question answering: questions about a text that contains the answers.

use super::rows::{self, Read, RequestedColumn, Row, excerpt, filled_text, kind_of, text};
use super::source::{DataFormat, LabelledSource, Loaded, Task};
use super::squad;
use crate::Result;
use crate::corpus::Problem;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// A question about a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The question's id.
    pub id: String,
    /// The title of the context's source; may be empty.
    pub title: String,
    /// The text asked about, shared by its questions.
    pub context: Arc<str>,
    /// The question.
    pub question: String,
    /// The reference answers, possibly repeated. Empty if the question is unanswerable or answers were not
    /// read.
    pub answers: Vec<Answer>,
    /// Whether the context contains no answer (SQuAD 2.0).
    pub is_impossible: bool,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Where it begins in the context, in bytes. (Files count characters.)
    pub start: usize,
    /// Its text.
    pub text: String,
}

/// Reads questions: SQuAD's JSON, or rows with the columns `context` and `question`, `answers` if `labelled`,
/// and optionally `id` and `title`. Answers are an object of the lists `text` and `answer_start`, or a list
/// of objects with these keys; an empty list means no answer. A row without an id gets its question number,
/// from 0.
///
/// # Errors
/// As [`texts`](super::texts); an answer that is not at its stated position also makes a bad row.
pub fn questions(source: &LabelledSource, base: &Path, labelled: bool) -> Result<Loaded<Question>> {
    let files = source.open(Task::Questions, base)?;
    let mut wanted = vec![
        RequestedColumn::required("context", source),
        RequestedColumn::required("question", source),
        RequestedColumn::optional("id", source),
        RequestedColumn::optional("title", source),
    ];
    if labelled {
        wanted.push(RequestedColumn::required("answers", source));
    }
    let mut number = 0;
    let convert = |found: Found| {
        let question = match found {
            Found::Question(question) => question,
            Found::Row(row) => of_row(row, &wanted, number)?,
        };
        number += 1;
        Ok(question)
    };
    let open = |path: &Path, format| -> std::result::Result<Read<Found>, Problem> {
        Ok(match format {
            DataFormat::Squad => {
                Box::new(squad::open(path, labelled)?.map(|found| found.map(Found::Question)))
            }
            _ => Box::new(rows::open(path, format, source, &wanted)?.map(|found| found.map(Found::Row))),
        })
    };
    rows::load(source, &files, open, convert)
}

impl rows::Lined for Found {
    fn line(&self) -> Option<u64> {
        match self {
            Self::Question(_) => None,
            Self::Row(row) => Some(row.line),
        }
    }
}

/// A file's contents for a question.
enum Found {
    Question(Question),
    Row(Row),
}

fn of_row(row: Row, wanted: &[RequestedColumn], number: usize) -> std::result::Result<Question, Problem> {
    let line = row.line;
    let mut cells = row.cells.into_iter().zip(wanted);
    let mut next = || cells.next().map_or((Value::Null, &wanted[0]), |cell| cell);
    let (cell, column) = next();
    let context: Arc<str> = filled_text(cell, column, line)?.into();
    let (cell, column) = next();
    let question = filled_text(cell, column, line)?;
    let id = match next().0 {
        Value::String(id) => id,
        Value::Null => number.to_string(),
        other => other.to_string(),
    };
    let title = match next() {
        (Value::Null, _) => String::new(),
        (cell, column) => text(cell, column, line)?,
    };
    let (answers, is_impossible) = match wanted.get(4) {
        None => (Vec::new(), false),
        Some(column) => {
            let listed = listed(next().0)
                .and_then(|found| found.into_iter().map(|found| answer(&found, &context)).collect())
                .map_err(|detail: String| column.bad(line, "bad answer", detail))?;
            let none = Vec::is_empty(&listed);
            (listed, none)
        }
    };
    Ok(Question { id, title, context, question, answers, is_impossible })
}

/// The answers of a cell as objects with a text and a start.
fn listed(cell: Value) -> std::result::Result<Vec<Value>, String> {
    let both = |object: &mut serde_json::Map<String, Value>| {
        Some((object.remove("text")?, object.remove("answer_start")?))
    };
    match cell {
        Value::Array(answers) => Ok(answers),
        Value::Object(mut object) => match both(&mut object) {
            Some((Value::Array(texts), Value::Array(starts))) if texts.len() == starts.len() => {
                let answer = |(text, start)| serde_json::json!({"text": text, "answer_start": start});
                Ok(texts.into_iter().zip(starts).map(answer).collect())
            }
            _ => Err("an object, expected one with lists `text` and `answer_start` of equal length".into()),
        },
        other => Err(format!("{}, expected an object or a list", kind_of(&other))),
    }
}

/// An answer, checked against its stated position.
pub(super) fn answer(answer: &Value, context: &str) -> std::result::Result<Answer, String> {
    let (Some(text), Some(start)) =
        (answer.get("text").and_then(Value::as_str), answer.get("answer_start").and_then(Value::as_u64))
    else {
        return Err("expected an answer with a string `text` and a number `answer_start`".into());
    };
    let beyond = || format!("`answer_start` {start} is beyond the context");
    let place = usize::try_from(start).map_err(|_| beyond())?;
    let ends = context.char_indices().map(|(byte, _)| byte).chain([context.len()]);
    let byte = ends.into_iter().nth(place).ok_or_else(beyond)?;
    match context[byte..].starts_with(text) {
        true => Ok(Answer { start: byte, text: text.to_owned() }),
        false => {
            let found = excerpt(&context[byte..]);
            Err(format!("the answer `{}` is not at character {start}, where `{found}` is", excerpt(text)))
        }
    }
}
