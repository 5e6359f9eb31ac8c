//! JSON: an object a line, or a list of objects in one document.

use super::{Read, RequestedColumn, Row, file_problem, json, row_problem};
use crate::corpus::lines::{self, Lines};
use crate::corpus::{Problem, not_an_object, shown};
use crate::labelled::source::{Column, LabelledSource};
use serde_json::{Map, Value};
use std::io::{BufRead, Read as _};
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
        let detail = format!("JSON has no numbered columns: set `columns.{}` to a name", wanted.field);
        return Err(file_problem(None, "missing column", detail));
    }
    let wanted = wanted.to_vec();
    if let Some((text, items)) = document(path, source.max_line_bytes)? {
        return Ok(Box::new(items.into_iter().map(move |(line, place)| row(line, &text[place], &wanted))));
    }
    let lines = Lines::open(path, source.max_line_bytes, "max_line_bytes")?;
    Ok(Box::new(JsonLines { lines, wanted }))
}

/// The text of a file that is one document, and its items; none of a file that has an object in each line.
fn document(path: &Path, max_line_bytes: usize) -> Result<Option<(String, json::Items)>, Problem> {
    let unreadable = |error| file_problem(None, "unreadable file", format!("cannot be read: {error}"));
    let mut first = Lines::open(path, max_line_bytes, "max_line_bytes")?;
    let is_list = loop {
        match first.next() {
            Some(Ok((_, line))) if line.trim().is_empty() => {}
            Some(Ok((_, line))) if line.trim_start().starts_with('[') => break true,
            Some(Ok((_, line))) => match serde_json::from_str::<Map<String, Value>>(line) {
                Ok(object) if object.get("data").is_some_and(Value::is_array) => break false,
                // The object goes on in the next line.
                Err(error) if error.is_eof() => break false,
                _ => return Ok(None),
            },
            // A line that is too long may be a list too.
            Some(Err(problem)) if problem.kind == "long line" => break false,
            _ => return Ok(None),
        }
    };
    let (mut source, _) = lines::open(path).map_err(unreadable)?;
    if source.fill_buf().map_err(unreadable)?.starts_with("\u{FEFF}".as_bytes()) {
        source.consume(3);
    }
    let mut text = String::new();
    source.read_to_string(&mut text).map_err(unreadable)?;
    match json::items(&text) {
        Ok(Some(items)) => Ok(Some((text, items))),
        Err(error) if is_list => {
            let detail = format!("not a list in JSON: {error}");
            Err(file_problem(Some(error.line() as u64), "bad JSON", detail))
        }
        // Lines, of which the first is odd.
        _ => Ok(None),
    }
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
    let cell = |wanted: &RequestedColumn| {
        let Column::Name(name) = &wanted.column else { return Ok(Value::Null) };
        match value(&object, name) {
            Some(value) => Ok(value.clone()),
            None if !wanted.required => Ok(Value::Null),
            None => {
                let names = shown(object.keys().map(String::as_str));
                let detail = format!("no column `{name}` (it has: {names}); set `columns.{}`", wanted.field);
                Err(row_problem(Some(line), "missing column", detail))
            }
        }
    };
    Ok(Row { line, cells: wanted.iter().map(cell).collect::<Result<_, _>>()? })
}

/// The value of this name, or where `name` is `a.b`, of `b` in the object `a`.
fn value<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| {
        let (outer, inner) = name.split_once('.')?;
        value(object.get(outer)?.as_object()?, inner)
    })
}
