//! The options, the scores and the results that all kinds of knowledge share.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use cloze_data::SkipReport;
use cloze_data::knowledge::{SuiteFile, suite_files};
use cloze_evaluation::knowledge::KnowledgeTable;
use cloze_evaluation::report::KnowledgeReport;
use cloze_trainer::TrainerError;
use cloze_trainer::likelihood::{Kind, Likelihood};
use serde::Serialize;
use serde_json::Value;

use crate::commands::likelihood::ScoringArgs;
use crate::failure::WrongUsage;
use crate::model;
use crate::output::{Output, say};
use crate::rows::BadRowArgs;

#[derive(clap::Args)]
pub struct Common {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    pub model: String,
    #[command(flatten)]
    pub scoring: ScoringArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write a report to this folder, replacing the files of an earlier one: report.html, report.json, and items.jsonl with a
    /// line for each item.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    pub bad: BadRowArgs,
    /// The test suite's files, folders or zip archives.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl Common {
    /// The files with these extensions.
    pub fn suite(&self, extensions: &[&str]) -> Result<Vec<SuiteFile>> {
        Ok(suite_files(&self.files, extensions)?)
    }

    /// Loads the model.
    ///
    /// # Errors
    /// [`WrongUsage`] for an encoder–decoder; those of the model's files.
    pub fn load(&self) -> Result<Likelihood> {
        let model = self.scoring.load(&self.model)?;
        match model.kind() {
            Kind::EncoderDecoder => Err(self.other_kind(
                "an encoder–decoder scores a target given its source; expected a left-to-right model, a masked one or an XLNet",
            )),
            _ => Ok(model),
        }
    }

    /// The error for a model of another kind than is needed.
    pub fn other_kind(&self, problem: &str) -> anyhow::Error {
        WrongUsage::new(anyhow!("{}: {problem}", self.model)).into()
    }

    /// The names of what was read, for a report.
    fn data(&self) -> String {
        self.files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Opens the file of items, if there is to be a report.
    pub fn items(&self) -> Result<Items> {
        let Some(folder) = &self.out else { return Ok(Items(None)) };
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Items(Some(Output::of(Some(&folder.join("items.jsonl")))?)))
    }

    /// Reports the lines that were skipped, if any, where so many others were `used`.
    ///
    /// # Errors
    /// More than --max-skipped allows.
    pub fn check_skipped(&self, skipped: &SkipReport, used: usize) -> Result<()> {
        self.bad.check_skipped(&self.data(), skipped, used as u64)
    }

    /// Prints the figures and writes the report if there is to be one. `kind` is the kind of knowledge.
    ///
    /// # Errors
    /// Data without an item; files that cannot be written.
    pub fn show(
        &self,
        kind: &str,
        n_items: usize,
        tables: &[KnowledgeTable],
        figures: &Value,
        items: Items,
    ) -> Result<()> {
        let data = self.data();
        if n_items == 0 {
            bail!(
                "{data}: there is nothing to score; expected the files of a test suite for `cloze knowledge {kind}`"
            );
        }
        let figures = serde_json::to_string_pretty(figures)?;
        if let Some(folder) = &self.out {
            items.finish()?;
            let facts = [("model", self.model.clone()), ("data", data)];
            let title = format!("{kind} by {}", name(&self.model));
            KnowledgeReport { title: &title, facts: &facts, tables }.write(folder)?;
            crate::output::write_atomic(&folder.join("report.json"), &(figures.clone() + "\n"))?;
            say(format_args!("report: {}", folder.join("report.html").display()));
        }
        let mut output = Output::new();
        match self.json {
            true => output.line(figures)?,
            false => {
                for table in tables {
                    output.line(table)?;
                }
            }
        }
        output.finish()
    }
}

fn name(model: &str) -> String {
    Path::new(model).file_name().map_or_else(|| model.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The file of scored items, if there is one.
pub struct Items(Option<Output>);

impl Items {
    /// Writes a line.
    pub fn write(&mut self, item: &impl Serialize) -> Result<()> {
        match &mut self.0 {
            Some(output) => output.line(serde_json::to_string(item)?),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Output::finish)
    }
}

/// The reader's error, worded for the command line.
pub fn told(error: cloze_data::DataError) -> anyhow::Error {
    BadRowArgs::told(error).into()
}

/// What the model says about an item that it cannot score, for a reader to refuse the item by; other errors are passed on.
///
/// # Errors
/// An error that is not the item's.
pub fn refusal(error: TrainerError) -> Result<String> {
    match error {
        TrainerError::BadInput { problem } => Ok(problem),
        error @ TrainerError::TextTooLong { .. } => Ok(error.to_string()),
        error => Err(anyhow!(error)),
    }
}
