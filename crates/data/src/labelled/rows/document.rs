//! A JSON document of rows: a list of objects, or an object whose `data` is one.

use super::jsonl::row_of;
use super::{Read, RequestedColumn, Row, file_problem, kind_of, row_problem};
use crate::corpus::Problem;
use crate::labelled::source::Column;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Deserializer, Value};
use std::io::{BufRead, Read as _};

/// The key of the list in a document that is an object.
const ROWS: &str = "data";

/// Whether text with this beginning is a document rather than JSON lines: a list, or an object whose `data`
/// is a list of objects and not preceded by the first wanted column.
pub(super) fn begins(start: &[u8], wanted: &[RequestedColumn]) -> bool {
    let start = start.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(start);
    // What is cut within a character is cut before it.
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default(),
    };
    let mut text = Text::of(text);
    let first = wanted.first().and_then(|wanted| match &wanted.column {
        Column::Name(name) => Some(name.as_str()),
        Column::Number(_) => None,
    });
    text.peek() == Some('[') || text.enter(first).is_ok() && text.peek() == Some('{')
}

/// The rows of a document, read whole.
pub(super) fn open(mut source: Box<dyn BufRead>, wanted: &[RequestedColumn]) -> Result<Read<Row>, Problem> {
    let mut text = String::new();
    source
        .read_to_string(&mut text)
        .map_err(|error| file_problem(None, "unreadable file", format!("cannot be read: {error}")))?;
    let mut at = Text::of(&text);
    let entered = if at.peek() == Some('[') { at.expect('[') } else { at.enter(None) };
    entered.map_err(|detail| file_problem(Some(at.line), "bad JSON", detail))?;
    let (mut place, mut line) = (at.place, at.line);
    let wanted = wanted.to_vec();
    let mut ended = false;
    Ok(Box::new(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let mut at = Text { text: &text, place, line };
        let found = at.element();
        (place, line) = (at.place, at.line);
        ended = !matches!(found, Ok(Some(_)));
        match found {
            Ok(None) => None,
            Ok(Some((line, Value::Object(object)))) => Some(row_of(line, &object, &wanted)),
            Ok(Some((line, other))) => {
                let detail = format!("{} in the list, expected an object", kind_of(&other));
                Some(Err(row_problem(Some(line), "bad JSON", detail)))
            }
            Err(detail) => Some(Err(file_problem(Some(line), "bad JSON", detail))),
        }
    })))
}

/// A position in a document.
struct Text<'a> {
    text: &'a str,
    place: usize,
    /// The line, from 1.
    line: u64,
}

impl<'a> Text<'a> {
    fn of(text: &'a str) -> Self {
        let start = if text.starts_with('\u{FEFF}') { 3 } else { 0 };
        Self { text, place: start, line: 1 }
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.text.as_bytes()[self.place..self.place + bytes];
        self.line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.place += bytes;
    }

    /// The next non-space character.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.place..];
        self.advance(rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len());
        self.text[self.place..].chars().next()
    }

    fn expect(&mut self, char: char) -> Result<(), String> {
        match self.peek() {
            Some(found) if found == char => {
                self.advance(char.len_utf8());
                Ok(())
            }
            Some(found) => Err(format!("not JSON: `{found}`, expected `{char}`")),
            None => Err(format!("not JSON: the file ends, expected `{char}`")),
        }
    }

    /// A value at this position.
    fn value<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut values = Deserializer::from_str(&self.text[self.place..]).into_iter::<T>();
        let value = values.next();
        let bytes = values.byte_offset();
        match value {
            Some(Ok(value)) => {
                self.advance(bytes);
                Ok(value)
            }
            Some(Err(error)) => {
                self.line += (error.line() as u64).saturating_sub(1);
                let reason = error.to_string();
                Err(format!("not JSON: {}", reason.split(" at line ").next().unwrap_or_default()))
            }
            None => Err("not JSON: the file ends before its list does".into()),
        }
    }

    /// Enters the list of an object's rows. An object with the key `other` before it has none.
    fn enter(&mut self, other: Option<&str>) -> Result<(), String> {
        self.expect('{')?;
        loop {
            let key: String = self.value()?;
            self.expect(':')?;
            if key == ROWS {
                return self.expect('[');
            }
            if Some(key.as_str()) == other {
                return Err("an object of its own".into());
            }
            self.value::<IgnoredAny>()?;
            self.expect(',')?;
        }
    }

    /// The list's next value and its line; `None` at the list's end. Skips the comma after it.
    fn element(&mut self) -> Result<Option<(u64, Value)>, String> {
        if self.peek() == Some(']') {
            return Ok(None);
        }
        let line = self.line;
        let value = self.value()?;
        match self.peek() {
            Some(']') => {}
            _ => {
                self.expect(',')?;
                if self.peek() == Some(']') {
                    return Err("not JSON: `]` after a comma, expected a value".into());
                }
            }
        }
        Ok(Some((line, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labelled::Named;

    fn wanted(name: &str) -> [RequestedColumn; 1] {
        [RequestedColumn::of(name, Column::Name(name.into()), Named::Config)]
    }

    #[test]
    fn documents_are_told_from_lines() {
        let is_document = |text: &str| begins(text.as_bytes(), &wanted("text"));
        for text in [
            "[",
            " \n[{\"text\": 1}]",
            "\u{FEFF}[]",
            "{\"version\": 1, \"data\": [ {\"te",
            "{\n \"data\":\n[{",
        ] {
            assert!(is_document(text), "{text}");
        }
        for text in [
            "",
            "{\"text\": \"a\", \"data\": [{}]}",
            "{\"data\": [1]}",
            "{\"data\": {}}",
            "{\"a\": 1}\n{\"data\": [{}]}",
        ] {
            assert!(!is_document(text), "{text}");
        }
    }

    #[test]
    fn rows_have_their_lines() {
        type Found = Result<(u64, Value), (Option<u64>, String)>;
        let rows = |text: &'static str| -> Vec<Found> {
            let read = open(Box::new(text.as_bytes()), &wanted("text")).unwrap();
            read.map(|row| match row {
                Ok(mut row) => Ok((row.line, row.cells.remove(0))),
                Err(problem) => Err((problem.line, problem.detail)),
            })
            .collect()
        };
        let text = "[\n {\"text\": \"a\"},\n {\n\"text\": \"b, ]\"}, 7\n]";
        let seven = (Some(4), "a number in the list, expected an object".to_owned());
        assert_eq!(rows(text), [Ok((2, "a".into())), Ok((3, "b, ]".into())), Err(seven)]);
        assert_eq!(rows("{\"v\": [1, {\"data\": 2}], \"data\": [{\"text\": \"a\"}]}"), [Ok((1, "a".into()))]);
        assert_eq!(rows("[]"), []);
        for (text, problem) in [
            ("[{\"text\": \"a\"}\n", "not JSON: the file ends, expected `,`"),
            ("[{\"text\": \"a\"},\n]", "not JSON: `]` after a comma, expected a value"),
            ("[{\"text\": \"a\"},\n{\"text\" 1}]", "not JSON: expected `:`"),
        ] {
            assert_eq!(rows(text).pop(), Some(Err((Some(2), problem.to_owned()))), "{text}");
        }
    }
}
