//! A model's input rows: lines of text, JSON lines, CSV, TSV or Parquet.

use std::fs;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::vec;

use anyhow::{Context, Error, Result, anyhow, bail};
use cloze_data::SkipReport;
use cloze_data::labelled::{
    Column, DataFormat, LabelledSource, Layout, Record, RecordColumn, Records, Table, object_cell, records,
};
use cloze_trainer::finetune::InputKey;
use serde_json::{Map, Value};

use crate::failure::WrongUsage;
use crate::lines::{Batch, Line, Lines, Longer};
use crate::output::{STANDARD_INPUT, say};
use crate::rows::{BadRowArgs, RowArgs, RowFormat};

/// The field of commands that read one text per row.
pub const TEXT: [InputKey; 1] = [InputKey { name: "text", required: true, list: false }];

/// The field of commands that read one image per row: a path, or a data URI.
pub const IMAGE: [InputKey; 1] = [InputKey { name: "image", required: true, list: false }];

#[derive(clap::Args)]
pub struct InputArgs {
    /// The input file (default: standard input).
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    #[command(flatten)]
    pub rows: RowArgs,
}

/// What a command reads from its input.
pub struct Asked {
    /// The fields. A line of text, or a JSON string, is the first of them.
    pub fields: &'static [InputKey],
    /// The expected form of a JSON line, for error messages.
    pub expected: &'static str,
    /// Fields that the answer replaces in the row.
    pub replaced: &'static [&'static str],
    /// The format of standard input, and of files with an unknown extension.
    pub default: RowFormat,
    /// What to do with a line of text that exceeds the limit.
    pub longer: Longer,
    /// What becomes of a blank line.
    pub blank: Blank,
}

/// What becomes of a blank line among lines of text or of JSON, which holds no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blank {
    /// It is passed over.
    PassedOver,
    /// It has an empty answer, so that each line has one.
    Answered,
    /// It is an unusable row: each line has an answer, and none can be empty.
    Refused,
}

/// A row of the input.
#[derive(Debug)]
pub struct Row {
    /// The file and the line, for errors.
    pub place: String,
    /// The value of each field, null if missing; none for an empty line among JSON lines. A non-list field is a
    /// string, and present if required.
    pub fields: Option<Vec<Value>>,
    /// The original row, which the answer is added to.
    pub kept: Kept,
    /// Whether the line was cut.
    goes_on: bool,
    /// The row's bytes in the file; 0 if unknown.
    pub bytes: usize,
}

/// An original row.
#[derive(Debug)]
pub enum Kept {
    /// Nothing, of an empty line.
    Nothing,
    /// A text and the field that it is: a column of a table, but no key of an object, which holds the answer alone.
    Text { field: &'static str, text: String },
    /// A JSON object as written, and its keys.
    Object { text: String, keys: Vec<String> },
    /// The cells of a line of CSV or TSV.
    Cells(Vec<Value>),
}

impl Row {
    /// A row with only these fields.
    #[cfg(test)]
    pub fn new(fields: Option<Vec<Value>>) -> Self {
        Self { place: "row".into(), fields, kept: Kept::Nothing, goes_on: false, bytes: 0 }
    }

    /// A row that is in no file.
    pub fn made(place: String, fields: Vec<Value>, kept: Kept) -> Self {
        Self { place, fields: Some(fields), kept, goes_on: false, bytes: 0 }
    }

    /// The text of a single-text command; empty for an empty line.
    pub fn text(&self) -> &str {
        self.fields.as_ref().and_then(|fields| fields.first()?.as_str()).unwrap_or_default()
    }

    /// The text, and whether it was cut.
    pub fn line(&self) -> Line<'_> {
        Line { text: self.text(), goes_on: self.goes_on }
    }
}

/// Rows, read in batches.
pub struct Input {
    source: Source,
    /// The file that is read.
    path: PathBuf,
    asked: Asked,
    /// Fields read from the column of the same name.
    own: Vec<&'static str>,
    /// The error that ended the last batch early; returned by the next call, after that batch's answers.
    failed: Option<Error>,
    /// What happens to unusable rows.
    bad: BadRowArgs,
    /// The rows left out because of what their cells hold.
    refused: SkipReport,
    /// Rows returned so far, without those that were refused afterwards.
    used: u64,
}

enum Source {
    /// Lines of objects, with their columns, or of text.
    Lines(Lines<Box<dyn Read>>, Option<Columns>),
    /// A table with its columns, and the layout of its lines if it has any.
    Table(Table, Columns, Option<Layout>),
    /// The requested columns of a file whose rows have no others in common.
    Records(Records, Columns),
    /// Rows that are in no file, with their name for messages.
    Made(&'static str, vec::IntoIter<Row>),
}

/// What is wrong with a blank line where each line has an answer.
const BLANK: &str = "the line is blank; remove it, or leave such lines out with --on-bad-row skip";

/// The columns to read, with the index of the field that each is for.
type Columns = Vec<(usize, Column)>;

impl InputArgs {
    /// Reports a missing file before a model is loaded.
    ///
    /// # Errors
    /// The file system's error.
    pub fn check(&self) -> Result<()> {
        match &self.input {
            Some(path) => fs::metadata(path).map(drop).with_context(|| cannot_read(path)),
            None => Ok(()),
        }
    }

    /// Whether neither a file nor an option of its rows is given, but for what happens to unusable ones.
    pub fn is_default(&self) -> bool {
        let mut rows = self.rows.clone();
        rows.bad = BadRowArgs::default();
        self.input.is_none() && rows.is_default()
    }

    /// Opens the input.
    ///
    /// # Errors
    /// [`WrongUsage`] for options that do not apply to the format or command; a file that cannot be read;
    /// missing columns.
    pub fn open(&self, asked: Asked) -> Result<Input> {
        let bad = &self.rows.bad;
        let lines = || {
            let lines = Lines::of(self.input.as_deref(), bad.max_line_bytes())?;
            Ok::<_, Error>(lines.skipping(bad.skips()))
        };
        let (format, begun) = match self.rows.format(self.input.as_deref(), RowFormat::Auto) {
            RowFormat::Auto if asked.default == RowFormat::Jsonl => {
                let mut lines = lines()?;
                let format = if lines.begins_as_json() { RowFormat::Jsonl } else { RowFormat::Lines };
                (format, Some(lines))
            }
            RowFormat::Auto => (asked.default, None),
            format => (format, None),
        };
        let columns = self.columns(&asked, format)?;
        self.rows.check_table_options(format)?;
        if let (RowFormat::Lines, Some(lines)) = (format, &begun) {
            say(format_args!("{}: read as lines of text; --input-format names another format", lines.name()));
        }
        let is_own = |key: &&InputKey| {
            let of_key = |(field, _): &&(String, Column)| field == key.name;
            let given = self.rows.columns.iter().find(of_key);
            given.is_none_or(|(_, column)| *column == Column::Name(key.name.into()))
        };
        let own = asked.fields.iter().filter(is_own).map(|key| key.name).collect();
        let lines = || begun.map_or_else(lines, Ok);
        let source = match format {
            RowFormat::Lines => Source::Lines(lines()?.with_longer(asked.longer), None),
            RowFormat::Jsonl | RowFormat::Auto => Source::Lines(lines()?, Some(columns)),
            RowFormat::Csv => self.table(DataFormat::Csv, &asked, columns)?,
            RowFormat::Tsv => self.table(DataFormat::Tsv, &asked, columns)?,
            RowFormat::Parquet => self.table(DataFormat::Parquet, &asked, columns)?,
            RowFormat::Xml => self.records(&asked, columns)?,
        };
        Ok(Input {
            source,
            path: self.input.clone().unwrap_or_else(|| STANDARD_INPUT.into()),
            asked,
            own,
            failed: None,
            bad: bad.clone(),
            refused: SkipReport::default(),
            used: 0,
        })
    }

    /// Whether rows are lines of cells, as in CSV and TSV.
    pub fn is_cells(&self) -> bool {
        let format = self.rows.format(self.input.as_deref(), RowFormat::Lines);
        matches!(format, RowFormat::Csv | RowFormat::Tsv)
    }

    /// The columns of all fields.
    fn columns(&self, asked: &Asked, format: RowFormat) -> Result<Columns> {
        let wrong = |error: Error| Err(WrongUsage::new(error).into());
        let names = |of: &[&InputKey]| of.iter().map(|key| key.name).collect::<Vec<_>>();
        self.rows.check_known(&names(&asked.fields.iter().collect::<Vec<_>>()))?;
        self.rows.check_once(&names(&asked.fields.iter().filter(|key| key.list).collect::<Vec<_>>()))?;
        let given = &self.rows.columns;
        for (field, column) in given {
            if format == RowFormat::Lines {
                return wrong(anyhow!(
                    "lines of text have no columns for --columns; set the input's format with --input-format"
                ));
            }
            if let (RowFormat::Jsonl, Column::Number(number)) = (format, column) {
                return wrong(anyhow!(
                    "--columns {field}={number}: keys of JSON objects have names, not numbers"
                ));
            }
        }
        let of_field = |(place, key): (usize, &InputKey)| {
            let given = given.iter().filter(|(field, _)| field == key.name);
            let given: Columns = given.map(|(_, column)| (place, column.clone())).collect();
            match given.is_empty() {
                true => vec![(place, Column::Name(key.name.into()))],
                false => given,
            }
        };
        Ok(asked.fields.iter().enumerate().flat_map(of_field).collect())
    }

    /// The columns as requested from a file.
    fn requested(&self, asked: &Asked, columns: &Columns) -> Vec<RecordColumn> {
        let requested = columns.iter().map(|(place, column)| {
            let key = asked.fields[*place];
            let required = key.required || self.rows.column(key.name).is_some();
            RecordColumn { field: key.name.into(), column: column.clone(), required }
        });
        requested.collect()
    }

    /// The input file, for a format that standard input does not have.
    fn file(&self, format: &str) -> Result<&Path> {
        self.input.as_deref().ok_or_else(|| {
            let error = anyhow!("{format} cannot be read from standard input; give a file with --input");
            WrongUsage::new(error).into()
        })
    }

    fn records(&self, asked: &Asked, columns: Columns) -> Result<Source> {
        let file = self.file("XML")?.display().to_string();
        let source = LabelledSource { format: DataFormat::Xml, ..self.rows.source([file])? };
        let records = records(&source, Path::new(""), self.requested(asked, &columns))?;
        Ok(Source::Records(records, columns))
    }

    fn table(&self, format: DataFormat, asked: &Asked, columns: Columns) -> Result<Source> {
        let files = self.input.iter().map(|path| path.display().to_string());
        let source = LabelledSource { format, ..self.rows.source(files)? };
        let requested = self.requested(asked, &columns);
        let table = match &self.input {
            _ if format == DataFormat::Parquet => Table::open(self.file("Parquet")?, &source, requested)?,
            Some(path) => Table::open(path, &source, requested)?,
            None => Table::read(Box::new(stdin().lock()), "standard input", &source, requested)?,
        };
        if let (Some(names), true) = (table.names(), table.places().iter().all(Option::is_none)) {
            let fields: Vec<String> = asked.fields.iter().map(|key| format!("`{}`", key.name)).collect();
            bail!(
                "{}: there is no column {} (there are: {}); name one with --columns FIELD=COLUMN",
                table.path().display(),
                fields.join(" or "),
                shown(names)
            );
        }
        let layout = (format != DataFormat::Parquet).then(|| Layout::of(format, &source));
        Ok(Source::Table(table, columns, layout))
    }
}

impl Input {
    /// Rows that are in no file; `name` is theirs for messages.
    pub fn made(name: &'static str, rows: Vec<Row>, asked: Asked, bad: &BadRowArgs) -> Self {
        let own = asked.fields.iter().map(|key| key.name).collect();
        let source = Source::Made(name, rows.into_iter());
        let (path, refused) = (PathBuf::new(), SkipReport::default());
        Self { source, path, asked, own, failed: None, bad: bad.clone(), refused, used: 0 }
    }

    /// The next rows, `most` at most; none at the end.
    ///
    /// # Errors
    /// An unreadable row, with its location, after the rows before it have been returned.
    pub fn read(&mut self, most: usize) -> Result<Vec<Row>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut rows = Vec::new();
        let bad = &mut Bad { skips: self.bad.skips(), refused: &mut self.refused };
        let read = match &mut self.source {
            Source::Lines(lines, columns) => {
                of_lines(lines, columns.as_ref(), &self.asked, most, &mut rows, bad)
            }
            Source::Table(table, columns, layout) => {
                of_table(table, columns, layout.is_some(), &self.asked, most, &mut rows, bad)
            }
            Source::Records(records, columns) => {
                of_records(records, columns, &self.asked, most, &mut rows, bad)
            }
            Source::Made(_, made) => {
                rows.extend(made.take(most));
                Ok(())
            }
        };
        match read {
            Err(error) if rows.is_empty() => return Err(error),
            read => self.failed = read.err(),
        }
        if rows.is_empty() {
            self.check_skipped()?;
        }
        self.used += rows.len() as u64;
        Ok(rows)
    }

    /// Rejects the row at `place`, which the model cannot use: it is counted if unusable rows are skipped.
    ///
    /// # Errors
    /// `error` with the place, if they are not.
    pub fn refuse(&mut self, place: &str, error: Error) -> Result<()> {
        let mut bad = Bad { skips: self.bad.skips(), refused: &mut self.refused };
        bad.refuse(place, "refused by the model", error)?;
        self.used = self.used.saturating_sub(1);
        Ok(())
    }

    /// Reports the rows that were left out.
    ///
    /// # Errors
    /// More than may be.
    fn check_skipped(&self) -> Result<()> {
        let none = SkipReport::default();
        let (name, skipped) = match &self.source {
            Source::Made(name, _) => ((*name).to_owned(), &none),
            Source::Lines(lines, _) => (lines.name().to_owned(), lines.skipped()),
            Source::Table(table, ..) => (table.path().display().to_string(), table.skipped()),
            Source::Records(records, _) => {
                (records.path().map_or("rows".into(), |path| path.display().to_string()), records.skipped())
            }
        };
        let mut all = skipped.clone();
        all.add(&self.refused);
        self.bad.check_skipped(&name, &all, self.used)
    }

    /// The file that is read; empty if rows are in no file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether rows are lines of text, which are not printed again.
    pub fn is_text(&self) -> bool {
        matches!(self.source, Source::Lines(_, None))
    }

    /// The layout of CSV or TSV lines.
    pub fn layout(&self) -> Option<Layout> {
        match &self.source {
            Source::Table(_, _, layout) => *layout,
            Source::Lines(..) | Source::Records(..) | Source::Made(..) => None,
        }
    }

    /// The table, if the input is one.
    pub fn table(&self) -> Option<&Table> {
        match &self.source {
            Source::Table(table, ..) => Some(table),
            Source::Lines(..) | Source::Records(..) | Source::Made(..) => None,
        }
    }

    /// Fields read from the column or key of the same name.
    pub fn own(&self) -> &[&'static str] {
        &self.own
    }

    /// The total bytes of a file of lines; unknown for other input.
    pub fn size(&self) -> Option<u64> {
        match &self.source {
            Source::Lines(lines, _) => lines.size(),
            Source::Table(..) | Source::Records(..) | Source::Made(..) => None,
        }
    }

    /// A tokenizer error on a row's text, for [`refuse`](Self::refuse).
    pub fn failure(&self, row: &Row, error: cloze_tokenizer::Error) -> Error {
        let error = Error::new(error);
        match (&self.source, row.goes_on) {
            (Source::Lines(lines, _), true) => error.context(lines.too_long()),
            _ => error,
        }
    }
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

/// What is wrong with a row.
#[derive(Debug)]
struct Unusable {
    /// The reason to count it by.
    reason: &'static str,
    problem: String,
}

impl Unusable {
    fn new(reason: &'static str, problem: String) -> Self {
        Self { reason, problem }
    }
}

/// The reason to count a row by whose field is missing or empty.
fn nothing_in(key: &InputKey) -> &'static str {
    if key.name == IMAGE[0].name { "no image" } else { "no text" }
}

/// What happens to rows that cannot be used.
struct Bad<'a> {
    skips: bool,
    refused: &'a mut SkipReport,
}

impl Bad<'_> {
    /// Counts the row at `place` for this `reason`, or fails with its `error`.
    fn refuse(&mut self, place: &str, reason: &str, error: Error) -> Result<()> {
        match self.skips {
            true => self.refused.count_at(reason, || (place.to_owned(), format!("{error:#}"))),
            false => return Err(error.context(place.to_owned())),
        }
        Ok(())
    }

    /// The fields of the row at `place`; none if they cannot be used, and such rows are skipped.
    ///
    /// # Errors
    /// What is wrong with the fields, if such rows are not skipped.
    fn fields(&mut self, place: &str, fields: Result<Vec<Value>, Unusable>) -> Result<Option<Vec<Value>>> {
        match fields {
            Ok(fields) => Ok(Some(fields)),
            Err(Unusable { reason, problem }) => {
                let advice =
                    if self.skips { "" } else { "; correct it, or skip such rows with --on-bad-row skip" };
                self.refuse(place, reason, anyhow!("{problem}{advice}")).map(|()| None)
            }
        }
    }
}

/// Rows from lines: objects if there are columns. No row is read only at the end.
fn of_lines(
    lines: &mut Lines<Box<dyn Read>>,
    columns: Option<&Columns>,
    asked: &Asked,
    most: usize,
    rows: &mut Vec<Row>,
    bad: &mut Bad<'_>,
) -> Result<()> {
    let mut batch = Batch::default();
    while rows.is_empty() && lines.read(most, &mut batch)? {
        for (number, line) in batch.numbered() {
            let place = lines.place(number);
            if line.text.trim().is_empty() {
                match asked.blank {
                    Blank::PassedOver => {}
                    Blank::Answered => rows.push(Row {
                        place,
                        fields: None,
                        kept: Kept::Nothing,
                        goes_on: line.goes_on,
                        bytes: line.text.len() + 1,
                    }),
                    Blank::Refused => bad.refuse(&place, "blank line", anyhow!(BLANK))?,
                }
                continue;
            }
            let (fields, kept) = match columns {
                None => {
                    let (fields, kept) = text_alone(line.text.into(), asked);
                    (Some(fields), kept)
                }
                Some(columns) => match of_json(line.text, columns, asked) {
                    Ok((fields, kept)) => (Some(fields), kept),
                    Err(Unusable { reason, problem }) => {
                        bad.refuse(&place, reason, anyhow!(problem))?;
                        continue;
                    }
                },
            };
            rows.push(Row { place, fields, kept, goes_on: line.goes_on, bytes: line.text.len() + 1 });
        }
    }
    Ok(())
}

/// Rows from records with the requested columns only.
fn of_records(
    records: &mut Records,
    columns: &Columns,
    asked: &Asked,
    most: usize,
    rows: &mut Vec<Row>,
    bad: &mut Bad<'_>,
) -> Result<()> {
    while rows.len() < most
        && let Some(record) = records.next()
    {
        let Record { line, cells } = record.map_err(BadRowArgs::told)?;
        let path = records.path().map(|path| path.display().to_string()).unwrap_or_default();
        let place = format!("{path}:{line}");
        let named = columns.iter().zip(&cells).filter_map(|((_, column), cell)| match column {
            Column::Name(name) if !cell.is_null() => Some((name.clone(), cell.clone())),
            _ => None,
        });
        let object: Map<String, Value> = named.collect();
        let Some(fields) = bad.fields(&place, fields(cells, columns, asked, true))? else { continue };
        let kept = kept(Value::Object(object.clone()).to_string(), object, columns, asked);
        rows.push(Row { place, fields: Some(fields), kept, goes_on: false, bytes: 0 });
    }
    Ok(())
}

/// The fields of a row that is a single text, and the part to keep.
fn text_alone(text: String, asked: &Asked) -> (Vec<Value>, Kept) {
    let mut fields = vec![Value::Null; asked.fields.len()];
    let Some(key) = asked.fields.first() else { return (fields, Kept::Nothing) };
    fields[0] = text.clone().into();
    (fields, Kept::Text { field: key.name, text })
}

/// The fields of a line of JSON, and the part to keep.
fn of_json(text: &str, columns: &Columns, asked: &Asked) -> Result<(Vec<Value>, Kept), Unusable> {
    let expected = asked.expected;
    let not_json = |error: serde_json::Error| {
        Unusable::new("bad JSON", format!("not JSON ({error}); expected {expected}"))
    };
    let value = serde_json::from_str(text).map_err(not_json)?;
    let object: Map<String, Value> = match value {
        Value::String(text) if text.trim().is_empty() => {
            let reason = asked.fields.first().map_or("no text", nothing_in);
            return Err(Unusable::new(reason, format!("the text is empty; expected {expected}")));
        }
        Value::String(text) => return Ok(text_alone(text, asked)),
        Value::Object(object) => object,
        _ => {
            let problem = format!("neither an object nor a string; expected {expected}");
            return Err(Unusable::new("bad JSON", problem));
        }
    };
    let cell = |(place, column): &(usize, Column)| {
        let key = &asked.fields[*place];
        let name = match column {
            Column::Name(name) => name,
            Column::Number(_) => return Ok(Value::Null),
        };
        match object_cell(&object, name) {
            Some(value) => Ok(value.clone()),
            None if !key.required && name == key.name => Ok(Value::Null),
            None => {
                let keys: Vec<String> = object.keys().cloned().collect();
                let has = if keys.is_empty() { "none".to_owned() } else { shown(&keys) };
                let field = key.name;
                let problem = format!(
                    "`{name}` is missing; expected {expected}, or --columns {field}=KEY with another key (there are: {has})"
                );
                Err(Unusable::new(nothing_in(key), problem))
            }
        }
    };
    let cells = columns.iter().map(cell).collect::<Result<Vec<_>, _>>()?;
    let fields = fields(cells, columns, asked, false)?;
    Ok((fields, kept(text.to_owned(), object, columns, asked)))
}

/// An object without the fields that the answer replaces.
fn kept(text: String, mut object: Map<String, Value>, columns: &Columns, asked: &Asked) -> Kept {
    let mut text = text;
    for (place, column) in columns {
        if let Column::Name(name) = column
            && asked.replaced.contains(&asked.fields[*place].name)
            && object.shift_remove(name).is_some()
        {
            text = Value::Object(object.clone()).to_string();
        }
    }
    Kept::Object { text, keys: object.into_iter().map(|(key, _)| key).collect() }
}

/// The fields from cells; several cells of one field make a list. A non-text cell is an error if text is
/// expected, and so is an empty text, also where the field may be missing. Messages name the columns of a table, and the
/// keys of JSON.
fn fields(
    cells: Vec<Value>,
    columns: &Columns,
    asked: &Asked,
    is_table: bool,
) -> Result<Vec<Value>, Unusable> {
    let mut of_fields: Vec<Vec<Value>> = vec![Vec::new(); asked.fields.len()];
    for (cell, (place, _)) in cells.into_iter().zip(columns) {
        of_fields[*place].push(cell);
    }
    let field = |mut cells: Vec<Value>| match cells.len() {
        0 | 1 => cells.pop().unwrap_or_default(),
        _ => Value::Array(cells),
    };
    let fields: Vec<Value> = of_fields.into_iter().map(field).collect();
    for (at, (key, field)) in asked.fields.iter().zip(&fields).enumerate() {
        let (reason, found) = match field {
            Value::Null if key.required => (nothing_in(key), "is missing"),
            Value::String(text) if text.trim().is_empty() => (nothing_in(key), "is empty"),
            Value::Null | Value::String(_) => continue,
            _ if key.list => continue,
            _ => ("bad field", "is not a string"),
        };
        let name = key.name;
        let problem = if is_table {
            let column = match columns.iter().find(|(of, _)| *of == at) {
                Some((_, column @ Column::Name(own))) if own == name => column.to_string(),
                Some((_, column)) => format!("{column} (`--columns {name}=COLUMN`)"),
                None => format!("column `{name}`"),
            };
            let expected = match name == IMAGE[0].name {
                true => "a path or data URI",
                false if key.list => "a list of texts",
                false => "a text",
            };
            format!("{column} {found}; expected {expected}")
        } else {
            format!("`{name}` {found}; expected {}", asked.expected)
        };
        return Err(Unusable::new(reason, problem));
    }
    Ok(fields)
}

/// Rows from a table: lines of cells, or objects.
fn of_table(
    table: &mut Table,
    columns: &Columns,
    are_lines: bool,
    asked: &Asked,
    most: usize,
    rows: &mut Vec<Row>,
    bad: &mut Bad<'_>,
) -> Result<()> {
    while rows.len() < most
        && let Some(record) = table.next()
    {
        let Record { line, cells } = record.map_err(BadRowArgs::told)?;
        let place = format!("{}:{line}", table.path().display());
        let cell = |place: &Option<usize>| place.map_or(Value::Null, |place| cells[place].clone());
        let read = table.places().iter().map(cell).collect();
        let Some(fields) = bad.fields(&place, fields(read, columns, asked, true))? else { continue };
        let kept = match (are_lines, table.names()) {
            (false, Some(names)) => {
                let object: Map<String, Value> = names.iter().cloned().zip(cells).collect();
                kept(Value::Object(object.clone()).to_string(), object, columns, asked)
            }
            _ => Kept::Cells(cells),
        };
        rows.push(Row { place, fields: Some(fields), kept, goes_on: false, bytes: 0 });
    }
    Ok(())
}

/// Names for a message, abbreviated if there are many.
pub fn shown(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut shown: Vec<String> =
        names.iter().take(SHOWN).map(|name| name.chars().take(40).collect()).collect();
    if names.len() > SHOWN {
        shown.push("…".into());
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEYS: [InputKey; 3] = [
        InputKey { name: "text", required: true, list: false },
        InputKey { name: "pair", required: false, list: false },
        InputKey { name: "found", required: false, list: true },
    ];

    fn asked() -> Asked {
        Asked {
            fields: &KEYS,
            expected: "an object",
            replaced: &["found"],
            default: RowFormat::Jsonl,
            longer: Longer::Refused,
            blank: Blank::Answered,
        }
    }

    /// What is read of a line of JSON, and the keys that are kept.
    fn read(line: &str, columns: &[&str]) -> Result<(Value, Vec<String>), String> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            input: InputArgs,
        }
        let options = columns.iter().flat_map(|column| ["--columns", column]);
        let args = <Line as clap::Parser>::parse_from(std::iter::once("cloze").chain(options)).input;
        let columns = args.columns(&asked(), RowFormat::Jsonl).map_err(|error| error.to_string())?;
        let (fields, kept) = of_json(line, &columns, &asked()).map_err(|unusable| unusable.problem)?;
        let keys = match kept {
            Kept::Object { text, keys } => {
                let object: Map<String, Value> = serde_json::from_str(&text).unwrap();
                assert!(object.keys().eq(&keys), "{text}");
                keys
            }
            _ => Vec::new(),
        };
        Ok((fields.into(), keys))
    }

    #[test]
    fn fields_are_keys_of_an_object_or_a_string() {
        assert_eq!(read("\"a\"", &[]).unwrap(), (json!(["a", null, null]), vec![]));
        let line = r#"{"id": 7, "text": "a", "found": ["b"], "in": {"pair": "c"}}"#;
        let kept = ["id", "text", "in"].map(String::from).to_vec();
        assert_eq!(read(line, &[]).unwrap(), (json!(["a", null, ["b"]]), kept));
        assert_eq!(read(line, &["pair=in.pair"]).unwrap().0, json!(["a", "c", ["b"]]));
        // Several keys of a list make it.
        assert_eq!(read(line, &["found=id", "found=text"]).unwrap().0, json!(["a", null, [7, "a"]]));
    }

    #[test]
    fn what_is_no_field_is_told() {
        for (line, columns, problem) in [
            ("[]", &[][..], "neither an object nor a string; expected an object"),
            ("{", &[], "not JSON (EOF while parsing an object at line 1 column 1); expected an object"),
            (r#"{"text": null}"#, &[], "`text` is missing; expected an object"),
            (r#"{"text": " "}"#, &[], "`text` is empty; expected an object"),
            ("\"\"", &[], "the text is empty; expected an object"),
            (r#"{"text": "a", "pair": 1}"#, &[], "`pair` is not a string; expected an object"),
            (r#"{"text": "a", "pair": ""}"#, &[], "`pair` is empty; expected an object"),
            (
                r#"{"text": "a"}"#,
                &["pair=b"],
                "`b` is missing; expected an object, or --columns pair=KEY with another key (there are: text)",
            ),
            (
                "{}",
                &["text=a", "text=b"],
                "--columns: the field `text` is given twice; expected one column for it",
            ),
        ] {
            assert_eq!(read(line, columns).unwrap_err(), problem);
        }
    }
}
