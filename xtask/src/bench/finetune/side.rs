//! A run of either side.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tasks::Task;
use crate::bench::{measure, records};
use crate::step;

/// Both sides get as many, whatever the machine has.
pub const THREADS: &str = "2";

/// What came of a run; the peer's script prints one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trained {
    /// Of all steps: without reading, tokenizing, evaluations and saving.
    pub seconds: f64,
    pub epochs: u64,
    /// What it was measured with: `dev`, or `test` where there is no such; none where it was not.
    pub split: Option<String>,
    /// Examples of that.
    pub examples: usize,
    /// The figure that the best epoch is chosen by.
    pub main: String,
    /// Of the best epoch by development data; of the last one by test data.
    pub figures: BTreeMap<String, f64>,
    /// Of each epoch.
    pub history: Vec<BTreeMap<String, f64>>,
    /// Which of the training examples were held out, where the config says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_out: Vec<u64>,
}

impl Trained {
    /// The figures and the time in a line.
    pub fn line(&self) -> String {
        let figures = self.figures.iter().map(|(name, value)| format!("{name} {value:.4}, "));
        format!("{}{:.0} s for {} epochs", figures.collect::<String>(), self.seconds, self.epochs)
    }

    pub fn seconds_an_epoch(&self) -> f64 {
        self.seconds / self.epochs as f64
    }

    #[cfg(test)]
    pub fn of(figure: &str, value: f64, seconds: f64) -> Self {
        let figures = BTreeMap::from([(figure.to_owned(), value)]);
        Self {
            seconds,
            epochs: 2,
            split: Some("dev".into()),
            examples: 500,
            main: figure.into(),
            history: vec![figures.clone()],
            figures,
            held_out: Vec::new(),
        }
    }
}

/// Who trains.
pub enum Side {
    /// The program `cloze`.
    Ours { program: PathBuf, version: String },
    /// transformers' Trainer.
    Theirs { python: OsString, version: String },
}

impl Side {
    pub fn ours(program: PathBuf) -> Result<Self> {
        let version = said(Command::new(&program).arg("--version"))?;
        Ok(Self::Ours { program, version })
    }

    pub fn theirs(python: &OsString) -> Result<Self> {
        let versions = "import torch, transformers, accelerate, scipy, seqeval, sklearn; \
                        print(torch.__version__, transformers.__version__, accelerate.__version__)";
        let version = said(Command::new(python).args(["-c", versions]))?;
        Ok(Self::Theirs { python: python.clone(), version })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Ours { .. } => "ours",
            Self::Theirs { .. } => "theirs",
        }
    }

    pub fn version(&self) -> &str {
        match self {
            Self::Ours { version, .. } | Self::Theirs { version, .. } => version,
        }
    }

    /// What a task sets on this side alone.
    pub fn settings(&self, task: &Task) -> &'static [&'static str] {
        match self {
            Self::Ours { .. } => task.ours,
            Self::Theirs { .. } => &[],
        }
    }

    /// Trains. `scratch` is a path that is free, or left by such a run that was interrupted, which our side goes
    /// on with unless it is to begin `anew`; afterwards it is free.
    pub fn train(
        &self,
        task: &Task,
        seed: u64,
        sets: &[&str],
        held_out: &[u64],
        scratch: &Path,
        anew: bool,
    ) -> Result<Trained> {
        match self {
            Self::Ours { program, .. } => {
                let mut command = Command::new(program);
                command.current_dir(step::root()).env("RAYON_NUM_THREADS", THREADS);
                command.arg("train").arg(task.path()).args(sets.iter().flat_map(|set| ["--set", *set]));
                command.arg("--out").arg(scratch);
                command.args(["--set", &format!("run.seed={seed}"), "--set", "checkpoint.keep_last=1"]);
                if anew {
                    remove(scratch)?;
                } else if scratch.join("config.toml").exists() {
                    command.arg("--resume");
                }
                measure::output(&mut command)?;
                let trained = read_run(scratch)?;
                remove(scratch)?;
                Ok(trained)
            }
            Self::Theirs { python, .. } => {
                if !held_out.is_empty() {
                    fs::write(scratch, serde_json::to_string(held_out)?)?;
                }
                let held_out = (!held_out.is_empty()).then_some(scratch);
                let trained = peer(python, &task.path(), seed, sets, held_out)?;
                remove(scratch)?;
                Ok(trained)
            }
        }
    }
}

/// A run of transformers' Trainer with the settings of a config; `held_out` is a file that says which rows are held out.
pub fn peer(
    python: &OsString,
    config: &Path,
    seed: u64,
    sets: &[&str],
    held_out: Option<&Path>,
) -> Result<Trained> {
    let path = config.to_string_lossy();
    let mut command = measure::peer(python, "finetune.py", &[&path, &seed.to_string()]);
    command.current_dir(step::root()).args(sets.iter().flat_map(|set| ["--set", *set]));
    command.env("OMP_NUM_THREADS", THREADS).env("TOKENIZERS_PARALLELISM", "false");
    if let Some(held_out) = held_out {
        command.arg("--held-out").arg(held_out);
    }
    let line = measure::last_line(&mut command)?;
    serde_json::from_str(&line).with_context(|| format!("{command:?} printed no run"))
}

/// What our run's folder says of it.
pub fn read_run(folder: &Path) -> Result<Trained> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let config: toml::Table = read("config.toml")?.parse()?;
    let epochs = config.get("train").and_then(|train| train.get("epochs")).and_then(toml::Value::as_integer);
    let records = records::read(folder)?;
    let held_out = match folder.join("held-out.json").exists() {
        true => serde_json::from_str(&read("held-out.json")?)?,
        false => Vec::new(),
    };
    let epochs = epochs.and_then(|epochs| u64::try_from(epochs).ok()).context("no train.epochs")?;
    Ok(Trained { held_out, ..trained(&records, epochs)? })
}

/// A run by its metrics.
fn trained(records: &[Value], epochs: u64) -> Result<Trained> {
    let seconds = records::steps(records)?.seconds;
    let of = |split: &str| records::evaluations(records, split);
    let (split, evaluations) = match (of("dev"), of("test")) {
        (dev, _) if !dev.is_empty() => (Some("dev".to_owned()), dev),
        (_, test) if !test.is_empty() => (Some("test".to_owned()), test),
        _ => (None, Vec::new()),
    };
    let figures = |evaluation: &&Value| -> BTreeMap<String, f64> {
        let all = evaluation["figures"].as_object().into_iter().flatten();
        all.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect()
    };
    let history: Vec<BTreeMap<String, f64>> = evaluations.iter().map(figures).collect();
    let main = evaluations.first().map_or("", |first| first["main"].as_str().unwrap_or_default()).to_owned();
    let value = |epoch: &BTreeMap<String, f64>| epoch.get(&main).copied().unwrap_or(f64::NEG_INFINITY);
    let best = history.iter().reduce(|best, epoch| if value(epoch) > value(best) { epoch } else { best });
    let examples = evaluations.first().and_then(|first| first["examples"].as_u64()).unwrap_or(0) as usize;
    Ok(Trained {
        seconds,
        epochs,
        split,
        examples,
        figures: best.cloned().unwrap_or_default(),
        main,
        history,
        held_out: Vec::new(),
    })
}

/// Removes a file or folder, if it is there.
fn remove(path: &Path) -> Result<()> {
    let done = match path {
        path if path.is_dir() => fs::remove_dir_all(path),
        path if path.exists() => fs::remove_file(path),
        _ => Ok(()),
    };
    done.with_context(|| format!("cannot remove {}", path.display()))
}

/// What a program prints.
fn said(command: &mut Command) -> Result<String> {
    Ok(measure::output(command)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_from_its_metrics() {
        let lines = r#"{"event":"train","step":50,"tokens":1000,"tokens_per_second":500.0}
{"event":"evaluation","step":60,"split":"dev","figures":{"examples":7,"main":"f1","figures":{"f1":0.5,"loss":null}}}
{"event":"train","step":100,"tokens":1600,"tokens_per_second":200.0}
{"event":"evaluation","step":120,"split":"dev","figures":{"examples":7,"main":"f1","figures":{"f1":0.75,"loss":1.0}}}
{"event":"evaluation","step":180,"split":"dev","figures":{"examples":7,"main":"f1","figures":{"f1":0.25,"loss":0.5}}}
{"event":"evaluation","step":180,"split":"test","figures":{"examples":9,"main":"f1","figures":{"f1":0.9}}}"#;
        let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let run = trained(&records, 3).unwrap();
        assert_eq!((run.seconds, run.epochs, run.examples, run.main.as_str()), (5.0, 3, 7, "f1"));
        assert_eq!(run.split.as_deref(), Some("dev"));
        assert_eq!(run.history.iter().map(|epoch| epoch["f1"]).collect::<Vec<_>>(), [0.5, 0.75, 0.25]);
        assert_eq!((run.figures["f1"], run.figures["loss"]), (0.75, 1.0));
        // Without development data the test data counts, and without that nothing does.
        let run = trained(&records[5..], 3).unwrap();
        assert_eq!((run.split.as_deref(), run.figures["f1"], run.examples), (Some("test"), 0.9, 9));
        assert_eq!(trained(&records[..1], 3).unwrap().split, None);
        assert!(trained(&[serde_json::json!({"event": "train"})], 3).is_err());
    }
}
