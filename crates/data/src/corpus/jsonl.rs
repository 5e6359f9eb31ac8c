//! JSON lines: each line is an object, and each object is a document.

use super::lines::Lines;
use super::{CorpusConfig, Piece, Problem, Reader, missing_column};
use crate::skipped::EMPTY_TEXT;
use std::path::Path;

struct JsonLines {
    lines: Lines,
    column: String,
    any: bool,
}

pub(super) fn open(path: &Path, config: &CorpusConfig) -> Result<Box<dyn Reader>, Problem> {
    let lines = Lines::open(path, config.max_line_bytes, config.setting("max_line_bytes"))?;
    Ok(Box::new(JsonLines { lines, column: config.text_column.clone(), any: false }))
}

impl Reader for JsonLines {
    fn next(&mut self) -> Option<Result<Piece, Problem>> {
        loop {
            let Some(line) = self.lines.next() else {
                let problem = Problem {
                    line: None,
                    kind: "empty file",
                    detail: "the file has no text".into(),
                    ends_file: true,
                };
                return (!std::mem::replace(&mut self.any, true)).then_some(Err(problem));
            };
            match line {
                Ok((_, line)) if line.trim().is_empty() => continue,
                _ => self.any = true,
            }
            match line {
                Ok((number, line)) => match text_of(line, &self.column) {
                    Ok(text) if text.trim().is_empty() => {
                        let detail = format!("column `{}` is empty", self.column);
                        let (line, kind) = (Some(number), EMPTY_TEXT);
                        return Some(Err(Problem { line, kind, detail, ends_file: false }));
                    }
                    Ok(text) => return Some(Ok(Piece { text, continues: false })),
                    Err((kind, detail)) => {
                        return Some(Err(Problem { line: Some(number), kind, detail, ends_file: false }));
                    }
                },
                Err(problem) => return Some(Err(problem)),
            }
        }
    }

    fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }
}

fn text_of(line: &str, column: &str) -> Result<String, (&'static str, String)> {
    let mut row: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(line).map_err(|error| ("bad JSON", not_an_object(&error)))?;
    match row.remove(column) {
        Some(serde_json::Value::String(text)) => Ok(text),
        Some(other) => {
            let what = match other {
                serde_json::Value::Null => "null",
                serde_json::Value::Bool(_) => "true or false",
                serde_json::Value::Number(_) => "a number",
                serde_json::Value::Array(_) => "a list",
                _ => "an object",
            };
            Err(("column without text", format!("column `{column}` is {what}, expected a string")))
        }
        None => Err(("missing column", missing_column(column, row.keys().map(String::as_str)))),
    }
}

/// The parser's reason with the column. Its line number is left out: it is always 1.
pub(crate) fn not_an_object(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    let reason = reason.split(" at line ").next().unwrap_or_default();
    format!("not a JSON object: {reason} at column {}", error.column())
}
