//! Fine-tuning on a few examples of each target, from the encoder of each source. Heads are not transferred.

use super::run::{MatrixOptions, Source};
use crate::Result;
use crate::TrainerError;
use crate::engine::{OverSeeds, RunOptions, train_seeds};
use crate::finetune::{FineTuneConfig, TaskSection};
use crate::metrics::progress::RunProgress;
use burn::tensor::Device;
use cloze_evaluation::figures::Better;
use cloze_evaluation::report::TransferMatrix;
use cloze_model::huggingface::ReducedFolder;
use cloze_tokenizer::Tokenizer;
use std::path::{Path, PathBuf};

/// The folder of a target's runs without a source.
const ALONE: &str = "alone";

/// The folders in the options' folder of the runs, and of the encoders that they begin with.
const RUNS: &str = "matrix";
const ENCODERS: &str = "encoders";

/// Trains all of it, and continues where it was. None if it was stopped.
///
/// # Errors
/// Those of [`train_seeds`]; a target without development data; an encoder that cannot be saved without its head.
pub(super) fn train_matrix(
    sources: &[Source<'_>],
    matrix: &MatrixOptions,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Option<TransferMatrix>> {
    let (runs, encoders) = (options.folder.join(RUNS), options.folder.join(ENCODERS));
    let targets: Vec<usize> =
        (0..sources.len()).filter(|place| sources[*place].task.config.is_some()).collect();
    let mut trained = TransferMatrix {
        metrics: Vec::new(),
        alone: Vec::new(),
        scores: vec![Vec::new(); sources.len()],
        targets: targets.clone(),
    };
    let mut without_heads = Vec::new();
    for source in sources {
        let folder = encoders.join(format!("from-{}", source.task.name));
        without_heads.push(without_head(&source.encoder, folder, &options.device)?);
    }
    for target in targets {
        let Some(config) = &sources[target].task.config else { continue };
        let name = &sources[target].task.name;
        let mut few = config.clone();
        few.data.examples = Some(matrix.examples);
        few.data.test.clear();
        // Words mean nothing to a new masked-LM head, and embeddings have none.
        let is_whole = matches!(few.task, TaskSection::Prompt(_) | TaskSection::Embedding(_));
        let checkpoint = few.model.path.clone();
        let checkpoint = match is_whole {
            true => checkpoint,
            false => without_head(&checkpoint, encoders.join(format!("{ALONE}-{name}")), &options.device)?,
        };
        let alone = std::iter::once((ALONE.to_owned(), checkpoint));
        let from = sources.iter().zip(&without_heads).map(|(source, without_head)| {
            let encoder = if is_whole { &source.encoder } else { without_head };
            (format!("from-{}", source.task.name), encoder.clone())
        });
        for (place, (from, encoder)) in alone.chain(from).enumerate() {
            let mut plan = few.clone();
            plan.model.path = encoder;
            progress.note(&format!("target {name}, {from}"));
            let folder = runs.join(name).join(from);
            let Some((metric, score)) = train(&plan, matrix, &folder, options, progress)? else {
                return Ok(None);
            };
            match place.checked_sub(1) {
                None => {
                    trained.metrics.push(metric);
                    trained.alone.push(score);
                }
                Some(source) => trained.scores[source].push(score),
            }
        }
    }
    Ok(Some(trained))
}

/// Saves the encoder of a model's folder in another one, which it returns: a source with the labels of the target would
/// begin the target's training with its head.
fn without_head(model: &Path, folder: PathBuf, device: &Device) -> Result<PathBuf> {
    let mut reduced = ReducedFolder::open(model)?;
    reduced.keep_encoder(device)?;
    reduced.save(&folder)?;
    Tokenizer::load(model)?.save(&folder)?;
    Ok(folder)
}

/// The mean over the seeds of a run's main figure on the development data, with its name: more is better.
fn train(
    plan: &FineTuneConfig,
    matrix: &MatrixOptions,
    folder: &Path,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Option<(String, f64)>> {
    let options = RunOptions { folder: folder.into(), ..options.clone() };
    let trained = train_seeds(plan, &matrix.seeds, &options, progress)?;
    if let OverSeeds::Stopped { .. } = trained {
        return Ok(None);
    }
    let runs = trained.figures("dev").map_or(&[][..], |seeds| seeds.runs());
    let Some(first) = runs.first() else { return Err(TrainerError::NoExamples { split: "development" }) };
    let name = first.figures.main().0.to_owned();
    let mean = runs.iter().map(|run| run.figures.main().1).sum::<f64>() / runs.len() as f64;
    Ok(Some(match Better::of(&name) {
        Better::Higher => (name, mean),
        // A gain is what rises.
        Better::Lower => (format!("−{name}"), -mean),
    }))
}
