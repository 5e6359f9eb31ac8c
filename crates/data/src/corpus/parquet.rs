//! Parquet: each row is a document.

use super::{Piece, Problem, Reader, missing_column};
use crate::not_utf8;
use crate::panics::guarded;
use crate::skipped::EMPTY_TEXT;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;
use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;

/// Rows decoded at a time; they share their pages' memory.
const ROWS: usize = 64;

struct Rows {
    file: SerializedFileReader<File>,
    column: usize,
    name: String,
    group: usize,
    values: Option<ColumnReaderImpl<ByteArrayType>>,
    decoded: VecDeque<Option<ByteArray>>,
    row: u64,
    n_rows: u64,
    bytes: u64,
}

pub(super) fn open(path: &Path, name: &str) -> Result<Box<dyn Reader>, Problem> {
    let whole = |kind, detail| Problem { line: None, kind, detail, ends_file: true };
    let file =
        File::open(path).map_err(|error| whole("unreadable file", format!("cannot be read: {error}")))?;
    let bytes = file.metadata().map_or(0, |meta| meta.len());
    if bytes == 0 {
        return Err(whole("empty file", "the file has no row".into()));
    }
    let file = guarded(|| SerializedFileReader::new(file))
        .map_err(|reason| whole("damaged file", format!("not a readable Parquet file: {reason}")))?;
    let metadata = file.metadata().file_metadata();
    let fields = metadata.schema().get_fields();
    if !fields.iter().any(|field| field.name() == name) {
        let detail = missing_column(name, fields.iter().map(|field| field.name()));
        return Err(whole("missing column", detail));
    }
    let schema = metadata.schema_descr();
    let text = |column: &&usize| {
        schema.column(**column).path().parts() == [name] && is_text(&schema.column(**column))
    };
    let columns: Vec<usize> = (0..schema.num_columns()).collect();
    let Some(&column) = columns.iter().find(text) else {
        return Err(whole("column without text", format!("column `{name}` does not hold strings")));
    };
    let n_rows = metadata.num_rows().max(0) as u64;
    if n_rows == 0 {
        return Err(whole("empty file", "the file has no row".into()));
    }
    let (name, decoded) = (name.into(), VecDeque::new());
    Ok(Box::new(Rows { file, column, name, group: 0, values: None, decoded, row: 0, n_rows, bytes }))
}

/// Whether a column holds text: strings, or byte arrays without a logical type, as old programs wrote
/// strings.
fn is_text(column: &ColumnDescriptor) -> bool {
    let meaning = match column.logical_type_ref() {
        Some(LogicalType::String | LogicalType::Json | LogicalType::Enum) => true,
        Some(_) => false,
        None => matches!(
            column.converted_type(),
            ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::JSON | ConvertedType::ENUM
        ),
    };
    let repeated = column.self_type().get_basic_info().repetition() == Repetition::REPEATED;
    meaning && !repeated && column.physical_type() == PhysicalType::BYTE_ARRAY
}

impl Rows {
    /// Decodes the next rows; finds none at the end of the file.
    fn decode(&mut self) -> Result<(), ParquetError> {
        while self.decoded.is_empty() {
            let Some(values) = &mut self.values else {
                if self.group == self.file.num_row_groups() {
                    return Ok(());
                }
                let group = self.file.get_row_group(self.group)?;
                self.values = Some(get_typed_column_reader(group.get_column_reader(self.column)?));
                self.group += 1;
                continue;
            };
            let (mut texts, mut levels) = (Vec::new(), Vec::new());
            let (rows, ..) = values.read_records(ROWS, Some(&mut levels), None, &mut texts)?;
            if rows == 0 {
                self.values = None;
            }
            // A required column has no levels; an optional one has 1 where there is a value.
            let mut texts = texts.into_iter();
            self.decoded = (0..rows)
                .map(|row| if levels.get(row).is_none_or(|level| *level > 0) { texts.next() } else { None })
                .collect();
        }
        Ok(())
    }
}

impl Reader for Rows {
    fn next(&mut self) -> Option<Result<Piece, Problem>> {
        let decoded = guarded(|| self.decode());
        self.row += 1;
        let problem =
            |kind, detail, ends_file| Some(Err(Problem { line: Some(self.row), kind, detail, ends_file }));
        if let Err(reason) = decoded {
            return problem("damaged file", format!("reading failed part way: {reason}"), true);
        }
        let Some(text) = self.decoded.pop_front() else {
            // Fewer rows than the file says it has.
            let missing = self.row <= self.n_rows;
            let detail = "the file ends before its last row".into();
            return if missing { problem("damaged file", detail, true) } else { None };
        };
        let Some(text) = text else {
            let detail = format!("column `{}` is null, expected a string", self.name);
            return problem("column without text", detail, false);
        };
        match String::from_utf8(text.data().to_vec()) {
            Ok(text) if text.trim().is_empty() => {
                problem(EMPTY_TEXT, format!("column `{}` is empty", self.name), false)
            }
            Ok(text) => Some(Ok(Piece { text, continues: false })),
            Err(error) => problem("bad UTF-8", not_utf8(error.as_bytes(), error.utf8_error(), false), false),
        }
    }

    fn bytes_read(&self) -> u64 {
        // Rows are spread evenly enough over a file for a progress bar.
        (self.bytes as f64 * self.row.min(self.n_rows) as f64 / self.n_rows as f64) as u64
    }
}
