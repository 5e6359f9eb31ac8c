//! Rows of any format: the cells of the columns that a task wants.

mod delimited;
mod document;
mod jsonl;
mod parquet;
mod xml;

pub use delimited::found_delimiter;
pub use jsonl::object_cell;

use super::places::Places;
use super::source::{Column, DataFormat, LabelledSource, Loaded, OnBadRow};
use super::table::Layout;
use crate::corpus::Problem;
use crate::corpus::lines::Lines;
use crate::{DataError, Result, SkipReport};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A column that a task wants.
#[derive(Debug, Clone)]
pub(crate) struct RequestedColumn {
    pub field: String,
    pub column: Column,
    /// Whether a row without it is bad; otherwise its cell is null.
    pub required: bool,
    /// Whether its cells may be bytes that are no text: Parquet's are then objects whose `bytes` are in base64.
    pub raw: bool,
    /// How messages name settings.
    pub named: Named,
}

/// How messages name the settings of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Named {
    /// As keys of a configuration, such as `on_bad_row`.
    #[default]
    Config,
    /// As keys of a run's training data, such as `data.train.on_bad_row`.
    TrainingData,
    /// As options of a command line, such as `--on-bad-row`.
    CommandLine,
    /// The same of a command line without options for columns and formats: the file has to be as the command expects it.
    FixedColumns,
}

impl Named {
    /// What a key begins with.
    fn section(self) -> &'static str {
        match self {
            Self::TrainingData => "data.train.",
            Self::Config | Self::CommandLine | Self::FixedColumns => "",
        }
    }

    pub(super) fn column(self, field: &str) -> String {
        match self {
            Self::Config | Self::TrainingData => format!("`{}columns.{field}`", self.section()),
            Self::CommandLine | Self::FixedColumns if field.starts_with("--") => format!("`{field} COLUMN`"),
            Self::CommandLine => format!("`--columns {field}=COLUMN`"),
            Self::FixedColumns => format!("`{field}`"),
        }
    }

    /// What to do about a column that a file lacks.
    pub(super) fn remedy(self, field: &str) -> String {
        match self {
            Self::FixedColumns if !field.starts_with("--") => "expected it".into(),
            _ => format!("set {}", self.column(field)),
        }
    }

    /// A setting by the name of its key.
    pub(super) fn setting(self, key: &str) -> String {
        match (self, key) {
            (Self::Config | Self::TrainingData, _) => format!("`{}{key}`", self.section()),
            (_, "header") => "`--no-header`".into(),
            (_, "format") => "`--input-format`".into(),
            (Self::CommandLine | Self::FixedColumns, _) => match key.strip_prefix("columns.") {
                Some(field) => format!("`--columns {field}=…`"),
                None => format!("`--{}`", key.replace('_', "-")),
            },
        }
    }

    fn delimiter(self, delimiter: char) -> String {
        match self {
            // As TOML has it.
            Self::Config | Self::TrainingData => {
                format!("`{}delimiter = {:?}`", self.section(), delimiter.to_string())
            }
            Self::CommandLine | Self::FixedColumns if delimiter == '\t' => "`--input-format tsv`".into(),
            Self::CommandLine | Self::FixedColumns => format!("`--delimiter '{delimiter}'`"),
        }
    }

    fn quoting(self, quoting: bool) -> String {
        match self {
            Self::Config | Self::TrainingData => format!("`{}quoting = {quoting}`", self.section()),
            Self::CommandLine | Self::FixedColumns => format!("`--quoting {quoting}`"),
        }
    }

    /// What to do if a quotation mark is text.
    fn quote_as_text(self) -> String {
        match self {
            Self::FixedColumns => "write a quotation mark that is text twice, within a quoted field".into(),
            _ => format!("set {} if quotation marks are text in this file", self.quoting(false)),
        }
    }

    pub(super) fn max_line_bytes(self) -> &'static str {
        match self {
            Self::Config => "max_line_bytes",
            Self::TrainingData => "data.train.max_line_bytes",
            Self::CommandLine | Self::FixedColumns => "--max-line-bytes",
        }
    }

    /// The error for a named column in a file without names.
    fn without_header(self, field: &str) -> String {
        match self {
            Self::Config | Self::TrainingData => format!(
                "columns have no names if `{section}header = false`: set `{section}columns.{field}` to a number from 1",
                section = self.section()
            ),
            Self::CommandLine | Self::FixedColumns if field.starts_with("--") => {
                format!(
                    "columns have no names with `--no-header`, so `{field}` cannot name one; leave one of both out"
                )
            }
            Self::CommandLine => {
                format!("columns have no names with `--no-header`: give `--columns {field}=NUMBER`, from 1")
            }
            Self::FixedColumns => format!("without a header, no column is `{field}`"),
        }
    }
}

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    /// The line it begins on, or its number in a Parquet file, from 1.
    pub line: u64,
    /// A cell for each wanted column.
    pub cells: Vec<Value>,
}

/// A table's rows with all its columns.
pub(crate) struct Whole {
    /// The columns' names; none without a header.
    pub names: Option<Vec<String>>,
    /// The column number of each wanted one, from 0.
    pub places: Vec<Option<usize>>,
    pub rows: Read<Row>,
}

/// Iterator over a file's items.
pub(crate) type Read<R> = Box<dyn Iterator<Item = std::result::Result<R, Problem>>>;

impl RequestedColumn {
    /// A required column.
    pub fn of(field: &str, column: Column, named: Named) -> Self {
        Self { field: field.into(), column, required: true, raw: false, named }
    }

    pub fn required(field: &str, source: &LabelledSource) -> Self {
        Self::of(field, source.column(field), source.named)
    }

    pub fn optional(field: &str, source: &LabelledSource) -> Self {
        // A column that the user names must be there.
        Self { required: source.configured(field).is_some(), ..Self::required(field, source) }
    }

    /// Its name in messages, with the field if the column is named differently.
    pub fn place(&self) -> String {
        match &self.column {
            Column::Name(name) if *name == self.field => format!("{}", self.column),
            // Where nothing names columns, a field says what its column holds.
            column if self.named == Named::FixedColumns && !self.field.starts_with("--") => {
                format!("{column} ({})", self.field)
            }
            column => format!("{column} ({})", self.named.column(&self.field)),
        }
    }

    /// The problem of a cell.
    pub fn bad(&self, line: u64, kind: &'static str, detail: impl std::fmt::Display) -> Problem {
        row_problem(Some(line), kind, format!("{}: {detail}", self.place()))
    }
}

/// Opens a file of rows.
pub(crate) fn open(
    path: &Path,
    format: DataFormat,
    source: &LabelledSource,
    wanted: &[RequestedColumn],
) -> std::result::Result<Read<Row>, Problem> {
    match format {
        DataFormat::Parquet => parquet::open(path, wanted),
        DataFormat::Xml => xml::open(path, wanted),
        DataFormat::Csv | DataFormat::Tsv => {
            let lines = Lines::open(path, source.max_line_bytes, source.named.max_line_bytes())?;
            let layout = Layout::of(format, source);
            Ok(Box::new(delimited::Delimited::new(lines, source, layout, wanted)))
        }
        _ => jsonl::open(path, source, wanted),
    }
}

/// Opens a table in CSV, TSV or Parquet with all its columns.
pub(super) fn open_whole(
    path: &Path,
    source: &LabelledSource,
    wanted: &[RequestedColumn],
) -> std::result::Result<Whole, Problem> {
    match source.format {
        DataFormat::Parquet => parquet::open_whole(path, wanted),
        _ => {
            let lines = Lines::open(path, source.max_line_bytes, Named::CommandLine.max_line_bytes())?;
            delimited::Delimited::new(lines, source, Layout::of(source.format, source), wanted).whole()
        }
    }
}

/// Reads a CSV or TSV table from any source, with all its columns.
pub(super) fn read_whole(
    input: Box<dyn std::io::Read>,
    source: &LabelledSource,
    wanted: &[RequestedColumn],
) -> std::result::Result<Whole, Problem> {
    let lines = Lines::read(input, source.max_line_bytes, Named::CommandLine.max_line_bytes())?;
    delimited::Delimited::new(lines, source, Layout::of(source.format, source), wanted).whole()
}

/// What is read of a file.
pub(super) trait Lined {
    /// The line it begins on, or its number in a Parquet file, from 1.
    fn line(&self) -> Option<u64>;
}

impl Lined for Row {
    fn line(&self) -> Option<u64> {
        Some(self.line)
    }
}

/// Reads all files and converts their rows to examples.
pub(super) fn load<R: Lined, T>(
    source: &LabelledSource,
    files: &[(PathBuf, DataFormat)],
    open: impl Fn(&Path, DataFormat) -> std::result::Result<Read<R>, Problem>,
    mut convert: impl FnMut(R) -> std::result::Result<T, Problem>,
) -> Result<Loaded<T>> {
    let mut loaded =
        Loaded { examples: Vec::new(), places: Places::default(), skipped: SkipReport::default() };
    for (path, format) in files {
        let whole = |line, problem| DataError::LabelledFile { path: path.clone(), line, problem };
        let read = open(path, *format).map_err(|problem| whole(problem.line, problem.detail))?;
        let mut any = false;
        loaded.places.begin(path, *format);
        for found in read {
            any = true;
            let line = found.as_ref().ok().and_then(Lined::line);
            match found.and_then(&mut convert) {
                Ok(example) => {
                    loaded.examples.push(example);
                    line.into_iter().for_each(|line| loaded.places.push(line));
                }
                Err(problem) if source.on_bad_row == OnBadRow::Skip && !problem.ends_file => {
                    loaded.skipped.count_at(problem.kind, || problem.told(path));
                }
                Err(problem) => return Err(problem.in_file(path)),
            }
        }
        if !any {
            return Err(whole(None, "it has no examples: it is empty or has only a header".into()));
        }
    }
    if loaded.examples.is_empty() {
        let (path, skipped) = (&files[0].0, &loaded.skipped);
        let problem = format!("no row of the files is usable; skipped: {skipped}");
        return Err(DataError::LabelledFile { path: path.clone(), line: None, problem });
    }
    let n_used = loaded.examples.len() as u64;
    loaded.skipped.check(n_used, "rows", source.max_skipped(), &source.named.setting("max_skipped"))?;
    Ok(loaded)
}

/// A problem with one row.
pub(super) fn row_problem(line: Option<u64>, kind: &'static str, detail: String) -> Problem {
    Problem { line, kind, detail, ends_file: false }
}

/// A problem that ends a file.
pub(super) fn file_problem(line: Option<u64>, kind: &'static str, detail: String) -> Problem {
    Problem { line, kind, detail, ends_file: true }
}

/// Names the required columns that are absent besides one, for its message.
pub(super) fn also_absent(
    all: &[RequestedColumn],
    one: &RequestedColumn,
    is_there: impl Fn(&String) -> bool,
) -> String {
    let is_absent = |wanted: &&RequestedColumn| match &wanted.column {
        Column::Name(name) => wanted.required && wanted.column != one.column && !is_there(name),
        Column::Number(_) => false,
    };
    all.iter().filter(is_absent).map(|wanted| format!("; also no {}", wanted.place())).collect()
}

/// A number of columns, for a message.
pub(crate) fn n_columns(n: usize) -> String {
    format!("{n} {}", if n == 1 { "column" } else { "columns" })
}

/// A cell's type, for a message.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A text cell.
pub(crate) fn text(cell: Value, wanted: &RequestedColumn, line: u64) -> std::result::Result<String, Problem> {
    match cell {
        Value::String(text) => Ok(text),
        other => Err(wanted.bad(
            line,
            "column without text",
            format_args!("{}, expected a string", kind_of(&other)),
        )),
    }
}

/// A text cell that is neither empty nor white space alone.
pub(crate) fn filled_text(
    cell: Value,
    wanted: &RequestedColumn,
    line: u64,
) -> std::result::Result<String, Problem> {
    let text = text(cell, wanted, line)?;
    match text.trim().is_empty() {
        true => Err(wanted.bad(line, "no text", "empty, expected a text")),
        false => Ok(text),
    }
}

/// A cell with a list of texts.
pub(super) fn texts(
    cell: Value,
    wanted: &RequestedColumn,
    line: u64,
) -> std::result::Result<Vec<String>, Problem> {
    match cell {
        Value::Array(cells) => cells.into_iter().map(|cell| text(cell, wanted, line)).collect(),
        other => {
            let detail = format!("{}, expected a list of strings", kind_of(&other));
            Err(wanted.bad(line, "column without a list", detail))
        }
    }
}

/// A cell with a list of texts, none of which is empty or white space alone.
pub(super) fn filled_texts(
    cell: Value,
    wanted: &RequestedColumn,
    line: u64,
) -> std::result::Result<Vec<String>, Problem> {
    let texts = texts(cell, wanted, line)?;
    match texts.iter().position(|text| text.trim().is_empty()) {
        Some(place) => {
            Err(wanted.bad(line, "no text", format_args!("text {} is empty, expected a text", place + 1)))
        }
        None => Ok(texts),
    }
}

/// An excerpt of user text for a message, on one line.
pub(super) fn excerpt(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
