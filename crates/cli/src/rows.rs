//! Rows of text or of tables: the options that every command which reads rows takes, and the rows of files,
//! read in batches.

use std::path::{Component, Path, PathBuf};
use std::vec;

use anyhow::{Error, Result, anyhow, bail};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches, ValueEnum};
use cloze_data::images::{has_image_extension, image_files};
use cloze_data::labelled::{
    Column, DataFormat, LabelledSource, Named, OnBadRow, RecordColumn, Records, found_delimiter, records,
};
use cloze_data::passages::{Passage, PassageConfig, Passages, is_markdown, passage_files};
use cloze_data::{DataError, MAX_SKIPPED, SkipReport, check_no_spreadsheet};
use cloze_trainer::TrainerError;
use serde_json::Value;

use crate::failure::WrongUsage;
use crate::lines::{self, BATCH, Batch, Lines, Longer};
use crate::output::say;

/// How rows are read. Every command that reads rows takes these options.
#[derive(Clone, Debug, clap::Args)]
pub struct RowArgs {
    /// The format of rows.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RowFormat::Auto)]
    input_format: RowFormat,
    /// The column of a table, or the key of an object, that a field is read from, by name or by number from 1
    /// (default: the field's name).
    #[arg(long, value_name = "FIELD=COLUMN", value_delimiter = ',', value_parser = field_column)]
    pub columns: Vec<(String, Column)>,
    /// The column separator of CSV and TSV, such as ";": one ASCII character.
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub delimiter: Option<char>,
    /// Whether cells of CSV and TSV may be quoted (default: yes in CSV; in TSV a quotation mark is text).
    #[arg(long, value_name = "BOOL")]
    pub quoting: Option<bool>,
    /// CSV and TSV have no header: the first line is a row, and columns are numbered.
    #[arg(long)]
    pub no_header: bool,
    #[command(flatten)]
    pub bad: BadRowArgs,
}

/// What happens to rows that cannot be used.
#[derive(Clone, Debug)]
pub struct BadRowArgs(BadRows);

/// The options themselves.
#[derive(Clone, Debug, clap::Args)]
pub struct BadRows {
    /// What to do with a row that cannot be used, such as one with too few columns or one that is not UTF-8.
    #[arg(long, value_enum, default_value_t = BadRow::Error)]
    on_bad_row: BadRow,
    /// The largest share of rows that --on-bad-row skip may leave out, from 0 to 1; more are an error at the end. One row
    /// may always be left out.
    #[arg(long, value_name = "SHARE", default_value_t = MAX_SKIPPED, value_parser = share)]
    pub max_skipped: f64,
    /// Maximum bytes of a line. A longer one is an unusable row; if the text would be truncated anyway, its
    /// beginning is read.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    pub max_line_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum RowFormat {
    /// From the file extension: .csv, .tsv, .jsonl, .parquet or .xml. Standard input and other files are in
    /// the command's usual format: for predict, rerank and embed --images JSON lines if the first line begins as
    /// JSON does, else lines of text; lines of text for others.
    Auto,
    /// One text per line.
    #[value(alias = "text")]
    Lines,
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated cells.
    Csv,
    /// Tab-separated cells.
    Tsv,
    /// Parquet, from a file only.
    Parquet,
    /// XML, from a file only: each child of the root is a row, with cells in attributes or child elements.
    Xml,
}

impl RowFormat {
    /// The format of a table's file; none for lines of text, which are no table.
    pub fn of_table(self) -> Option<DataFormat> {
        match self {
            Self::Auto => Some(DataFormat::Auto),
            Self::Lines => None,
            Self::Jsonl => Some(DataFormat::Jsonl),
            Self::Csv => Some(DataFormat::Csv),
            Self::Tsv => Some(DataFormat::Tsv),
            Self::Parquet => Some(DataFormat::Parquet),
            Self::Xml => Some(DataFormat::Xml),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum BadRow {
    /// Fail.
    Error,
    /// Leave it out and count it.
    Skip,
}

/// Says what separates columns.
pub fn columns_between(delimiter: char) -> String {
    match delimiter {
        '\t' => "columns between tabs".to_owned(),
        other => format!("columns between `{other}`"),
    }
}

/// Parses an option that gives a field's column.
fn field_column(text: &str) -> Result<(String, Column), String> {
    match text.split_once('=') {
        Some((field, name)) if !field.is_empty() && !name.is_empty() => Ok((field.into(), column(name)?)),
        _ => Err("expected FIELD=COLUMN".to_owned()),
    }
}

/// Parses a column's number or name.
fn column(name: &str) -> Result<Column, String> {
    match name.parse() {
        Ok(0) => Err("columns are counted from 1".to_owned()),
        Ok(number) => Ok(Column::Number(number)),
        Err(_) => Ok(Column::Name(name.into())),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1, such as 0.1 for a tenth".to_owned())
}

fn delimiter(text: &str) -> Result<char, String> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if c.is_ascii() && !matches!(c, '\n' | '\r' | '"') => Ok(c),
        _ => Err("expected one ASCII character, no line break and no quotation mark".to_owned()),
    }
}

/// The options' default values.
impl Default for BadRowArgs {
    fn default() -> Self {
        let max_line_bytes = lines::MAX_LINE_BYTES;
        Self(BadRows { on_bad_row: BadRow::Error, max_skipped: MAX_SKIPPED, max_line_bytes })
    }
}

impl clap::Args for BadRowArgs {
    fn augment_args(command: Command) -> Command {
        BadRows::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        BadRows::augment_args_for_update(command)
    }
}

impl FromArgMatches for BadRowArgs {
    /// A limit on what nothing leaves out is a mistake.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let rows = BadRows::from_arg_matches(matches)?;
        let is_limited = matches.value_source("max_skipped") == Some(ValueSource::CommandLine);
        if is_limited && rows.on_bad_row == BadRow::Error {
            let problem =
                "--max-skipped is the limit of --on-bad-row skip; add that, or leave --max-skipped out";
            return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, problem));
        }
        Ok(Self(rows))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl BadRowArgs {
    /// The setting of a [`LabelledSource`].
    pub fn setting(&self) -> OnBadRow {
        match self.0.on_bad_row {
            BadRow::Error => OnBadRow::Error,
            BadRow::Skip => OnBadRow::Skip,
        }
    }

    /// Whether unusable rows are left out and counted.
    pub fn skips(&self) -> bool {
        self.0.on_bad_row == BadRow::Skip
    }

    /// The maximum bytes of a line.
    pub fn max_line_bytes(&self) -> usize {
        self.0.max_line_bytes
    }

    /// A source with these settings, for a command without options for columns; messages name options.
    pub fn source(&self) -> LabelledSource {
        LabelledSource {
            on_bad_row: self.setting(),
            max_skipped: self.skips().then_some(self.0.max_skipped),
            max_line_bytes: self.max_line_bytes(),
            named: Named::FixedColumns,
            ..LabelledSource::default()
        }
    }

    /// Words the error of an unusable row for a command that cannot skip rows.
    pub fn corrected(error: DataError) -> DataError {
        match error {
            DataError::BadRow { path, line, problem } => {
                DataError::LabelledFile { path, line, problem: format!("{problem}; correct it") }
            }
            error => error,
        }
    }

    /// Words the error of an unusable row for the command line.
    pub fn told(error: impl Into<TrainerError>) -> TrainerError {
        match error.into() {
            TrainerError::Data(DataError::BadRow { path, line, problem }) => {
                let problem = format!("{problem}; correct it, or skip such rows with --on-bad-row skip");
                DataError::LabelledFile { path, line, problem }.into()
            }
            error => error,
        }
    }

    /// Checks that not more rows were left out than may be, where so many others were `used`, and reports them if there
    /// are any.
    ///
    /// # Errors
    /// [`DataError::ManySkipped`].
    pub fn check_skipped(&self, file: &str, skipped: &SkipReport, used: u64) -> Result<()> {
        skipped.check(used, "rows", self.0.max_skipped, "`--max-skipped`")?;
        say_skipped(file, skipped, used);
        Ok(())
    }
}

/// Reports rows that were skipped in a file, if any, where so many others were `used`.
pub fn say_skipped(file: &str, skipped: &SkipReport, used: u64) {
    if !skipped.is_empty() {
        say(format_args!("{file}: skipped {}", skipped.among(used, "rows")));
    }
}

/// Reports what has no rows in a folder, if anything.
pub fn say_left_out(folder: &str, left_out: &SkipReport) {
    if !left_out.is_empty() {
        say(format_args!("{folder}: skipped {}", left_out.with_places()));
    }
}

impl RowArgs {
    /// Whether none of the options is given.
    pub fn is_default(&self) -> bool {
        let Self { input_format, columns, delimiter, quoting, no_header, bad } = self;
        *input_format == RowFormat::Auto
            && columns.is_empty()
            && delimiter.is_none()
            && quoting.is_none()
            && !no_header
            && !bad.skips()
            && bad.max_line_bytes() == lines::MAX_LINE_BYTES
    }

    /// The format of a file, or of standard input if there is none: as given, else by the extension, else
    /// `usual`.
    pub fn format(&self, file: Option<&Path>, usual: RowFormat) -> RowFormat {
        let of_file = || {
            let data = DataFormat::of(file?)?;
            RowFormat::value_variants().iter().find(|format| format.of_table() == Some(data)).copied()
        };
        match self.input_format {
            RowFormat::Auto => of_file().unwrap_or(usual),
            format => format,
        }
    }

    /// Whether the format is given.
    pub fn has_format(&self) -> bool {
        self.input_format != RowFormat::Auto
    }

    /// A source of rows in a table with these settings. [`RowFormat::Auto`] goes by the extension. Says what
    /// separates the columns of the first file, if it is not what its extension says.
    ///
    /// # Errors
    /// [`WrongUsage`] for lines of text, which have no columns.
    pub fn source<T: Into<String>>(&self, files: impl IntoIterator<Item = T>) -> Result<LabelledSource> {
        let source = self.source_untold(files)?;
        if let Some(found) = source.delimiter.filter(|_| self.delimiter.is_none()) {
            say(format_args!("{}: {}", source.files[0], columns_between(found)));
        }
        Ok(source)
    }

    /// [`source`](Self::source) without a word.
    ///
    /// # Errors
    /// The same.
    pub fn source_untold<T: Into<String>>(
        &self,
        files: impl IntoIterator<Item = T>,
    ) -> Result<LabelledSource> {
        let format = self.input_format.of_table().ok_or_else(|| {
            let error = anyhow!("--input-format lines: lines of text have no columns for this command");
            WrongUsage::new(error)
        })?;
        let files: Vec<String> = files.into_iter().map(Into::into).collect();
        let delimiter = self.delimiter.or_else(|| self.found_delimiter(Path::new(files.first()?), format));
        Ok(LabelledSource {
            files,
            format,
            delimiter,
            quoting: self.quoting,
            header: self.no_header.then_some(false),
            named: Named::CommandLine,
            ..self.bad.source()
        })
    }

    /// What separates the columns of a table with a header, if it is not what its format says.
    fn found_delimiter(&self, file: &Path, format: DataFormat) -> Option<char> {
        let format = if format == DataFormat::Auto { DataFormat::of(file)? } else { format };
        let usual = match format {
            DataFormat::Csv => ',',
            DataFormat::Tsv => '\t',
            _ => return None,
        };
        (!self.no_header && file.is_file()).then(|| found_delimiter(file, usual))?
    }

    /// The column of a field, if it is given.
    pub fn column(&self, field: &str) -> Option<&Column> {
        self.columns.iter().find(|(name, _)| name == field).map(|(_, column)| column)
    }

    /// Checks that `--columns` names these fields only, each once.
    ///
    /// # Errors
    /// [`WrongUsage`].
    pub fn check_fields(&self, known: &[&str]) -> Result<()> {
        self.check_known(known)?;
        self.check_once(&[])
    }

    /// Checks that `--columns` names these fields only.
    ///
    /// # Errors
    /// [`WrongUsage`].
    pub fn check_known(&self, known: &[&str]) -> Result<()> {
        match self.columns.iter().find(|(field, _)| !known.contains(&field.as_str())) {
            None => Ok(()),
            Some((field, _)) => {
                let known = known.join(", ");
                let error =
                    anyhow!("--columns: this command has no field `{field}`; expected one of {known}");
                Err(WrongUsage::new(error).into())
            }
        }
    }

    /// Checks that `--columns` names no field twice but `lists`, whose items may lie in several columns.
    ///
    /// # Errors
    /// [`WrongUsage`].
    pub fn check_once(&self, lists: &[&str]) -> Result<()> {
        let is_named_before = |at: &usize| {
            let (field, _) = &self.columns[*at];
            !lists.contains(&field.as_str()) && self.columns[..*at].iter().any(|(other, _)| other == field)
        };
        let Some(at) = (0..self.columns.len()).find(is_named_before) else { return Ok(()) };
        let field = &self.columns[at].0;
        let error = anyhow!("--columns: the field `{field}` is given twice; expected one column for it");
        Err(WrongUsage::new(error).into())
    }

    /// Refuses options for tables where rows are lines of text.
    ///
    /// # Errors
    /// [`WrongUsage`].
    pub fn check_lines(&self) -> Result<()> {
        match self.columns.is_empty() {
            true => self.check_table_options(RowFormat::Lines),
            false => Err(no_columns("--columns")),
        }
    }

    /// Refuses options for tables where rows are lines of text or JSON.
    ///
    /// # Errors
    /// [`WrongUsage`].
    pub fn check_table_options(&self, format: RowFormat) -> Result<()> {
        let given = [
            ("--delimiter", self.delimiter.is_some()),
            ("--quoting", self.quoting.is_some()),
            ("--no-header", self.no_header),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) if !matches!(format, RowFormat::Csv | RowFormat::Tsv) => {
                let error = anyhow!("{option} is for CSV and TSV; set one of them with --input-format");
                Err(WrongUsage::new(error).into())
            }
            _ => Ok(()),
        }
    }
}

/// The error for columns of lines.
fn no_columns(named_by: &str) -> Error {
    WrongUsage::new(anyhow!("lines of text have no columns for {named_by}; name a file that has some")).into()
}

/// Files of rows, or standard input.
#[derive(clap::Args)]
pub struct RowFiles {
    /// Files with one text per row (default: standard input, one text per line); for `search`, also Markdown files and
    /// folders of .md and .txt files. With a model of images: files with one path or data URI per row, images, and
    /// folders of images.
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    pub rows: RowArgs,
}

/// The columns to read.
pub struct RowColumns {
    /// The columns, the text's first.
    pub columns: Vec<RecordColumn>,
    /// The option that named columns, which lines of text do not have.
    pub named_by: Option<&'static str>,
    /// Whether rows are images: folders, and files with an image's extension, are then rows themselves.
    pub images: bool,
    /// What is cut into passages, if the command reads them.
    pub passages: Option<Cut>,
}

/// The files that are cut into passages, whose cells are those of [`PASSAGE_FIELDS`], `text` and `id`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Folders and Markdown.
    Marked,
    /// All files.
    All,
}

/// The fields of a passage beside its text and id.
pub const PASSAGE_FIELDS: [&str; 3] = ["path", "line", "heading"];

impl RowArgs {
    /// The column to read `field` from: the one that is given, which must exist, or one of the field's own
    /// name, which must exist if `required`.
    pub fn record_column(&self, field: &str, required: bool) -> RecordColumn {
        let given = self.column(field).cloned();
        let required = required || given.is_some();
        let column = given.unwrap_or_else(|| Column::Name(field.into()));
        RecordColumn { field: field.into(), column, required }
    }
}

/// A row and its location in the input.
pub struct Placed {
    pub place: String,
    /// A cell for each column; for a line, only the text.
    pub cells: Vec<Value>,
}

/// The text of a row, or the path or data URI of its image; or the reason to count the row by, and what is wrong with it.
pub fn text_of(cell: Option<Value>, images: bool) -> Result<String, (&'static str, &'static str)> {
    match (cell, images) {
        (Some(Value::String(text)), _) if !text.trim().is_empty() => Ok(text),
        (Some(Value::String(_)), true) => {
            Err(("no image", "the image is empty; expected a path or data URI"))
        }
        (Some(Value::String(_)), false) => Err(("no text", "the text is empty")),
        (_, true) => Err((
            "no image",
            "the image is not a path or data URI in a string; name its column with --columns image=COLUMN",
        )),
        (_, false) => {
            Err(("no text", "the text is not a string; name its column with --columns text=COLUMN"))
        }
    }
}

/// Rows, read in batches.
pub struct Rows {
    /// The remaining sources, the next one last, each with its file.
    rest: Vec<(String, Source)>,
    /// What is read, for a message.
    name: String,
    bad: BadRowArgs,
    skipped: SkipReport,
    /// Files of folders that have no rows, which are no mistakes.
    left_out: SkipReport,
    /// Rows returned so far, without those that were refused afterwards.
    used: u64,
}

enum Source {
    Lines(Lines<Box<dyn std::io::Read>>, Batch),
    Records(Records),
    /// Rows that are files themselves, and what else is in their folder.
    Files(vec::IntoIter<PathBuf>, SkipReport),
    Passages(Box<PassageSource>),
}

/// Passages of files.
struct PassageSource {
    files: vec::IntoIter<PathBuf>,
    config: PassageConfig,
    /// The file that is read.
    open: Option<Passages>,
    skipped: SkipReport,
    /// Files without a passage.
    left_out: SkipReport,
    /// The lines read, less the passages made of them.
    more_lines: i64,
    /// The fields that become cells.
    fields: Vec<String>,
}

impl PassageSource {
    /// The next passage.
    fn next(&mut self, fits: &dyn Fn(&str) -> bool) -> Result<Option<Placed>> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(path) = self.files.next() else { return Ok(None) };
                self.open = Some(Passages::open(&path, &self.config)?);
                continue;
            };
            if let Some(passage) = open.next(fits).map_err(BadRowArgs::told)? {
                self.more_lines -= 1;
                return placed(open.path(), passage, &self.fields).map(Some);
            }
            self.skipped.add(open.skipped());
            self.more_lines += open.n_lines() as i64;
            // What lost its lines is counted by them.
            if open.is_empty() && open.skipped().is_empty() {
                let place = || (open.path().display().to_string(), "no text".to_owned());
                self.left_out.count_at("file without text", place);
            }
            self.open = None;
        }
    }
}

/// A passage as a row.
fn placed(path: &Path, passage: Passage, fields: &[String]) -> Result<Placed> {
    let Some(path) = path.to_str() else {
        bail!("{}: the path is not UTF-8; rename the file", path.display());
    };
    let Passage { text, line, column, heading } = passage;
    let place = match column {
        1 => format!("{path}:{line}"),
        column => format!("{path}:{line}:{column}"),
    };
    let cell = |field: &String| match field.as_str() {
        "text" => text.clone().into(),
        "id" => place.clone().into(),
        "path" => path.into(),
        "line" => line.into(),
        "heading" if !heading.is_empty() => heading.clone().into(),
        _ => Value::Null,
    };
    let cells = fields.iter().map(cell).collect();
    Ok(Placed { place, cells })
}

/// A path without `./` in front.
pub fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

impl RowFiles {
    /// Opens the files.
    ///
    /// # Errors
    /// [`WrongUsage`] if columns are named for lines; files that cannot be read.
    pub fn open(&self, columns: &RowColumns) -> Result<Rows> {
        let mut rest = Vec::new();
        if self.files.is_empty() {
            if columns.passages == Some(Cut::All) {
                let error = anyhow!("standard input is read as lines; name a file or folder for --passages");
                return Err(WrongUsage::new(error).into());
            }
            self.check_lines(columns)?;
            if self.rows.format(None, RowFormat::Lines) != RowFormat::Lines {
                let error = anyhow!("standard input is read as lines; name a file for --input-format");
                return Err(WrongUsage::new(error).into());
            }
            rest.push(("standard input".to_owned(), self.lines(None)?));
        }
        for file in &self.files {
            rest.push((file.clone(), self.source(file, columns)?));
        }
        let name = match &rest[..] {
            [(name, _)] => name.clone(),
            _ => "all files".to_owned(),
        };
        rest.reverse();
        Ok(Rows {
            rest,
            name,
            bad: self.rows.bad.clone(),
            skipped: SkipReport::default(),
            left_out: SkipReport::default(),
            used: 0,
        })
    }

    /// What is read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(Path::new)
    }

    /// Refuses columns for lines.
    fn check_lines(&self, columns: &RowColumns) -> Result<()> {
        columns.named_by.map_or(Ok(()), |named_by| Err(no_columns(named_by)))
    }

    fn lines(&self, path: Option<&Path>) -> Result<Source> {
        self.rows.check_table_options(RowFormat::Lines)?;
        let bad = &self.rows.bad;
        let lines = Lines::of(path, bad.max_line_bytes())?.with_longer(Longer::Refused).skipping(bad.skips());
        Ok(Source::Lines(lines, Batch::default()))
    }

    /// The files and folders that are cut into passages.
    pub fn passages(&self, cut: Cut) -> impl Iterator<Item = &Path> {
        let is_cut = move |path: &&Path| match cut {
            Cut::All => true,
            Cut::Marked => (path.is_dir() || is_markdown(path)) && !self.rows.has_format(),
        };
        self.files.iter().map(Path::new).filter(is_cut)
    }

    /// A file or folder as passages, if it is cut into them.
    fn passages_of(&self, file: &str, columns: &RowColumns) -> Result<Option<Source>> {
        let path = Path::new(file);
        if !columns.passages.is_some_and(|cut| self.passages(cut).any(|other| other == path)) {
            return Ok(None);
        }
        if let Some(named_by) = columns.named_by {
            let kept = PASSAGE_FIELDS.join(", ");
            let error = anyhow!(
                "{file}: it is cut into passages, which have no columns for {named_by}; their fields ({kept}) are kept \
                 by themselves"
            );
            return Err(WrongUsage::new(error).into());
        }
        self.rows.check_table_options(RowFormat::Lines)?;
        let (files, left_out) = match path.is_dir() {
            true => passage_files(path)?,
            false => (vec![path.to_owned()], SkipReport::default()),
        };
        let files: Vec<PathBuf> = files.iter().map(|path| plain(path)).collect();
        let bad = &self.rows.bad;
        let config = PassageConfig {
            on_bad_line: bad.setting(),
            max_line_bytes: bad.max_line_bytes(),
            named: Named::CommandLine,
            ..PassageConfig::default()
        };
        let fields = columns.columns.iter().map(|column| column.field.clone()).collect();
        let files = files.into_iter();
        let skipped = SkipReport::default();
        let passages = PassageSource { files, config, open: None, skipped, left_out, more_lines: 0, fields };
        Ok(Some(Source::Passages(Box::new(passages))))
    }

    fn source(&self, file: &str, columns: &RowColumns) -> Result<Source> {
        let path = Path::new(file);
        check_no_spreadsheet(path)?;
        if columns.images && (path.is_dir() || has_image_extension(path)) {
            self.check_lines(columns)?;
            let (files, skipped) = image_files(&[file.to_owned()], Path::new(""))?;
            return Ok(Source::Files(files.into_iter(), skipped));
        }
        if let Some(passages) = self.passages_of(file, columns)? {
            return Ok(passages);
        }
        if path.is_dir() {
            let error = anyhow!(
                "{file} is a folder; expected a file of texts (`cloze search index` cuts the .md and .txt files of a \
                 folder into passages)"
            );
            return Err(WrongUsage::new(error).into());
        }
        let is_text = self.rows.has_format() || path.is_file();
        if is_text && self.rows.format(Some(path), RowFormat::Lines) == RowFormat::Lines {
            self.check_lines(columns)?;
            return self.lines(Some(path));
        }
        let source = self.rows.source([file])?;
        Ok(Source::Records(records(&source, Path::new(""), columns.columns.clone())?))
    }
}

impl Rows {
    /// The next batch of rows to embed together; empty at the end, where skipped rows are reported. There must be no
    /// passages.
    pub fn batch(&mut self) -> Result<Vec<Placed>> {
        self.batch_of(&|_| true)
    }

    /// The next batch of rows, with passages that fit.
    pub fn batch_of(&mut self, fits: &dyn Fn(&str) -> bool) -> Result<Vec<Placed>> {
        let mut found = Vec::new();
        while found.len() < BATCH {
            let Some((_, source)) = self.rest.last_mut() else { break };
            let skipped = match source {
                Source::Lines(lines, batch) => {
                    if lines.read(BATCH - found.len(), batch)? {
                        // A blank line is no row.
                        let filled = batch.numbered().filter(|(_, line)| !line.text.trim().is_empty());
                        found.extend(filled.map(|(number, line)| Placed {
                            place: lines.place(number),
                            cells: vec![Value::String(line.text.to_owned())],
                        }));
                        continue;
                    }
                    lines.skipped()
                }
                Source::Records(records) => {
                    if let Some(record) = records.next().transpose().map_err(BadRowArgs::told)? {
                        let path = records.path().map(|path| path.display().to_string()).unwrap_or_default();
                        found.push(Placed { place: format!("{path}:{}", record.line), cells: record.cells });
                        continue;
                    }
                    records.skipped()
                }
                Source::Files(files, skipped) => {
                    if let Some(path) = files.next() {
                        let place = path.display().to_string();
                        let Some(path) = path.to_str() else {
                            bail!("{place}: the path is not UTF-8; rename the file");
                        };
                        found.push(Placed { place, cells: vec![Value::String(path.to_owned())] });
                        continue;
                    }
                    self.left_out.add(skipped);
                    &SkipReport::default()
                }
                Source::Passages(passages) => {
                    if let Some(passage) = passages.next(fits)? {
                        found.push(passage);
                        continue;
                    }
                    self.left_out.add(&passages.left_out);
                    // Lines are skipped, so lines are what counts.
                    self.used = self.used.saturating_add_signed(passages.more_lines);
                    &passages.skipped
                }
            };
            self.skipped.add(skipped);
            self.rest.pop();
        }
        if found.is_empty() {
            say_left_out(&self.name, &std::mem::take(&mut self.left_out));
            let skipped = std::mem::take(&mut self.skipped);
            self.bad.check_skipped(&self.name, &skipped, self.used)?;
        }
        self.used += found.len() as u64;
        Ok(found)
    }

    /// Whether rows that cannot be used are left out and counted.
    pub fn skips(&self) -> bool {
        self.bad.skips()
    }

    /// Rejects a row for this `reason`: it is counted if unusable rows are skipped.
    ///
    /// # Errors
    /// The `problem`, with the row's location.
    pub fn refuse(&mut self, place: &str, reason: &str, problem: &str) -> Result<()> {
        if !self.bad.skips() {
            bail!("{place}: {problem}");
        }
        self.used = self.used.saturating_sub(1);
        self.skipped.count_at(reason, || (place.to_owned(), problem.to_owned()));
        Ok(())
    }
}
