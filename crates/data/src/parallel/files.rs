//! Where parallel data is, and how its pairs are read: line-aligned files, or a file with one pair per
//! row.

use crate::corpus::lines::Lines;
use crate::corpus::{Problem, files};
use crate::labelled::rows::{self, RequestedColumn, Row};
use crate::labelled::source::Task;
use crate::labelled::{Column, Columns, DataFormat, LabelledSource};
use crate::{DataError, MAX_SKIPPED, Result, SkipReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The longest line, or row of several lines, in bytes.
const MAX_LINE_BYTES: usize = 1 << 20;

/// The files of one split of parallel data: `source` and `target` with one sentence per line, or `files` with
/// one pair per row.
///
/// Text may be compressed with gzip or zstd, begin with a byte-order mark and have lines that end in `\r\n`.
/// Lists contain files, folders (read recursively, sorted by name) and glob patterns; the first file of
/// `source` is aligned with the first of `target`, and so on.
///
/// ```
/// # use cloze_data::parallel::ParallelFiles;
/// let aligned = r#"{"source": ["train.en"], "target": ["train.de"]}"#;
/// let tabs = r#"{"files": ["train.tsv.gz"]}"#;
/// let json_lines = r#"{"files": ["train.jsonl"], "columns": {"source": "translation.en", "target": "translation.de"}}"#;
/// for files in [aligned, tabs, json_lines] {
///     serde_json::from_str::<ParallelFiles>(files)?;
/// }
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ParallelFiles {
    /// Files with one source sentence per line. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<String>,
    /// Files whose lines are the translations of the source files' lines. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target: Vec<String>,
    /// Files with one pair per row: CSV, TSV, JSON lines or Parquet. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The format of `files`. Default `"auto"`.
    #[serde(skip_serializing_if = "is_auto")]
    pub format: DataFormat,
    /// What separates the columns of CSV and TSV: one ASCII character. Default: a comma in CSV, a tab in TSV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<char>,
    /// Whether fields of CSV or TSV may be quoted. Default: yes in CSV, no in TSV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quoting: Option<bool>,
    /// The columns of the sentences in `files`. Names are looked up in the header of CSV and TSV; in JSON
    /// lines, `a.b` is `b` in the object `a`. Default: columns 1 and 2 of CSV and TSV, without a header; the
    /// languages' names in JSON lines and Parquet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<PairColumns>,
}

fn is_auto(format: &DataFormat) -> bool {
    *format == DataFormat::Auto
}

/// The columns of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairColumns {
    /// The source sentence's column.
    pub source: Column,
    /// The target sentence's column.
    pub target: Column,
}

/// What to do with an unusable pair: an empty side, too many tokens, an unreadable line. Unreadable files,
/// and files with different numbers of lines, are errors either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBadPair {
    /// Fail with an error that gives file and line.
    #[default]
    Error,
    /// Leave it out and count it.
    Skip,
}

/// A sentence and its translation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPair {
    /// The source sentence.
    pub source: String,
    /// Its translation.
    pub target: String,
}

/// What to do with unusable pairs, and how many may be left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct BadPairs {
    pub on_bad_pair: OnBadPair,
    /// The largest share that may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_skipped: Option<f64>,
}

impl BadPairs {
    /// Checks the limit on what is left out.
    fn check_setting(self) -> Result<()> {
        let problem = match (self.max_skipped, self.on_bad_pair) {
            (Some(_), OnBadPair::Error) => "only used with `on_bad_pair = \"skip\"`",
            (Some(share), _) if !(0.0..=1.0).contains(&share) => "expected a number from 0 to 1",
            _ => return Ok(()),
        };
        Err(DataError::ParallelSetting { key: "max_skipped".into(), problem: problem.into() })
    }
}

/// The names of the two sides in messages.
pub(super) const SIDES: [&str; 2] = ["source", "target"];

/// Where a pair was read.
#[derive(Debug, Clone)]
pub(super) struct Located {
    pub pair: TextPair,
    /// The number of the file, or of the two files, in their order.
    file: usize,
    /// From 1.
    pub line: u64,
}

/// A file of pairs, or two.
#[derive(Debug, Clone)]
enum Part {
    Aligned([PathBuf; 2]),
    Rows(PathBuf, DataFormat),
}

impl ParallelFiles {
    /// Two line-aligned files.
    pub fn aligned(source: impl Into<String>, target: impl Into<String>) -> Self {
        Self { source: vec![source.into()], target: vec![target.into()], ..Self::default() }
    }

    /// Files with one pair per row.
    pub fn rows<T: Into<String>>(files: impl IntoIterator<Item = T>) -> Self {
        Self { files: files.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Whether no file is named.
    pub fn is_empty(&self) -> bool {
        self.source.is_empty() && self.target.is_empty() && self.files.is_empty()
    }

    /// The files in reading order, a source file before its target file. Relative paths start at `base`.
    ///
    /// # Errors
    /// Conflicting keys; a pattern without files; different numbers of source and target files.
    pub fn paths(&self, base: &Path) -> Result<Vec<PathBuf>> {
        let parts = self.parts(base, ["", ""])?.0;
        Ok(parts
            .into_iter()
            .flat_map(|part| match part {
                Part::Aligned(paths) => paths.to_vec(),
                Part::Rows(path, _) => vec![path],
            })
            .collect())
    }

    /// The files, and how rows are read.
    fn parts(&self, base: &Path, languages: [&str; 2]) -> Result<(Vec<Part>, LabelledSource)> {
        let setting = |key: &str, problem: &str| DataError::ParallelSetting {
            key: key.into(),
            problem: problem.into(),
        };
        let rows = LabelledSource {
            format: self.format,
            delimiter: self.delimiter,
            quoting: self.quoting,
            max_line_bytes: MAX_LINE_BYTES,
            ..LabelledSource::new(self.files.clone())
        };
        if self.files.is_empty() {
            let unread = [
                ("format", self.format != DataFormat::Auto),
                ("delimiter", self.delimiter.is_some()),
                ("quoting", self.quoting.is_some()),
                ("columns", self.columns.is_some()),
            ];
            if let Some((key, _)) = unread.iter().find(|(_, is_set)| *is_set) {
                return Err(setting(key, "only allowed with `files`"));
            }
            for (key, listed) in [("source", &self.source), ("target", &self.target)] {
                if listed.is_empty() {
                    let problem = "no files are given: give them in `source` and `target`, or in `files`";
                    return Err(setting(key, problem));
                }
            }
            let sources = files(&self.source, base).map_err(not_there)?;
            let targets = files(&self.target, base).map_err(not_there)?;
            if sources.len() != targets.len() {
                let (n, m) = (sources.len(), targets.len());
                let problem = format!("{n} source files and {m} target files, expected equally many");
                return Err(setting("target", &problem));
            }
            let parts = sources.into_iter().zip(targets).map(|(a, b)| Part::Aligned([a, b])).collect();
            return Ok((parts, rows));
        }
        if !self.source.is_empty() || !self.target.is_empty() {
            return Err(setting(
                "files",
                "not allowed beside `source` and `target`: a split uses one or the other",
            ));
        }
        let opened = rows.open(Task::Pairs, base).map_err(not_there)?;
        let has_names =
            opened.iter().any(|(_, format)| matches!(format, DataFormat::Jsonl | DataFormat::Parquet));
        let [source, target] = match &self.columns {
            Some(PairColumns { source, target }) => [source.clone(), target.clone()],
            None if has_names => languages.map(|language| Column::Name(language.into())),
            None => [1, 2].map(Column::Number),
        };
        let is_delimited =
            opened.iter().any(|(_, format)| matches!(format, DataFormat::Csv | DataFormat::Tsv));
        let is_named = [&source, &target].iter().any(|column| matches!(column, Column::Name(_)));
        let columns = [("source", source), ("target", target)];
        let columns: BTreeMap<String, Columns> =
            columns.map(|(field, column)| (field.into(), Columns::One(column))).into();
        let header = is_delimited.then_some(is_named);
        let rows = LabelledSource { header, columns, ..rows };
        rows.open(Task::Pairs, base).map_err(not_there)?;
        Ok((opened.into_iter().map(|(path, format)| Part::Rows(path, format)).collect(), rows))
    }
}

/// Says that parallel data has no such file.
fn not_there(error: DataError) -> DataError {
    match error {
        DataError::NoFiles { pattern, base } | DataError::NoLabelledFiles { pattern, base } => {
            DataError::NoParallelFiles { pattern, base }
        }
        DataError::LabelledSetting { key, problem } => DataError::ParallelSetting { key, problem },
        other => other,
    }
}

/// Iterator over the pairs of a split; an unusable pair is counted or ends it.
pub(super) struct Pairs {
    parts: Vec<Part>,
    rows: LabelledSource,
    bad: BadPairs,
    next_part: usize,
    current: Option<Current>,
    /// Bytes of the files before the current one.
    read_before: u64,
    pub bytes_total: u64,
    pub skipped: SkipReport,
    ended: bool,
}

enum Current {
    Aligned(Box<[Lines; 2]>),
    Rows(rows::Read<Row>, Vec<RequestedColumn>),
}

impl Pairs {
    pub fn open(from: &ParallelFiles, base: &Path, languages: [&str; 2], bad: BadPairs) -> Result<Self> {
        bad.check_setting()?;
        let (parts, rows) = from.parts(base, languages)?;
        let paths = from.paths(base)?;
        let bytes_total = paths.iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum();
        let skipped = SkipReport::default();
        let (next_part, current, read_before, ended) = (0, None, 0, false);
        Ok(Self { parts, rows, bad, next_part, current, read_before, bytes_total, skipped, ended })
    }

    /// Approximate number of bytes of the files consumed so far.
    pub fn bytes_read(&self) -> u64 {
        let current = match &self.current {
            Some(Current::Aligned(lines)) => lines.iter().map(Lines::bytes_read).sum(),
            _ => 0,
        };
        self.read_before + current
    }

    /// Handles a pair with a problem on one side: counts it or returns an error.
    pub fn bad(&mut self, at: &Located, side: usize, kind: &str, problem: String) -> Result<()> {
        self.refuse(at.file, side, Some(at.line), kind, problem)
    }

    fn refuse(
        &mut self,
        file: usize,
        side: usize,
        line: Option<u64>,
        kind: &str,
        problem: String,
    ) -> Result<()> {
        let path = self.path(file, side);
        if self.bad.on_bad_pair == OnBadPair::Skip {
            let place =
                || format!("{}{}", path.display(), line.map_or(String::new(), |line| format!(":{line}")));
            self.skipped.count_at(kind, || (place(), problem));
            return Ok(());
        }
        Err(DataError::BadPair { path, line, problem })
    }

    /// Checks that not too many pairs were left out; `n_used` were not.
    pub fn check_skipped(&self, n_used: u64) -> Result<()> {
        let share = self.bad.max_skipped.unwrap_or(MAX_SKIPPED);
        self.skipped.check(n_used, "pairs", share, "`parallel.max_skipped`")
    }

    fn path(&self, file: usize, side: usize) -> PathBuf {
        match &self.parts[file] {
            Part::Aligned(paths) => paths[side].clone(),
            Part::Rows(path, _) => path.clone(),
        }
    }

    /// The error for a file that is unusable from here on.
    fn lost(&self, side: usize, problem: Problem) -> DataError {
        let path = self.path(self.next_part - 1, side);
        DataError::ParallelFile { path, line: problem.line, problem: problem.detail }
    }

    /// Opens the next file, or the next two.
    fn open_next(&mut self) -> Result<bool> {
        let Some(part) = self.parts.get(self.next_part).cloned() else { return Ok(false) };
        self.next_part += 1;
        self.current = Some(match part {
            Part::Aligned(paths) => {
                let open = |side: usize| Lines::open(&paths[side], MAX_LINE_BYTES, "max_line_bytes");
                let source = open(0).map_err(|problem| self.lost(0, problem))?;
                let target = open(1).map_err(|problem| self.lost(1, problem))?;
                Current::Aligned(Box::new([source, target]))
            }
            Part::Rows(path, format) => {
                let wanted: Vec<RequestedColumn> =
                    SIDES.map(|side| RequestedColumn::required(side, &self.rows)).into();
                let read = rows::open(&path, format, &self.rows, &wanted)
                    .map_err(|problem| self.lost(0, problem))?;
                Current::Rows(read, wanted)
            }
        });
        Ok(true)
    }

    fn close(&mut self) {
        self.current = None;
        for side in 0..2 {
            if side == 1 && matches!(self.parts[self.next_part - 1], Part::Rows(..)) {
                break;
            }
            let path = self.path(self.next_part - 1, side);
            self.read_before += path.metadata().map_or(0, |of| of.len());
        }
    }

    /// The next pair with text on both sides; `None` at the end.
    fn advance(&mut self) -> Result<Option<Located>> {
        loop {
            if self.current.is_none() && !self.open_next()? {
                return Ok(None);
            }
            let file = self.next_part - 1;
            let read = match self.current.as_mut() {
                Some(Current::Aligned(lines)) => aligned(lines),
                Some(Current::Rows(read, wanted)) => row(read.as_mut(), wanted),
                None => continue,
            };
            match read {
                Read::End => self.close(),
                Read::Unequal { longer, lines } => {
                    let (path, shorter) = (self.path(file, longer), self.path(file, 1 - longer));
                    let problem = format!(
                        "this line has no counterpart: {} has {} lines and this file {}; line-aligned files need \
                         equally many",
                        shorter.display(),
                        lines[1 - longer],
                        lines[longer],
                    );
                    let line = Some(lines[1 - longer] + 1);
                    return Err(DataError::ParallelFile { path, line, problem });
                }
                Read::Bad(side, problem) if problem.ends_file => return Err(self.lost(side, problem)),
                Read::Bad(side, problem) => {
                    self.refuse(file, side, problem.line, problem.kind, problem.detail)?;
                }
                Read::Pair(line, pair) => {
                    let empty = [&pair.source, &pair.target].iter().position(|text| text.trim().is_empty());
                    let at = Located { pair, file, line };
                    match empty {
                        None => return Ok(Some(at)),
                        Some(side) => {
                            let problem = format!("the {} is empty", SIDES[side]);
                            self.bad(&at, side, EMPTY[side], problem)?;
                        }
                    }
                }
            }
        }
    }
}

/// The skip reasons for pairs with an empty side.
pub(super) const EMPTY: [&str; 2] = ["empty source", "empty target"];

/// The result of one reading step.
enum Read {
    Pair(u64, TextPair),
    /// A problem with one side.
    Bad(usize, Problem),
    /// One file has more lines than the other; the lines of each.
    Unequal {
        longer: usize,
        lines: [u64; 2],
    },
    End,
}

fn aligned(lines: &mut [Lines; 2]) -> Read {
    let [source, target] = lines;
    let owned = |line: Option<std::result::Result<(u64, &str), Problem>>| {
        line.map(|line| line.map(|(number, text)| (number, text.to_owned())))
    };
    match (owned(source.next()), owned(target.next())) {
        (None, None) => Read::End,
        (Some(_), None) => unequal(0, lines),
        (None, Some(_)) => unequal(1, lines),
        (Some(Err(problem)), Some(_)) => Read::Bad(0, problem),
        (Some(Ok(_)), Some(Err(problem))) => Read::Bad(1, problem),
        (Some(Ok((number, source))), Some(Ok((_, target)))) => {
            Read::Pair(number, TextPair { source, target })
        }
    }
}

/// Reads the longer file to its end, after one line more than the other has.
fn unequal(longer: usize, lines: &mut [Lines; 2]) -> Read {
    loop {
        match lines[longer].next() {
            Some(Err(problem)) if problem.ends_file => return Read::Bad(longer, problem),
            Some(_) => {}
            None => break,
        }
    }
    // Both have counted one line past their ends.
    Read::Unequal { longer, lines: [lines[0].number() - 1, lines[1].number() - 1] }
}

fn row(
    read: &mut dyn Iterator<Item = std::result::Result<Row, Problem>>,
    wanted: &[RequestedColumn],
) -> Read {
    let Some(found) = read.next() else { return Read::End };
    let texts = found.and_then(|Row { line, cells }| {
        let texts: std::result::Result<Vec<String>, Problem> =
            cells.into_iter().zip(wanted).map(|(cell, wanted)| rows::text(cell, wanted, line)).collect();
        Ok((line, texts?))
    });
    match texts {
        Err(problem) => Read::Bad(0, problem),
        Ok((line, texts)) => {
            let mut texts = texts.into_iter();
            let (source, target) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
            Read::Pair(line, TextPair { source, target })
        }
    }
}

impl Iterator for Pairs {
    type Item = Result<Located>;

    fn next(&mut self) -> Option<Result<Located>> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Reads all pairs of a split, with counts of skipped ones, which may be any number.
///
/// # Errors
/// Unreadable or unaligned files; unusable pairs, with `OnBadPair::Error`; [`DataError::NoPairs`] if there
/// are none.
pub fn read_pairs(
    from: &ParallelFiles,
    base: &Path,
    languages: [&str; 2],
    on_bad_pair: OnBadPair,
) -> Result<(Vec<TextPair>, SkipReport)> {
    let mut pairs = Pairs::open(from, base, languages, BadPairs { on_bad_pair, max_skipped: None })?;
    let read: Vec<TextPair> = pairs.by_ref().map(|at| at.map(|at| at.pair)).collect::<Result<_>>()?;
    if read.is_empty() {
        return Err(no_pairs(&pairs));
    }
    Ok((read, pairs.skipped))
}

pub(super) fn no_pairs(pairs: &Pairs) -> DataError {
    let files = (0..pairs.parts.len()).map(|file| pairs.path(file, 0).display().to_string()).collect();
    DataError::NoPairs { files, skipped: pairs.skipped.clone() }
}

/// The texts of a split (its first side, its second, or both in turn), to train a vocabulary. Unusable pairs
/// are skipped.
///
/// # Errors
/// Files that cannot be opened; later read errors are returned as items.
pub fn sides(
    from: &ParallelFiles,
    base: &Path,
    languages: [&str; 2],
    wanted: [bool; 2],
) -> Result<impl Iterator<Item = Result<String>> + use<>> {
    let bad = BadPairs { on_bad_pair: OnBadPair::Skip, max_skipped: None };
    let pairs = Pairs::open(from, base, languages, bad)?;
    Ok(pairs.flat_map(move |at| match at {
        Err(error) => vec![Err(error)],
        Ok(Located { pair: TextPair { source, target }, .. }) => [source, target]
            .into_iter()
            .zip(wanted)
            .filter_map(|(text, wanted)| wanted.then_some(Ok(text)))
            .collect(),
    }))
}
