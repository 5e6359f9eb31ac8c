//! The comparison, from tasks to the report.

use super::encoders::{Described, describe};
use super::matrix::train_matrix;
use crate::engine::run_folder::claim_for_runs;
use crate::engine::{OverSeeds, RunOptions, train_seeds};
use crate::finetune::FineTuneConfig;
use crate::metrics::progress::RunProgress;
use crate::periodic_notes::PeriodicNotes;
use crate::{Result, TrainerError};
use cloze_evaluation::report::{LayerSimilarity, TransferMatrix, TransferReport};
use cloze_evaluation::similarity::similarities;
use cloze_evaluation::table::grouped;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A task, or an encoder of none.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferTask {
    /// Its name, another one for each.
    pub name: String,
    /// The folder of its model, or none if its configuration is still to be trained.
    pub model: Option<PathBuf>,
    /// Its configuration, with which it can be a target.
    pub config: Option<FineTuneConfig>,
}

/// How a sentence's states become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SentenceVector {
    /// The mean of all tokens, special ones included.
    #[default]
    Mean,
    /// The first token's state, such as that of `[CLS]`.
    First,
}

/// Settings of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferOptions {
    /// The sentences that all encoders read.
    pub sentences: Vec<String>,
    /// The layers to compare: 0 is the embeddings, and negative numbers count from the last layer, −1. Empty for all of them,
    /// if the encoders have equally many.
    pub layers: Vec<i32>,
    /// How a sentence's states become one vector.
    pub vector: SentenceVector,
    /// Maximum tokens of a sentence; longer ones are cut.
    pub max_len: usize,
    /// Maximum tokens of a batch.
    pub batch_tokens: usize,
    /// Whether to train the targets from the sources, and how.
    pub matrix: Option<MatrixOptions>,
}

/// How targets are trained from sources.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixOptions {
    /// Examples of the target, drawn by the seed.
    pub examples: usize,
    /// The seeds.
    pub seeds: Vec<u64>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TransferOutcome {
    /// All is done.
    Done {
        /// The tables as text for a terminal.
        text: String,
        /// The same numbers.
        json: Value,
        /// The report's page.
        page: PathBuf,
    },
    /// A run was stopped. The same call goes on from there.
    Stopped,
}

/// A task whose encoder is trained.
pub(super) struct Source<'a> {
    pub task: &'a TransferTask,
    pub encoder: PathBuf,
}

/// Compares the encoders of tasks on the same sentences, and writes `transfer.html` and `transfer.json` into the options'
/// folder. With a [matrix](TransferOptions::matrix) it also trains every task that has a configuration on a few examples,
/// from its own checkpoint and from each encoder, and compares the gains with the similarity. Each of these trainings begins
/// with an encoder and a new head; only prompts, whose head is that of masked words, begin with the whole model.
///
/// A configuration without a model is trained first, in `tasks/NAME` in the folder. It always continues: what was trained
/// before is not trained again.
///
/// # Errors
/// Fewer than two tasks or three sentences; tasks of one name; encoders with different numbers of layers; those of
/// [`train_seeds`]; files that cannot be written.
pub fn compare_tasks(
    tasks: &[TransferTask],
    transfer: &TransferOptions,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<TransferOutcome> {
    check(tasks, transfer)?;
    claim_for_runs(&options.folder)?;
    let mut sources = Vec::new();
    for task in tasks {
        let encoder = match (&task.model, &task.config) {
            (Some(model), _) => model.clone(),
            (None, Some(config)) => {
                progress.note(&format!("{}: training its encoder", task.name));
                let folder = options.folder.join("tasks").join(&task.name);
                let options = RunOptions { folder, ..options.clone() };
                match train_seeds(config, &[config.common.run.seed], &options, progress)? {
                    OverSeeds::Done { model, .. } => model,
                    OverSeeds::Stopped { .. } => return Ok(TransferOutcome::Stopped),
                }
            }
            (None, None) => return Err(refused("tasks", &task.name, "a model or a configuration for it")),
        };
        sources.push(Source { task, encoder });
    }
    let mut described: Vec<Described> = Vec::new();
    for Source { task, encoder } in &sources {
        let notes = PeriodicNotes::new(&mut *progress);
        described.push(describe(&task.name, encoder, transfer, &options.device, &notes)?);
    }
    let cut = cut(tasks, &described);
    if let Some(cut) = &cut {
        progress.note(&format!("sentences that are too long were cut: {cut}"));
    }
    let layers = by_layer(tasks, transfer, described)?;
    let matrix = match &transfer.matrix {
        None => None,
        Some(matrix) => match train_matrix(&sources, matrix, options, progress)? {
            Some(trained) => Some(trained),
            None => return Ok(TransferOutcome::Stopped),
        },
    };
    progress.finish();
    report(tasks, transfer, cut, &layers, matrix.as_ref(), &options.folder)
}

/// How many sentences each encoder reads only the beginning of, in words; none if all are read whole.
fn cut(tasks: &[TransferTask], described: &[Described]) -> Option<String> {
    let of = |(task, of): (&TransferTask, &Described)| {
        (of.cut > 0).then(|| {
            format!("{} at {} tokens by {}", grouped(of.cut as u64), grouped(of.max_len as u64), task.name)
        })
    };
    let all: Vec<String> = tasks.iter().zip(described).filter_map(of).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn report(
    tasks: &[TransferTask],
    transfer: &TransferOptions,
    cut: Option<String>,
    layers: &[LayerSimilarity],
    matrix: Option<&TransferMatrix>,
    folder: &Path,
) -> Result<TransferOutcome> {
    let names: Vec<String> = tasks.iter().map(|task| task.name.clone()).collect();
    let vector = match transfer.vector {
        SentenceVector::Mean => "the mean of all tokens",
        SentenceVector::First => "the first token",
    };
    let mut facts = vec![
        ("sentences", grouped(transfer.sentences.len() as u64)),
        ("vector of a sentence", vector.to_owned()),
    ];
    if let Some(cut) = cut {
        facts.push(("sentences cut", cut));
    }
    if let Some(MatrixOptions { examples, seeds }) = &transfer.matrix {
        facts.push(("examples of a target", grouped(*examples as u64)));
        facts.push(("seeds", seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")));
    }
    let title = "Similarity of tasks";
    let report = TransferReport { title, facts: &facts, names: &names, layers, transfer: matrix };
    report.write(folder)?;
    let page = folder.join("transfer.html");
    Ok(TransferOutcome::Done { text: report.to_text(), json: report.to_json(), page })
}

/// The similarity of the encoders in each layer.
fn by_layer(
    tasks: &[TransferTask],
    transfer: &TransferOptions,
    described: Vec<Described>,
) -> Result<Vec<LayerSimilarity>> {
    let numbers = described.first().map_or_else(Vec::new, |first| first.layers.clone());
    if transfer.layers.is_empty()
        && let Some(place) = described.iter().position(|other| other.layers.len() != numbers.len())
    {
        let found = format!(
            "all, but {} has {} layers and {} has {}",
            tasks[0].name,
            numbers.len() - 1,
            tasks[place].name,
            described[place].layers.len() - 1
        );
        return Err(refused("layers", &found, "layers that all encoders have, such as 0,-1"));
    }
    // Encoders of different depths have one number in common, or one that counts from the last.
    let names: Vec<String> = match transfer.layers.is_empty() {
        true => numbers.iter().map(usize::to_string).collect(),
        false => transfer.layers.iter().map(i32::to_string).collect(),
    };
    let mut of_encoders: Vec<_> = described.into_iter().map(|of| of.dissimilarities.into_iter()).collect();
    let of_layer = |layer: String| {
        let encoders: Vec<Vec<f64>> = of_encoders.iter_mut().filter_map(Iterator::next).collect();
        LayerSimilarity { layer, similarity: similarities(&encoders) }
    };
    Ok(names.into_iter().map(of_layer).collect())
}

fn refused(key: &str, found: &str, expected: &str) -> TrainerError {
    TrainerError::Setting { key: key.into(), found: found.into(), expected: expected.into() }
}

/// Checks what can be checked before anything is trained.
fn check(tasks: &[TransferTask], transfer: &TransferOptions) -> Result<()> {
    if tasks.len() < 2 {
        return Err(refused("tasks", &tasks.len().to_string(), "two or more models or configurations"));
    }
    let mut names = BTreeSet::new();
    for task in tasks {
        let name = &task.name;
        if !names.insert(name) {
            return Err(refused(
                "tasks",
                &format!("twice {name}"),
                "another name for each, as in NAME=MODEL",
            ));
        }
        let is_file_name = Path::new(name).file_name().is_some_and(|file| file.to_str() == Some(name));
        if !is_file_name {
            return Err(refused("tasks", &format!("{name:?}"), "names that can be those of folders"));
        }
        let is_recurrent = task.config.as_ref().is_some_and(|config| config.model.recurrent.is_some());
        if is_recurrent {
            return Err(refused(
                "tasks",
                name,
                "tasks that begin with a checkpoint, without [model.recurrent]",
            ));
        }
    }
    if transfer.sentences.len() < 3 {
        let found = format!("{} sentences", transfer.sentences.len());
        return Err(refused("sentences", &found, "3 sentences or more, one on each line"));
    }
    let Some(matrix) = &transfer.matrix else { return Ok(()) };
    let mut targets = tasks.iter().filter_map(|task| Some((&task.name, task.config.as_ref()?))).peekable();
    if targets.peek().is_none() {
        return Err(refused("matrix", "given without a configuration", "one for each target, with its data"));
    }
    let no_dev = |config: &FineTuneConfig| config.data.dev.is_empty() && config.data.dev_fraction.is_none();
    if let Some((name, _)) = targets.find(|(_, config)| no_dev(config)) {
        return Err(refused(
            "matrix",
            &format!("given, but {name} has no `data.dev`"),
            "data to measure targets on",
        ));
    }
    match matrix.examples {
        0 => Err(refused("examples", "0", "a whole number of 1 or more")),
        _ => Ok(()),
    }
}
