//! Rows of labelled texts, with columns set on the command line.

use std::path::Path;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use cloze_data::DataError;
use cloze_data::labelled::{
    Column, Columns, DataFormat, LabelSet, LabelledSource, Labels, OnBadRow, TextExample, texts,
};
use cloze_trainer::TrainerError;

use crate::failure::WrongUsage;
use crate::lines;
use crate::output::say;
use crate::rows;

#[derive(clap::Args)]
pub struct RowArgs {
    /// Columns of the fields, by name or by number from 1: text, pair (the second text) and label.
    #[arg(long, value_name = "FIELD=COLUMN", value_delimiter = ',', value_parser = rows::any_column)]
    columns: Vec<(String, Column)>,
    /// The files' format.
    #[arg(long = "input-format", alias = "format", value_name = "FORMAT", value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// The column separator of CSV and TSV, such as ";": one ASCII character.
    #[arg(long, value_name = "CHAR")]
    delimiter: Option<char>,
    /// CSV and TSV have no header: the first line is a row, and columns are numbered.
    #[arg(long)]
    no_header: bool,
    /// What to do with an unusable row, such as one without a label.
    #[arg(long, value_enum, default_value_t = BadRow::Error)]
    on_bad_row: BadRow,
    /// Maximum bytes of a line; a longer one is a bad row.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// From the file extension: .jsonl, .csv, .tsv, .parquet, .xml.
    Auto,
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated fields.
    Csv,
    /// Tab-separated fields.
    Tsv,
    /// Parquet.
    Parquet,
    /// XML.
    Xml,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum BadRow {
    /// Fail.
    Error,
    /// Skip and count it.
    Skip,
}

impl BadRow {
    /// The source's setting.
    pub fn setting(self) -> OnBadRow {
        match self {
            Self::Error => OnBadRow::Error,
            Self::Skip => OnBadRow::Skip,
        }
    }

    /// Rewords a bad-row error: from how a configuration skips such rows to how a command does.
    pub fn told(error: impl Into<TrainerError>) -> TrainerError {
        match error.into() {
            TrainerError::Data(DataError::BadRow { path, line, problem }) => {
                let problem = format!("{problem}; correct it, or skip such rows with --on-bad-row skip");
                DataError::LabelledFile { path, line, problem }.into()
            }
            error => error,
        }
    }
}

impl RowArgs {
    /// Maximum bytes of a line.
    pub fn max_line_bytes(&self) -> usize {
        self.max_line_bytes
    }

    /// Reads a file whose fields are in these columns, unless `--columns` says otherwise; reports skipped rows.
    ///
    /// # Errors
    /// [`WrongUsage`] for a field that the task does not have; unusable files and rows.
    pub fn read(
        &self,
        file: &str,
        usual: &[(&str, &str)],
        labels: Labels,
    ) -> Result<(Vec<TextExample>, Option<LabelSet>)> {
        let is_field = |field: &str| usual.iter().any(|(known, _)| *known == field);
        if let Some((unknown, _)) = self.columns.iter().find(|(field, _)| !is_field(field)) {
            let known = usual.iter().map(|(field, _)| *field).collect::<Vec<_>>().join(", ");
            let error = anyhow!("--columns: this command has no field `{unknown}`; expected one of {known}");
            return Err(WrongUsage::new(error).into());
        }
        rows::check_once(&self.columns)?;
        let mut source = LabelledSource {
            format: match self.format {
                Format::Auto => DataFormat::Auto,
                Format::Jsonl => DataFormat::Jsonl,
                Format::Csv => DataFormat::Csv,
                Format::Tsv => DataFormat::Tsv,
                Format::Parquet => DataFormat::Parquet,
                Format::Xml => DataFormat::Xml,
            },
            delimiter: self.delimiter,
            header: self.no_header.then_some(false),
            on_bad_row: self.on_bad_row.setting(),
            max_line_bytes: self.max_line_bytes,
            ..LabelledSource::new([file])
        };
        let usual = usual.iter().map(|(field, name)| ((*field).to_owned(), Column::Name((*name).to_owned())));
        // A later one replaces an earlier one.
        source.columns = usual
            .chain(self.columns.iter().cloned())
            .map(|(field, column)| (field, Columns::One(column)))
            .collect();
        let (loaded, set) = texts(&source, Path::new(""), labels).map_err(BadRow::told)?;
        if !loaded.skipped.is_empty() {
            say(format_args!("{file}: skipped {}", loaded.skipped));
        }
        Ok((loaded.examples, set))
    }
}
