//! Where labelled data is and how it is read: the part of a config that a user writes.

use super::places::Places;
use super::rows::Named;
use crate::corpus::files;
use crate::spreadsheet::check_no_spreadsheet;
use crate::{DataError, MAX_SKIPPED, Result, SkipReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The files of labelled data, their format, and the meaning of their columns.
///
/// Text may be compressed with gzip or zstd, begin with a byte-order mark, which distinguishes UTF-16 from
/// UTF-8, and have line ends `\n`, `\r\n` or, if a file has no other, `\r`. Columns have the names of the
/// task's fields unless `columns` says otherwise. Keys that do not apply to the format or the task are errors.
///
/// ```
/// # use cloze_data::labelled::LabelledSource;
/// // Two public sets. MRPC: tabs, quotation marks that are text.
/// let mrpc = r##"{"files": ["mrpc/train.tsv"],
///     "columns": {"text": "#1 String", "pair": "#2 String", "label": "Quality"}}"##;
/// // TREC: `DESC:manner How did serfdom develop?`, the coarse class.
/// let trec = r#"{"files": ["trec/train.txt"], "format": "tsv", "delimiter": " ", "header": false,
///     "n_columns": 2, "columns": {"label": 1, "text": 2}, "label_before": ":"}"#;
/// for source in [mrpc, trec] {
///     serde_json::from_str::<LabelledSource>(source)?;
/// }
/// # Ok::<_, serde_json::Error>(())
/// ```
///
/// # Columns
/// The columns that a task reads are documented at [`texts`](super::texts), [`choices`](super::choices),
/// [`tagged_sentences`](super::tagged_sentences) and [`questions`](super::questions).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LabelledSource {
    /// Files, folders (read recursively, sorted by name) and glob patterns. Required.
    pub files: Vec<String>,
    /// The files' format. Default `"auto"`.
    pub format: DataFormat,
    /// What separates the columns of CSV, TSV and CoNLL: one ASCII character. Default: a comma in CSV, a tab
    /// in TSV; in CoNLL a tab on lines that have one, else spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<char>,
    /// Whether fields of CSV or TSV may be quoted; quoted fields may contain the delimiter, line ends, and
    /// `""` for a quotation mark. Unquoted, a quotation mark is an ordinary character. Default: yes in CSV,
    /// no in TSV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quoting: Option<bool>,
    /// Whether the first line of CSV and TSV holds the column names. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<bool>,
    /// Number of columns of CSV and TSV without quoting; the last takes the rest of the line, including
    /// delimiters. Default: the number in the first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_columns: Option<usize>,
    /// The prefix of CoNLL comments; empty for no comments. Default: a line before a sentence is a comment if
    /// it begins with `#` and its last column is not a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The task's fields, each with its column's name, or its number from 1, or a list of several columns.
    /// Texts have `text`, `pair` and `label`; with several labels `labels`, one column whose values are lists
    /// or texts, or a list of columns of 0 and 1. Sentences to embed have `text`, `pair`, `negatives`,
    /// `label` and `class`; choices `context`, `choices` and `label`; tagged sentences `words` and `tags`;
    /// questions `id`, `title`, `context`, `question` and `answers`; images `image`, and `label` or `caption`. The columns of CoNLL-U are `id`, `form`,
    /// `lemma`, `upos`, `xpos`, `feats`, `head`, `deprel`, `deps` and `misc`; `words` are `form` and `tags`
    /// are `upos` unless they are named. Default: each field's own name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, Columns>,
    /// The label is the text before the first occurrence of this, as `DESC` before `:` in `DESC:manner`.
    /// Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_before: Option<String>,
    /// What separates the labels of a row in one string. Default `","`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_delimiter: Option<String>,
    /// The numeric label of a multiple-choice example's first choice. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_choice: Option<u64>,
    /// What happens when a row cannot be used. Files that are empty or cannot be read, and columns that a
    /// whole file lacks, are errors either way. Default `"error"`.
    pub on_bad_row: OnBadRow,
    /// The largest share of rows that `on_bad_row = "skip"` may leave out, from 0 to 1; more are an error, which names the
    /// first ones. One row may always be left out. Default 0.05.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_skipped: Option<f64>,
    /// The longest line, or row of several lines, in bytes; a longer one is a bad row. Default 1,048,576.
    pub max_line_bytes: usize,
    /// How messages name these settings. Not part of a config file.
    #[serde(skip)]
    pub named: Named,
}

impl Default for LabelledSource {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            format: DataFormat::Auto,
            delimiter: None,
            quoting: None,
            header: None,
            n_columns: None,
            comment: None,
            columns: BTreeMap::new(),
            label_before: None,
            label_delimiter: None,
            first_choice: None,
            on_bad_row: OnBadRow::Error,
            max_skipped: None,
            max_line_bytes: 1 << 20,
            named: Named::Config,
        }
    }
}

/// The format of labelled data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataFormat {
    /// The file's extension decides, after any compression extension: `.csv`; `.tsv` and `.tab`; `.jsonl` and
    /// `.ndjson`; `.parquet`; `.xml`; `.conll`, `.bio`, `.iob` and, of tagged sentences, `.txt`; `.conllu`;
    /// `.json`, which is SQuAD's format for questions, else JSON lines.
    #[default]
    Auto,
    /// Fields between commas.
    Csv,
    /// Fields between tabs.
    Tsv,
    /// Each line is a JSON object, and each object a row; or the file is one JSON document, a list of objects or an object whose
    /// `data` is one. A document is read whole.
    Jsonl,
    /// Parquet.
    Parquet,
    /// XML: each child of the root is a row; columns are its attributes or child elements.
    Xml,
    /// Each line is a word with its tag. A blank line separates sentences.
    Conll,
    /// CoNLL-U, the format of Universal Dependencies: each line is a word in ten named columns.
    Conllu,
    /// The JSON of SQuAD 1.1 and 2.0.
    Squad,
}

/// A file's extension in lower case, ignoring any compression extension.
fn ending(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    name.rsplit_once('.').map_or("", |(_, ending)| ending).to_owned()
}

impl DataFormat {
    /// The row format indicated by a file's extension, ignoring any compression extension; `None` if unknown.
    pub fn of(path: &Path) -> Option<Self> {
        match ending(path).as_str() {
            "csv" => Some(Self::Csv),
            "tsv" | "tab" => Some(Self::Tsv),
            "jsonl" | "ndjson" | "json" => Some(Self::Jsonl),
            "parquet" => Some(Self::Parquet),
            "xml" => Some(Self::Xml),
            "conll" | "bio" | "iob" => Some(Self::Conll),
            "conllu" => Some(Self::Conllu),
            _ => None,
        }
    }
}

impl fmt::Display for DataFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
            Self::Xml => "xml",
            Self::Conll => "conll",
            Self::Conllu => "conllu",
            Self::Squad => "squad",
        })
    }
}

/// What happens when a row cannot be used. Unreadable or empty files, and columns that a whole file
/// lacks, are errors either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBadRow {
    /// Fail with an error that identifies the row.
    #[default]
    Error,
    /// Leave it out and count it.
    Skip,
}

/// A column, by its number from 1 or by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a column's name, or its number from 1")]
pub enum Column {
    /// The number, from 1.
    Number(usize),
    /// The name.
    Name(String),
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "column {number}"),
            Self::Name(name) => write!(f, "column `{name}`"),
        }
    }
}

/// The column, or columns, of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a column's name, its number from 1, or a list of them")]
pub enum Columns {
    /// One.
    One(Column),
    /// Several, as for choices.
    Many(Vec<Column>),
}

/// Examples with their places, and the number of rows skipped by reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded<T> {
    /// The examples, in the files' order.
    pub examples: Vec<T>,
    /// Where they are from.
    pub places: Places,
    /// The rows skipped, by reason.
    pub skipped: SkipReport,
}

/// The kind of task, which decides the meaning of file extensions and the keys read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Texts,
    /// Texts with any number of labels each.
    LabelLists,
    /// Sentences to embed.
    Sentences,
    /// Sentences and their translations.
    Pairs,
    Choices,
    Tags,
    Questions,
    /// Images with a class.
    #[cfg(feature = "images")]
    Images,
    /// Images with captions.
    #[cfg(feature = "images")]
    Captions,
}

impl LabelledSource {
    /// A source of these files, with all defaults.
    pub fn new<T: Into<String>>(files: impl IntoIterator<Item = T>) -> Self {
        Self { files: files.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The same settings for other files, such as another split.
    pub fn with_files<T: Into<String>>(&self, files: impl IntoIterator<Item = T>) -> Self {
        Self { files: files.into_iter().map(Into::into).collect(), ..self.clone() }
    }

    /// The files in reading order. Relative paths start at `base`.
    ///
    /// # Errors
    /// A pattern without files; a folder that cannot be read.
    pub fn paths(&self, base: &Path) -> Result<Vec<PathBuf>> {
        files(&self.files, base).map_err(|error| match error {
            DataError::NoFiles { pattern, base } => DataError::NoLabelledFiles { pattern, base },
            other => other,
        })
    }

    /// The files with their formats, after checking that every setting is used.
    pub(crate) fn open(&self, task: Task, base: &Path) -> Result<Vec<(PathBuf, DataFormat)>> {
        let fields = task.fields();
        if let Some(unknown) = self.columns.keys().find(|key| !fields.contains(&key.as_str())) {
            let problem = format!("this task has no such field; expected one of {}", fields.join(", "));
            return Err(self.setting(&format!("columns.{unknown}"), problem));
        }
        for (field, columns) in &self.columns {
            let columns = match columns {
                Columns::One(column) => std::slice::from_ref(column),
                Columns::Many(columns) if task == Task::Choices && field == "choices" => columns,
                Columns::Many(columns) if task == Task::LabelLists && field == "labels" => columns,
                Columns::Many(columns) if task == Task::Sentences && field == "negatives" => columns,
                Columns::Many(_) => {
                    let problem = "expected one column, found a list".into();
                    return Err(self.setting(&format!("columns.{field}"), problem));
                }
            };
            if columns.contains(&Column::Number(0)) {
                return Err(self.setting(&format!("columns.{field}"), "columns are counted from 1".into()));
            }
        }
        if self.max_line_bytes == 0 {
            return Err(self.setting("max_line_bytes", "expected a number above 0".into()));
        }
        if self.max_skipped.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err(self.setting("max_skipped", "expected a number from 0 to 1".into()));
        }
        if self.delimiter.is_some_and(|c| !c.is_ascii() || matches!(c, '\n' | '\r')) {
            let problem = "expected one ASCII character other than a line break";
            return Err(self.setting("delimiter", problem.into()));
        }
        if self.n_columns == Some(0) {
            return Err(self.setting("n_columns", "expected a number above 0".into()));
        }
        for (key, separator) in
            [("label_before", &self.label_before), ("label_delimiter", &self.label_delimiter)]
        {
            if separator.as_deref() == Some("") {
                return Err(self.setting(key, "expected a separator, found an empty string".into()));
            }
        }
        let formats: Vec<_> = self
            .paths(base)?
            .into_iter()
            .map(|path| {
                check_no_spreadsheet(&path)?;
                let format = self.format_of(&path, task)?;
                Ok((path, format))
            })
            .collect::<Result<_>>()?;
        self.refuse_unread(task, &formats)?;
        Ok(formats)
    }

    fn format_of(&self, path: &Path, task: Task) -> Result<DataFormat> {
        let format = match self.format {
            DataFormat::Auto => match (DataFormat::of(path), ending(path).as_str()) {
                (_, "json") if task == Task::Questions => DataFormat::Squad,
                (_, "txt") if task == Task::Tags => DataFormat::Conll,
                (Some(format), _) => format,
                (None, _) => {
                    let remedy = match self.named {
                        Named::FixedColumns => "expected .csv, .tsv, .jsonl, .parquet or .xml".into(),
                        named => format!("set {}", named.setting("format")),
                    };
                    let problem = format!("the file's extension does not tell the format; {remedy}");
                    return Err(DataError::LabelledFile { path: path.into(), line: None, problem });
                }
            },
            format => format,
        };
        let fits = match format {
            DataFormat::Conll | DataFormat::Conllu => task == Task::Tags,
            DataFormat::Squad => task == Task::Questions,
            DataFormat::Csv | DataFormat::Tsv => !matches!(task, Task::Tags | Task::Questions),
            DataFormat::Xml => !matches!(task, Task::Tags | Task::Questions | Task::Pairs),
            _ => true,
        };
        match fits {
            true => Ok(format),
            false => {
                let problem =
                    format!("files in `{format}` cannot hold this task's examples ({})", path.display());
                Err(self.setting("format", problem))
            }
        }
    }

    /// An error about the setting with this key.
    pub(crate) fn setting(&self, key: &str, problem: String) -> DataError {
        let key = self.named.setting(key).trim_matches('`').to_owned();
        DataError::LabelledSetting { key, problem }
    }

    /// A key that nothing reads is a mistake.
    fn refuse_unread(&self, task: Task, files: &[(PathBuf, DataFormat)]) -> Result<()> {
        use DataFormat::{Conll, Csv, Squad, Tsv};
        let any = |formats: &[DataFormat]| files.iter().any(|(_, format)| formats.contains(format));
        let quoted = any(&[Csv]) && self.quoting.is_none() || self.quoting == Some(true);
        let unread = [
            ("delimiter", self.delimiter.is_some() && !any(&[Csv, Tsv, Conll])),
            ("quoting", self.quoting.is_some() && !any(&[Csv, Tsv])),
            ("header", self.header.is_some() && !any(&[Csv, Tsv])),
            ("n_columns", self.n_columns.is_some() && (!any(&[Csv, Tsv]) || quoted)),
            ("comment", self.comment.is_some() && !any(&[Conll])),
            ("columns", !self.columns.is_empty() && any(&[Squad])),
            ("max_skipped", self.max_skipped.is_some() && self.on_bad_row == OnBadRow::Error),
            ("label_before", self.label_before.is_some() && !task.has_class()),
            ("label_delimiter", self.label_delimiter.is_some() && task != Task::LabelLists),
            ("first_choice", self.first_choice.is_some() && task != Task::Choices),
        ];
        match unread.iter().find(|(_, unread)| *unread) {
            None => Ok(()),
            Some((key, _)) => {
                let problem = match *key {
                    "n_columns" => "only used for `csv` and `tsv` with `quoting = false`",
                    "columns" => "`squad` has its own fields",
                    "max_skipped" => "only used with `on_bad_row = \"skip\"`",
                    _ => "not used by this task or by the files' format",
                };
                Err(self.setting(key, problem.into()))
            }
        }
    }

    /// The largest share of rows that may be left out.
    pub(super) fn max_skipped(&self) -> f64 {
        self.max_skipped.unwrap_or(MAX_SKIPPED)
    }

    /// The column of a field, by default the one of that name.
    pub(super) fn column(&self, field: &str) -> Column {
        match self.columns.get(field) {
            Some(Columns::One(column)) => column.clone(),
            _ => Column::Name(field.into()),
        }
    }

    /// The column of an optional field, if configured.
    pub(super) fn configured(&self, field: &str) -> Option<Column> {
        self.columns.contains_key(field).then(|| self.column(field))
    }
}

impl Task {
    /// Whether the column `label` may be a class.
    fn has_class(self) -> bool {
        match self {
            Self::Texts => true,
            #[cfg(feature = "images")]
            Self::Images => true,
            _ => false,
        }
    }

    /// The fields that can be assigned a column.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Texts => &["text", "pair", "label"],
            Self::LabelLists => &["text", "pair", "labels"],
            Self::Sentences => &["text", "pair", "negatives", "label", "class"],
            Self::Pairs => &["source", "target"],
            Self::Choices => &["context", "choices", "label"],
            Self::Tags => &["words", "tags"],
            Self::Questions => &["id", "title", "context", "question", "answers"],
            #[cfg(feature = "images")]
            Self::Images => &["image", "label"],
            #[cfg(feature = "images")]
            Self::Captions => &["image", "caption"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(source: &LabelledSource, task: Task) -> String {
        source.open(task, Path::new("")).unwrap_err().to_string()
    }

    #[test]
    fn unknown_and_unread_keys_are_refused() {
        assert!(serde_json::from_str::<LabelledSource>(r#"{"file": []}"#).is_err());
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.csv", "b.jsonl", "c.conll", "d.json", "e.txt", "f"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let source = |file: &str| LabelledSource::new([folder.path().join(file).to_string_lossy()]);
        let name =
            |field: &str| BTreeMap::from([(field.to_string(), Columns::One(Column::Name("x".into())))]);
        let message = |source: LabelledSource, task| message(&source, task);
        assert_eq!(
            message(LabelledSource { columns: name("tags"), ..source("a.csv") }, Task::Texts),
            "`columns.tags` of the labelled data: this task has no such field; expected one of text, pair, label"
        );
        let zero = BTreeMap::from([("text".to_string(), Columns::One(Column::Number(0)))]);
        assert!(message(LabelledSource { columns: zero, ..source("a.csv") }, Task::Texts).contains("from 1"));
        let many = BTreeMap::from([("text".to_string(), Columns::Many(vec![]))]);
        assert!(message(LabelledSource { columns: many, ..source("a.csv") }, Task::Texts).contains("a list"));
        assert!(
            message(LabelledSource { header: Some(true), ..source("b.jsonl") }, Task::Texts)
                .starts_with("`header` of the labelled data: ")
        );
        assert!(
            message(LabelledSource { n_columns: Some(2), ..source("a.csv") }, Task::Texts)
                .contains("quoting = false")
        );
        assert!(
            message(LabelledSource { comment: Some("#".into()), ..source("b.jsonl") }, Task::Tags)
                .contains("not used by this task")
        );
        assert!(
            message(LabelledSource { columns: name("id"), ..source("d.json") }, Task::Questions)
                .contains("own fields")
        );
        assert!(message(source("c.conll"), Task::Texts).contains("cannot hold"));
        assert!(message(source("f"), Task::Tags).contains("set `format`"));
        assert!(message(source("e.txt"), Task::Texts).contains("set `format`"));
        assert!(message(source("none.csv"), Task::Texts).contains("no file matches `"));
        assert!(message(LabelledSource::default(), Task::Texts).contains("none listed"));
        assert!(
            message(LabelledSource { delimiter: Some('ä'), ..source("a.csv") }, Task::Texts)
                .contains("ASCII")
        );
    }

    #[test]
    fn endings_say_the_format() {
        let source = LabelledSource::default();
        let format = |name: &str, task| source.format_of(Path::new(name), task).unwrap();
        assert_eq!(format("a.CSV.gz", Task::Texts), DataFormat::Csv);
        assert_eq!(format("a.tsv.zst", Task::Choices), DataFormat::Tsv);
        assert_eq!(format("a.json", Task::Questions), DataFormat::Squad);
        assert_eq!(format("a.json", Task::Tags), DataFormat::Jsonl);
        assert_eq!(format("a.conll.txt", Task::Tags), DataFormat::Conll);
        assert_eq!(format("a.conllu.gz", Task::Tags), DataFormat::Conllu);
    }
}
