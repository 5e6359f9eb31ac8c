//! Corpora: files of text as a stream of documents.
//!
//! Memory does not grow with the corpus: one document is held at a time, lines and documents have length
//! limits, and compressed files are streamed. For Parquet, one page of the text column is held.

mod files;
mod jsonl;
pub(crate) mod lines;
mod parquet;
mod text;
mod utf16;
mod whole;

pub use files::input_files;
pub(crate) use files::{files, format, walk};
pub(crate) use jsonl::not_an_object;
pub(crate) use lines::Lines;

use crate::labelled::Named;
use crate::skipped::{DIVIDED, EMPTY_TEXT};
use crate::spreadsheet::{check_no_spreadsheet, is_table};
use crate::{DataError, MAX_SKIPPED, Result, SkipReport};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// What text to read and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusConfig {
    /// Files, folders (read recursively, sorted by name) and glob patterns; gzip and zstd are recognised.
    /// Default none; required without [`languages`](Self::languages).
    #[serde(default)]
    pub files: Vec<String>,
    /// The files' format. Default `"auto"`.
    #[serde(default)]
    pub format: Format,
    /// The column of JSON lines and Parquet that holds the text. Default `"text"`.
    #[serde(default = "text_column")]
    pub text_column: String,
    /// What happens when part of a file cannot be used. Default `"fail"`.
    #[serde(default)]
    pub on_error: OnError,
    /// The largest share of the lines, or of a table's rows, that `on_error = "skip"` may leave out, from 0 to 1; more are an
    /// error at the end, which names the first ones. An unusable file counts as one. One may always be left out. Default
    /// 0.05.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_skipped: Option<f64>,
    /// The longest line allowed, in bytes. A longer line is unusable. Default 1,048,576.
    #[serde(default = "mebibyte")]
    pub max_line_bytes: usize,
    /// The longest document, in bytes. A longer one is divided at the end of a line; a line that is itself
    /// too long is divided at white space. Each division is counted and reported. Default 1,048,576.
    #[serde(default = "mebibyte")]
    pub max_document_bytes: usize,
    /// The language whose rules divide text into sentences, as an ISO 639-1 code. Default `"en"`.
    #[serde(default = "english")]
    pub language: String,
    /// Texts in several languages, instead of [`files`](Self::files). Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<LanguageFiles>,
    /// With several languages, the exponent α of their sampling probabilities, from 0 (uniform) to 1
    /// (proportional to the amount of text). Default 0.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_alpha: Option<f64>,
    /// How messages name these settings. Not part of a config file.
    #[serde(skip)]
    pub named: Named,
}

/// The texts of one language among several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageFiles {
    /// The language's ISO 639-1 code, which selects the rules for sentence ends. Each language has its own.
    pub name: String,
    /// Its files, folders and glob patterns. Required.
    #[serde(default)]
    pub files: Vec<String>,
}

fn text_column() -> String {
    "text".into()
}

fn mebibyte() -> usize {
    1 << 20
}

fn english() -> String {
    "en".into()
}

impl Default for CorpusConfig {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            format: Format::Auto,
            text_column: text_column(),
            on_error: OnError::Fail,
            max_skipped: None,
            max_line_bytes: mebibyte(),
            max_document_bytes: mebibyte(),
            language: english(),
            languages: Vec::new(),
            sampling_alpha: None,
            named: Named::Config,
        }
    }
}

impl CorpusConfig {
    /// A setting's name in messages.
    fn setting(&self, key: &str) -> String {
        match self.named {
            Named::CommandLine | Named::FixedColumns => format!("--{}", key.replace('_', "-")),
            Named::Config | Named::TrainingData => format!("corpus.{key}"),
        }
    }

    /// Checks the limit on what is left out.
    fn check_max_skipped(&self) -> Result<()> {
        let problem = match (self.max_skipped, self.on_error) {
            (Some(_), OnError::Fail) => "only used with `corpus.on_error = \"skip\"`",
            (Some(share), _) if !(0.0..=1.0).contains(&share) => "expected a number from 0 to 1",
            _ => return Ok(()),
        };
        Err(DataError::CorpusSetting { key: "max_skipped", problem })
    }

    /// The settings that affect the documents, apart from the files' contents.
    pub(crate) fn shaping(&self) -> Self {
        let name = |of: &LanguageFiles| LanguageFiles { name: of.name.clone(), files: Vec::new() };
        let languages = self.languages.iter().map(name).collect();
        Self { files: Vec::new(), languages, ..self.clone() }
    }

    /// The corpus of each language, in order; this corpus alone if there are no languages.
    pub fn parts(&self) -> Vec<Self> {
        let of = |language: &LanguageFiles| Self {
            files: language.files.clone(),
            language: language.name.clone(),
            languages: Vec::new(),
            sampling_alpha: None,
            ..self.clone()
        };
        match self.languages.is_empty() {
            true => vec![self.clone()],
            false => self.languages.iter().map(of).collect(),
        }
    }
}

/// The format of a corpus's files. For text and JSON lines, gzip and zstd are detected from the
/// content; Parquet has its own compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The file's extension decides: `.jsonl`, `.ndjson` and `.json` are JSON lines, `.parquet` is Parquet,
    /// anything else is text.
    #[default]
    Auto,
    /// Plain text. A blank line separates documents.
    Text,
    /// Plain text. Each file is one document, including its blank lines.
    Whole,
    /// Each line is a JSON object, and each object a document.
    Jsonl,
    /// Parquet. Each row is a document. The text column holds strings, or bytes that are UTF-8.
    Parquet,
}

/// What happens when part of a file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// Fail with an error that gives the location.
    #[default]
    Fail,
    /// Leave it out and count it.
    Skip,
}

/// A document: its paragraphs, one a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    text: String,
    continues: bool,
}

impl Document {
    /// The non-blank lines.
    pub fn paragraphs(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.trim().is_empty())
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the next document continues this one, which was too long to hold in memory.
    pub fn continues(&self) -> bool {
        self.continues
    }

    /// The text's length in bytes.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// A reader of one file: documents, and problems with places in it.
trait Reader {
    /// The next document or problem; `None` at the end.
    fn next(&mut self) -> Option<std::result::Result<Piece, Problem>>;

    /// Bytes of the file consumed so far.
    fn bytes_read(&self) -> u64;
}

/// A document, or part of one that is too long to hold.
struct Piece {
    text: String,
    /// Whether the document continues in the next piece.
    continues: bool,
}

/// An unusable part of a file.
#[derive(Debug)]
pub(crate) struct Problem {
    pub line: Option<u64>,
    /// The kind, by which skips are counted.
    pub kind: &'static str,
    /// Details for the error.
    pub detail: String,
    /// Whether the rest of the file is unusable too.
    pub ends_file: bool,
}

impl Problem {
    /// The place of the problem and what it is, for a report.
    pub fn told(&self, path: &Path) -> (String, String) {
        let line = self.line.map_or(String::new(), |line| format!(":{line}"));
        (format!("{}{line}", path.display()), self.detail.clone())
    }

    /// The error of a file of rows: a row that may be skipped, or the end of the file.
    pub fn in_file(self, path: &Path) -> DataError {
        let (path, line, problem) = (path.to_owned(), self.line, self.detail);
        match self.ends_file {
            true => DataError::LabelledFile { path, line, problem },
            false => DataError::BadRow { path, line, problem },
        }
    }
}

/// Iterator over the documents of a corpus.
pub struct DocumentStream {
    config: CorpusConfig,
    files: VecDeque<PathBuf>,
    current: Option<(PathBuf, Box<dyn Reader>)>,
    /// Parts of a document that was too long.
    parts: VecDeque<Document>,
    skipped: SkipReport,
    /// Lines of text and rows of tables that were read, if others are left out.
    used: u64,
    bytes_done: u64,
    bytes_total: u64,
    failed: bool,
}

/// Opens a corpus. Relative paths start at `base`.
///
/// # Errors
/// A path or pattern without files; a table in columns or a spreadsheet, unless the [`format`](CorpusConfig::format) says that
/// it is text; an invalid [`max_skipped`](CorpusConfig::max_skipped). Problems inside files are reported
/// while iterating, and at the end that too much was left out.
pub fn documents(config: &CorpusConfig, base: &Path) -> Result<DocumentStream> {
    config.check_max_skipped()?;
    let files = input_files(config, base)?;
    for path in &files {
        check_no_spreadsheet(path)?;
        if config.format == Format::Auto && is_table(path) {
            let setting = match config.named {
                Named::CommandLine | Named::FixedColumns => "give `--input-format lines`",
                Named::Config | Named::TrainingData => "set `corpus.format = \"text\"`",
            };
            return Err(DataError::TableAsText { path: path.clone(), setting });
        }
    }
    let mut bytes_total = 0;
    for path in &files {
        bytes_total += path.metadata().map_err(DataError::io("read", path))?.len();
    }
    Ok(DocumentStream {
        config: config.clone(),
        files: files.into(),
        current: None,
        parts: VecDeque::new(),
        skipped: SkipReport::default(),
        used: 0,
        bytes_done: 0,
        bytes_total,
        failed: false,
    })
}

impl DocumentStream {
    /// What was left out or cut so far.
    pub fn skipped(&self) -> &SkipReport {
        &self.skipped
    }

    /// Lines of text and rows of tables read so far, without those left out. They are counted only if unusable parts are
    /// skipped.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of the files consumed so far, as stored on disk.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_done + self.current.as_ref().map_or(0, |(_, reader)| reader.bytes_read())
    }

    /// Bytes of all files on disk.
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total
    }

    fn open(&self, path: &Path) -> std::result::Result<Box<dyn Reader>, Problem> {
        match format(path, self.config.format) {
            Format::Parquet => parquet::open(path, &self.config.text_column),
            Format::Jsonl => jsonl::open(path, &self.config),
            Format::Text | Format::Auto => text::open(path, &self.config),
            Format::Whole => whole::open(path, &self.config),
        }
    }

    /// A problem as an error, or `None` if such problems are skipped. Empty texts always are.
    fn problem(&mut self, path: &Path, problem: &Problem) -> Option<DataError> {
        if problem.kind == EMPTY_TEXT {
            // Many corpora have such rows. They are no mistake, but the user is told how many there are.
            self.skipped.count(EMPTY_TEXT);
            return None;
        }
        match self.config.on_error {
            OnError::Skip => {
                self.skipped.count_at(problem.kind, || problem.told(path));
                None
            }
            OnError::Fail => {
                self.failed = true;
                Some(DataError::Input {
                    path: path.into(),
                    line: problem.line,
                    problem: problem.detail.clone(),
                })
            }
        }
    }

    /// Counts the lines, or the row, of a document.
    fn count(&mut self, path: &Path, text: &str) {
        if self.config.on_error == OnError::Skip {
            self.used += match format(path, self.config.format) {
                Format::Parquet | Format::Jsonl => 1,
                Format::Text | Format::Auto | Format::Whole => {
                    text.lines().filter(|line| !line.trim().is_empty()).count() as u64
                }
            };
        }
    }

    /// The end of all files: an error if too much was left out.
    fn end(&mut self) -> Option<DataError> {
        self.failed = true;
        if self.used == 0 {
            // Whoever reads the corpus says that it has no text.
            return None;
        }
        let share = self.config.max_skipped.unwrap_or(MAX_SKIPPED);
        let setting = format!("`{}`", self.config.setting("max_skipped"));
        self.skipped.check(self.used, "lines", share, &setting).err()
    }

    fn close(&mut self, path: &Path) {
        self.bytes_done += path.metadata().map_or(0, |meta| meta.len());
        self.current = None;
    }

    /// A document within the length limit: a longer one is divided at line ends.
    fn divide(&mut self, text: String, continues: bool) {
        let max = self.config.max_document_bytes.max(1);
        if text.len() <= max {
            self.parts.push_back(Document { text, continues });
            return;
        }
        let mut part = String::new();
        for line in text.split_inclusive('\n').flat_map(|line| pieces(line, max)) {
            if !part.is_empty() && part.len() + line.len() > max {
                self.skipped.count(DIVIDED);
                self.parts.push_back(Document { text: std::mem::take(&mut part), continues: true });
            }
            part += line;
        }
        self.parts.push_back(Document { text: part, continues });
    }
}

/// A text in pieces of at most `max` bytes (or one character) cut at white space if there is any.
pub(crate) fn pieces(text: &str, max: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut cut = rest.len();
        if rest.len() > max {
            cut = rest.floor_char_boundary(max);
            if let Some(space) = rest[..cut].rfind(char::is_whitespace).filter(|space| *space > 0) {
                cut = space;
            }
            if cut == 0 {
                cut = rest.ceil_char_boundary(1);
            }
        }
        let (piece, more) = rest.split_at(cut);
        rest = more;
        Some(piece)
    })
}

/// The message for a missing text column. It lists the file's columns.
fn missing_column<'a>(column: &str, columns: impl Iterator<Item = &'a str>) -> String {
    format!("no column `{column}` (it has: {}); set `corpus.text_column`", shown(columns))
}

/// Column names for a message; a long list is cut.
pub(crate) fn shown<'a>(columns: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 20;
    let mut names: Vec<String> =
        columns.take(SHOWN + 1).map(|name| name.chars().take(40).collect()).collect();
    if names.len() > SHOWN {
        names[SHOWN] = "…".into();
    }
    names.join(", ")
}

impl Iterator for DocumentStream {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(document) = self.parts.pop_front() {
                return Some(Ok(document));
            }
            if self.failed {
                return None;
            }
            let Some((path, mut reader)) = self.current.take() else {
                let Some(path) = self.files.pop_front() else { return self.end().map(Err) };
                match self.open(&path) {
                    Ok(reader) => self.current = Some((path, reader)),
                    Err(problem) => {
                        self.close(&path);
                        if let Some(error) = self.problem(&path, &problem) {
                            return Some(Err(error));
                        }
                    }
                }
                continue;
            };
            match reader.next() {
                Some(Ok(Piece { text, continues })) => {
                    self.count(&path, &text);
                    self.current = Some((path, reader));
                    if continues {
                        self.skipped.count(DIVIDED);
                    }
                    self.divide(text, continues);
                }
                Some(Err(problem)) => {
                    match problem.ends_file {
                        true => self.close(&path),
                        false => self.current = Some((path.clone(), reader)),
                    }
                    if let Some(error) = self.problem(&path, &problem) {
                        return Some(Err(error));
                    }
                }
                None => self.close(&path),
            }
        }
    }
}
