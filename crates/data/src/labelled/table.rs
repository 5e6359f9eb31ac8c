//! Tables with all their columns, to be rewritten with added columns.

use super::records::{Record, RecordColumn};
use super::rows::{self, Named, Read, RequestedColumn, Row, Whole};
use super::source::{DataFormat, LabelledSource, OnBadRow};
use crate::corpus::Problem;
use crate::spreadsheet::check_no_spreadsheet;
use crate::{DataError, Result, SkipReport};
use std::io;
use std::path::{Path, PathBuf};

/// Iterator over the rows of a table; nothing is kept. It ends at the first error; bad rows are skipped and
/// counted if the source's `on_bad_row` says so.
pub struct Table {
    path: PathBuf,
    names: Option<Vec<String>>,
    places: Vec<Option<usize>>,
    rows: Read<Row>,
    on_bad_row: OnBadRow,
    skipped: SkipReport,
    failed: bool,
}

impl Table {
    /// Opens a file in CSV, TSV or Parquet, according to `source.format`. Of the source's other keys,
    /// `delimiter`, `quoting`, `header`, `on_bad_row` and `max_line_bytes` apply. Messages refer to settings
    /// as command-line options.
    ///
    /// # Errors
    /// A file that cannot be read; a missing required column; a missing header where one is expected.
    pub fn open(path: &Path, source: &LabelledSource, columns: Vec<RecordColumn>) -> Result<Self> {
        check_no_spreadsheet(path)?;
        Self::of(path, source, rows::open_whole(path, source, &requested(columns)))
    }

    /// Reads CSV or TSV from any source; messages call it `name`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn read(
        input: Box<dyn io::Read>,
        name: &str,
        source: &LabelledSource,
        columns: Vec<RecordColumn>,
    ) -> Result<Self> {
        Self::of(Path::new(name), source, rows::read_whole(input, source, &requested(columns)))
    }

    fn of(path: &Path, source: &LabelledSource, whole: std::result::Result<Whole, Problem>) -> Result<Self> {
        let (path, on_bad_row) = (path.to_owned(), source.on_bad_row);
        match whole {
            Ok(Whole { names, places, rows }) => {
                let skipped = SkipReport::default();
                Ok(Self { path, names, places, rows, on_bad_row, skipped, failed: false })
            }
            Err(problem) => {
                Err(DataError::LabelledFile { path, line: problem.line, problem: problem.detail })
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The column names, in order; `None` without a header.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// The rows skipped so far, by reason.
    pub fn skipped(&self) -> &SkipReport {
        &self.skipped
    }

    /// The column number, from 0, of each requested column; `None` if missing.
    pub fn places(&self) -> &[Option<usize>] {
        &self.places
    }
}

fn requested(columns: Vec<RecordColumn>) -> Vec<RequestedColumn> {
    columns.into_iter().map(|column| column.requested(Named::CommandLine)).collect()
}

/// Rows with the cells of all columns.
impl Iterator for Table {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        loop {
            match self.rows.next()? {
                Ok(Row { line, cells }) => return Some(Ok(Record { line, cells })),
                Err(problem) if self.on_bad_row == OnBadRow::Skip && !problem.ends_file => {
                    self.skipped.count_at(problem.kind, || problem.told(&self.path));
                }
                Err(problem) => {
                    self.failed = true;
                    return Some(Err(problem.in_file(&self.path)));
                }
            }
        }
    }
}

/// How cells are written in a line of CSV or TSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// What separates them.
    pub delimiter: char,
    /// Whether cells may be quoted.
    pub quoting: bool,
}

impl Layout {
    /// That of a format, unless the source says otherwise: a comma and quotation marks in CSV, a tab and none in TSV.
    pub fn of(format: DataFormat, source: &LabelledSource) -> Self {
        let is_csv = format == DataFormat::Csv;
        Self {
            delimiter: source.delimiter.unwrap_or(if is_csv { ',' } else { '\t' }),
            quoting: source.quoting.unwrap_or(is_csv),
        }
    }

    /// A line of these cells, without a line end. Cells are quoted where necessary.
    ///
    /// # Errors
    /// The index of the first cell that cannot be written: it contains the delimiter or a line end, and
    /// quoting is off.
    pub fn line<'a>(&self, cells: impl IntoIterator<Item = &'a str>) -> std::result::Result<String, usize> {
        let mut line = String::new();
        for (place, cell) in cells.into_iter().enumerate() {
            if place > 0 {
                line.push(self.delimiter);
            }
            let is_plain = !cell.contains([self.delimiter, '\n', '\r']);
            match self.quoting {
                true if is_plain && !cell.contains('"') => line.push_str(cell),
                true => {
                    line.push('"');
                    line.push_str(&cell.replace('"', "\"\""));
                    line.push('"');
                }
                false if is_plain => line.push_str(cell),
                false => return Err(place),
            }
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::found_delimiter;
    use super::*;
    use crate::labelled::Column;
    use serde_json::{Value, json};
    use std::fs;

    fn column(field: &str, column: Column, required: bool) -> RecordColumn {
        RecordColumn { field: field.into(), column, required }
    }

    fn source(format: DataFormat) -> LabelledSource {
        LabelledSource { format, ..LabelledSource::default() }
    }

    fn text() -> Vec<RecordColumn> {
        vec![
            column("text", Column::Name("text".into()), true),
            column("pair", Column::Name("pair".into()), false),
        ]
    }

    fn read(bytes: &[u8], source: &LabelledSource, columns: Vec<RecordColumn>) -> Result<Table> {
        Table::read(Box::new(io::Cursor::new(bytes.to_vec())), "input", source, columns)
    }

    fn cells(table: Table) -> Vec<(u64, Value)> {
        table.map(|row| row.unwrap()).map(|row| (row.line, row.cells.into())).collect()
    }

    #[test]
    fn a_row_has_all_its_cells() {
        let csv = "\u{feff}id,text,id\r\n07,\"a, \"\"b\"\"\nc\",\r\n\r\n8,d,e,\r\n";
        let table = read(csv.as_bytes(), &source(DataFormat::Csv), text()).unwrap();
        assert_eq!(table.names().unwrap(), ["id", "text", "id"]);
        assert_eq!(table.places(), [Some(1), None]);
        let expected = [(2, json!(["07", "a, \"b\"\nc", ""])), (5, json!(["8", "d", "e"]))];
        assert_eq!(cells(table), expected);
        // As old spreadsheets write lines, and as they write UTF-16.
        let utf16: Vec<u8> =
            "\u{feff}text\tn\rä\t1\rb\t2\r".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let table = read(&utf16, &source(DataFormat::Tsv), text()).unwrap();
        assert_eq!(cells(table), [(2, json!(["ä", "1"])), (3, json!(["b", "2"]))]);
    }

    #[test]
    fn a_table_may_have_no_header_or_no_row() {
        let numbered = || vec![column("text", Column::Number(2), true)];
        let headless = LabelledSource { header: Some(false), ..source(DataFormat::Csv) };
        let table = read(b"1,a\n2,b\n", &headless, numbered()).unwrap();
        assert_eq!((table.names(), table.places()), (None, &[Some(1)][..]));
        assert_eq!(cells(table), [(1, json!(["1", "a"])), (2, json!(["2", "b"]))]);
        assert_eq!(cells(read(b"", &headless, numbered()).unwrap()), []);
        assert_eq!(cells(read(b"id,text\n", &source(DataFormat::Csv), text()).unwrap()), []);
        let message = |bytes: &[u8], source: &LabelledSource, columns| {
            read(bytes, source, columns).err().unwrap().to_string()
        };
        assert_eq!(
            message(b"", &source(DataFormat::Csv), text()),
            "input: it is empty; expected a header and rows"
        );
        assert_eq!(
            message(b"a\n", &headless, text()),
            "input:1: columns have no names with `--no-header`: give `--columns text=NUMBER`, from 1"
        );
    }

    #[test]
    fn messages_name_options() {
        let message = |bytes: &[u8], format| {
            let table = read(bytes, &source(format), text());
            table.and_then(|table| table.collect::<Result<Vec<_>>>().map(|_| ())).unwrap_err().to_string()
        };
        assert_eq!(
            message(b"id;title\n", DataFormat::Csv),
            "input:1: no column `text` (the header has: id;title); set `--delimiter ';'` if that separates these, or \
             `--columns text=COLUMN`"
        );
        assert!(
            message(b"id\ttext\n", DataFormat::Csv)
                .contains("set `--input-format tsv` if that separates these")
        );
        assert!(
            message(b"\"text\"\tid\n", DataFormat::Tsv).contains("set `--quoting true` if fields are quoted")
        );
        let short = message(b"id,text\n1,a\n2\n", DataFormat::Csv);
        assert!(short.starts_with("input:3: 1 column, expected 2 as in the file's first row"), "{short}");
        assert!(message(b"text\n\"a\n", DataFormat::Csv).contains("input:2: a quoted field is not closed"));
        let long = LabelledSource { max_line_bytes: 4, ..source(DataFormat::Csv) };
        let long = read(b"text\nabcde\n", &long, text()).unwrap().next().unwrap().unwrap_err().to_string();
        assert!(long.starts_with("input:2: the line is longer than `--max-line-bytes` = 4; "), "{long}");
    }

    #[test]
    fn bad_rows_are_left_out_and_counted() {
        let skipping = LabelledSource { on_bad_row: OnBadRow::Skip, ..source(DataFormat::Csv) };
        let mut table = read(b"text,n\na,1\nb\nc,3\n", &skipping, text()).unwrap();
        let lines: Vec<u64> = table.by_ref().map(|row| row.unwrap().line).collect();
        assert_eq!(lines, [2, 4]);
        assert_eq!(table.skipped().0.values().sum::<u64>(), 1);
    }

    #[test]
    fn the_rest_of_a_quoted_cell_is_no_row() {
        // The first line of the cell, or a later one, is not UTF-8.
        for spoilt in [&b"\"caf\xE9 shut\nx,9\nPeter\",1\n"[..], b"\"cafe shut\nx,9 \xE9\nPeter\",1\n"] {
            let bytes = [b"text,n\na,1\n", spoilt, b"b,2\n"].concat();
            let skipping = LabelledSource { on_bad_row: OnBadRow::Skip, ..source(DataFormat::Csv) };
            let mut table = read(&bytes, &skipping, text()).unwrap();
            let lines: Vec<u64> = table.by_ref().map(|row| row.unwrap().line).collect();
            assert_eq!(lines, [2, 6]);
            assert_eq!(table.skipped().to_string(), "1 × bad UTF-8");
            let failing = read(&bytes, &source(DataFormat::Csv), text()).unwrap();
            let error = failing.last().unwrap().unwrap_err();
            assert!(matches!(error, DataError::BadRow { .. }), "{error}");
        }
        // A quotation mark that is never closed ends no other row, and a bad line is still none.
        let bytes = b"text,n\n\"a,1\nb \xE9,2\nc,3\n";
        let skipping = LabelledSource { on_bad_row: OnBadRow::Skip, ..source(DataFormat::Csv) };
        let mut table = read(bytes, &skipping, text()).unwrap();
        assert_eq!(table.by_ref().map(|row| row.unwrap().line).collect::<Vec<_>>(), [4]);
        assert_eq!(table.skipped().to_string(), "1 × bad UTF-8, 1 × unclosed quote");
    }

    #[test]
    fn the_header_tells_what_separates_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        for (header, usual, found) in [
            ("id;a text;label\n1;a, b, c, d;x\n", ',', Some(';')),
            ("\u{feff}\n\"a;b\"|c|d\n", ',', Some('|')),
            ("id\ttext\n", ',', Some('\t')),
            ("id,text;more\n", ',', None),
            ("text\na;b\n", ',', None),
            ("\"a;b\"\n", ',', None),
            ("id,text\n", '\t', Some(',')),
            ("", ',', None),
        ] {
            fs::write(&path, header).unwrap();
            assert_eq!(found_delimiter(&path, usual), found, "{header:?}");
        }
        assert_eq!(found_delimiter(&folder.path().join("b.csv"), ','), None);
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let rows = [["a", "", "b c"], ["a,b", "\"", "x\ny"], [" ", "\r", "'"]];
        let csv = Layout { delimiter: ',', quoting: true };
        let lines: Vec<String> = rows.iter().map(|row| csv.line(row.iter().copied()).unwrap()).collect();
        assert_eq!(lines[1], "\"a,b\",\"\"\"\",\"x\ny\"");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        fs::write(&path, format!("text,x,y\n{}\n", lines.join("\n"))).unwrap();
        let table = Table::open(&path, &source(DataFormat::Csv), text()).unwrap();
        let found: Vec<Value> = cells(table).into_iter().map(|(_, row)| row).collect();
        assert_eq!(found, rows.map(|row| json!(row)));

        let tsv = Layout { delimiter: '\t', quoting: false };
        assert_eq!(tsv.line(["a, \"b\"", "c"]), Ok("a, \"b\"\tc".into()));
        assert_eq!(tsv.line(["a", "b\tc"]), Err(1));
        assert_eq!(tsv.line(["a\n", "b"]), Err(0));
    }
}
