//! `cloze transfer`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use cloze_trainer::config::ConfigFile;
use cloze_trainer::engine::RunOptions;
use cloze_trainer::finetune::{FineTuneConfig, FineTuneRun, choose_absent, read_without_training};
use cloze_trainer::metrics::progress::StderrProgress;
use cloze_trainer::runs::RunKind;
use cloze_trainer::transfer::{
    MatrixOptions, SentenceVector, TransferOptions, TransferOutcome, TransferTask, compare_tasks,
};

use crate::compute::DeviceArgs;
use crate::failure::{WrongUsage, by_option};
use crate::lines::{Batch, Lines, Longer, MAX_LINE_BYTES};
use crate::memory;
use crate::model;
use crate::output::{Output, say};
use crate::stop;

/// The cache of prepared data.
const CACHE: &str = "cache";

/// The folder of a run's model, and the file of its configuration.
const MODEL: &str = "model";
const CONFIG: &str = "config.toml";

/// Find out which tasks are alike: compare their encoders on the same sentences.
///
/// Example: cloze transfer --sentences texts.txt runs/reviews runs/people sentence-transformers/all-MiniLM-L6-v2
///
/// A TASK is the folder of a fine-tuning run, a fine-tuning configuration, which is trained first, or a model, each with a
/// name before it if you like: NAME=TASK.
///
/// Each encoder makes a vector of every sentence in every layer. Two encoders are as similar as their dissimilarities,
/// 1 − Pearson's correlation of two sentences' vectors, are correlated by rank (representational similarity analysis;
/// Kriegeskorte et al. 2008). Prints a table for each layer, and writes transfer.html, a page with dendrograms, and
/// transfer.json.
///
/// With --matrix, every task with a configuration is also trained on --examples of its examples, from its own checkpoint
/// and from each of the encoders, with a new head. The gains are compared with the similarity, as in "CogTaskonomy" (Luo
/// et al. 2022): does similarity tell what transfers?
///
/// After an interruption, the same command continues.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze transfer --sentences sentences.txt --matrix --seeds 1,2,3 configs/sst2.toml configs/cola.toml configs/mrpc.toml
  cloze transfer --sentences sentences.txt --layers 0,-1 --vector first small=runs/a/model large=runs/b/model --json")]
pub struct Args {
    /// The tasks: runs, configurations or models.
    #[arg(value_name = "TASK", required = true, num_args = 2..)]
    tasks: Vec<String>,
    /// A file with a sentence on each line.
    #[arg(long, value_name = "FILE")]
    sentences: PathBuf,
    /// Sentences that are read of it: its first ones. Memory grows with their square.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = RangedU64ValueParser::<usize>::new().range(3..=20_000))]
    most: usize,
    /// The layers to compare, such as 0,6,-1: 0 is the embeddings, -1 the last (default: all).
    #[arg(long, value_name = "LAYERS", value_delimiter = ',', allow_hyphen_values = true)]
    layers: Vec<i32>,
    /// How a sentence's states become one vector.
    #[arg(long, value_enum, default_value_t = Vector::Mean)]
    vector: Vector,
    /// Maximum tokens of a sentence; longer ones are cut.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_len: usize,
    /// Train the tasks that have a configuration from each encoder.
    #[arg(long)]
    matrix: bool,
    /// Training examples of each target.
    #[arg(long, value_name = "N", default_value_t = 100, requires = "matrix", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    examples: usize,
    /// Train each target with each of these seeds.
    #[arg(long, value_name = "SEEDS", value_delimiter = ',', default_value = "42", requires = "matrix")]
    seeds: Vec<u64>,
    /// Override a key of all configurations, such as train.epochs=5; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// The folder of the report and of what is trained.
    #[arg(long, value_name = "DIR", default_value = "runs/transfer")]
    out: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Vector {
    /// The mean of all tokens' states.
    Mean,
    /// The first token's state.
    First,
}

/// A task by its name and place; `is_target` tells whether it is trained even if it has a model.
fn task(text: &str, settings: &[String], is_target: bool) -> Result<TransferTask> {
    let (given, place) = match text.split_once('=') {
        Some((name, place)) if !Path::new(text).exists() => (Some(name), place),
        _ => (None, text),
    };
    let path = Path::new(place);
    let (name, model, config) = if path.extension().is_some_and(|extension| extension == "toml") {
        let config = config(path, settings, true)?;
        (config.common.run.name.clone(), None, Some(config))
    } else if path.join(CONFIG).is_file() && path.join(MODEL).is_dir() {
        let config = config(&path.join(CONFIG), settings, is_target)?;
        (config.common.run.name.clone(), Some(path.join(MODEL)), Some(config))
    } else {
        (last_name(place), Some(model::folder(place)?), None)
    };
    Ok(TransferTask { name: given.map_or(name, str::to_owned), model, config })
}

/// The last part of a path or a name that says something: not `model`.
fn last_name(place: &str) -> String {
    let parts: Vec<&str> = place.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    let last = parts.iter().rev().find(|part| **part != MODEL);
    last.map_or(place, |part| *part).to_owned()
}

/// A fine-tuning configuration, with the folder of its checkpoint. If it `is_trained`, what it leaves out is chosen as in
/// `cloze train`.
fn config(path: &Path, settings: &[String], is_trained: bool) -> Result<FineTuneConfig> {
    let mut file = ConfigFile::open(path).map_err(WrongUsage::new)?;
    if !<FineTuneRun>::is_of(&file) {
        let problem = "not a configuration that fine-tunes a text model: give the folder of its model";
        return Err(WrongUsage::new(anyhow!("{}: {problem}", path.display())).into());
    }
    let folder = |checkpoint: &Path| {
        model::folder(&checkpoint.to_string_lossy())
            .with_context(|| format!("{}: `model.path`", path.display()))
    };
    if is_trained && let Some(choice) = choose_absent(&file, settings, folder)? {
        choice.told.iter().for_each(|told| say(format_args!("{}: {told}", path.display())));
        file = choice.file;
    }
    let mut config = match is_trained {
        true => <FineTuneRun>::read(&file, settings),
        false => read_without_training(&file, settings),
    }
    .map_err(WrongUsage::new)?;
    if config.model.recurrent.is_none() {
        config.model.path = folder(&config.model.path)?;
    }
    Ok(config)
}

/// The first lines of a file that are not empty.
fn sentences(path: &Path, most: usize) -> Result<Vec<String>> {
    let mut lines = Lines::of(Some(path), MAX_LINE_BYTES)?.with_longer(Longer::Cut);
    let mut batch = Batch::default();
    let mut all: Vec<String> = Vec::new();
    while all.len() < most && lines.read(most, &mut batch)? {
        let found = batch.iter().map(|line| line.text.trim()).filter(|line| !line.is_empty());
        all.extend(found.take(most - all.len()).map(str::to_owned));
    }
    if all.is_empty() {
        bail!("{}: it has no sentence; expected one on each line", path.display());
    }
    Ok(all)
}

pub fn run(args: &Args) -> Result<()> {
    let sentences = sentences(&args.sentences, args.most)?;
    if sentences.len() < args.most {
        say(format_args!("{} has {} sentences", args.sentences.display(), sentences.len()));
    }
    let tasks: Vec<TransferTask> =
        args.tasks.iter().map(|text| task(text, &args.settings, args.matrix)).collect::<Result<_>>()?;
    let matrix = MatrixOptions { examples: args.examples, seeds: args.seeds.clone() };
    let transfer = TransferOptions {
        sentences,
        layers: args.layers.clone(),
        vector: match args.vector {
            Vector::Mean => SentenceVector::Mean,
            Vector::First => SentenceVector::First,
        },
        max_len: args.max_len,
        batch_tokens: 4_096,
        matrix: args.matrix.then_some(matrix),
    };
    let device = args.device.open()?;
    let stop = stop::on_ctrl_c()?;
    let memory = memory::of(&device);
    let options = RunOptions::new(device, &args.out).cache(CACHE).memory(memory).stop(&stop);
    match compare_tasks(&tasks, &transfer, &options, &mut StderrProgress::new()).map_err(by_option)? {
        TransferOutcome::Stopped => Err(anyhow!("stopped: the same command continues from there")),
        TransferOutcome::Done { text, json, page } => {
            let mut output = Output::new();
            match args.json {
                true => output.line(json)?,
                false => output.line(text)?,
            }
            output.flush()?;
            say(format_args!("report: {}", page.display()));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_called_by_its_folder() {
        for (place, name) in [
            ("runs/sst2/model", "sst2"),
            ("google-bert/bert-base-uncased", "bert-base-uncased"),
            ("model", "model"),
        ] {
            assert_eq!(last_name(place), name);
        }
    }
}
