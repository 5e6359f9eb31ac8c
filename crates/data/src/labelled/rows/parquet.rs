//! Parquet: only the wanted columns are read.

use super::{Read, RequestedColumn, Row, Whole, file_problem};
use crate::corpus::{Problem, shown};
use crate::labelled::source::Column;
use crate::not_utf8;
use crate::panics::guarded;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row as ParquetRow};
use parquet::schema::types::Type;
use serde_json::{Map, Number, Value, json};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

struct Rows {
    rows: RowIter<'static>,
    wanted: Vec<RequestedColumn>,
    /// The name of each wanted column.
    names: Vec<Option<String>>,
    row: u64,
    n_rows: u64,
    /// Whether a value of a type that JSON lacks, such as a date, is read in printed form; otherwise it is an
    /// error.
    prints: bool,
}

pub(super) fn open(path: &Path, wanted: &[RequestedColumn]) -> Result<Read<Row>, Problem> {
    let file = reader(path)?;
    let fields = file.metadata().file_metadata().schema().get_fields().to_vec();
    let names = wanted.iter().map(|wanted| name_of(wanted, &fields)).collect::<Result<Vec<_>, _>>()?;
    rows(file, wanted.to_vec(), names, false)
}

/// The rows with all their columns. Types that the library can only print, such as dates, become
/// text.
pub(super) fn open_whole(path: &Path, wanted: &[RequestedColumn]) -> Result<Whole, Problem> {
    let file = reader(path)?;
    let fields = file.metadata().file_metadata().schema().get_fields().to_vec();
    let place = |name: String| fields.iter().position(|field| *field.name() == name);
    let places = wanted.iter().map(|wanted| Ok(name_of(wanted, &fields)?.and_then(place)));
    let places = places.collect::<Result<_, _>>()?;
    let names: Vec<String> = fields.iter().map(|field| field.name().to_owned()).collect();
    let named = wanted.first().map(|wanted| wanted.named).unwrap_or_default();
    let column = |name: &String| RequestedColumn::of(name, Column::Name(name.clone()), named);
    let rows =
        rows(file, names.iter().map(column).collect(), names.iter().cloned().map(Some).collect(), true)?;
    Ok(Whole { names: Some(names), places, rows })
}

fn reader(path: &Path) -> Result<SerializedFileReader<File>, Problem> {
    let whole = |kind, detail| file_problem(None, kind, detail);
    let file =
        File::open(path).map_err(|error| whole("unreadable file", format!("cannot be read: {error}")))?;
    if file.metadata().is_ok_and(|meta| meta.len() == 0) {
        return Err(whole("empty file", "the file is empty: it has no example".into()));
    }
    guarded(|| SerializedFileReader::new(file)).map_err(damaged)
}

fn damaged(reason: String) -> Problem {
    file_problem(None, "damaged file", format!("not a readable Parquet file: {reason}"))
}

/// Rows with these columns.
fn rows(
    file: SerializedFileReader<File>,
    wanted: Vec<RequestedColumn>,
    names: Vec<Option<String>>,
    prints: bool,
) -> Result<Read<Row>, Problem> {
    let metadata = file.metadata().file_metadata();
    let n_rows = metadata.num_rows().max(0) as u64;
    let projected = metadata
        .schema()
        .get_fields()
        .iter()
        .filter(|field| names.iter().flatten().any(|name| name == field.name()))
        .cloned()
        .collect();
    let projection = Type::group_type_builder(metadata.schema().name()).with_fields(projected).build();
    let rows =
        guarded(|| RowIter::from_file_into(Box::new(file)).project(Some(projection?))).map_err(damaged)?;
    Ok(Box::new(Rows { rows, wanted, names, row: 0, n_rows, prints }))
}

/// The name of a wanted column, or `None` if the file lacks an optional column.
fn name_of(wanted: &RequestedColumn, fields: &[Arc<Type>]) -> Result<Option<String>, Problem> {
    let found = match &wanted.column {
        Column::Number(number) => fields.get(number.saturating_sub(1)),
        Column::Name(name) => fields.iter().find(|field| field.name() == name),
    };
    match found {
        Some(field) => Ok(Some(field.name().to_owned())),
        None if !wanted.required => Ok(None),
        None => {
            let (column, remedy) = (&wanted.column, wanted.named.remedy(&wanted.field));
            let names = shown(fields.iter().map(|field| field.name()));
            let detail = format!("no {column} (the file has: {names}); {remedy}");
            Err(file_problem(None, "missing column", detail))
        }
    }
}

impl Iterator for Rows {
    type Item = Result<Row, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = guarded(|| self.rows.next().transpose());
        self.row += 1;
        let line = Some(self.row);
        match row {
            Err(reason) => {
                Some(Err(file_problem(line, "damaged file", format!("reading failed part way: {reason}"))))
            }
            Ok(Some(row)) => Some(self.cells(&row)),
            Ok(None) if self.row <= self.n_rows => {
                let detail = "the file ends before its last row".into();
                Some(Err(file_problem(line, "damaged file", detail)))
            }
            Ok(None) => None,
        }
    }
}

impl Rows {
    fn cells(&self, row: &ParquetRow) -> Result<Row, Problem> {
        let cell = |(wanted, name): (&RequestedColumn, &Option<String>)| {
            let Some(name) = name else { return Ok(Value::Null) };
            match row.get_column_iter().find(|(column, _)| *column == name) {
                None => Ok(Value::Null),
                Some((_, field)) if wanted.raw => raw_value(field, self.prints),
                Some((_, field)) => value(field, self.prints),
            }
            .map_err(|detail| wanted.bad(self.row, "column of an unsupported type", detail))
        };
        let cells = self.wanted.iter().zip(&self.names).map(cell).collect::<Result<_, _>>()?;
        Ok(Row { line: self.row, cells })
    }
}

/// A field whose bytes, if they are some, or those of its parts, are no text: as JSON, they are in base64.
fn raw_value(field: &Field, prints: bool) -> Result<Value, String> {
    let encoded = |bytes: &[u8]| Value::from(BASE64_STANDARD.encode(bytes));
    match field {
        Field::Bytes(bytes) => Ok(json!({"bytes": encoded(bytes.data())})),
        Field::Group(row) => {
            let fields = row.get_column_iter().map(|(name, field)| match field {
                Field::Bytes(bytes) => Ok((name.clone(), encoded(bytes.data()))),
                field => Ok((name.clone(), value(field, prints)?)),
            });
            fields.collect::<Result<Map<_, _>, String>>().map(Value::Object)
        }
        field => value(field, prints),
    }
}

/// A field as JSON; if `prints`, types that JSON lacks are printed.
fn value(field: &Field, prints: bool) -> Result<Value, String> {
    let real = |x: f64| Ok(Number::from_f64(x).map_or(Value::Null, Value::Number));
    match field {
        Field::Null => Ok(Value::Null),
        Field::Bool(x) => Ok((*x).into()),
        Field::Byte(x) => Ok((*x).into()),
        Field::Short(x) => Ok((*x).into()),
        Field::Int(x) => Ok((*x).into()),
        Field::Long(x) => Ok((*x).into()),
        Field::UByte(x) => Ok((*x).into()),
        Field::UShort(x) => Ok((*x).into()),
        Field::UInt(x) => Ok((*x).into()),
        Field::ULong(x) => Ok((*x).into()),
        // By way of its decimal digits, so that 0.1 stays 0.1.
        Field::Float(x) => real(x.to_string().parse().unwrap_or(f64::NAN)),
        Field::Double(x) => real(*x),
        Field::Str(text) => Ok(text.as_str().into()),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => Ok(text.into()),
            Err(error) => Err(not_utf8(bytes.data(), error, false)),
        },
        Field::Group(row) => {
            let fields = row.get_column_iter().map(|(name, field)| Ok((name.clone(), value(field, prints)?)));
            fields.collect::<Result<Map<_, _>, String>>().map(Value::Object)
        }
        Field::ListInternal(list) => list
            .elements()
            .iter()
            .map(|field| value(field, prints))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array),
        other => {
            // The library panics when it writes a date that is too far away.
            let shown = guarded(|| Ok::<_, ParquetError>(other.to_string()));
            if let (true, Ok(shown)) = (prints, &shown) {
                return Ok(shown.as_str().into());
            }
            let shown = shown.unwrap_or_else(|_| "one that cannot be printed".into());
            Err(format!("unsupported Parquet value: {}", super::excerpt(&shown)))
        }
    }
}
