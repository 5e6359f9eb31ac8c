//! `cloze eval`.

mod cost;
mod images;
mod labelled;
mod side_by_side;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::Report;
use cloze_trainer::captions::CaptionRun;
use cloze_trainer::config::ConfigFile;
use cloze_trainer::finetune::{
    Advance, Cost, EvaluationData, FineTuneConfig, Predictor, read_without_training,
};
use cloze_trainer::images::ImageRun;
use cloze_trainer::runs::RunKind;
use indicatif::HumanCount;
use serde::Serialize;

use crate::compute::Compute;
use crate::failure::WrongUsage;
use crate::model;
use crate::output::{Output, say};
use crate::progress::Progress;
use crate::rows::RowArgs;
use crate::run_args::ConfigArgs;
use cost::CostReport;

/// Measure a fine-tuned model on labelled data.
///
/// Example: cloze eval --model runs/reviews/model --columns text=review,label=sentiment checked.csv
///
/// The data is a labelled file, read as `cloze train TASK --data` reads it: CSV, TSV, JSON lines, Parquet, XML, CoNLL or
/// SQuAD's JSON. The fields of a row, for --columns, are text, pair and label; labels for multi-label; words and tags for
/// tagging. Or it is a fine-tuning configuration, whose data, reading options and main metric are used and whose
/// checkpoint is ignored. Task and labels come from the model. Prints a table, or with --json one object; --out writes
/// every prediction with its label, the worst errors, tables and an HTML page that shows them.
#[derive(clap::Args)]
#[command(mut_arg("config", |data| data.value_name("FILE").help("Labelled data, or a configuration (a TOML file)")))]
#[command(after_long_help = "\
More examples:
  cloze eval --model runs/wnut17/model tagged.conll --out report
  cloze eval --model runs/sst2/model configs/sst2.toml
  cloze eval --model runs/sst2/model configs/sst2.toml --split test
  cloze eval --model runs/sst2/model configs/sst2.toml --json --int8
  cloze eval --model runs/sst2/model configs/sst2.toml --set 'data.dev=[\"mine.tsv\"]' --out report
  cloze eval --model small configs/sst2.toml --cost --beside runs/sst2/model")]
pub struct Args {
    #[command(flatten)]
    file: ConfigArgs,
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Which of the configuration's data sets to use (default: dev).
    #[arg(long, value_enum)]
    split: Option<Split>,
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
    #[command(flatten, next_help_heading = "Options of labelled data")]
    rows: RowArgs,
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
    if labelled::is_data(path, &args.rows) {
        return labelled::run(args);
    }
    let wrong = |message: String| WrongUsage::new(anyhow!("{}: {message}", path.display()));
    if !args.rows.is_default() {
        let problem = "options of rows go with a labelled file; with a configuration use --set, as in --set \
                       data.train.columns={text=\"review\"}";
        return Err(wrong(problem.into()).into());
    }
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
    let chosen = args.split.unwrap_or(Split::Dev);
    let (split, other) = match chosen {
        Split::Dev => ("dev", Split::Test),
        Split::Test => ("test", Split::Dev),
    };
    let Some(examples) = measured(chosen) else {
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
    let title = format!("{}: {split}", config.common.run.name);
    let (folder, predictor, config) = (&folder, &predictor, &config);
    measure(args, &Subject { folder, predictor, config, examples, data: split, title: &title })
}

/// What is measured.
struct Subject<'a> {
    folder: &'a Path,
    predictor: &'a Predictor,
    config: &'a FineTuneConfig,
    examples: EvaluationData<'a>,
    /// The split or the file, for messages.
    data: &'a str,
    /// The report's title.
    title: &'a str,
}

/// Measures a model and prints its figures.
fn measure(args: &Args, subject: &Subject<'_>) -> Result<()> {
    let Subject { folder, predictor, config, examples, data, title } = *subject;
    let mut progress = Progress::new("sequences", false);
    let advanced = &mut |advance: Advance| progress.show(advance.done, Some(advance.share));
    let singly = if args.cost { cost::SINGLY } else { 0 };
    let evaluation = args.compute.run(|| predictor.evaluate_singly(config, examples, singly, advanced));
    progress.finish();
    let evaluation = evaluation?;
    if !evaluation.skipped.is_empty() {
        let used = evaluation.predictions.len() as u64;
        say(format_args!("{data}: skipped {}", evaluation.skipped.among(used, "rows")));
    }
    if evaluation.truncated > 0 {
        say(format_args!(
            "{data}: {} of {} examples have more than {} tokens and were cut",
            HumanCount(evaluation.truncated as u64),
            HumanCount(evaluation.predictions.len() as u64),
            config.data.max_len
        ));
    }
    if let Some(warning) = evaluation.predictions.warning() {
        say(format_args!("warning: {data}: {warning}"));
    }
    if let Some(out) = &args.out {
        let facts = [
            ("model", folder.display().to_string()),
            ("data", data.to_owned()),
            ("multiplies in", args.compute.to_string()),
        ];
        let (figures, predictions) = (&evaluation.figures, Some(&*evaluation.predictions));
        Report { title, facts: &facts, figures, predictions }.write(out)?;
        say(format_args!("{}", out.join("report.html").display()));
    }
    print(args, &evaluation.figures, args.cost.then_some(&evaluation.cost), folder)
}
