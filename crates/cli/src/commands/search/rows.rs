//! The rows of files that go into an index.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use cloze_data::labelled::{Column, RecordColumn};
use cloze_search::NewRow;
use serde_json::{Map, Value};

use crate::rows::{self, Placed, RowColumns, RowFiles};

#[derive(clap::Args)]
pub struct RowArgs {
    #[command(flatten)]
    files: RowFiles,
    /// The columns of the text and the id: `text=NAME`, `id=NAME`, by name or by number from 1. By default
    /// columns named text and id; without ids rows are numbered.
    #[arg(long, value_name = "FIELD=COLUMN", value_delimiter = ',', value_parser = column)]
    columns: Vec<(String, Column)>,
    /// A column to keep with the text, for results and for --where. By default `add` keeps the columns that the
    /// index already has. `null` values are not kept.
    #[arg(long = "field", value_name = "COLUMN")]
    fields: Vec<String>,
}

fn column(text: &str) -> Result<(String, Column), String> {
    rows::column(text, &["text", "id"])
}

/// A row and its location in the input.
pub struct PlacedRow {
    pub place: String,
    pub row: NewRow,
}

/// Rows, read a batch at a time.
pub struct Rows {
    fields: Vec<String>,
    rows: rows::Rows,
}

impl RowArgs {
    /// Opens the files. If no field is named, keeps the `known` ones that a row has.
    pub fn open(&self, known: Option<&BTreeSet<String>>) -> Result<Rows> {
        rows::check_once(&self.columns)?;
        let mut columns = vec![
            RowColumns::column("text", &self.columns, true),
            RowColumns::column("id", &self.columns, false),
        ];
        let is_named = !self.fields.is_empty();
        let fields: Vec<String> =
            if is_named { self.fields.clone() } else { known.into_iter().flatten().cloned().collect() };
        columns.extend(fields.iter().map(|name| RecordColumn {
            field: name.clone(),
            column: Column::Name(name.clone()),
            required: is_named,
        }));
        let named_by = match (self.columns.is_empty(), self.fields.is_empty()) {
            (true, true) => None,
            (false, _) => Some("--columns"),
            (true, false) => Some("--field"),
        };
        let columns = RowColumns { columns, named_by };
        Ok(Rows { fields, rows: self.files.open(&columns)? })
    }
}

impl Rows {
    /// The next batch of rows to embed together; empty at the end.
    pub fn batch(&mut self) -> Result<Vec<PlacedRow>> {
        self.rows.batch()?.into_iter().map(|placed| new_row(placed, &self.fields)).collect()
    }
}

/// A row from its cells: text, id, fields.
fn new_row(placed: Placed, names: &[String]) -> Result<PlacedRow> {
    let Placed { place, cells } = placed;
    let mut cells = cells.into_iter();
    let text = match cells.next() {
        Some(Value::String(text)) => text,
        _ => return Err(Placed::no_text(&place)),
    };
    let id = match cells.next() {
        Some(Value::String(id)) => Some(id),
        Some(Value::Number(id)) => Some(id.to_string()),
        None | Some(Value::Null) => None,
        Some(_) => bail!("{place}: the id is neither a string nor a number"),
    };
    let fields: Map<String, Value> =
        names.iter().cloned().zip(cells).filter(|(_, value)| !value.is_null()).collect();
    Ok(PlacedRow { place, row: NewRow { id, text, fields } })
}
