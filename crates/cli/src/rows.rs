//! Rows of files, or lines of standard input, read in batches.

use std::path::Path;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use cloze_data::labelled::{Column, DataFormat, LabelledSource, RecordColumn, Records, records};
use serde_json::Value;

use crate::failure::WrongUsage;
use crate::lines::{self, BATCH, Batch, Lines};

#[derive(clap::Args)]
pub struct RowFiles {
    /// Files with one text per row (default: standard input, one text per line).
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// The files' format.
    #[arg(long = "input-format", alias = "format", value_name = "FORMAT", value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// The column separator of CSV and TSV, such as ";": one ASCII character.
    #[arg(long, value_name = "CHAR")]
    delimiter: Option<char>,
    /// Maximum bytes of a line; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// From the file extension: .jsonl, .csv, .tsv, .parquet; lines of text for .txt or no extension.
    Auto,
    /// One text per line.
    Lines,
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated fields.
    Csv,
    /// Tab-separated fields.
    Tsv,
    /// Parquet.
    Parquet,
}

/// The columns to read.
pub struct RowColumns {
    /// The columns, the text's first.
    pub columns: Vec<RecordColumn>,
    /// The option that named columns, which lines of text do not have.
    pub named_by: Option<&'static str>,
}

impl RowColumns {
    /// The column of `field`: the one that `given` names, which must exist, or one of the field's own name,
    /// which must exist if `required`.
    pub fn column(field: &str, given: &[(String, Column)], required: bool) -> RecordColumn {
        let given = given.iter().find(|(name, _)| name == field).map(|(_, column)| column.clone());
        let required = required || given.is_some();
        let column = given.unwrap_or_else(|| Column::Name(field.into()));
        RecordColumn { field: field.into(), column, required }
    }
}

/// Parses an option that gives the column of one of `fields`.
pub fn column(text: &str, fields: &[&str]) -> Result<(String, Column), String> {
    let (field, name) = text.split_once('=').unwrap_or_default();
    if !fields.contains(&field) || name.is_empty() {
        let all: Vec<String> = fields.iter().map(|field| format!("{field}=COLUMN")).collect();
        return Err(format!("expected {}", all.join(" or ")));
    }
    Ok((field.into(), column_of(name)?))
}

/// Parses an option that gives a field's column, if the fields are known only later.
pub fn any_column(text: &str) -> Result<(String, Column), String> {
    match text.split_once('=') {
        Some((field, name)) if !field.is_empty() && !name.is_empty() => Ok((field.into(), column_of(name)?)),
        _ => Err("expected FIELD=COLUMN".to_owned()),
    }
}

/// Parses a column's number or name.
fn column_of(name: &str) -> Result<Column, String> {
    match name.parse() {
        Ok(0) => Err("columns are counted from 1".to_owned()),
        Ok(number) => Ok(Column::Number(number)),
        Err(_) => Ok(Column::Name(name.into())),
    }
}

/// Checks that no field is named twice.
///
/// # Errors
/// [`WrongUsage`].
pub fn check_once(columns: &[(String, Column)]) -> Result<()> {
    let is_named_before = |i: &usize| columns[..*i].iter().any(|(field, _)| *field == columns[*i].0);
    match (0..columns.len()).find(is_named_before) {
        Some(i) => {
            let error =
                anyhow!("--columns: the field `{}` is given twice; expected one column for it", columns[i].0);
            Err(WrongUsage::new(error).into())
        }
        None => Ok(()),
    }
}

/// A row and its location in the input.
pub struct Placed {
    pub place: String,
    /// A cell for each column; for a line, only the text.
    pub cells: Vec<Value>,
}

impl Placed {
    /// The error for a row whose text is missing or not a string.
    pub fn no_text(place: &str) -> anyhow::Error {
        anyhow!("{place}: the text is not a string; name its column with --columns text=COLUMN")
    }
}

/// Rows, read in batches.
pub struct Rows {
    /// The remaining sources, the next one last.
    rest: Vec<Source>,
}

enum Source {
    Lines(Lines<Box<dyn std::io::Read>>, String, Batch),
    Records(Records),
}

impl RowFiles {
    /// Opens the files.
    ///
    /// # Errors
    /// [`WrongUsage`] if columns are named for lines; files that cannot be read.
    pub fn open(&self, columns: &RowColumns) -> Result<Rows> {
        let mut rest = Vec::new();
        if self.files.is_empty() {
            self.check_lines(columns)?;
            let lines = Lines::of(None, self.max_line_bytes)?;
            rest.push(Source::Lines(lines, "standard input".into(), Batch::default()));
        }
        for file in &self.files {
            rest.push(self.source(file, columns)?);
        }
        rest.reverse();
        Ok(Rows { rest })
    }

    /// Refuses columns for lines.
    fn check_lines(&self, columns: &RowColumns) -> Result<()> {
        if let Some(named_by) = columns.named_by {
            let error = anyhow!("lines of text have no columns for {named_by}; name a file that has some");
            return Err(WrongUsage::new(error).into());
        }
        if !matches!(self.format, Format::Auto | Format::Lines) {
            return Err(WrongUsage::new(anyhow!(
                "standard input is read as lines; name a file for --input-format"
            ))
            .into());
        }
        Ok(())
    }

    fn source(&self, file: &str, columns: &RowColumns) -> Result<Source> {
        let ending = Path::new(file).extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let is_text = ending.as_deref().is_none_or(|ending| ending == "txt") && Path::new(file).is_file();
        if self.format == Format::Lines || self.format == Format::Auto && is_text {
            self.check_lines(columns)?;
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
        let source = LabelledSource {
            format,
            delimiter: self.delimiter,
            max_line_bytes: self.max_line_bytes,
            ..LabelledSource::new([file])
        };
        Ok(Source::Records(records(&source, Path::new(""), columns.columns.clone())?))
    }
}

impl Rows {
    /// The next batch of rows to embed together; empty at the end.
    pub fn batch(&mut self) -> Result<Vec<Placed>> {
        let mut found = Vec::new();
        while found.len() < BATCH {
            match self.rest.last_mut() {
                None => break,
                Some(Source::Lines(lines, name, batch)) => match lines.read(BATCH - found.len(), batch)? {
                    true => found.extend(batch.numbered().map(|(number, line)| Placed {
                        place: format!("{name}, line {number}"),
                        cells: vec![Value::String(line.text.to_owned())],
                    })),
                    false => drop(self.rest.pop()),
                },
                Some(Source::Records(records)) => match records.next().transpose()? {
                    Some(record) => {
                        let path = records.path().map(|path| path.display().to_string()).unwrap_or_default();
                        found.push(Placed { place: format!("{path}:{}", record.line), cells: record.cells });
                    }
                    None => drop(self.rest.pop()),
                },
            }
        }
        Ok(found)
    }
}
