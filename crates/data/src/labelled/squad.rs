//! The JSON of SQuAD 1.1 (Rajpurkar et al. 2016) and 2.0 (Rajpurkar et al. 2018).

use super::questions::{Question, answer};
use super::rows::{Read, file_problem, row_problem};
use crate::corpus::Problem;
use crate::corpus::lines;
use serde::Deserialize;
use serde_json::Value;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

#[derive(Deserialize)]
struct File {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    #[serde(default)]
    title: String,
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: String,
    qas: Vec<Value>,
}

/// Opens a file. It is read whole; everything but its questions is dropped before the next file is
/// read.
pub(super) fn open(path: &Path, labelled: bool) -> Result<Read<Question>, Problem> {
    let unreadable = |error| file_problem(None, "unreadable file", format!("cannot be read: {error}"));
    let (mut source, _) = lines::open(path).map_err(unreadable)?;
    let start = source.fill_buf().map_err(unreadable)?;
    if start.is_empty() {
        return Err(file_problem(None, "empty file", "the file is empty: it has no example".into()));
    }
    if start.starts_with("\u{FEFF}".as_bytes()) {
        source.consume(3);
    }
    let file: File = serde_json::from_reader(source).map_err(|error| {
        let detail = format!("not JSON in SQuAD's format: {error}");
        file_problem(Some(error.line() as u64).filter(|line| *line > 0), "bad JSON", detail)
    })?;
    let articles = file.data.into_iter().enumerate();
    let questions = articles.flat_map(move |(i, article)| {
        let title = article.title;
        article.paragraphs.into_iter().enumerate().flat_map(move |(j, paragraph)| {
            let (context, title): (Arc<str>, _) = (paragraph.context.into(), title.clone());
            paragraph.qas.into_iter().enumerate().map(move |(k, value)| {
                question(&value, &title, &context, labelled).map_err(|(kind, detail)| {
                    let id = value.get("id").map_or(String::new(), |id| format!(" (id {id})"));
                    let place = format!("data[{i}].paragraphs[{j}].qas[{k}]{id}");
                    row_problem(None, kind, format!("{place}: {detail}"))
                })
            })
        })
    });
    Ok(Box::new(questions))
}

fn question(
    value: &Value,
    title: &str,
    context: &Arc<str>,
    labelled: bool,
) -> Result<Question, (&'static str, String)> {
    let text = |key: &str| match value.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(("missing column", format!("expected a string `{key}`"))),
    };
    let is_impossible = match value.get("is_impossible") {
        None => false,
        Some(Value::Bool(is_impossible)) => *is_impossible,
        Some(_) => return Err(("missing column", "`is_impossible`: expected true or false".into())),
    };
    let answers = match value.get("answers") {
        _ if !labelled => Vec::new(),
        Some(Value::Array(answers)) => {
            let answers = answers.iter().map(|found| answer(found, context));
            answers.collect::<Result<_, _>>().map_err(|detail| ("bad answer", detail))?
        }
        None if is_impossible => Vec::new(),
        _ => return Err(("missing column", "expected a list `answers`".into())),
    };
    if labelled && answers.is_empty() != is_impossible {
        let detail = match is_impossible {
            true => "answers, expected none where `is_impossible` is true",
            false => "no answer, expected one unless `is_impossible` is true",
        };
        return Err(("bad answer", detail.into()));
    }
    Ok(Question {
        id: match value.get("id") {
            Some(Value::Number(id)) => id.to_string(),
            Some(Value::String(id)) => id.clone(),
            _ => return Err(("missing column", "expected a string or a number `id`".into())),
        },
        title: title.to_owned(),
        context: context.clone(),
        question: text("question")?,
        answers,
        is_impossible: is_impossible && labelled,
    })
}
