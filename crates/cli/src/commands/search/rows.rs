//! The rows of files that go into an index.

use std::collections::BTreeSet;

use anyhow::{Error, Result};
use cloze_data::labelled::{Column, RecordColumn};
use cloze_search::NewRow;
use serde_json::{Map, Value};

use crate::rows::{self, NO_IMAGE, NO_TEXT, Placed, RowColumns, RowFiles};

#[derive(clap::Args)]
pub struct IndexedRows {
    #[command(flatten)]
    files: RowFiles,
    /// A column to keep with the text, for results and for --where. By default `add` keeps the columns that the
    /// index already has. `null` values are not kept.
    #[arg(long = "field", value_name = "COLUMN")]
    fields: Vec<String>,
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
    images: bool,
}

impl IndexedRows {
    /// Opens the files: of texts, or of images. If no field is named, keeps the `known` ones that a row has.
    pub fn open(&self, known: Option<&BTreeSet<String>>, images: bool) -> Result<Rows> {
        let rows = &self.files.rows;
        let field = if images { "image" } else { "text" };
        rows.check_fields(&[field, "id"])?;
        let mut columns = vec![rows.record_column(field, true), rows.record_column("id", false)];
        let is_named = !self.fields.is_empty();
        let fields: Vec<String> =
            if is_named { self.fields.clone() } else { known.into_iter().flatten().cloned().collect() };
        columns.extend(fields.iter().map(|name| RecordColumn {
            field: name.clone(),
            column: Column::Name(name.clone()),
            required: is_named,
        }));
        let named_by = match (rows.columns.is_empty(), self.fields.is_empty()) {
            (true, true) => None,
            (false, _) => Some("--columns"),
            (true, false) => Some("--field"),
        };
        let columns = RowColumns { columns, named_by, images };
        Ok(Rows { fields, rows: self.files.open(&columns)?, images })
    }
}

impl Rows {
    /// Rejects a row that the model cannot use: it is counted if unusable rows are skipped.
    ///
    /// # Errors
    /// `error` with the row's location, if they are not.
    pub fn refuse(&mut self, place: &str, error: &Error) -> Result<()> {
        self.rows.refuse(place, "refused by the model", &format!("{error:#}"))
    }

    /// The next batch of rows to embed together; empty at the end.
    pub fn batch(&mut self) -> Result<Vec<PlacedRow>> {
        loop {
            let read = self.rows.batch()?;
            let is_end = read.is_empty();
            let mut batch = Vec::new();
            for Placed { place, cells } in read {
                match new_row(cells, &self.fields) {
                    Ok(row) => batch.push(PlacedRow { place, row }),
                    Err((_, NO_TEXT)) if self.images => self.rows.refuse(&place, "no image", NO_IMAGE)?,
                    Err((reason, problem)) => self.rows.refuse(&place, reason, problem)?,
                }
            }
            if is_end || !batch.is_empty() {
                return Ok(batch);
            }
        }
    }
}

/// A row from its cells: text, id, fields; or the reason to count it by, and what is wrong.
fn new_row(cells: Vec<Value>, names: &[String]) -> Result<NewRow, (&'static str, &'static str)> {
    let mut cells = cells.into_iter();
    let Some(Value::String(text)) = cells.next() else { return Err(("no text", NO_TEXT)) };
    let id = match cells.next() {
        Some(Value::String(id)) => Some(id),
        Some(Value::Number(id)) => Some(id.to_string()),
        None | Some(Value::Null) => None,
        Some(_) => return Err(("bad id", "the id is neither a string nor a number")),
    };
    let fields: Map<String, Value> =
        names.iter().cloned().zip(cells).filter(|(_, value)| !value.is_null()).collect();
    Ok(NewRow { id, text, fields })
}
