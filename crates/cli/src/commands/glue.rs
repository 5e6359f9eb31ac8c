//! `cloze glue`.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use cloze_trainer::engine::RunOptions;
use cloze_trainer::glue::{
    GlueOptions, GlueOutcome, GlueTask, LearningRates, Override, PUBLISHED_RATES, run_glue,
};
use cloze_trainer::metrics::progress::StderrProgress;

use crate::compute::DeviceArgs;
use crate::failure::{WrongUsage, by_option};
use crate::memory;
use crate::model;
use crate::output::{Output, say};
use crate::stop;

/// The cache of prepared data.
const CACHE: &str = "cache";

/// Fine-tune a model on every task of GLUE, and write the answers to its tests.
///
/// Example: cloze glue --data GLUE --model sentence-transformers/all-MiniLM-L6-v2 --tasks cola,rte
///
/// Reads the folder of GLUE (gluebenchmark.com) as it is distributed: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE,
/// WNLI, and AX or diagnostic. Trains a model for each task and seed with the settings of Devlin et al. 2019: three
/// epochs of batches of 32, sequences of up to 128 tokens, the learning rate 2e-5, or the best of those that --rates
/// lists. Models are chosen on the development data.
///
/// Prints a table with the metrics of each task on its development data, their mean and deviation over the seeds, and
/// GLUE's average: the mean over tasks of the mean of each task's metrics. AX, which MNLI's model answers, has no
/// labels.
///
/// The run folder receives a folder for each task, glue.json with the scores, and submission.zip with the answers to all
/// tests, as the site takes them.
///
/// After an interruption, the same command continues: what was done is not done again.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze glue --data GLUE --model google-bert/bert-base-uncased --seeds 1,2,3 --out runs/glue
  cloze glue --data GLUE --model runs/mini/model --tasks cola,rte --no-submission
  cloze glue --data GLUE --model google-bert/bert-base-uncased --rates published
  cloze glue --data GLUE --model runs/mini/model --set optimizer.lr=1e-4 --set mrpc:train.epochs=5")]
pub struct Args {
    /// The folder of GLUE, with a folder for each task.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// The tasks: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli and ax (default: all of them).
    #[arg(long, value_name = "TASKS", value_delimiter = ',', value_parser = task)]
    tasks: Vec<GlueTask>,
    /// Train once with each of these seeds.
    #[arg(long, value_name = "SEEDS", value_delimiter = ',', default_value = "42")]
    seeds: Vec<u64>,
    /// Choose each task's learning rate from these, on the development data with the first seed; `published` for
    /// 5e-5,4e-5,3e-5,2e-5 (default: 2e-5).
    #[arg(long, value_name = "RATES")]
    rates: Option<String>,
    /// Override a key of the tasks' configurations, such as train.epochs=5, or of one task's, such as
    /// mrpc:train.epochs=5; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Do not answer the tests: the folder may lack their files.
    #[arg(long)]
    no_submission: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// The run folder.
    #[arg(long, value_name = "DIR", default_value = "runs/glue")]
    out: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
}

/// The task of a name.
fn task(name: &str) -> Result<GlueTask, String> {
    GlueTask::named(name.trim()).ok_or_else(|| {
        let names: Vec<&str> = GlueTask::ALL.iter().map(|task| task.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// The learning rates of `--rates`.
fn rates(given: Option<&str>) -> Result<LearningRates> {
    let read = |text: &str| {
        let wrong = || WrongUsage::new(anyhow!("--rates: `{text}`; expected a number such as 2e-5"));
        text.trim().parse::<f64>().map_err(|_| wrong())
    };
    let rates = match given {
        None => Vec::new(),
        Some("published") => PUBLISHED_RATES.into(),
        Some(text) => text.split(',').map(read).collect::<Result<_, _>>()?,
    };
    Ok(LearningRates::new(rates).map_err(WrongUsage::new)?)
}

pub fn run(args: &Args) -> Result<()> {
    let overrides = args.settings.iter().map(|set| Override::parse(set));
    let mut glue = GlueOptions {
        data: args.data.clone(),
        model: PathBuf::new(),
        tasks: if args.tasks.is_empty() { GlueTask::ALL.into() } else { args.tasks.clone() },
        seeds: args.seeds.clone(),
        rates: rates(args.rates.as_deref())?,
        overrides: overrides.collect::<Result<_, _>>().map_err(WrongUsage::new)?,
        has_submission: !args.no_submission,
    };
    glue.model = model::folder(&args.model)?;
    let device = args.device.open()?;
    let stop = stop::on_ctrl_c()?;
    let memory = memory::of(&device);
    let options = RunOptions::new(device, &args.out).cache(CACHE).memory(memory).stop(&stop);
    match run_glue(&glue, &options, &mut StderrProgress::new()).map_err(by_option)? {
        GlueOutcome::Stopped { task } => {
            Err(anyhow!("stopped in {task}: the same command continues from there"))
        }
        GlueOutcome::Done { scores, submission } => {
            let mut output = Output::new();
            match args.json {
                true => output.line(scores.to_json())?,
                false => output.line(&scores)?,
            }
            output.flush()?;
            if let Some(submission) = submission {
                say(format_args!("submission: {}", submission.display()));
            }
            Ok(())
        }
    }
}
