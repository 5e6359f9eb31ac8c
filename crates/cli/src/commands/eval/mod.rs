//! `cloze eval`.

mod cost;
mod images;
mod side_by_side;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::Report;
use cloze_trainer::captions::CaptionRun;
use cloze_trainer::config::ConfigFile;
use cloze_trainer::finetune::{Advance, Cost, EvaluationData, Predictor, read_without_training};
use cloze_trainer::images::ImageRun;
use cloze_trainer::runs::RunKind;
use indicatif::HumanCount;
use serde::Serialize;

use crate::compute::Compute;
use crate::failure::WrongUsage;
use crate::model;
use crate::output::{Output, say};
use crate::progress::Progress;
use crate::run_args::ConfigArgs;
use cost::CostReport;

/// Measure a fine-tuned model on labelled data.
///
/// Example: cloze eval --model runs/sst2/model configs/sst2.toml
///
/// Data, reading options and main metric are those of a fine-tuning configuration; its checkpoint is ignored.
/// Task and labels come from the model. Prints a table, or with --json one object; --out writes every
/// prediction with its label, the worst errors, tables and an HTML page that shows them.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze eval --model runs/sst2/model configs/sst2.toml --split test
  cloze eval --model runs/sst2/model configs/sst2.toml --json --int8
  cloze eval --model runs/sst2/model configs/sst2.toml --set 'data.dev=[\"mine.tsv\"]' --out report
  cloze eval --model small configs/sst2.toml --cost --beside runs/sst2/model")]
pub struct Args {
    #[command(flatten)]
    file: ConfigArgs,
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Which of the configuration's data sets to use.
    #[arg(long, value_enum, default_value_t = Split::Dev)]
    split: Split,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Measure what the answers take too: bytes, parameters, operations, latency, memory.
    #[arg(long)]
    cost: bool,
    /// Measure this model as well, with the same data and in a process of its own, and print a column for each. May be
    /// repeated.
    #[arg(long, value_name = "MODEL", conflicts_with = "out")]
    beside: Vec<String>,
    /// Write a report to this folder, replacing the files of an earlier one.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    compute: Compute,
}

#[derive(Clone, Copy, ValueEnum)]
enum Split {
    /// The development data: `data.dev`, or the `data.dev_fraction` held out from the training data.
    Dev,
    /// The test data, `data.test`.
    Test,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Measured<'a> {
    #[serde(flatten)]
    figures: &'a Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<CostReport>,
}

/// Prints the figures and, if it was measured, the cost.
fn print(args: &Args, figures: &Figures, cost: Option<&Cost>, folder: &Path) -> Result<()> {
    let cost = cost.map(|cost| CostReport::of(cost, folder)).transpose()?;
    let mut output = Output::new();
    match (args.json, cost) {
        (true, cost) => output.line(serde_json::to_string(&Measured { figures, cost })?)?,
        (false, None) => output.line(figures)?,
        (false, Some(cost)) => output.line(format_args!("{figures}\n{}", cost.table()))?,
    }
    output.flush()
}

pub fn run(args: &Args) -> Result<()> {
    if !args.beside.is_empty() {
        let models = std::iter::once(&args.model).chain(&args.beside);
        return side_by_side::run(models.map(String::as_str), args.json);
    }
    let ConfigArgs { config: path, settings } = &args.file;
    let wrong = |message: String| WrongUsage::new(anyhow!("{}: {message}", path.display()));
    let file = ConfigFile::open(path).map_err(WrongUsage::new)?;
    if ImageRun::is_of(&file) || CaptionRun::is_of(&file) {
        return images::run(args, &file);
    }
    // An unknown task is told by reading it.
    if !file.has("task") {
        return Err(wrong("not a fine-tuning configuration: it has no [task]".into()).into());
    }
    let config = read_without_training(&file, settings).map_err(WrongUsage::new)?;
    let data = &config.data;
    let measured = |split| match split {
        Split::Dev if data.dev_fraction.is_some() => Some(EvaluationData::HeldOut),
        Split::Dev => (!data.dev.is_empty()).then_some(EvaluationData::Files(&data.dev)),
        Split::Test => (!data.test.is_empty()).then_some(EvaluationData::Files(&data.test)),
    };
    let (split, other) = match args.split {
        Split::Dev => ("dev", Split::Test),
        Split::Test => ("test", Split::Dev),
    };
    let Some(examples) = measured(args.split) else {
        let hint = match (measured(other), other) {
            (None, _) => "",
            (Some(_), Split::Dev) => "; give --split dev for the development data",
            (Some(_), Split::Test) => "; give --split test for the test data",
        };
        return Err(wrong(format!("names no files in `data.{split}`{hint}")).into());
    };
    let device = args.compute.open()?;
    let folder = model::folder(&args.model)?;
    let predictor = Predictor::load(&folder, &device, args.compute.int8)?;
    let mut progress = Progress::new("sequences", false);
    let advanced = &mut |advance: Advance| progress.show(advance.done, Some(advance.share));
    let singly = if args.cost { cost::SINGLY } else { 0 };
    let evaluation = args.compute.run(|| predictor.evaluate_singly(&config, examples, singly, advanced));
    progress.finish();
    let evaluation = evaluation?;
    if !evaluation.skipped.is_empty() {
        say(format_args!("{split}: skipped {}", evaluation.skipped.with_places()));
    }
    if evaluation.truncated > 0 {
        say(format_args!(
            "{split}: {} of {} examples have more than {} tokens and were cut",
            HumanCount(evaluation.truncated as u64),
            HumanCount(evaluation.predictions.len() as u64),
            config.data.max_len
        ));
    }
    if let Some(warning) = evaluation.predictions.warning() {
        say(format_args!("warning: {split}: {warning}"));
    }
    if let Some(out) = &args.out {
        let facts = [
            ("model", folder.display().to_string()),
            ("split", split.to_string()),
            ("multiplies in", args.compute.to_string()),
        ];
        let title = format!("{}: {split}", config.common.run.name);
        let (figures, predictions) = (&evaluation.figures, Some(&*evaluation.predictions));
        Report { title: &title, facts: &facts, figures, predictions }.write(out)?;
        say(format_args!("{}", out.join("report.html").display()));
    }
    print(args, &evaluation.figures, args.cost.then_some(&evaluation.cost), &folder)
}
