//! Fine-tuning on a few examples of each target, from the encoder of each source.

use super::run::{MatrixOptions, Source};
use crate::Result;
use crate::TrainerError;
use crate::engine::{OverSeeds, RunOptions, train_seeds};
use crate::finetune::FineTuneConfig;
use crate::metrics::progress::RunProgress;
use cloze_evaluation::figures::Better;
use cloze_evaluation::report::TransferMatrix;
use std::path::Path;

/// The folder of a target's runs without a source.
const ALONE: &str = "alone";

/// Trains all of it, and continues where it was. None if it was stopped.
///
/// # Errors
/// Those of [`train_seeds`]; a target without development data.
pub(super) fn train_matrix(
    sources: &[Source<'_>],
    matrix: &MatrixOptions,
    folder: &Path,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Option<TransferMatrix>> {
    let targets: Vec<usize> =
        (0..sources.len()).filter(|place| sources[*place].task.config.is_some()).collect();
    let mut trained = TransferMatrix {
        metrics: Vec::new(),
        alone: Vec::new(),
        scores: vec![Vec::new(); sources.len()],
        targets: targets.clone(),
    };
    for target in targets {
        let Some(config) = &sources[target].task.config else { continue };
        let name = &sources[target].task.name;
        let mut few = config.clone();
        few.data.examples = Some(matrix.examples);
        few.data.test.clear();
        let alone = std::iter::once((ALONE.to_owned(), few.model.path.clone()));
        let from =
            sources.iter().map(|source| (format!("from-{}", source.task.name), source.encoder.clone()));
        for (place, (from, encoder)) in alone.chain(from).enumerate() {
            let mut plan = few.clone();
            plan.model.path = encoder;
            progress.note(&format!("target {name}, {from}"));
            let folder = folder.join(name).join(from);
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
