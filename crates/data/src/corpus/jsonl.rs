//! JSON lines: an object a line, a document each.

use super::lines::Lines;
use super::{CorpusConfig, Piece, Problem, Reader};
use std::path::Path;

struct JsonLines {
    lines: Lines,
    column: String,
    any: bool,
}

pub(super) fn open(path: &Path, config: &CorpusConfig) -> Result<Box<dyn Reader>, Problem> {
    let lines = Lines::open(path, config.max_line_bytes)?;
    Ok(Box::new(JsonLines { lines, column: config.text_column.clone(), any: false }))
}

impl Reader for JsonLines {
    fn next(&mut self) -> Option<Result<Piece, Problem>> {
        loop {
            let Some(line) = self.lines.next() else {
                let problem = Problem {
                    line: None,
                    kind: "empty file",
                    detail: "the file has no line".into(),
                    ends_file: true,
                };
                return (!std::mem::replace(&mut self.any, true)).then_some(Err(problem));
            };
            self.any = true;
            match line {
                Ok((_, line)) if line.trim().is_empty() => {}
                Ok((number, line)) => match text_of(line, &self.column) {
                    Ok(text) if text.trim().is_empty() => {}
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
        serde_json::from_str(line).map_err(|error| ("bad JSON", format!("not a JSON object: {error}")))?;
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
        None => {
            let columns: Vec<&str> = row.keys().map(String::as_str).collect();
            let has = columns.join(", ");
            Err(("missing column", format!("no column `{column}` (it has: {has}); set `corpus.text_column`")))
        }
    }
}
