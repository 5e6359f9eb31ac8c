//! A model's input rows: lines of text, JSON lines, CSV, TSV or Parquet.

use std::fs;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use clap::ValueEnum;
use cloze_data::labelled::{
    Column, DataFormat, LabelledSource, Layout, Record, RecordColumn, Table, object_cell,
};
use cloze_trainer::finetune::InputKey;
use serde_json::{Map, Value};

use crate::failure::WrongUsage;
use crate::lines::{Batch, Line, Lines, Longer};
use crate::rows;

/// The field of commands that read one text per row.
pub const TEXT: [InputKey; 1] = [InputKey { name: "text", required: true, list: false }];

#[derive(clap::Args)]
pub struct InputArgs {
    /// The input file (default: standard input).
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The input's format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Auto)]
    input_format: Format,
    /// The column of a table, or the key of an object, that a field is read from, by name or by number from 1
    /// (default: the field's name).
    #[arg(long, value_name = "FIELD=COLUMN", value_delimiter = ',', value_parser = rows::any_column)]
    columns: Vec<(String, Column)>,
    /// The column separator of CSV and TSV, such as ";": one ASCII character.
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<char>,
    /// Whether cells of CSV and TSV may be quoted (default: yes in CSV; in TSV a quotation mark is text).
    #[arg(long, value_name = "BOOL")]
    quoting: Option<bool>,
    /// CSV and TSV have no header: the first line is a row, and columns are numbered.
    #[arg(long)]
    no_header: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Format {
    /// From the file extension: .jsonl, .csv, .tsv or .parquet. Other files and standard input use the
    /// command's default format.
    Auto,
    /// One text per line.
    Lines,
    /// One JSON object or string per line.
    Jsonl,
    /// Comma-separated cells.
    Csv,
    /// Tab-separated cells.
    Tsv,
    /// Parquet, from a file only. The answers are JSON lines.
    Parquet,
}

fn delimiter(text: &str) -> Result<char, String> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if c.is_ascii() && !matches!(c, '\n' | '\r' | '"') => Ok(c),
        _ => Err("expected one ASCII character, no line break and no quotation mark".to_owned()),
    }
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
    pub default: Format,
    /// What to do with a line of text that exceeds the limit.
    pub longer: Longer,
    /// Maximum bytes of a line.
    pub max_line_bytes: usize,
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
    /// A text, which is not printed again.
    Nothing,
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
    asked: Asked,
    /// Fields read from the column of the same name.
    own: Vec<&'static str>,
    /// The error that ended the last batch early; returned by the next call, after that batch's answers.
    failed: Option<Error>,
}

enum Source {
    /// Lines of objects, with their columns, or of text.
    Lines(Lines<Box<dyn Read>>, Option<Columns>),
    /// A table with its columns, and the layout of its lines if it has any.
    Table(Table, Columns, Option<Layout>),
}

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

    /// Opens the input.
    ///
    /// # Errors
    /// [`WrongUsage`] for options that do not apply to the format or command; a file that cannot be read;
    /// missing columns.
    pub fn open(&self, asked: Asked) -> Result<Input> {
        let format = self.format(asked.default);
        let columns = self.columns(&asked, format)?;
        self.check_table_options(format)?;
        let is_own = |key: &&InputKey| {
            let of_key = |(field, _): &&(String, Column)| field == key.name;
            self.columns
                .iter()
                .find(of_key)
                .is_none_or(|(_, column)| *column == Column::Name(key.name.into()))
        };
        let own = asked.fields.iter().filter(is_own).map(|key| key.name).collect();
        let lines = || Lines::of(self.input.as_deref(), asked.max_line_bytes);
        let source = match format {
            Format::Lines => Source::Lines(lines()?.with_longer(asked.longer), None),
            Format::Jsonl | Format::Auto => Source::Lines(lines()?, Some(columns)),
            Format::Csv => self.table(DataFormat::Csv, &asked, columns)?,
            Format::Tsv => self.table(DataFormat::Tsv, &asked, columns)?,
            Format::Parquet => self.table(DataFormat::Parquet, &asked, columns)?,
        };
        Ok(Input { source, asked, own, failed: None })
    }

    fn format(&self, default: Format) -> Format {
        let of_file = || match DataFormat::of(self.input.as_deref()?)? {
            DataFormat::Jsonl => Some(Format::Jsonl),
            DataFormat::Csv => Some(Format::Csv),
            DataFormat::Tsv => Some(Format::Tsv),
            DataFormat::Parquet => Some(Format::Parquet),
            _ => None,
        };
        match self.input_format {
            Format::Auto => of_file().unwrap_or(default),
            format => format,
        }
    }

    /// Whether rows are lines of cells, as in CSV and TSV.
    pub fn is_cells(&self) -> bool {
        matches!(self.format(Format::Lines), Format::Csv | Format::Tsv)
    }

    /// The columns of all fields.
    fn columns(&self, asked: &Asked, format: Format) -> Result<Columns> {
        let wrong = |error: Error| Err(WrongUsage::new(error).into());
        let known = || asked.fields.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
        for (place, (field, column)) in self.columns.iter().enumerate() {
            let Some(key) = asked.fields.iter().find(|key| key.name == field) else {
                return wrong(anyhow!("--columns: no field `{field}`; expected one of {}", known()));
            };
            if !key.list && self.columns[..place].iter().any(|(other, _)| other == field) {
                return wrong(anyhow!(
                    "--columns: the field `{field}` is given twice; expected one column for it"
                ));
            }
            if format == Format::Lines {
                return wrong(anyhow!(
                    "lines of text have no columns for --columns; set the input's format with --input-format"
                ));
            }
            if let (Format::Jsonl, Column::Number(number)) = (format, column) {
                return wrong(anyhow!(
                    "--columns {field}={number}: keys of JSON objects have names, not numbers"
                ));
            }
        }
        let of_field = |(place, key): (usize, &InputKey)| {
            let given = self.columns.iter().filter(|(field, _)| field == key.name);
            let given: Columns = given.map(|(_, column)| (place, column.clone())).collect();
            match given.is_empty() {
                true => vec![(place, Column::Name(key.name.into()))],
                false => given,
            }
        };
        Ok(asked.fields.iter().enumerate().flat_map(of_field).collect())
    }

    fn check_table_options(&self, format: Format) -> Result<()> {
        let given = [
            ("--delimiter", self.delimiter.is_some()),
            ("--quoting", self.quoting.is_some()),
            ("--no-header", self.no_header),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) if !matches!(format, Format::Csv | Format::Tsv) => Err(WrongUsage::new(
                anyhow!("{option} is for CSV and TSV; set one of them with --input-format"),
            )
            .into()),
            _ => Ok(()),
        }
    }

    fn table(&self, format: DataFormat, asked: &Asked, columns: Columns) -> Result<Source> {
        let source = LabelledSource {
            format,
            delimiter: self.delimiter,
            quoting: self.quoting,
            header: Some(!self.no_header),
            max_line_bytes: asked.max_line_bytes,
            ..LabelledSource::default()
        };
        let is_given = |name: &str| self.columns.iter().any(|(field, _)| field == name);
        let requested = columns.iter().map(|(place, column)| {
            let key = asked.fields[*place];
            let required = key.required || is_given(key.name);
            RecordColumn { field: key.name.into(), column: column.clone(), required }
        });
        let requested = requested.collect();
        let table = match &self.input {
            Some(path) => Table::open(path, &source, requested)?,
            None if format == DataFormat::Parquet => {
                let error = anyhow!("Parquet cannot be read from standard input; give a file with --input");
                return Err(WrongUsage::new(error).into());
            }
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
    /// The next rows, `most` at most; none at the end.
    ///
    /// # Errors
    /// An unreadable row, with its location, after the rows before it have been returned.
    pub fn read(&mut self, most: usize) -> Result<Vec<Row>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut rows = Vec::new();
        let read = match &mut self.source {
            Source::Lines(lines, columns) => of_lines(lines, columns.as_ref(), &self.asked, most, &mut rows),
            Source::Table(table, columns, layout) => {
                of_table(table, columns, layout.is_some(), &self.asked, most, &mut rows)
            }
        };
        match read {
            Err(error) if rows.is_empty() => return Err(error),
            read => self.failed = read.err(),
        }
        Ok(rows)
    }

    /// Whether rows are lines of text, which are not printed again.
    pub fn is_text(&self) -> bool {
        matches!(self.source, Source::Lines(_, None))
    }

    /// The layout of CSV or TSV lines.
    pub fn layout(&self) -> Option<Layout> {
        match &self.source {
            Source::Table(_, _, layout) => *layout,
            Source::Lines(..) => None,
        }
    }

    /// The table, if the input is one.
    pub fn table(&self) -> Option<&Table> {
        match &self.source {
            Source::Table(table, ..) => Some(table),
            Source::Lines(..) => None,
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
            Source::Table(..) => None,
        }
    }

    /// A tokenizer error on a row's text, with the row's location.
    pub fn failure(&self, row: &Row, error: cloze_tokenizer::Error) -> Error {
        let error = Error::new(error);
        let error = match (&self.source, row.goes_on) {
            (Source::Lines(lines, _), true) => error.context(lines.too_long()),
            _ => error,
        };
        error.context(row.place.clone())
    }
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

/// Rows from lines: objects if there are columns.
fn of_lines(
    lines: &mut Lines<Box<dyn Read>>,
    columns: Option<&Columns>,
    asked: &Asked,
    most: usize,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let mut batch = Batch::default();
    lines.read(most, &mut batch)?;
    for (number, line) in batch.numbered() {
        let place = lines.place(number);
        let (fields, kept) = match columns {
            None => (Some(text_alone(line.text.into(), asked)), Kept::Nothing),
            Some(_) if line.text.trim().is_empty() => (None, Kept::Nothing),
            Some(columns) => {
                let read = of_json(line.text, columns, asked);
                let (fields, kept) = read.map_err(|problem| anyhow!("{place}: {problem}"))?;
                (Some(fields), kept)
            }
        };
        rows.push(Row { place, fields, kept, goes_on: line.goes_on, bytes: line.text.len() + 1 });
    }
    Ok(())
}

/// The fields of a row that is a single text.
fn text_alone(text: String, asked: &Asked) -> Vec<Value> {
    let mut fields = vec![Value::Null; asked.fields.len()];
    if let Some(first) = fields.first_mut() {
        *first = text.into();
    }
    fields
}

/// The fields of a line of JSON, and the part to keep.
fn of_json(text: &str, columns: &Columns, asked: &Asked) -> Result<(Vec<Value>, Kept), String> {
    let expected = asked.expected;
    let value =
        serde_json::from_str(text).map_err(|error| format!("not JSON ({error}); expected {expected}"))?;
    let object: Map<String, Value> = match value {
        Value::String(text) => return Ok((text_alone(text, asked), Kept::Nothing)),
        Value::Object(object) => object,
        _ => return Err(format!("neither an object nor a string; expected {expected}")),
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
                Err(format!(
                    "`{name}` is missing; expected {expected}, or --columns {field}=KEY with another key (there are: {has})"
                ))
            }
        }
    };
    let cells = columns.iter().map(cell).collect::<Result<Vec<_>, _>>()?;
    let fields = fields(cells, columns, asked)?;
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
/// expected.
fn fields(cells: Vec<Value>, columns: &Columns, asked: &Asked) -> Result<Vec<Value>, String> {
    let mut of_fields: Vec<Vec<Value>> = vec![Vec::new(); asked.fields.len()];
    for (cell, (place, _)) in cells.into_iter().zip(columns) {
        of_fields[*place].push(cell);
    }
    let field = |mut cells: Vec<Value>| match cells.len() {
        0 | 1 => cells.pop().unwrap_or_default(),
        _ => Value::Array(cells),
    };
    let fields: Vec<Value> = of_fields.into_iter().map(field).collect();
    for (key, field) in asked.fields.iter().zip(&fields) {
        let (name, expected) = (key.name, asked.expected);
        match field {
            Value::Null if key.required => return Err(format!("`{name}` is missing; expected {expected}")),
            Value::Null | Value::String(_) => {}
            _ if key.list => {}
            _ => return Err(format!("`{name}` is not a string; expected {expected}")),
        }
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
) -> Result<()> {
    while rows.len() < most
        && let Some(record) = table.next()
    {
        let Record { line, cells } = record?;
        let place = format!("{}:{line}", table.path().display());
        let cell = |place: &Option<usize>| place.map_or(Value::Null, |place| cells[place].clone());
        let read = table.places().iter().map(cell).collect();
        let fields = fields(read, columns, asked).map_err(|problem| anyhow!("{place}: {problem}"))?;
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
            default: Format::Jsonl,
            longer: Longer::Refused,
            max_line_bytes: 100,
        }
    }

    /// What is read of a line of JSON, and the keys that are kept.
    fn read(line: &str, columns: &[&str]) -> Result<(Value, Vec<String>), String> {
        let args = InputArgs {
            input: None,
            input_format: Format::Jsonl,
            columns: columns.iter().map(|column| rows::any_column(column).unwrap()).collect(),
            delimiter: None,
            quoting: None,
            no_header: false,
        };
        let columns = args.columns(&asked(), Format::Jsonl).map_err(|error| error.to_string())?;
        let (fields, kept) = of_json(line, &columns, &asked())?;
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
            (r#"{"text": "a", "pair": 1}"#, &[], "`pair` is not a string; expected an object"),
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
