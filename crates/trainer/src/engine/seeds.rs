//! One config with several seeds.

use super::folder_config::FolderConfig;
use super::origin::{Input, Origin};
use super::run::{Outcome, RunOptions};
use super::run_folder::{RunFolder, claim_for_runs, same_inputs};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{SeedRun, SeedsReport};
use cloze_evaluation::seeds::Seeds;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A config that says all of a run, and carries it out.
pub trait Plan: FolderConfig + Clone {
    /// The run's name.
    fn name(&self) -> &str;

    /// The same run with another seed.
    fn with_seed(self, seed: u64) -> Self;

    /// Where the model's folder is written that the run begins with, if it begins with one: programs may put a hub
    /// name's folder there.
    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf>;

    /// The files that the run reads.
    ///
    /// # Errors
    /// A file that is not there or cannot be read.
    fn inputs(&self) -> Result<Vec<Input>>;

    /// Carries it out.
    ///
    /// # Errors
    /// Those of [`train`](super::train), and of the config's data and models.
    fn run(&self, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome>;
}

/// How the runs ended.
#[derive(Debug, Clone, PartialEq)]
pub enum OverSeeds {
    /// All are done.
    Done {
        /// The seed of the best one by the main figure on the data that runs measure during training; the first seed
        /// where there is none, for test data is not to choose by.
        best: u64,
        /// The best one's model.
        model: PathBuf,
        /// The figures on each split.
        splits: Vec<(String, Seeds)>,
    },
    /// The run of one seed was stopped.
    Stopped {
        /// Its seed.
        seed: u64,
        /// The last step made, which has a checkpoint.
        step: u64,
    },
}

impl OverSeeds {
    /// The figures on a split, such as `dev`, where all runs are done and have measured it.
    pub fn figures(&self, split: &str) -> Option<&Seeds> {
        match self {
            Self::Done { splits, .. } => {
                splits.iter().find(|(known, _)| known == split).map(|(_, seeds)| seeds)
            }
            Self::Stopped { .. } => None,
        }
    }
}

/// The split that nothing is chosen by.
const TEST: &str = "test";

/// Carries a plan out once for each seed, in `seed-N` in the options' folder, which then also receives `seeds.json` and
/// `seeds.html`: every figure's mean and deviation, and which run was best.
///
/// Whatever the options say of resuming, it goes on where it was: runs that were begun are resumed, and those that
/// have ended with this very config are not made again.
///
/// # Errors
/// Those of [`Plan::run`]; no seeds, or one twice; a run that has read other data than there is now.
pub fn train_seeds(
    plan: &impl Plan,
    seeds: &[u64],
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<OverSeeds> {
    check(seeds)?;
    claim_for_runs(&options.folder)?;
    let now = plan.inputs()?;
    let mut splits: Vec<(String, Seeds)> = Vec::new();
    let mut runs = Vec::new();
    for (place, &seed) in seeds.iter().enumerate() {
        let plan = plan.clone().with_seed(seed);
        let folder = options.folder.join(folder_name(seed));
        let place = format!("seed {seed}, {} of {}", place + 1, seeds.len());
        let figures = match ended(&plan, &folder, &now)? {
            Some(figures) => {
                progress.note(&format!("{place}: done before"));
                figures
            }
            None => {
                progress.note(&place);
                let resume = RunFolder::has_begun(&folder);
                let options = RunOptions { folder: folder.clone(), resume, ..options.clone() };
                match plan.run(&options, progress)? {
                    Outcome::Done { figures, .. } => {
                        note_inputs(&folder, &now)?;
                        figures
                    }
                    Outcome::Stopped { step } => return Ok(OverSeeds::Stopped { seed, step }),
                }
            }
        };
        for (split, figures) in figures {
            let known = splits.iter().position(|(known, _)| *known == split);
            let known = known.unwrap_or_else(|| {
                splits.push((split, Seeds::default()));
                splits.len() - 1
            });
            splits[known].1.push(seed, figures);
        }
        let curve = folder.join("curve.svg");
        let curve = fs::read_to_string(&curve).map_err(TrainerError::io("read", &curve))?;
        runs.push(SeedRun { seed, curve });
    }

    let chosen_by = splits.iter().find(|(split, _)| split != TEST);
    let measured = chosen_by.and_then(|(split, all)| Some((split.clone(), all.best()?.seed)));
    let best = measured.as_ref().map_or(seeds[0], |(_, seed)| *seed);
    let model = Path::new(&folder_name(best)).join("model");
    let shown = model.to_string_lossy();
    let of_splits: Vec<(&str, &Seeds)> = splits.iter().map(|(split, all)| (&**split, all)).collect();
    SeedsReport {
        title: &format!("{}: {} seeds", plan.name(), seeds.len()),
        best: measured.as_ref().map(|(_, seed)| (*seed, &*shown)),
        splits: &of_splits,
        runs: &runs,
    }
    .write(&options.folder)?;
    for (split, all) in &splits {
        progress.note(&format!("{split}\n{all}"));
    }
    let choice = match measured {
        Some((split, seed)) => format!("best on {split}: seed {seed}"),
        None => "nothing was measured to choose a seed by".into(),
    };
    progress.note(&format!("{choice}\n{}", options.folder.join("seeds.html").display()));
    let model = options.folder.join(model);
    Ok(OverSeeds::Done { best, model, splits })
}

/// Whether these are seeds to train with.
fn check(seeds: &[u64]) -> Result<()> {
    let bad =
        |found: String, expected: String| Err(TrainerError::Setting { key: "seeds".into(), found, expected });
    let twice = seeds.iter().enumerate().any(|(place, seed)| seeds[..place].contains(seed));
    if seeds.is_empty() || twice {
        let found = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        return bad(found, "different numbers, at least one".into());
    }
    match seeds.iter().find(|seed| i64::try_from(**seed).is_err()) {
        Some(seed) => bad(seed.to_string(), format!("at most {}, TOML's greatest number", i64::MAX)),
        None => Ok(()),
    }
}

/// A run's folder among those of all seeds.
fn folder_name(seed: u64) -> String {
    format!("seed-{seed}")
}

/// The figures of the run in `folder`, if it has ended and was of this very config.
///
/// # Errors
/// [`TrainerError::InputsChanged`] if it has read other data than there is `now`: its figures and those of the other
/// seeds could not be compared.
fn ended(plan: &impl Plan, folder: &Path, now: &[Input]) -> Result<Option<Vec<(String, Figures)>>> {
    let (result, saved) = (folder.join("result.json"), folder.join("config.toml"));
    let parts = ["result.json", "config.toml", "curve.svg", "model"];
    if !parts.iter().all(|part| folder.join(part).exists()) {
        return Ok(None);
    }
    let read = |path: &Path| fs::read_to_string(path).map_err(TrainerError::io("read", path));
    if read(&saved)? != plan.to_toml() {
        return Ok(None);
    }
    if let Some(origin) = Origin::read(folder)?.filter(|origin| !origin.inputs.is_empty()) {
        same_inputs(folder, &origin.inputs, now)?;
    }
    // What is no result, as of an older version, is made again; of older versions a split may be null.
    let result: Option<BTreeMap<String, Option<Figures>>> = serde_json::from_str(&read(&result)?).ok();
    Ok(result
        .map(|splits| splits.into_iter().filter_map(|(split, figures)| Some((split, figures?))).collect()))
}

/// Writes down what the run in `folder` has read, where it has not done so itself.
fn note_inputs(folder: &Path, inputs: &[Input]) -> Result<()> {
    let origin = Origin::read(folder)?.unwrap_or_default();
    if !origin.inputs.is_empty() {
        return Ok(());
    }
    Origin { inputs: inputs.to_vec(), ..origin }.write(folder)
}
