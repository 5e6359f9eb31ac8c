//! A fine-tuning config with several seeds.

use super::config::FineTuneConfig;
use super::reading::inputs_of;
use super::run::{Ended, FineTuned, fine_tune};
use crate::config::FolderConfig;
use crate::evaluation::report::{SeedRun, SeedsReport};
use crate::evaluation::seeds::Seeds;
use crate::metrics::progress::RunProgress;
use crate::origin::{Input, Origin};
use crate::run::RunOptions;
use crate::run_folder::{RunFolder, claim_for_runs, same_inputs};
use crate::{Result, TrainerError};
use std::fs;
use std::path::{Path, PathBuf};

/// How the runs ended.
#[derive(Debug, Clone, PartialEq)]
pub enum OverSeeds {
    /// All are done.
    Done {
        /// The best one's seed by the main figure on the development data; without any, the first: test data is
        /// not to choose by.
        best: u64,
        /// The Hugging Face folder of the best one.
        model: PathBuf,
        /// The figures on the development data, where there is any.
        dev: Seeds,
        /// The figures on the test data, where there is any.
        test: Seeds,
    },
    /// The run of one seed was stopped.
    Stopped {
        /// Its seed.
        seed: u64,
        /// The last step made, which has a checkpoint.
        step: u64,
    },
}

/// [Fine-tunes](fine_tune) once for each seed, in `seed-N` in the options' folder, which then also receives
/// `seeds.json` and `seeds.html`: every figure's mean and deviation, and which run was best.
///
/// Whatever the options say of resuming, it goes on where it was: runs that were begun are resumed, and those that
/// have ended with this very config are not made again. With `data.dev_fraction` each seed holds out other examples.
///
/// # Errors
/// Those of [`fine_tune`]; no seeds, or one twice.
pub fn fine_tune_seeds(
    config: &FineTuneConfig,
    seeds: &[u64],
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<OverSeeds> {
    let twice = seeds.iter().enumerate().any(|(i, seed)| seeds[..i].contains(seed));
    if seeds.is_empty() || twice {
        let found = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let expected = "different numbers, at least one".into();
        return Err(TrainerError::Setting { key: "seeds".into(), found, expected });
    }
    if let Some(seed) = seeds.iter().find(|seed| i64::try_from(**seed).is_err()) {
        let expected = format!("at most {}, TOML's greatest number", i64::MAX);
        return Err(TrainerError::Setting { key: "seeds".into(), found: seed.to_string(), expected });
    }
    claim_for_runs(&options.folder)?;
    let now = inputs_of(config)?;
    let (mut of_dev, mut of_test) = (Seeds::default(), Seeds::default());
    let mut runs = Vec::new();
    for (i, &seed) in seeds.iter().enumerate() {
        let mut config = config.clone();
        config.run.seed = seed;
        let folder = options.folder.join(name(seed));
        let place = format!("seed {seed}, {} of {}", i + 1, seeds.len());
        let Ended { dev, test } = match ended(&config, &folder, &now)? {
            Some(ended) => {
                progress.note(&format!("{place}: done before"));
                ended
            }
            None => {
                progress.note(&place);
                let resume = RunFolder::has_begun(&folder);
                let options = RunOptions {
                    device: options.device.clone(),
                    folder: folder.clone(),
                    cache: options.cache.clone(),
                    resume,
                    memory: options.memory,
                    stop: options.stop,
                };
                match fine_tune(&config, &options, progress)? {
                    FineTuned::Done { dev, test, .. } => Ended { dev, test },
                    FineTuned::Stopped { step } => return Ok(OverSeeds::Stopped { seed, step }),
                }
            }
        };
        for (all, figures) in [(&mut of_dev, dev), (&mut of_test, test)] {
            if let Some(figures) = figures {
                all.push(seed, figures);
            }
        }
        let curve = folder.join("curve.svg");
        let curve = fs::read_to_string(&curve).map_err(TrainerError::io("read", &curve))?;
        runs.push(SeedRun { seed, curve });
    }

    let measured = of_dev.best().map(|run| run.seed);
    let best = measured.unwrap_or(seeds[0]);
    let model = Path::new(&name(best)).join("model");
    let splits: Vec<(&str, &Seeds)> = [("dev", &of_dev), ("test", &of_test)]
        .into_iter()
        .filter(|(_, all)| !all.runs().is_empty())
        .collect();
    let shown = model.to_string_lossy();
    SeedsReport {
        title: &format!("{}: {} seeds", config.run.name, seeds.len()),
        best: measured.map(|seed| (seed, &*shown)),
        splits: &splits,
        runs: &runs,
    }
    .write(&options.folder)?;
    for (split, all) in splits {
        progress.note(&format!("{split}\n{all}"));
    }
    let choice = match measured {
        Some(seed) => format!("best on the development data: seed {seed}"),
        None => "no development data to choose a seed by".into(),
    };
    progress.note(&format!("{choice}\n{}", options.folder.join("seeds.html").display()));
    let model = options.folder.join(model);
    Ok(OverSeeds::Done { best, model, dev: of_dev, test: of_test })
}

/// A run's folder among those of all seeds.
fn name(seed: u64) -> String {
    format!("seed-{seed}")
}

/// The figures of the run in `folder`, if it has ended and was of this very config.
///
/// # Errors
/// [`TrainerError::InputsChanged`] if it has read other data than there is `now`: its figures and those of the other
/// seeds could not be compared.
fn ended(config: &FineTuneConfig, folder: &Path, now: &[Input]) -> Result<Option<Ended>> {
    let (result, saved) = (folder.join("result.json"), folder.join("config.toml"));
    let parts = ["result.json", "config.toml", "curve.svg", "model/config.json"];
    if !parts.iter().all(|part| folder.join(part).exists()) {
        return Ok(None);
    }
    let read = |path: &Path| fs::read_to_string(path).map_err(TrainerError::io("read", path));
    let same = read(&saved)? == config.to_toml();
    if !same {
        return Ok(None);
    }
    if let Some(origin) = Origin::read(folder)?.filter(|origin| !origin.inputs.is_empty()) {
        same_inputs(folder, &origin.inputs, now)?;
    }
    // What is no result, as of an older version, is made again.
    Ok(serde_json::from_str(&read(&result)?).ok())
}
