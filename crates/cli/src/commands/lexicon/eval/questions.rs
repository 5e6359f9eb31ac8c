//! Rows of questions about words.

use std::path::Path;

use anyhow::{Result, bail};
use cloze_data::labelled::{Column, RecordColumn, records};
use cloze_evaluation::table::grouped;
use serde_json::Value;

use crate::rows::{BadRowArgs, RowArgs};

/// A row of a file: its fields, none for one that the file does not have.
pub struct Question {
    pub line: u64,
    pub fields: Vec<Option<String>>,
}

impl Question {
    /// The fields with these numbers; all of them are required.
    pub fn words<const N: usize>(&self, fields: [usize; N]) -> [&str; N] {
        fields.map(|at| self.fields[at].as_deref().unwrap_or_default())
    }
}

/// A field of a row.
pub struct Field {
    pub name: &'static str,
    pub is_required: bool,
}

pub const fn required(name: &'static str) -> Field {
    Field { name, is_required: true }
}

/// The rows of a file with these fields, whose columns have their names unless `--columns` says otherwise. `check` says
/// what is wrong with a row.
///
/// # Errors
/// [`WrongUsage`](crate::failure::WrongUsage) for a field in `--columns` that there is not; a file that cannot be read or
/// has no row; a row without a required field, or that `check` rejects; more rows skipped than may be.
pub fn read(
    args: &RowArgs,
    file: &str,
    fields: &[Field],
    check: impl Fn(&Question) -> Option<String>,
) -> Result<Vec<Question>> {
    args.check_fields(&fields.iter().map(|field| field.name).collect::<Vec<_>>())?;
    let source = args.source([file])?;
    let mut columns: Vec<RecordColumn> =
        fields.iter().map(|field| args.record_column(field.name, field.is_required)).collect();
    if args.no_header {
        // Fields that are not named have the columns in their order.
        for (at, (column, field)) in columns.iter_mut().zip(fields).enumerate() {
            if args.column(field.name).is_none() {
                column.column = Column::Number(at + 1);
            }
        }
    }
    let mut rows = records(&source, Path::new(""), columns)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().transpose().map_err(BadRowArgs::told)? {
        let text = |cell: &Value| match cell {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let question = Question { line: row.line, fields: row.cells.iter().map(text).collect() };
        let missing =
            question.fields.iter().zip(fields).find(|(text, field)| field.is_required && text.is_none());
        let problem = match missing {
            Some((_, field)) => Some(format!("`{}` is empty; expected a text or a number", field.name)),
            None => check(&question),
        };
        match problem {
            Some(problem) => rows.refuse(row.line, "bad question", problem).map_err(BadRowArgs::told)?,
            None => found.push(question),
        }
    }
    args.bad.check_skipped(file, rows.skipped(), found.len() as u64)?;
    if found.is_empty() {
        bail!(
            "{file}: there is no row; expected the columns {}",
            fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(found)
}

/// The error for a file none of whose questions can be asked.
pub fn none_known(file: &str, vectors: &str, questions: &[Question], what: &str) -> anyhow::Error {
    let first = questions.first().map(|question| {
        let words: Vec<String> = question.fields.iter().flatten().map(|word| format!("{word:?}")).collect();
        format!(", such as line {}: {}", question.line, words.join(", "))
    });
    anyhow::anyhow!(
        "{file}: all {} {what} have a word without a vector in {vectors}{}; build vectors of its words with `cloze lexicon build \
         --words {file}`, or try --ignore-case",
        grouped(questions.len() as u64),
        first.unwrap_or_default()
    )
}
