//! Input rows with a model's answers: CSV or TSV lines with extra cells, or JSON objects with extra keys.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use cloze_data::check_no_spreadsheet;
use cloze_data::labelled::{DataFormat, LabelledSource, Layout};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::failure::WrongUsage;
use crate::input::{Input, Kept, Row};
use crate::output::Output;

#[derive(clap::Args)]
pub struct AnswerArgs {
    /// The output file, created only once it is complete (default: standard output). Rows are in the format of its
    /// extension, .csv, .tsv or .jsonl; with another one, as in the input: cells for CSV and TSV, else JSON objects.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The format of rows, whatever the output's extension and the input's format are.
    #[arg(long, value_enum, value_name = "FORMAT")]
    output_format: Option<OutputFormat>,
    /// Prefix for the names of the answer's columns or keys, e.g. where the input already has a column of that
    /// name.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    answer_prefix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// Comma-separated cells, with a header if the input has names for its columns.
    Csv,
    /// Tab-separated cells.
    Tsv,
    /// One JSON object per line.
    Jsonl,
}

impl AnswerArgs {
    /// Whether the format of rows is given.
    pub fn has_format(&self) -> bool {
        self.output_format.is_some()
    }

    /// Opens the output of what is made of an input.
    ///
    /// # Errors
    /// Those of [`Output::apart_from`].
    pub fn output(&self, input: &Input) -> Result<Output> {
        Output::apart_from(self.output.as_deref(), [input.path()])
    }

    /// Checks that the output is none of these files.
    ///
    /// # Errors
    /// Those of [`Output::check_apart`].
    pub fn check_apart<'a>(&self, read: impl IntoIterator<Item = &'a Path>) -> Result<()> {
        Output::check_apart(self.output.as_deref(), read)
    }

    /// Whether the output is a file with this extension.
    pub fn ends_with(&self, extension: &str) -> bool {
        let ending = self.output.as_deref().and_then(Path::extension);
        ending.is_some_and(|ending| ending.eq_ignore_ascii_case(extension))
    }

    /// Opens the output of what is made of no file.
    ///
    /// # Errors
    /// Those of [`Output::of`].
    pub fn output_of_words(&self) -> Result<Output> {
        Output::of(self.output.as_deref())
    }

    /// How rows of cells are written, to an output with this extension; none for objects.
    ///
    /// # Errors
    /// [`WrongUsage`] for a format that is not written.
    fn layout(&self, input: Option<Layout>) -> Result<Option<Layout>> {
        // No spreadsheet opens such a file, whatever the format in it is.
        if let Some(path) = self.output.as_deref().filter(|path| check_no_spreadsheet(path).is_err()) {
            let error = anyhow!(
                "--output {}: a spreadsheet's own format cannot be written; write .csv, which spreadsheets open",
                path.display()
            );
            return Err(WrongUsage::new(error).into());
        }
        let given = self.output_format.map(|format| match format {
            OutputFormat::Csv => DataFormat::Csv,
            OutputFormat::Tsv => DataFormat::Tsv,
            OutputFormat::Jsonl => DataFormat::Jsonl,
        });
        let of_file = || self.output.as_deref().and_then(DataFormat::of);
        let Some(format) = given.or_else(of_file) else { return Ok(input) };
        let is_tsv = format == DataFormat::Tsv;
        match format {
            DataFormat::Jsonl => Ok(None),
            DataFormat::Csv | DataFormat::Tsv => {
                let same = input.filter(|layout| (layout.delimiter == '\t') == is_tsv);
                Ok(Some(same.unwrap_or_else(|| Layout::of(format, &LabelledSource::default()))))
            }
            other => {
                let error = anyhow!("--output: {other} cannot be written; expected .csv, .tsv or .jsonl");
                Err(WrongUsage::new(error).into())
            }
        }
    }

    /// Whether answers go to standard output.
    pub fn is_stdout(&self) -> bool {
        self.output.is_none()
    }
}

/// Writes rows with their answers.
pub struct Answers {
    output: Output,
    prefix: String,
    /// The names of the answers' columns.
    names: Vec<&'static str>,
    /// The fields that are read from the key of the same name.
    own: Vec<&'static str>,
    /// How rows of cells are written; none for objects.
    layout: Option<Layout>,
    /// The names of an input's cells.
    columns: Option<Vec<String>>,
    /// The columns of a table made from objects, once the first row is written.
    header: Option<Vec<String>>,
}

impl Answers {
    /// Answers to the rows of an input; `names` are their columns in CSV and TSV. Writes the header if there is
    /// one.
    ///
    /// # Errors
    /// A column that the input already has; an output that cannot be written.
    pub fn new(args: &AnswerArgs, input: &Input, names: Vec<&'static str>) -> Result<Self> {
        let (prefix, own, layout) =
            (args.answer_prefix.clone(), input.own().to_vec(), args.layout(input.layout())?);
        let cells = input.table().filter(|_| input.layout().is_some());
        let header = cells.and_then(|table| Some((table.path(), table.names()?)));
        let columns = header.map(|(_, names)| names.to_vec());
        if let Some((path, header)) = header {
            for name in &names {
                let name = format!("{prefix}{name}");
                if header.contains(&name) {
                    return Err(clash(path.display(), "column", &name));
                }
            }
        }
        let mut answers =
            Self { output: args.output(input)?, prefix, names, own, layout, columns, header: None };
        if let (Some(layout), Some((path, header))) = (layout, header) {
            let added: Vec<String> =
                answers.names.iter().map(|name| format!("{}{name}", answers.prefix)).collect();
            answers.cells(path.display(), layout, header.iter().chain(&added).map(String::as_str))?;
            answers.flush()?;
        }
        Ok(answers)
    }

    /// Writes a row with its answer, whose keys are the column names.
    pub fn write(&mut self, row: &Row, answer: &impl Serialize) -> Result<()> {
        self.write_as(row, &self.names.clone(), answer)
    }

    /// Writes a row with an answer that has these keys.
    ///
    /// # Errors
    /// A key that the row already has; in a table, a key that the first row lacks, or a cell that TSV cannot hold; an
    /// output that cannot be written.
    pub fn write_as(&mut self, row: &Row, names: &[&str], answer: &impl Serialize) -> Result<()> {
        let answer = serde_json::to_string(answer)?;
        match (&row.kept, self.layout) {
            (Kept::Nothing, Some(_)) => Ok(()),
            (Kept::Cells(cells), Some(layout)) => {
                let answer: Map<String, Value> = serde_json::from_str(&answer)?;
                let answers = names.iter().map(|name| answer.get(*name).map(cell).unwrap_or_default());
                let cells: Vec<String> = cells.iter().map(cell).chain(answers).collect();
                self.cells(&row.place, layout, cells.iter().map(String::as_str))
            }
            (_, None) => {
                let object = self.object(row, names, answer)?;
                self.output.line(object)
            }
            (_, Some(layout)) => {
                let object = serde_json::from_str(&self.object(row, names, answer)?)?;
                self.object_cells(&row.place, layout, &object)
            }
        }
    }

    /// A row and its answer as one object.
    fn object(&self, row: &Row, names: &[&str], answer: String) -> Result<String> {
        let Some((text, keys)) = self.kept(row) else { return self.renamed(answer, &[]) };
        let mut left_out = Vec::new();
        for name in names {
            let key = format!("{}{name}", self.prefix);
            match keys.contains(&key) {
                // The answer repeats what was read.
                true if self.own.contains(name) && key == **name => left_out.push(*name),
                true => return Err(clash(&row.place, "key", &key)),
                false => {}
            }
        }
        Ok(joined(&text, &self.renamed(answer, &left_out)?))
    }

    /// What is kept of a row as an object, with its keys; none if that is nothing.
    fn kept<'a>(&self, row: &'a Row) -> Option<(Cow<'a, str>, Cow<'a, [String]>)> {
        let object = match &row.kept {
            Kept::Object { text, keys } => return Some((text.into(), keys.into())),
            Kept::Text { field, text } if self.layout.is_some() => {
                Map::from_iter([((*field).into(), text.clone().into())])
            }
            Kept::Nothing | Kept::Text { .. } => return None,
            Kept::Cells(cells) => {
                let names = self.columns.as_deref().unwrap_or_default();
                let name =
                    |place: usize| names.get(place).cloned().unwrap_or_else(|| (place + 1).to_string());
                cells.iter().enumerate().map(|(place, cell)| (name(place), cell.clone())).collect()
            }
        };
        let keys: Vec<String> = object.keys().cloned().collect();
        Some((Value::Object(object).to_string().into(), keys.into()))
    }

    /// Writes an object as a row of a table whose columns are the keys of the first one.
    fn object_cells(&mut self, place: &str, layout: Layout, object: &Map<String, Value>) -> Result<()> {
        let header = match self.header.take() {
            Some(header) => header,
            None => {
                let header: Vec<String> = object.keys().cloned().collect();
                self.cells(place, layout, header.iter().map(String::as_str))?;
                header
            }
        };
        if let Some(key) = object.keys().find(|key| !header.contains(key)) {
            bail!(
                "{place}: there is no column for `{key}`: the first row, whose keys are the columns, lacks it; give every row the \
                 same keys, or write objects, to a file that ends in .jsonl"
            );
        }
        let cells: Vec<String> =
            header.iter().map(|key| object.get(key).map(cell).unwrap_or_default()).collect();
        self.header = Some(header);
        self.cells(place, layout, cells.iter().map(String::as_str))
    }

    /// Writes a line in another format.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        self.output.line(text)
    }

    /// Flushes what has been written so far.
    pub fn flush(&mut self) -> Result<()> {
        self.output.flush()
    }

    /// Finishes the output.
    pub fn finish(self) -> Result<()> {
        self.output.finish()
    }

    /// The answer with prefixed keys, without those in `left_out`.
    fn renamed(&self, answer: String, left_out: &[&str]) -> Result<String> {
        if self.prefix.is_empty() && left_out.is_empty() || answer == "null" {
            return Ok(answer);
        }
        let answer: Map<String, Value> = serde_json::from_str(&answer)?;
        let keys = answer.into_iter().filter(|(key, _)| !left_out.contains(&key.as_str()));
        let keys: Map<String, Value> =
            keys.map(|(key, value)| (format!("{}{key}", self.prefix), value)).collect();
        Ok(serde_json::to_string(&keys)?)
    }

    fn cells<'a>(
        &mut self,
        place: impl Display,
        layout: Layout,
        cells: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<()> {
        match layout.line(cells.clone()) {
            Ok(line) => self.output.line(line),
            Err(at) => {
                let cell: String = cells.skip(at).take(1).flat_map(|cell| cell.chars().take(40)).collect();
                bail!(
                    "{place}: the cell {cell:?} has a delimiter or a line break, which only cells between quotation marks can \
                     hold; set --quoting true, or write CSV with --output-format csv"
                )
            }
        }
    }
}

fn clash(place: impl Display, what: &str, name: &str) -> anyhow::Error {
    anyhow!(
        "{place}: the input has a {what} `{name}` already, as the answer has; give the answer's names a prefix, such as \
         --answer-prefix model_"
    )
}

/// A value as a cell: a string as is, nothing for null, and JSON for the rest.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

/// Merges two objects. The first is kept verbatim, including all digits of large numbers.
fn joined(first: &str, second: &str) -> String {
    let is_empty = |object: &str| object.trim_start_matches('{').trim_end_matches('}').trim().is_empty();
    let first = first.trim();
    match (first.strip_suffix('}'), second.strip_prefix('{')) {
        (Some(start), Some(end)) if !is_empty(first) && !is_empty(second) => {
            format!("{},{end}", start.trim_end())
        }
        _ if is_empty(second) => first.to_owned(),
        _ => second.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_joined_as_they_are_written() {
        let first = r#" {"id": 12345678901234567890123, "x": 1.50 } "#;
        let both = joined(first, r#"{"label":"a"}"#);
        assert_eq!(both, r#"{"id": 12345678901234567890123, "x": 1.50,"label":"a"}"#);
        assert_eq!(joined("{ }", r#"{"a":1}"#), r#"{"a":1}"#);
        assert_eq!(joined(r#"{"a": {}}"#, r#"{"b":{}}"#), r#"{"a": {},"b":{}}"#);
        assert_eq!(joined(r#"{"a": 1}"#, "{}"), r#"{"a": 1}"#);
    }

    #[test]
    fn cells_hold_any_value() {
        let values = json!(["a \"b\"", null, 0.25, 7, true, ["x"], {"y": 1}]);
        let cells: Vec<String> = values.as_array().unwrap().iter().map(cell).collect();
        assert_eq!(cells, ["a \"b\"", "", "0.25", "7", "true", r#"["x"]"#, r#"{"y":1}"#]);
    }
}
