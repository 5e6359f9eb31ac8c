//! Training one config with several seeds.

use super::folder_config::FolderConfig;
use super::origin::{Input, Origin};
use super::run::{Outcome, RunOptions};
use super::run_folder::{INDEX, RunFolder, claim_for_runs, same_inputs};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{IndexLink, IndexReport, SeedRun, SeedsReport};
use cloze_evaluation::seeds::Seeds;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A config that describes a complete run and can run it.
pub trait Plan: FolderConfig + Clone {
    /// The run's name.
    fn name(&self) -> &str;

    /// The same run with another seed.
    fn with_seed(self, seed: u64) -> Self;

    /// The path of the initial model, if the run starts from one: programs may resolve a hub name there.
    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf>;

    /// The files that the run reads.
    ///
    /// # Errors
    /// A missing or unreadable file.
    fn inputs(&self) -> Result<Vec<Input>>;

    /// Runs it.
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
        /// The best seed by the main metric on the evaluation data during training, or the first seed if there
        /// is none, because test data must not be used for selection.
        best: u64,
        /// The best one's model.
        model: PathBuf,
        /// The metrics on each split.
        splits: Vec<(String, Seeds)>,
    },
    /// The run of one seed was stopped.
    Stopped {
        /// Its seed.
        seed: u64,
        /// The last step, which has a checkpoint.
        step: u64,
    },
}

impl OverSeeds {
    /// The metrics on a split, such as `dev`, if all runs are done and evaluated it.
    pub fn figures(&self, split: &str) -> Option<&Seeds> {
        match self {
            Self::Done { splits, .. } => {
                splits.iter().find(|(known, _)| known == split).map(|(_, seeds)| seeds)
            }
            Self::Stopped { .. } => None,
        }
    }
}

/// The split that must not be used for selection.
const TEST: &str = "test";

/// Runs a plan once per seed, in `seed-N` in the options' folder, which then also receives `seeds.json` and
/// `seeds.html`: every metric's mean and deviation, and the best run.
///
/// It always continues, regardless of the options' `resume`: started runs are resumed, and finished runs of
/// exactly this config are skipped.
///
/// # Errors
/// Those of [`Plan::run`]; no seeds or duplicates; a run that has read other data than the current.
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
    let title = format!("{}: {} seeds", plan.name(), seeds.len());
    write_index(&options.folder, &title, seeds, best)?;
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

/// The page of all runs.
fn write_index(folder: &Path, title: &str, seeds: &[u64], best: u64) -> Result<()> {
    let link = |path: String, what: String| IndexLink { path, what };
    let page = "every metric's mean and deviation over the seeds, and the learning curves";
    let mut links = vec![
        link("seeds.html".into(), page.into()),
        link("seeds.json".into(), "the same metrics as JSON".into()),
        link(
            format!("{}/model/", folder_name(best)),
            "the best seed's model, or the first one's if nothing was measured".into(),
        ),
    ];
    let run =
        |seed: &u64| link(format!("{}/{INDEX}", folder_name(*seed)), format!("the run with seed {seed}"));
    links.extend(seeds.iter().map(run).filter(|link| folder.join(&link.path).exists()));
    let facts = [("seeds", seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))];
    let report = IndexReport { title, facts: &facts, splits: &[], curve: None, links: &links };
    Ok(report.write(&folder.join(INDEX))?)
}

/// Validates the seeds.
fn check(seeds: &[u64]) -> Result<()> {
    let bad =
        |found: String, expected: String| Err(TrainerError::Setting { key: "seeds".into(), found, expected });
    let twice = seeds.iter().enumerate().any(|(place, seed)| seeds[..place].contains(seed));
    if seeds.is_empty() || twice {
        let found = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        return bad(found, "distinct numbers, at least one".into());
    }
    match seeds.iter().find(|seed| i64::try_from(**seed).is_err()) {
        Some(seed) => bad(seed.to_string(), format!("at most {}, TOML's largest integer", i64::MAX)),
        None => Ok(()),
    }
}

/// The name of a run's folder among those of all seeds.
fn folder_name(seed: u64) -> String {
    format!("seed-{seed}")
}

/// The metrics of the run in `folder`, if it has finished with exactly this config.
///
/// # Errors
/// [`TrainerError::InputsChanged`] if it read other data than `now`: its metrics would not be comparable with
/// those of the other seeds.
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

/// Records the files that the run in `folder` read, unless already recorded.
fn note_inputs(folder: &Path, inputs: &[Input]) -> Result<()> {
    let origin = Origin::read(folder)?.unwrap_or_default();
    if !origin.inputs.is_empty() {
        return Ok(());
    }
    Origin { inputs: inputs.to_vec(), ..origin }.write(folder)
}
