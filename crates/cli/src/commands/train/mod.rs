//! `cloze train`.

pub mod from_data;
#[cfg(feature = "mpi")]
mod together;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use cloze_trainer::engine::{Outcome, OverSeeds, RunOptions};
use cloze_trainer::finetune::choose_absent;
use cloze_trainer::metrics::progress::StderrProgress;
use cloze_trainer::runs::{AnyPlan, KINDS, plan_of};

use crate::failure::WrongUsage;
use crate::memory;
use crate::model;
use crate::output::{Output, say};
use crate::profile::Profiled;
use crate::run_args::{For, RunArgs};
use crate::stop;
use from_data::{DataArgs, NamedTask};

/// The cache of prepared corpora.
const CACHE: &str = "cache";

/// Pretrain or fine-tune a model, or train a translation model: from a configuration file, or for a task on
/// labelled data.
///
/// Example: cloze train classification --model sentence-transformers/all-MiniLM-L6-v2 --data reviews.csv
/// --columns text=review,label=stars --out runs/reviews
///
/// Trains or loads the tokenizer, prepares the corpus and trains. The run folder receives the resolved
/// configuration, the metrics, checkpoints and, at the end, the model with its tokenizer as a Hugging Face
/// folder, whose path is printed on standard output.
///
/// A configuration with objective.kind = "left-to-right" trains a language model (an AWD-LSTM with [streams]),
/// "bidirectional-language-model" an ELMo, and "denoising" an encoder–decoder that reconstructs corrupted
/// texts. A configuration with a [task] fine-tunes a checkpoint on labelled data: the folder then receives the
/// best model and, for development and test data, a report with every prediction.
///
/// A configuration with [parallel] trains a translation model on sentence pairs.
///
/// With a task in place of CONFIG (classification, regression, multi-label, tagging, answers, embedding), a configuration is
/// made for --data: it detects the column delimiter and holds out a share of the rows.
///
/// The number of epochs, the batch size, the learning rate and the warm-up that a configuration for a checkpoint and
/// labelled data leaves out follow the number of rows. What was chosen is printed, and is in the run folder's config.toml.
///
/// Ctrl-C saves a checkpoint and stops; a second one stops at once. --resume continues from the last good
/// checkpoint, however the run ended, and gives exactly the weights of an uninterrupted run.
///
/// --seeds trains once per seed, in seed-N in the run folder, and then shows the mean and standard deviation of
/// every metric, also as seeds.json and seeds.html; the path printed is that of the best seed's model. After an
/// interruption, the same command continues and skips finished runs.
#[derive(clap::Args)]
#[command(mut_arg("config", |config| config.help("The configuration, a TOML file, or a task to make one for")))]
#[command(after_long_help = "\
More examples:
  cloze train configs/bert-tiny-sample.toml
  cloze train configs/bert-tiny-sample.toml --set train.steps=500 --out runs/short
  cloze train configs/sst2.toml --set run.seed=7 --set schedule.warmup_fraction=0.1
  cloze train configs/sst2.toml --seeds 1,2,3 --out runs/sst2-seeds
  cloze train configs/multi30k-transformer.toml
  cloze train configs/bert-base.toml --device cuda:0 --out runs/base
  cloze train configs/bert-base.toml --device cuda:0 --out runs/base --resume")]
pub struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// Resume from the last good checkpoint in the run folder.
    #[arg(long)]
    resume: bool,
    /// Train once with each of these seeds instead of run.seed, such as 1,2,3.
    #[arg(long, value_name = "SEEDS", value_delimiter = ',', conflicts_with = "profile")]
    seeds: Vec<u64>,
    /// Profile this many steps, after the first five: prints the time by operation and writes trace.json to the
    /// run folder, for ui.perfetto.dev or chrome://tracing. The run then continues to its end.
    #[arg(long, value_name = "STEPS", num_args = 0..=1, default_missing_value = "20",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub profile: Option<u64>,
    /// How the processes of mpirun exchange gradients and weights: by MPI, or by NCCL between NVIDIA GPUs, one for each
    /// process.
    #[arg(long, value_enum, value_name = "WAY", default_value_t = Transport::Mpi)]
    transport: Transport,
    #[command(flatten)]
    data: DataArgs,
}

/// How processes exchange long messages.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Transport {
    Mpi,
    Nccl,
}

/// Runs a configuration, once or for each seed.
pub fn run(args: &Args) -> Result<()> {
    if args.transport == Transport::Nccl && !cfg!(feature = "nccl") {
        let told = "--transport nccl: this program was built without NCCL: build it with `--features nccl`";
        return Err(WrongUsage::new(anyhow!(told)).into());
    }
    let mut file = match NamedTask::of(&args.run.file.config) {
        Some(task) => args.data.config(task, args.run.out.as_deref(), &args.run.file.settings)?,
        None => {
            args.data.check_unused()?;
            args.run.file.open(For::Train)?
        }
    };
    file.replaced(&args.run.file.settings).iter().for_each(|told| say(format_args!("{told}")));
    let folder = |path: &Path| model::folder(&path.to_string_lossy()).context("`model.path`");
    if let Some(choice) = choose_absent(&file, &args.run.file.settings, folder)? {
        choice.told.iter().for_each(|told| say(format_args!("{told}")));
        file = choice.file;
    }
    let mut plan = plan_of(&file, &args.run.file.settings, &KINDS).map_err(WrongUsage::new)?;
    let different: BTreeSet<u64> = args.seeds.iter().copied().collect();
    if different.len() < args.seeds.len() {
        return Err(WrongUsage::new(anyhow!("--seeds has a duplicate seed")).into());
    }
    if let Some(path) = plan.checkpoint_mut() {
        *path = folder(path)?;
    }
    let device = args.run.device.open()?;
    let stop = stop::on_ctrl_c()?;
    let memory = memory::of(&device);
    let options = RunOptions::new(device, args.run.folder(plan.name()))
        .cache(CACHE)
        .resume(args.resume)
        .memory(memory)
        .stop(&stop);
    #[cfg(feature = "mpi")]
    if let Some(ranks) = crate::ranks::all() {
        return together::run(args, &plan, options, ranks);
    }
    let mut progress = StderrProgress::new();
    if !args.seeds.is_empty() {
        return match plan.train_seeds(&args.seeds, &options, &mut progress)? {
            OverSeeds::Done { model, .. } => print(&model),
            OverSeeds::Stopped { seed, step } => Err(anyhow!(
                "stopped in seed {seed} after step {step}: the same command continues from there"
            )),
        };
    }
    match once(args, &plan, &options, progress)? {
        Outcome::Done { model, .. } => print(&model),
        Outcome::Stopped { step } => Err(stopped(step)),
    }
}

fn once(
    args: &Args,
    plan: &AnyPlan,
    options: &RunOptions<'_>,
    mut progress: StderrProgress,
) -> Result<Outcome> {
    Ok(match args.profile {
        Some(steps) => {
            let trace = options.folder.join("trace.json");
            plan.run(options, &mut Profiled::new(progress, steps, trace, &options.device))?
        }
        None => plan.run(options, &mut progress)?,
    })
}

fn stopped(step: u64) -> anyhow::Error {
    anyhow!("stopped after step {step}: the same command with --resume continues from there")
}

/// Prints the path of the result.
fn print(model: &Path) -> Result<()> {
    let mut output = Output::new();
    output.line(model.display())?;
    output.flush()
}
