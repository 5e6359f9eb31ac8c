//! JSON lines: one object per line.

use super::{Read, RequestedColumn, Row, also_absent, document, file_problem, row_problem};
use crate::corpus::lines::{self, Lines};
use crate::corpus::{Problem, not_an_object, shown};
use crate::labelled::source::{Column, LabelledSource};
use serde_json::{Map, Value};
use std::io::BufRead;
use std::path::Path;

struct JsonLines {
    lines: Lines,
    wanted: Vec<RequestedColumn>,
}

pub(super) fn open(
    path: &Path,
    source: &LabelledSource,
    wanted: &[RequestedColumn],
) -> Result<Read<Row>, Problem> {
    if let Some(wanted) = wanted.iter().find(|wanted| matches!(wanted.column, Column::Number(_))) {
        let detail = format!(
            "JSON lines have no numbered columns: set {} to a name",
            wanted.named.column(&wanted.field)
        );
        return Err(file_problem(None, "missing column", detail));
    }
    let unreadable = |error| file_problem(None, "unreadable file", format!("cannot be read: {error}"));
    let (mut text, read) = lines::open(path).map_err(unreadable)?;
    if document::begins(text.fill_buf().map_err(unreadable)?, wanted) {
        return document::open(text, wanted);
    }
    let lines = Lines::of(text, read, source.max_line_bytes, source.named.max_line_bytes());
    Ok(Box::new(JsonLines { lines, wanted: wanted.to_vec() }))
}

impl Iterator for JsonLines {
    type Item = Result<Row, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.lines.next()? {
                Ok((_, line)) if line.trim().is_empty() => {}
                Ok((number, line)) => return Some(row(number, line, &self.wanted)),
                Err(problem) => return Some(Err(problem)),
            }
        }
    }
}

fn row(line: u64, text: &str, wanted: &[RequestedColumn]) -> Result<Row, Problem> {
    let object: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| row_problem(Some(line), "bad JSON", not_an_object(&error)))?;
    row_of(line, &object, wanted)
}

/// The row of an object, with its first line.
pub(super) fn row_of(
    line: u64,
    object: &Map<String, Value>,
    wanted: &[RequestedColumn],
) -> Result<Row, Problem> {
    let all = wanted;
    let cell = |wanted: &RequestedColumn| {
        let Column::Name(name) = &wanted.column else { return Ok(Value::Null) };
        match object_cell(object, name) {
            Some(value) => Ok(value.clone()),
            None if !wanted.required => Ok(Value::Null),
            None => {
                let names = shown(object.keys().map(String::as_str));
                let remedy = wanted.named.remedy(&wanted.field);
                let others = also_absent(all, wanted, |other| object_cell(object, other).is_some());
                let detail = format!("no column `{name}` (it has: {names}); {remedy}{others}");
                Err(row_problem(Some(line), "missing column", detail))
            }
        }
    };
    Ok(Row { line, cells: wanted.iter().map(cell).collect::<Result<_, _>>()? })
}

/// The value of this name or, for a `name` like `a.b`, of `b` in the object `a`.
pub fn object_cell<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| {
        let (outer, inner) = name.split_once('.')?;
        object_cell(object.get(outer)?.as_object()?, inner)
    })
}
