//! The rows of files that go into an index.

use std::collections::{BTreeSet, HashSet};
use std::path::{Component, Path};

use anyhow::{Error, Result, anyhow};
use clap::builder::RangedU64ValueParser;
use cloze_data::labelled::{Column, RecordColumn};
use cloze_search::{Index, NewRow};
use serde_json::{Map, Value};

use super::embedding::Embedding;
use crate::failure::WrongUsage;
use crate::output::say;
use crate::rows::{self, Cut, PASSAGE_FIELDS, Placed, RowColumns, RowFiles, plain, text_of};

#[derive(clap::Args)]
pub struct IndexedRows {
    #[command(flatten)]
    files: RowFiles,
    /// A column to keep with the text, for results and for --where. By default `add` keeps the columns that the
    /// index already has. `null` values are not kept.
    #[arg(long = "field", value_name = "COLUMN")]
    fields: Vec<String>,
    /// Cut every file into passages, as folders and Markdown are.
    #[arg(long, conflicts_with_all = ["input_format", "columns", "delimiter", "quoting", "no_header"])]
    passages: bool,
    /// The most tokens of a passage, special tokens included; no more than the model reads.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = RangedU64ValueParser::<usize>::new().range(16..))]
    passage_tokens: usize,
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
    passage_tokens: usize,
}

impl IndexedRows {
    /// Opens the files: of texts, or of images. If no field is named, keeps the `known` ones that a row has.
    pub fn open(&self, known: Option<&BTreeSet<String>>, images: bool) -> Result<Rows> {
        let rows = &self.files.rows;
        let field = if images { "image" } else { "text" };
        rows.check_fields(&[field, "id"])?;
        let mut columns = vec![rows.record_column(field, true), rows.record_column("id", false)];
        let is_named = !self.fields.is_empty();
        let mut fields: Vec<String> =
            if is_named { self.fields.clone() } else { known.into_iter().flatten().cloned().collect() };
        let passages = (!images).then(|| self.cut());
        if passages.is_some_and(|cut| self.files.passages(cut).next().is_some()) {
            let missing = |name: &&&str| !fields.iter().any(|field| field == **name);
            let more: Vec<String> = PASSAGE_FIELDS.iter().filter(missing).map(ToString::to_string).collect();
            fields.extend(more);
        }
        columns.extend(fields.iter().map(|name| RecordColumn {
            // A message about a column that the user names is about that option. The cells of passages are found by name.
            field: if is_named { "--field".to_owned() } else { name.clone() },
            column: Column::Name(name.clone()),
            required: is_named,
        }));
        let named_by = match (rows.columns.is_empty(), self.fields.is_empty()) {
            (true, true) => None,
            (false, _) => Some("--columns"),
            (true, false) => Some("--field"),
        };
        let columns = RowColumns { columns, named_by, images, passages };
        let rows = self.files.open(&columns)?;
        Ok(Rows { fields, rows, images, passage_tokens: self.passage_tokens })
    }

    fn cut(&self) -> Cut {
        if self.passages { Cut::All } else { Cut::Marked }
    }

    /// The ids of an index's passages of the files and folders that are read. Says which of them the index has none of, if
    /// it has passages of others: it may know the same files by other paths.
    ///
    /// # Errors
    /// [`WrongUsage`] for a path that is not the beginning of the paths that an index records; a row of the index that
    /// cannot be read.
    pub fn passages_in(&self, index: &Index) -> Result<HashSet<String>> {
        let mut read = Vec::new();
        for path in self.files.passages(self.cut()) {
            // Whether two such paths mean the same depends on the folder that each was given in, which the index does not
            // know: `.` would be above every relative path.
            let parts = plain(path);
            if parts == Path::new("") || parts.components().any(|part| part == Component::ParentDir) {
                let error = anyhow!(
                    "{}: --replace finds passages by the path that `search index` was given; expected a path without `.` and `..`: \
                     give both commands an absolute path, or the folder's name from the folder above",
                    path.display()
                );
                return Err(WrongUsage::new(error).into());
            }
            read.push((parts, false));
        }
        let mut ids = HashSet::new();
        if read.is_empty() {
            return Ok(ids);
        }
        let mut has_others = false;
        for row in index.rows() {
            let (row, _) = row?;
            let (Some(Value::String(path)), Some(line)) = (row.fields.get("path"), row.fields.get("line"))
            else {
                continue;
            };
            // Rows of a table may have such fields too.
            let is_passage = row.id.strip_prefix(&format!("{path}:{line}"));
            if is_passage.is_none_or(|rest| !rest.is_empty() && !rest.starts_with(':')) {
                continue;
            }
            let mut is_read = false;
            for (above, is_known) in &mut read {
                if Path::new(path).starts_with(&*above) {
                    (*is_known, is_read) = (true, true);
                }
            }
            if is_read {
                ids.insert(row.id);
            } else {
                has_others = true;
            }
        }
        for (path, _) in read.iter().filter(|(_, is_known)| has_others && !is_known) {
            say(format_args!(
                "{}: the index has no passages of it, so all are new; files are known by the paths that they were indexed by",
                path.display()
            ));
        }
        Ok(ids)
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

    /// Whether rows that cannot be used are left out and counted.
    pub fn skips(&self) -> bool {
        self.rows.skips()
    }

    /// Rejects a row for its id, as [`refuse`](Self::refuse) does.
    ///
    /// # Errors
    /// `problem` with the row's location.
    pub fn refuse_id(&mut self, place: &str, problem: &str) -> Result<()> {
        self.rows.refuse(place, "doubled id", problem)
    }

    /// The next batch of rows to embed together, with passages that the model reads whole; empty at the end.
    pub fn batch(&mut self, embedding: &Embedding<'_>) -> Result<Vec<PlacedRow>> {
        let most = self.passage_tokens;
        loop {
            let read = self.rows.batch_of(&|text| embedding.fits(text, most))?;
            let is_end = read.is_empty();
            let mut batch = Vec::new();
            for Placed { place, cells } in read {
                match new_row(cells, &self.fields, self.images) {
                    Ok(row) => batch.push(PlacedRow { place, row }),
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
fn new_row(
    cells: Vec<Value>,
    names: &[String],
    images: bool,
) -> Result<NewRow, (&'static str, &'static str)> {
    let mut cells = cells.into_iter();
    let text = text_of(cells.next(), images)?;
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
