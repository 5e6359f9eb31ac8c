//! Parquet: a row a document.

use super::{Piece, Problem, Reader};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

struct Rows {
    rows: RowIter<'static>,
    column: String,
    row: u64,
    n_rows: u64,
    bytes: u64,
}

pub(super) fn open(path: &Path, column: &str) -> Result<Box<dyn Reader>, Problem> {
    let damaged = |detail: String| Problem { line: None, kind: "damaged file", detail, ends_file: true };
    let file = File::open(path).map_err(|error| damaged(format!("cannot be read: {error}")))?;
    let bytes = file.metadata().map_or(0, |meta| meta.len());
    let unreadable = |error: ParquetError| damaged(format!("not a readable Parquet file: {error}"));
    let reader = SerializedFileReader::new(file).map_err(unreadable)?;
    let metadata = reader.metadata().file_metadata();
    let n_rows = metadata.num_rows().max(0) as u64;
    let fields = metadata.schema().get_fields();
    let Some(field) = fields.iter().find(|field| field.name() == column) else {
        let columns: Vec<&str> = fields.iter().map(|field| field.name()).collect();
        let has = columns.join(", ");
        return Err(Problem {
            line: None,
            kind: "missing column",
            detail: format!("no column `{column}` (it has: {has}); set `corpus.text_column`"),
            ends_file: true,
        });
    };
    if n_rows == 0 {
        let detail = "the file has no row".into();
        return Err(Problem { line: None, kind: "empty file", detail, ends_file: true });
    }
    let projection = Type::group_type_builder("schema")
        .with_fields(vec![Arc::clone(field)])
        .build()
        .map_err(unreadable)?;
    let rows = RowIter::from_file_into(Box::new(reader)).project(Some(projection)).map_err(unreadable)?;
    Ok(Box::new(Rows { rows, column: column.into(), row: 0, n_rows, bytes }))
}

impl Reader for Rows {
    fn next(&mut self) -> Option<Result<Piece, Problem>> {
        loop {
            self.row += 1;
            let problem = |kind, detail, ends_file| Problem { line: Some(self.row), kind, detail, ends_file };
            let row = match self.rows.next()? {
                Ok(row) => row,
                Err(error) => {
                    return Some(Err(problem("damaged file", format!("cannot be read on: {error}"), true)));
                }
            };
            match row.into_columns().into_iter().next().map(|(_, field)| field) {
                Some(Field::Str(text)) if text.trim().is_empty() => {}
                Some(Field::Str(text)) => return Some(Ok(Piece { text, continues: false })),
                other => {
                    let what = other.map_or("nothing".into(), |field| field.to_string());
                    let column = &self.column;
                    let detail = format!("column `{column}` is {what}, expected a string");
                    return Some(Err(problem("column without text", detail, false)));
                }
            }
        }
    }

    fn bytes_read(&self) -> u64 {
        // Rows are spread evenly enough over a file for a progress bar.
        self.bytes * self.row.min(self.n_rows) / self.n_rows
    }
}
