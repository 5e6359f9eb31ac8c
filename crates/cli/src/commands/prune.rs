//! `cloze prune`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use cloze_evaluation::figures::{Figures, shown};
use cloze_evaluation::report::{ImportanceReport, LayerImportance};
use cloze_evaluation::table::{facts, grouped};
use cloze_model::huggingface::ReducedFolder;
use cloze_tokenizer::Tokenizer;
use cloze_trainer::TrainerError;
use cloze_trainer::config::ConfigFile;
use cloze_trainer::engine::RunOptions;
use cloze_trainer::finetune::{
    FineTuneConfig, PruneConfig, PruneReport, TASK_FILE, prune, read_without_training,
};
use cloze_trainer::images::ImageRun;
use cloze_trainer::metrics::progress::StderrProgress;
use cloze_trainer::runs::RunKind;

use crate::compute::DeviceArgs;
use crate::failure::WrongUsage;
use crate::folder_files::copy_kept;
use crate::model;
use crate::new_folder::NewFolder;
use crate::output::{Output, say};

/// The names of the report's files in the new folder.
const REPORT: &str = "pruning";

/// Make a trained model smaller: take out attention heads, neurons, layers or pieces.
///
/// Example: cloze prune --model runs/reviews/model --data runs/reviews/config.toml --heads 0.5 --neurons 0.5 --out pruned
///
/// Heads and neurons go by their importance for the loss on training data (Michel et al. 2019): a tenth of all
/// are removed, then the importance of the rest is measured anew. Their matrices become smaller, and so the model
/// becomes faster; its outputs are those of the whole model with zeros in their place. --data names the
/// fine-tuning configuration with the data; task and labels are the model's own. Fine-tune the result to regain
/// what it lost: --set model.path=small.
///
/// All commands read the new folder, and transformers 4 does. transformers 5 ignores that heads are missing and
/// cannot load it: --padded writes zeros in place of what is removed, with the same outputs but without any gain
/// in size or speed.
///
/// Prints the new folder, and on standard error what was removed and what it cost. pruning.html in the new folder
/// shows the importance of each head.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze prune --model runs/sst2/model --data configs/sst2.toml --n-layers 3 --out three-layers
  cloze prune --model sentence-transformers/all-MiniLM-L6-v2 --layers 0,2,4 --out three-layers
  cloze prune --model google-bert/bert-base-uncased --vocabulary reviews.txt --out fewer-pieces")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// The fine-tuning configuration whose data the importance and the figures are measured on.
    #[arg(long, value_name = "CONFIG")]
    data: Option<PathBuf>,
    /// Override a key of the configuration; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "data")]
    settings: Vec<String>,
    /// The share of all heads to remove, such as 0.5; each layer keeps at least one.
    #[arg(long, value_name = "SHARE", requires = "data", value_parser = share)]
    heads: Option<f64>,
    /// The share of each layer's neurons to remove, such as 0.5.
    #[arg(long, value_name = "SHARE", requires = "data", value_parser = share)]
    neurons: Option<f64>,
    /// The layers to keep, counted from 0, such as 0,2,4.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "n_layers")]
    layers: Option<Vec<usize>>,
    /// The number of layers to keep: those are removed whose absence costs the least development loss.
    #[arg(long, value_name = "N", requires = "data", value_parser = clap::value_parser!(u32).range(1..))]
    n_layers: Option<u32>,
    /// Texts, one a line: pieces of the vocabulary that none of them needs are removed, with the tokenizer.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    vocabulary: Vec<PathBuf>,
    /// Write zeros in place of removed heads and neurons, and keep all shapes.
    #[arg(long, requires = "data")]
    padded: bool,
    /// The number of training examples that importance is measured on.
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..))]
    examples: u32,
    /// The output folder, which must be new or empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "expected a share above 0 and below 1, such as 0.5".to_owned())
}

pub fn run(args: &Args) -> Result<()> {
    let by_data = args.heads.is_some() || args.neurons.is_some() || args.n_layers.is_some();
    if !by_data && args.layers.is_none() && args.vocabulary.is_empty() {
        let error =
            anyhow!("nothing to remove: give --heads, --neurons, --layers, --n-layers or --vocabulary");
        return Err(WrongUsage::new(error).into());
    }
    if args.padded && args.heads.is_none() && args.neurons.is_none() {
        let error =
            anyhow!("--padded is for --heads and --neurons: layers and pieces leave no places to pad");
        return Err(WrongUsage::new(error).into());
    }
    let config = args.data.as_ref().map(|path| read(path, &args.settings)).transpose()?;
    let new = NewFolder::new(&args.out)?;
    let whole = model::folder(&args.model)?;
    let bytes_before = model::weight_bytes(&whole)?;
    let n_before = ReducedFolder::open(&whole)?.n_parameters();
    let mut current = whole.clone();
    let mut report = None;
    if let Some(config) = &config {
        let to = if args.vocabulary.is_empty() { new.path() } else { new.work("pruned")? };
        let options = RunOptions::new(args.device.open()?, new.work("run")?);
        let mut pruning = PruneConfig::default();
        pruning.heads = args.heads.unwrap_or(0.0);
        pruning.neurons = args.neurons.unwrap_or(0.0);
        pruning.layers.clone_from(&args.layers);
        pruning.n_layers = args.n_layers.map(|n| n as usize);
        pruning.padded = args.padded;
        pruning.examples = args.examples as usize;
        let progress = &mut StderrProgress::new();
        let found = prune(config, &current, &to, &pruning, &options, progress).map_err(by_option)?;
        report = Some(found);
        current = to;
    } else if let Some(layers) = &args.layers {
        let to = if args.vocabulary.is_empty() { new.path() } else { new.work("pruned")? };
        let mut folder = ReducedFolder::open(&current)?;
        folder.keep_layers(layers).map_err(|error| WrongUsage::new(anyhow!("--layers: {error}")))?;
        folder.save(&to)?;
        Tokenizer::load(&current)?.save(&to)?;
        copy_kept(&current, &to)?;
        current = to;
    }
    let mut pieces = None;
    if !args.vocabulary.is_empty() {
        let mut folder = ReducedFolder::open(&current)?;
        let before = folder.config().encoder.vocab_size;
        let tokenizer = Tokenizer::load(&current)?;
        let mut used = used_pieces(&tokenizer, &args.vocabulary)?;
        used.extend(task_pieces(&tokenizer, &current)?);
        used.extend(folder.ids());
        let pruned = tokenizer.keeping(used)?;
        folder.keep_pieces(&pruned.old_ids)?;
        let to = new.path();
        folder.save(&to)?;
        pruned.tokenizer.save(&to)?;
        copy_kept(&current, &to)?;
        pieces = Some([before, pruned.old_ids.len()]);
    }
    let n_after = ReducedFolder::open(&new.path())?.n_parameters();
    let bytes = [bytes_before, model::weight_bytes(&new.path())?];
    let rows = rows(args, &whole, report.as_ref(), pieces, [n_before, n_after], bytes);
    let layers = report.as_ref().map(layers_of).unwrap_or_default();
    let title = format!("{} made smaller", args.model);
    let page = ImportanceReport { title: &title, facts: &rows, layers: &layers };
    page.write(&new.path(), REPORT)?;
    say(format_args!("{}", facts("pruning", rows.iter().map(|(name, value)| (*name, value)))));
    if report.as_ref().is_some_and(|report| report.importance.is_some()) {
        say(format_args!("{}", page.to_text()));
    }
    new.finish()?;
    let mut output = Output::new();
    output.line(args.out.display())?;
    output.flush()
}

/// A setting of this command by its option, other settings as keys of the configuration.
fn by_option(error: TrainerError) -> anyhow::Error {
    match &error {
        TrainerError::Setting { key, found, expected } if key.starts_with("--") => {
            WrongUsage::new(anyhow!("{key} is {found}; expected {expected}")).into()
        }
        _ => error.into(),
    }
}

/// The fine-tuning configuration in a file.
fn read(path: &Path, settings: &[String]) -> Result<FineTuneConfig> {
    let file = ConfigFile::open(path).map_err(WrongUsage::new)?;
    // An unknown task is told by reading it.
    if !file.has("task") || ImageRun::is_of(&file) {
        let error = anyhow!("{}: not a fine-tuning configuration: it has no [task]", path.display());
        return Err(WrongUsage::new(error).into());
    }
    Ok(read_without_training(&file, settings).map_err(WrongUsage::new)?)
}

/// The pieces of all lines of the files.
fn used_pieces(tokenizer: &Tokenizer, files: &[PathBuf]) -> Result<BTreeSet<u32>> {
    let mut tokenizer = tokenizer.clone();
    // Whole texts, and nothing that is added to them.
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    let mut used = BTreeSet::new();
    let mut n_lines = 0;
    for path in files {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines: Vec<&str> = text.lines().collect();
        n_lines += lines.iter().filter(|line| !line.trim().is_empty()).count();
        for ids in tokenizer.encode_ids_batch(&lines, false)? {
            used.extend(ids);
        }
    }
    match n_lines {
        0 => Err(WrongUsage::new(anyhow!("--vocabulary: the files have no text")).into()),
        _ => Ok(used),
    }
}

/// The pieces of a prompt's template and of its classes' words, which stand in a model's task file.
fn task_pieces(tokenizer: &Tokenizer, folder: &Path) -> Result<BTreeSet<u32>> {
    let path = folder.join(TASK_FILE);
    let Ok(text) = fs::read_to_string(&path) else { return Ok(BTreeSet::new()) };
    let file: serde_json::Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let section = file.get("task").unwrap_or(&file);
    let Some(template) = section["template"].as_str() else { return Ok(BTreeSet::new()) };
    let words = section["verbaliser"].as_object().into_iter().flatten();
    let words =
        words.flat_map(|(_, words)| words.as_array().into_iter().flatten().filter_map(|word| word.as_str()));
    let mut used = BTreeSet::new();
    for word in words.chain([""]) {
        let filled = template.replace("{mask}", word).replace("{text}", "").replace("{pair}", "");
        // A word is a piece in the mask's place, and by itself.
        for text in [filled.as_str(), word] {
            used.extend(tokenizer.encode_ids(text, false)?);
        }
    }
    Ok(used)
}

/// What was removed, and what it cost.
fn rows(
    args: &Args,
    whole: &Path,
    report: Option<&PruneReport>,
    pieces: Option<[usize; 2]>,
    parameters: [usize; 2],
    bytes: [u64; 2],
) -> Vec<(&'static str, String)> {
    let both = |[before, after]: [u64; 2]| format!("{} → {}", grouped(before), grouped(after));
    let mut rows = vec![("model", whole.display().to_string())];
    if let Some(report) = report {
        let count = |lists: &[Vec<usize>]| lists.iter().map(Vec::len).sum::<usize>();
        let importance = report.importance.as_ref();
        let all = |lists: fn(&cloze_trainer::finetune::Importance) -> &Vec<Vec<f64>>| {
            importance.map_or(0, |importance| lists(importance).iter().map(Vec::len).sum::<usize>())
        };
        for (name, removed, all) in [
            ("heads", count(&report.removal.heads), all(|importance| &importance.heads)),
            ("neurons", count(&report.removal.neurons), all(|importance| &importance.neurons)),
        ] {
            if removed > 0 {
                rows.push((name, both([all as u64, (all - removed) as u64])));
            }
        }
        for (layer, loss) in &report.layer_losses {
            rows.push(("removed layer", format!("{layer}, development loss without it {}", shown(*loss))));
        }
        if report.rounds > 0 {
            rows.push(("rounds", report.rounds.to_string()));
        }
    }
    if args.layers.is_some() || args.n_layers.is_some() {
        let kept = report.map(|report| report.layers.clone()).or_else(|| args.layers.clone());
        let kept = kept.unwrap_or_default().iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        rows.push(("layers kept", kept));
    }
    if let Some([before, after]) = pieces {
        rows.push(("pieces", both([before as u64, after as u64])));
    }
    rows.push(("parameters", both(parameters.map(|n| n as u64))));
    rows.push(("bytes of weights", both(bytes)));
    if let Some([before, after]) = report.and_then(|report| report.figures.as_ref()) {
        rows.push(("dev", compared(before, after)));
    }
    if args.padded {
        rows.push((
            "zeros",
            "all shapes are kept: zeros make no matrix smaller and no product faster".into(),
        ));
    }
    rows
}

/// The figures of before and after.
fn compared(before: &Figures, after: &Figures) -> String {
    let figures = before.iter().filter_map(|(name, value)| Some((name, value, after.get(name)?)));
    let figures = figures.map(|(name, before, after)| format!("{name} {} → {}", shown(before), shown(after)));
    figures.collect::<Vec<_>>().join(", ")
}

/// The layers of the report.
fn layers_of(report: &PruneReport) -> Vec<LayerImportance> {
    let Some(importance) = report.importance.as_ref().map(|importance| importance.normed()) else {
        return Vec::new();
    };
    let layers = report.layers.iter().enumerate().map(|(place, layer)| LayerImportance {
        layer: *layer,
        heads: importance.heads.get(place).cloned().unwrap_or_default(),
        removed_heads: report.removal.heads.get(place).cloned().unwrap_or_default(),
        neurons: importance.neurons.get(place).cloned().unwrap_or_default(),
        removed_neurons: report.removal.neurons.get(place).cloned().unwrap_or_default(),
    });
    layers.collect()
}
