//! Streams rows of any format with the requested columns.

use super::rows::{self, Named, Read, RequestedColumn, Row};
use super::source::{Column, DataFormat, LabelledSource, OnBadRow, Task};
use crate::{DataError, Result, SkipReport};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// A requested column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordColumn {
    /// Its name in messages; or the option that named the column, such as `--field`.
    pub field: String,
    /// Which one it is.
    pub column: Column,
    /// Whether a row without it is an error; otherwise its cell is null.
    pub required: bool,
}

impl RecordColumn {
    pub(super) fn requested(self, named: Named) -> RequestedColumn {
        let Self { field, column, required } = self;
        RequestedColumn { field, column, required, raw: false, named }
    }
}

/// A row of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The line that it begins on, or its number in a Parquet file, from 1.
    pub line: u64,
    /// A cell for each requested column.
    pub cells: Vec<Value>,
}

/// Iterator over the rows of files; nothing is kept. It ends at the first error. Bad rows are skipped and
/// counted if the source's `on_bad_row` says so.
pub struct Records {
    source: LabelledSource,
    columns: Vec<RequestedColumn>,
    files: VecDeque<(PathBuf, DataFormat)>,
    current: Option<(PathBuf, Read<Row>)>,
    skipped: SkipReport,
    failed: bool,
}

/// Opens files of rows: CSV, TSV, JSON lines, Parquet or XML. Relative paths start at `base`. The columns are
/// those in `columns`; `source.columns` is ignored.
///
/// # Errors
/// A pattern without files; a file whose extension does not determine its format; settings that do not apply
/// to the formats.
pub fn records(source: &LabelledSource, base: &Path, columns: Vec<RecordColumn>) -> Result<Records> {
    Ok(Records {
        files: source.open(Task::Texts, base)?.into(),
        source: source.clone(),
        columns: columns.into_iter().map(|column| column.requested(source.named)).collect(),
        current: None,
        skipped: SkipReport::default(),
        failed: false,
    })
}

impl Records {
    /// The file of the last row.
    pub fn path(&self) -> Option<&Path> {
        self.current.as_ref().map(|(path, _)| path.as_path())
    }

    /// The rows skipped so far, by reason.
    pub fn skipped(&self) -> &SkipReport {
        &self.skipped
    }

    /// Rejects the last row for this `reason`; the row is counted if the source skips bad rows.
    ///
    /// # Errors
    /// [`DataError::BadRow`] with `problem`, if the source does not skip bad rows.
    pub fn refuse(&mut self, line: u64, reason: &str, problem: String) -> Result<()> {
        if self.source.on_bad_row == OnBadRow::Skip {
            let path = self.current.as_ref().map(|(path, _)| path.display().to_string()).unwrap_or_default();
            self.skipped.count_at(reason, || (format!("{path}:{line}"), problem));
            return Ok(());
        }
        self.failed = true;
        let path = self.path().map(Path::to_path_buf).unwrap_or_default();
        Err(DataError::BadRow { path, line: Some(line), problem })
    }

    fn read(&mut self) -> Result<Option<Record>> {
        loop {
            let Some((path, rows)) = &mut self.current else {
                let Some((path, format)) = self.files.pop_front() else { return Ok(None) };
                let rows = rows::open(&path, format, &self.source, &self.columns);
                let rows = rows.map_err(|problem| DataError::LabelledFile {
                    path: path.clone(),
                    line: problem.line,
                    problem: problem.detail,
                })?;
                self.current = Some((path, rows));
                continue;
            };
            match rows.next() {
                Some(Ok(Row { line, cells })) => return Ok(Some(Record { line, cells })),
                Some(Err(problem)) if !problem.ends_file && self.source.on_bad_row == OnBadRow::Skip => {
                    self.skipped.count_at(problem.kind, || problem.told(path));
                }
                Some(Err(problem)) => return Err(problem.in_file(path)),
                None => self.current = None,
            }
        }
    }
}

impl Iterator for Records {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let record = self.read();
        self.failed = record.is_err();
        record.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn rows_of_several_files_have_the_columns_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.tsv"), "id\ttext\n1\tone\n2\ttwo\n").unwrap();
        fs::write(folder.path().join("b.jsonl"), "{\"text\": \"three\", \"year\": 3}\n{\"id\": 4}\n")
            .unwrap();
        let source = LabelledSource::new(["a.tsv", "b.jsonl"]);
        let column = |name: &str, required| RecordColumn {
            field: name.into(),
            column: Column::Name(name.into()),
            required,
        };
        let columns = vec![column("text", true), column("id", false), column("year", false)];
        let mut records = records(&source, folder.path(), columns).unwrap();
        let mut next = || {
            records
                .next()
                .map(|record| record.map(|record| (record.line, Value::from(record.cells).to_string())))
        };
        assert_eq!(next().unwrap().unwrap(), (2, r#"["one","1",null]"#.into()));
        assert_eq!(next().unwrap().unwrap(), (3, r#"["two","2",null]"#.into()));
        assert_eq!(next().unwrap().unwrap(), (1, r#"["three",null,3]"#.into()));
        let error = next().unwrap().unwrap_err().to_string();
        assert!(
            error.contains("b.jsonl:2: no column `text` (it has: id); set `columns.text`; correct it"),
            "{error}"
        );
        assert!(next().is_none());
    }

    #[test]
    fn bad_rows_are_left_out_and_counted_or_end_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.jsonl"), "{\"id\": 1}\n{\n{\"id\": 2}\n{\"no\": 3}\n").unwrap();
        let read = |on_bad_row| {
            let source = LabelledSource { on_bad_row, ..LabelledSource::new(["a.jsonl"]) };
            let column =
                RecordColumn { field: "id".into(), column: Column::Name("id".into()), required: true };
            records(&source, folder.path(), vec![column]).unwrap()
        };
        let mut skipping = read(OnBadRow::Skip);
        let lines: Vec<u64> = skipping.by_ref().map(|record| record.unwrap().line).collect();
        assert_eq!(lines, [1, 3]);
        assert_eq!(skipping.skipped().to_string(), "1 × bad JSON, 1 × missing column");
        skipping.refuse(3, "odd", "it is odd".into()).unwrap();
        assert_eq!(skipping.skipped().to_string(), "1 × bad JSON, 1 × missing column, 1 × odd");

        let mut failing = read(OnBadRow::Error);
        assert!(failing.next().unwrap().is_ok());
        let error = failing.refuse(1, "odd", "it is odd".into()).unwrap_err().to_string();
        assert!(error.contains("a.jsonl:1: it is odd; correct it, or set"), "{error}");
        assert!(failing.next().is_none());
        assert!(read(OnBadRow::Error).nth(1).unwrap().is_err());
    }
}
