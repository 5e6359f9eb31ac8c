//! CSV and TSV: one row per line, or several lines if a quoted field continues.

use super::super::table::Layout;
use super::{Named, RequestedColumn, Row, Whole, also_absent, file_problem, row_problem};
use crate::corpus::Problem;
use crate::corpus::lines::Lines;
use crate::corpus::shown;
use crate::labelled::source::{Column, LabelledSource};
use csv_core::{ReadRecordResult, ReaderBuilder, Terminator};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;

/// What may separate columns.
const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];

/// A line with its number, and what is wrong with it; its bytes that are not UTF-8 are replaced.
struct ReadLine {
    number: u64,
    text: String,
    problem: Option<Problem>,
}

/// The fields of a row.
struct Fields {
    /// The line it begins on.
    line: u64,
    cells: Vec<String>,
    /// Whether its lines have a quotation mark.
    has_quotes: bool,
}

pub(super) struct Delimited {
    lines: Lines,
    /// Lines after an unclosed quotation mark, to be read again.
    again: VecDeque<ReadLine>,
    /// A row read ahead.
    first: Option<Fields>,
    delimiter: char,
    quoting: bool,
    max_row: usize,
    /// If set, the last of this many columns takes the rest of its line.
    split_into: Option<usize>,
    /// Columns per row, once known.
    n_columns: Option<usize>,
    wanted: Vec<RequestedColumn>,
    /// How messages name settings.
    named: Named,
    /// The columns of the wanted fields, from 0; `None` until found.
    places: Option<Vec<Option<usize>>>,
    header: bool,
    parser: csv_core::Reader,
    ended: bool,
}

/// What separates the columns of a file with a header, if it is not the `usual` character: the one of the others
/// that occurs most often in the header, outside quotation marks. None if the usual one occurs there, or no other.
///
/// A file that cannot be read has none: whoever reads it tells why.
pub fn found_delimiter(path: &Path, usual: char) -> Option<char> {
    const LONGEST_HEADER: usize = 1 << 20;
    let mut lines = Lines::open(path, LONGEST_HEADER, "the header").ok()?;
    let header = loop {
        let (_, line) = lines.next()?.ok()?;
        if !line.trim().is_empty() {
            break line;
        }
    };
    let outside = header.split('"').step_by(2);
    let n = |of: char| outside.clone().map(|part| part.matches(of).count()).sum::<usize>();
    if n(usual) > 0 {
        return None;
    }
    DELIMITERS.into_iter().filter(|of| n(*of) > 0).max_by_key(|of| n(*of))
}

impl Delimited {
    /// The rows of these lines, in this `layout`.
    pub fn new(lines: Lines, source: &LabelledSource, layout: Layout, wanted: &[RequestedColumn]) -> Self {
        let Layout { delimiter, quoting } = layout;
        let parser =
            ReaderBuilder::new().delimiter(delimiter as u8).terminator(Terminator::Any(b'\n')).build();
        Self {
            lines,
            again: VecDeque::new(),
            first: None,
            delimiter,
            quoting,
            max_row: source.max_line_bytes,
            split_into: source.n_columns,
            n_columns: source.n_columns,
            wanted: wanted.to_vec(),
            named: wanted.first().map(|wanted| wanted.named).unwrap_or_default(),
            places: None,
            header: source.header.unwrap_or(true),
            parser,
            ended: false,
        }
    }

    /// The rows with all their columns.
    pub fn whole(mut self) -> Result<Whole, Problem> {
        let has_header = self.header;
        let first = match self.fields() {
            Some(first) => first?,
            None if has_header => {
                let detail = "it is empty; expected a header and rows".into();
                return Err(file_problem(None, "empty file", detail));
            }
            None => {
                let places = vec![None; self.wanted.len()];
                return Ok(Whole { names: None, places, rows: Box::new(std::iter::empty()) });
            }
        };
        self.find_columns(&first)?;
        let n_columns = self.n_columns.unwrap_or_default();
        let places = self.places.replace((0..n_columns).map(Some).collect()).unwrap_or_default();
        let names = match has_header {
            true => Some(first.cells),
            false => {
                self.first = Some(first);
                None
            }
        };
        Ok(Whole { names, places, rows: Box::new(self) })
    }

    /// The columns of the wanted fields, from the header or, without one, by column number.
    fn find_columns(&mut self, first: &Fields) -> Result<(), Problem> {
        let (header, Fields { line, cells: names, .. }) = (self.header, first);
        let n_columns = *self.n_columns.get_or_insert(names.len());
        let find = |wanted: &RequestedColumn| {
            let missing = |detail| Err(file_problem(Some(*line), "missing column", detail));
            match &wanted.column {
                Column::Number(number) if *number <= n_columns => Ok(Some(number - 1)),
                Column::Number(_) => {
                    let there = if n_columns == 1 { "is" } else { "are" };
                    missing(format!("no {}: there {there} {}", wanted.place(), super::n_columns(n_columns)))
                }
                Column::Name(_) if !header && !wanted.required => Ok(None),
                Column::Name(_) if !header => missing(self.named.without_header(&wanted.field)),
                Column::Name(name) => {
                    let mut of_name = names.iter().enumerate().filter(|(_, other)| *other == name);
                    match (of_name.next(), of_name.next()) {
                        (Some((place, _)), None) => Ok(Some(place)),
                        (Some(_), Some(_)) => missing(format!("two columns have the name `{name}`")),
                        (None, _) if !wanted.required => Ok(None),
                        (None, _) => {
                            let remedy = self.remedy(names, name, &wanted.field);
                            // Of a header that another character separates, all names are absent for one reason.
                            let others = match names.len() {
                                1 => String::new(),
                                _ => also_absent(&self.wanted, wanted, |other| names.contains(other)),
                            };
                            let names = shown(names.iter().map(String::as_str));
                            missing(format!("no column `{name}` (the header has: {names}); {remedy}{others}"))
                        }
                    }
                }
            }
        };
        self.places = Some(self.wanted.iter().map(find).collect::<Result<_, _>>()?);
        self.header = false;
        Ok(())
    }

    /// What to do when a header lacks the column of a field. There may be other causes: the file uses a different delimiter,
    /// or the names are quoted.
    fn remedy(&self, names: &[String], wanted: &str, field: &str) -> String {
        let of = |delimiter: char| names.iter().map(|name| name.matches(delimiter).count()).sum::<usize>();
        let others = DELIMITERS.into_iter().filter(|other| *other != self.delimiter);
        let best = others.max_by_key(|other| of(*other)).filter(|other| names.len() == 1 && of(*other) > 0);
        let is_quoted = !self.quoting && names.iter().any(|name| name.trim_matches('"') == wanted);
        let (remedy, column) = (self.named.remedy(field), self.named.column(field));
        match best {
            Some(other) if self.named == Named::FixedColumns => {
                let [expected, found] = [self.delimiter, other].map(|separator| match separator {
                    '\t' => "tabs".to_owned(),
                    separator => format!("`{separator}`"),
                });
                format!("{remedy}, and {expected} between columns in place of {found}")
            }
            Some(other) => {
                format!("set {} if that separates these, or {column}", self.named.delimiter(other))
            }
            None if is_quoted && self.named == Named::FixedColumns => {
                format!("{remedy} without quotation marks")
            }
            None if is_quoted => {
                format!("set {} if fields are quoted, or {column}", self.named.quoting(true))
            }
            None => remedy,
        }
    }

    /// The next line; one that is not UTF-8 is a line all the same, because it may begin or end a quoted cell.
    fn line(&mut self) -> Option<Result<ReadLine, Problem>> {
        if let Some(line) = self.again.pop_front() {
            return Some(Ok(line));
        }
        if self.ended {
            return None;
        }
        let Some(line) = self.lines.next() else {
            self.ended = true;
            return None;
        };
        Some(match line {
            Ok((number, text)) => Ok(ReadLine { number, text: text.to_owned(), problem: None }),
            Err(problem) => match self.lines.last_lossy() {
                Some(text) => Ok(ReadLine { number: self.lines.number(), text, problem: Some(problem) }),
                None => Err(problem),
            },
        })
    }

    /// The fields of the next row.
    fn fields(&mut self) -> Option<Result<Fields, Problem>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        loop {
            match self.line()? {
                Err(problem) => return Some(Err(problem)),
                Ok(ReadLine { text, .. })
                    if text.trim_matches([' ', '\t']).is_empty() && !text.contains(self.delimiter) => {}
                Ok(line) if self.quoting => return Some(self.quoted(line)),
                Ok(ReadLine { problem: Some(problem), .. }) => return Some(Err(problem)),
                Ok(ReadLine { number, text, .. }) => {
                    let columns = self.split_into.unwrap_or(usize::MAX);
                    let cells = text.splitn(columns, self.delimiter).map(Into::into).collect();
                    return Some(Ok(Fields { line: number, cells, has_quotes: text.contains('"') }));
                }
            }
        }
    }

    /// The fields of a row that begins on a line and continues while a quoted field is open.
    fn quoted(&mut self, first: ReadLine) -> Result<Fields, Problem> {
        let number = first.number;
        self.parser.reset();
        // As many bytes and fields as the row can have, so that neither place runs out.
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        let (mut n_bytes, mut n_ends) = (0, 0);
        let mut read: Vec<ReadLine> = Vec::new();
        let mut line = first;
        let mut len = 0;
        loop {
            len += line.text.len() + 1;
            bytes.resize(len, 0);
            ends.resize(len + 1, 0);
            let mut input = [line.text.as_bytes(), b"\n"].concat();
            read.push(line);
            let ended = loop {
                let (result, n_read, wrote, ended) =
                    self.parser.read_record(&input, &mut bytes[n_bytes..], &mut ends[n_ends..]);
                n_bytes += wrote;
                n_ends += ended;
                input.drain(..n_read);
                match result {
                    ReadRecordResult::Record | ReadRecordResult::End => break true,
                    ReadRecordResult::InputEmpty => break false,
                    ReadRecordResult::OutputFull => bytes.push(0),
                    ReadRecordResult::OutputEndsFull => ends.push(0),
                }
            };
            if ended {
                break;
            }
            let next = if len > self.max_row { None } else { self.line() };
            line = match next {
                Some(Ok(line)) => line,
                Some(Err(problem)) => return Err(problem),
                None => {
                    // Perhaps the quotation mark was text, and the lines after it are rows of their own.
                    read.drain(1..).rev().for_each(|line| self.again.push_front(line));
                    let detail = format!("a quoted field is not closed; {}", self.named.quote_as_text());
                    return Err(row_problem(Some(number), "unclosed quote", detail));
                }
            };
        }
        let texts = read.iter().map(|line| line.text.as_str());
        if read.len() > 1
            && let Some((opened, closed)) = closed_in_text(texts, self.delimiter)
        {
            let (swallowed, opened, closed) = (opened + 1, read[opened].number, read[closed].number);
            // Rows of their own, most likely, which the mark has swallowed; the lines before it are of the row's other cells.
            read.drain(swallowed..).rev().for_each(|line| self.again.push_front(line));
            let detail = format!(
                "a quoted field is not closed: the next quotation mark is within the text of line {closed}; close it, or {}",
                self.named.quote_as_text()
            );
            return Err(row_problem(Some(opened), "unclosed quote", detail));
        }
        let has_quotes = read.iter().any(|line| line.text.contains('"'));
        // Of a row that is not UTF-8 nothing is left: the rest of a quoted cell is no row of its own.
        if let Some(problem) = read.into_iter().find_map(|line| line.problem) {
            return Err(problem);
        }
        let mut start = 0;
        let fields = ends[..n_ends].iter().map(|end| {
            let field = String::from_utf8_lossy(&bytes[start..*end]).into_owned();
            start = *end;
            field
        });
        Ok(Fields { line: number, cells: fields.collect(), has_quotes })
    }

    fn row(&mut self, Fields { line, cells: fields, has_quotes }: Fields) -> Result<Row, Problem> {
        let expected = *self.n_columns.get_or_insert(fields.len());
        // A spreadsheet may end rows with delimiters and nothing between them.
        let is_ended = || fields[expected..].iter().all(String::is_empty);
        if fields.len() < expected || fields.len() > expected && !is_ended() {
            let found = fields.len();
            let set = self.named.quoting(!self.quoting);
            // Where there is no quotation mark, what is done with them is not the cause.
            let hint = match (self.quoting, found > expected) {
                (true, true) if has_quotes => format!(
                    "; quote fields that contain the delimiter, or set {set} if quotation marks are text in this file"
                ),
                (true, true) => "; quote fields that contain the delimiter".to_owned(),
                (true, false) if has_quotes => {
                    format!("; set {set} if quotation marks are text in this file")
                }
                (false, true) if has_quotes => format!("; set {set} if fields are quoted"),
                _ => String::new(),
            };
            let source =
                if self.split_into.is_some() { "`n_columns` says" } else { "in the file's first row" };
            let detail = format!("{}, expected {expected} as {source}{hint}", super::n_columns(found));
            return Err(row_problem(Some(line), "number of columns", detail));
        }
        let places = self.places.iter().flatten();
        let cell = |place: &Option<usize>| place.map_or(Value::Null, |place| fields[place].as_str().into());
        Ok(Row { line, cells: places.map(cell).collect() })
    }
}

/// The lines of a row, from 0, on which a quoted field opens and closes, if it goes over the end of a line and text follows the
/// mark that closes it. No program that doubles marks writes that: a mark was forgotten, and the one that closes the field opens another.
fn closed_in_text<'t>(lines: impl Iterator<Item = &'t str>, delimiter: char) -> Option<(usize, usize)> {
    let mut opened = None;
    for (number, line) in lines.enumerate() {
        let mut begins = true;
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match opened {
                Some(first) if letter == '"' => match letters.peek().copied() {
                    // Two stand for one in the text.
                    Some('"') => {
                        letters.next();
                    }
                    next => {
                        let in_text = next.is_some_and(|next| next != delimiter && !next.is_whitespace());
                        if in_text && first < number {
                            return Some((first, number));
                        }
                        (opened, begins) = (None, false);
                    }
                },
                Some(_) => {}
                None if begins && letter == '"' => opened = Some(number),
                None => begins = letter == delimiter,
            }
        }
    }
    None
}

impl Iterator for Delimited {
    type Item = Result<Row, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.header {
            let found = match self.fields()? {
                Ok(names) => self.find_columns(&names),
                Err(problem) => Err(problem),
            };
            // Nothing can be read without the names.
            if let Err(problem) = found {
                return Some(Err(Problem { ends_file: true, ..problem }));
            }
        }
        let row = match self.fields()? {
            Ok(fields) if self.places.is_some() => self.row(fields),
            Ok(fields) => self.find_columns(&fields).and_then(|()| self.row(fields)),
            Err(problem) => Err(problem),
        };
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_within_text_closes_no_field() {
        let closed = |row: &str| closed_in_text(row.split('\n'), ',');
        assert_eq!(closed("\"one,yes\n\"two\",no"), Some((0, 1)));
        assert_eq!(closed("7,\"one,yes\n8,\"two\",no"), Some((0, 1)));
        assert_eq!(closed("\"a\nb\",\"one,yes\nno,three\n\"two\",no"), Some((1, 3)));
        for fine in [
            "\"one\ntwo, with \"\"marks\"\"\",yes",
            "\"one\ntwo\" ,yes",
            "\"one\n\"",
            "one \"two\" three,\"a\nb\"",
            // On one line, it is what somebody has typed.
            "\"one\" two,yes",
        ] {
            assert_eq!(closed(fine), None, "{fine}");
        }
    }
}
