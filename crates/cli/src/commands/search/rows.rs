//! The rows of files that go into an index.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use cloze_data::labelled::{Column, DataFormat, LabelledSource, RecordColumn, Records, records};
use cloze_search::NewRow;
use serde_json::{Map, Value};

use crate::failure::WrongUsage;
use crate::lines::{self, BATCH, Batch, Lines};

#[derive(clap::Args)]
pub struct RowArgs {
    /// Files with a text a row; standard input, with a text a line, if there is none.
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// The files' format.
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Which column the text is in, and which one the id: `text=NAME`, `id=NAME`, by name or by number from 1. By default
    /// those of the same names; without ids rows are numbered.
    #[arg(long, value_name = "FIELD=COLUMN", value_delimiter = ',', value_parser = column)]
    columns: Vec<(String, Column)>,
    /// A column that is kept with the text, for answers and for --where.
    #[arg(long = "field", value_name = "COLUMN")]
    fields: Vec<String>,
    /// Bytes of a line at most; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// As the file's ending says: .jsonl, .csv, .tsv, .parquet; lines of text if it is .txt or none.
    Auto,
    /// A text a line.
    Lines,
    /// A JSON object a line.
    Jsonl,
    /// Fields between commas.
    Csv,
    /// Fields between tabs.
    Tsv,
    /// Parquet.
    Parquet,
}

fn column(text: &str) -> Result<(String, Column), String> {
    let expected = || "expected text=COLUMN or id=COLUMN".to_owned();
    let (field, name) = text.split_once('=').ok_or_else(expected)?;
    if !["text", "id"].contains(&field) || name.is_empty() {
        return Err(expected());
    }
    let column = name.parse().map_or_else(|_| Column::Name(name.into()), Column::Number);
    Ok((field.into(), column))
}

/// A row and where it was read.
pub struct Placed {
    pub place: String,
    pub row: NewRow,
}

/// Rows, read a batch at a time.
pub struct Rows<'a> {
    args: &'a RowArgs,
    /// What is still to be read, the first on top.
    rest: Vec<Source>,
}

enum Source {
    Lines(Lines<Box<dyn std::io::Read>>, String, Batch),
    Records(Records),
}

impl RowArgs {
    /// Opens the files.
    pub fn open(&self) -> Result<Rows<'_>> {
        let mut rest = Vec::new();
        if self.files.is_empty() {
            self.check_lines()?;
            let lines = Lines::of(None, self.max_line_bytes)?;
            rest.push(Source::Lines(lines, "standard input".into(), Batch::default()));
        }
        for file in &self.files {
            rest.push(self.source(file)?);
        }
        rest.reverse();
        Ok(Rows { args: self, rest })
    }

    /// Lines have no columns.
    fn check_lines(&self) -> Result<()> {
        if !self.columns.is_empty() || !self.fields.is_empty() {
            let error = anyhow!("--columns and --field are for files with columns; lines of text have none");
            return Err(WrongUsage::new(error).into());
        }
        if !matches!(self.format, Format::Auto | Format::Lines) {
            return Err(WrongUsage::new(anyhow!(
                "standard input is read as lines; name a file for --format"
            ))
            .into());
        }
        Ok(())
    }

    fn source(&self, file: &str) -> Result<Source> {
        let ending = Path::new(file).extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let is_text = ending.as_deref().is_none_or(|ending| ending == "txt") && Path::new(file).is_file();
        if self.format == Format::Lines || self.format == Format::Auto && is_text {
            self.check_lines()?;
            let lines = Lines::of(Some(Path::new(file)), self.max_line_bytes)?;
            return Ok(Source::Lines(lines, file.to_owned(), Batch::default()));
        }
        let format = match self.format {
            Format::Auto | Format::Lines => DataFormat::Auto,
            Format::Jsonl => DataFormat::Jsonl,
            Format::Csv => DataFormat::Csv,
            Format::Tsv => DataFormat::Tsv,
            Format::Parquet => DataFormat::Parquet,
        };
        let source =
            LabelledSource { format, max_line_bytes: self.max_line_bytes, ..LabelledSource::new([file]) };
        let given = |field: &str| {
            self.columns.iter().find(|(name, _)| name == field).map(|(_, column)| column.clone())
        };
        let field = |field: &str, is_always: bool| {
            let given = given(field);
            let required = is_always || given.is_some();
            RecordColumn {
                field: field.into(),
                column: given.unwrap_or_else(|| Column::Name(field.into())),
                required,
            }
        };
        let mut columns = vec![field("text", true), field("id", false)];
        columns.extend(self.fields.iter().map(|name| RecordColumn {
            field: name.clone(),
            column: Column::Name(name.clone()),
            required: true,
        }));
        Ok(Source::Records(records(&source, Path::new(""), columns)?))
    }
}

impl Rows<'_> {
    /// The next rows, as many as are embedded together; none at the end.
    pub fn batch(&mut self) -> Result<Vec<Placed>> {
        let mut found = Vec::new();
        while found.len() < BATCH {
            match self.rest.last_mut() {
                None => break,
                Some(Source::Lines(lines, name, batch)) => match lines.read(BATCH - found.len(), batch)? {
                    true => found.extend(batch.numbered().map(|(number, line)| Placed {
                        place: format!("{name}, line {number}"),
                        row: NewRow { text: line.text.to_owned(), ..NewRow::default() },
                    })),
                    false => drop(self.rest.pop()),
                },
                Some(Source::Records(records)) => match records.next().transpose()? {
                    Some(record) => {
                        let path = records.path().map(|path| path.display().to_string()).unwrap_or_default();
                        let place = format!("{path}:{}", record.line);
                        let row = new_row(record.cells, &self.args.fields, &place)?;
                        found.push(Placed { place, row });
                    }
                    None => drop(self.rest.pop()),
                },
            }
        }
        Ok(found)
    }
}

/// A row of its cells: text, id, fields.
fn new_row(cells: Vec<Value>, names: &[String], place: &str) -> Result<NewRow> {
    let mut cells = cells.into_iter();
    let text = match cells.next() {
        Some(Value::String(text)) => text,
        _ => bail!("{place}: the text is no string; name its column with --columns text=COLUMN"),
    };
    let id = match cells.next() {
        Some(Value::String(id)) => Some(id),
        Some(Value::Number(id)) => Some(id.to_string()),
        None | Some(Value::Null) => None,
        Some(_) => bail!("{place}: the id is neither a string nor a number"),
    };
    let fields: Map<String, Value> = names.iter().cloned().zip(cells).collect();
    Ok(NewRow { id, text, fields })
}
