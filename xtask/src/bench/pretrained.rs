//! Models that are pretrained for a time or for a number of steps, and fine-tuned: each run is made once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::finetune::side::{Side, Trained};
use super::finetune::tasks::Task;
use super::kept::{Kept, Key, target};
use super::{measure, records};
use crate::{program, step};

/// What all are trained with in place of their configs' batches of 64, which are for a few times as many tokens: with those
/// and a rate of 2e-3, BERT's loss is still that of word frequencies after half an hour on two cores with AVX2.
pub const SHORT_RUN: [&str; 3] = ["train.batch_size=16", "eval.every=500", "checkpoint.every=500"];

/// The rate of BERT in such a run, and that of its fine-tuning.
pub const RATE: f64 = 1e-3;
pub const TUNED: &str = "5e-4";

/// Tasks whose answers are of tokens.
const OF_TOKENS: [&str; 3] = ["wikigold", "ud-ewt", "squad"];

/// Steps that are measured to know how many fit into the time, and those before them.
const MEASURED: u64 = 20;
const BEFORE: u64 = 5;

/// How much of a benchmark is run, and with what.
#[derive(clap::Args)]
pub struct Options {
    /// Steps that each model is pretrained, in place of the time.
    #[arg(long, value_name = "STEPS", conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Only these rows, by their names or beginnings of them. The rest of the table is made another time.
    #[arg(long, value_delimiter = ',', value_name = "ROWS", conflicts_with = "write")]
    pub only: Vec<String>,
    /// Only these tasks, such as sst2,trec.
    #[arg(long, value_delimiter = ',', value_name = "TASKS", conflicts_with = "write")]
    pub tasks: Vec<String>,
    /// Each result is fine-tuned once with each of these.
    #[arg(long, value_delimiter = ',', value_name = "SEEDS", default_value = "1,2,3")]
    pub seeds: Vec<u64>,
    /// In what precision matrices are multiplied in pretraining: f32 or bf16.
    #[arg(long, default_value = "f32", value_parser = ["f32", "bf16"])]
    pub precision: String,
    /// Override a key of the pretraining's configuration, such as model.preset="tiny"; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "write")]
    sets: Vec<String>,
    /// The program [default: `cloze`, built in release].
    #[arg(long, value_name = "PROGRAM")]
    cloze: Option<PathBuf>,
    /// Make anew what is kept.
    #[arg(long)]
    pub again: bool,
    /// Put the tables into benches/README.md.
    #[arg(long)]
    pub write: bool,
}

impl Options {
    /// The benchmark of the folder `name` in cargo's.
    pub fn bench(&self, name: &str, minutes: f64) -> Result<Bench> {
        if self.seeds.is_empty() {
            bail!("--seeds names none; expected a seed at least");
        }
        let length = match self.steps {
            Some(steps) => Length::Steps(steps),
            None => Length::minutes(minutes)?,
        };
        let program = match &self.cloze {
            Some(program) => {
                program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?
            }
            None => program::build(None)?,
        };
        Bench::open(program, name, length, self.again)
    }

    /// What is set in pretraining beside a row's own settings, which come before those that are given here.
    pub fn sets(&self, own: &[String]) -> Vec<String> {
        let short = SHORT_RUN.iter().map(|set| (*set).to_owned());
        let rest = [format!("train.precision={:?}", self.precision), format!("optimizer.lr={RATE:e}")];
        short.chain(rest).chain(own.iter().cloned()).chain(self.sets.iter().cloned()).collect()
    }
}

/// Those of `all` that `names` name, whole or by their beginnings, or all of them where there is none.
pub fn chosen<'a, T>(
    what: &str,
    all: &'a [T],
    names: &[String],
    name: impl Fn(&T) -> &str,
) -> Result<Vec<&'a T>> {
    let mut wanted = vec![names.is_empty(); all.len()];
    for given in names {
        let given = given.trim().to_lowercase();
        let is_whole = all.iter().any(|item| name(item).to_lowercase() == given);
        let is = |item: &T| {
            let name = name(item).to_lowercase();
            if is_whole { name == given } else { !given.is_empty() && name.starts_with(&given) }
        };
        if !all.iter().any(is) {
            let known: Vec<&str> = all.iter().map(&name).collect();
            bail!("no {what} {given:?}; there are: {}", known.join("; "));
        }
        wanted.iter_mut().zip(all).for_each(|(wanted, item)| *wanted |= is(item));
    }
    Ok(all.iter().zip(wanted).filter_map(|(item, wanted)| wanted.then_some(item)).collect())
}

/// How long a model is pretrained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// As many steps as fit into this time on this machine.
    Minutes(f64),
    Steps(u64),
}

impl Length {
    pub fn minutes(minutes: f64) -> Result<Self> {
        if !(minutes > 0.0 && minutes.is_finite()) {
            bail!("--minutes is {minutes}; expected a number above 0");
        }
        Ok(Self::Minutes(minutes))
    }

    /// As it is said below a table.
    pub fn said(self) -> String {
        match self {
            Self::Minutes(minutes) => format!("{minutes} minutes of its own steps"),
            Self::Steps(steps) => format!("{} steps", super::report::count(steps)),
        }
    }
}

/// What a step costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    pub ms: f64,
    gflop: f64,
}

/// A pretrained model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pretrained {
    pub steps: u64,
    pub tokens: f64,
    pub seconds: f64,
    /// Known where the cost of a step was measured.
    pub gflop_a_step: Option<f64>,
    /// The figure that the run is judged by, and its last value on held-out text.
    pub figure: String,
    pub value: f64,
}

/// Runs of the program `cloze`, and the folder that they are kept in.
pub struct Bench {
    pub program: PathBuf,
    ours: Side,
    pub kept: Kept,
    pub length: Length,
    again: bool,
}

impl Bench {
    pub fn open(program: PathBuf, name: &str, length: Length, again: bool) -> Result<Self> {
        let ours = Side::ours(program.clone())?;
        Ok(Self { program, ours, kept: Kept::open(target().join(name))?, length, again })
    }

    pub fn version(&self) -> &str {
        self.ours.version()
    }

    /// What is kept under the key, or else what `make` makes.
    pub fn once<T: Serialize + serde::de::DeserializeOwned>(
        &self,
        key: &Key,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if let Some(kept) = self.kept.read(key)?.filter(|_| !self.again) {
            return Ok(kept);
        }
        eprintln!("{key} …");
        let made = make()?;
        self.kept.write(key, &made)?;
        Ok(made)
    }

    /// `cloze`, run where paths of configs begin.
    pub fn cloze(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).args(arguments);
        command
    }

    /// Pretrains what is not kept, by a config in `configs/`; the [model](Self::model) stays in the key's folder.
    pub fn pretrain(&self, config: &str, own: &[String]) -> Result<(Key, Pretrained)> {
        let (path, text) = read(config)?;
        let length = match self.length {
            Length::Minutes(minutes) => format!("minutes={minutes}"),
            Length::Steps(steps) => format!("steps={steps}"),
        };
        let sets: Vec<&str> = own.iter().map(String::as_str).chain([length.as_str()]).collect();
        let key = Key::new(config, "pretrained", 0, &text, &sets, self.version());
        if let Some(kept) = self.kept.read::<Pretrained>(&key)?.filter(|_| !self.again) {
            eprintln!("{key}: kept, {} {:.4} after {} steps", kept.figure, kept.value, kept.steps);
            return Ok((key, kept));
        }
        let folder = self.kept.scratch(&key);
        if self.again && folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let (steps, pace) = match self.length {
            Length::Minutes(minutes) => {
                let pace = self.pace(config, &path, &text, own)?;
                (((minutes * 60e3 / pace.ms) as u64).max(1), Some(pace))
            }
            Length::Steps(steps) => (steps, None),
        };
        eprintln!("{key}: {steps} steps …");
        let mut command = self.cloze(&["train"]);
        command.arg(&path).arg("--out").arg(&folder);
        command.args(own.iter().chain(&scaled(&text, steps)?).flat_map(|set| ["--set", set]));
        if folder.join("config.toml").exists() {
            command.arg("--resume");
        }
        measure::output(&mut command)?;
        let records = records::read(&folder)?;
        let all = records::steps(&records)?;
        let (figure, value) = last(&records)?;
        // What its steps cost at their pace: a run beside other work, or an interrupted one, takes longer.
        let seconds = pace.map_or(all.seconds, |pace| pace.ms / 1e3 * all.steps as f64);
        let pretrained = Pretrained {
            steps: all.steps,
            tokens: all.tokens,
            seconds,
            gflop_a_step: pace.map(|pace| pace.gflop),
            figure,
            value,
        };
        self.kept.write(&key, &pretrained)?;
        Ok((key, pretrained))
    }

    /// Where a pretrained model lies.
    pub fn model(&self, pretrained: &Key) -> PathBuf {
        self.kept.scratch(pretrained).join("model")
    }

    /// What a step costs on this machine, measured once.
    fn pace(&self, config: &str, path: &Path, text: &str, own: &[String]) -> Result<Pace> {
        let sets: Vec<&str> = own.iter().map(String::as_str).collect();
        let key = Key::new(config, "pace", 0, text, &sets, self.version());
        if let Some(kept) = self.kept.read::<Pace>(&key)?.filter(|_| !self.again) {
            return Ok(kept);
        }
        let folder = self.kept.scratch(&key);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let mut command = self.cloze(&["train"]);
        command.arg(path).arg("--out").arg(&folder).arg("--profile").arg(MEASURED.to_string());
        let short = scaled(text, MEASURED + BEFORE + 1)?;
        command.args(own.iter().chain(&short).flat_map(|set| ["--set", set]));
        command.args(["--set", "eval.max_examples=1"]);
        let ran = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let printed = String::from_utf8_lossy(&ran.stderr);
        if !ran.status.success() {
            bail!("{command:?} failed: {}", printed.lines().last().unwrap_or_default());
        }
        let pace = profiled(&printed).with_context(|| format!("{command:?} printed no profile"))?;
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        self.kept.write(&key, &pace)?;
        Ok(pace)
    }

    /// Fine-tunes what is not kept, with these settings beside the task's own.
    pub fn fine_tune(&self, pretrained: &Key, task: &Task, seed: u64, own: &[String]) -> Result<Trained> {
        let path = task.path();
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let model = format!("model.path={:?}", self.model(pretrained));
        let sets: Vec<&str> = [&model].into_iter().chain(own).map(String::as_str).collect();
        let side = format!("ours-{pretrained}");
        let key = Key::new(task.name, &side, seed, &config, &sets, self.version());
        if let Some(kept) = self.kept.read::<Trained>(&key)?.filter(|_| !self.again) {
            return Ok(kept);
        }
        eprintln!("{key} …");
        let trained = self.ours.train(task, seed, &sets, &[], &self.kept.scratch(&key), self.again)?;
        eprintln!("{key}: {}", trained.line());
        self.kept.write(&key, &trained)?;
        Ok(trained)
    }

    /// The figure of a task, that which its table shows first, with each seed.
    pub fn figures(&self, pretrained: &Key, task: &Task, seeds: &[u64], own: &[String]) -> Result<Vec<f64>> {
        let of = |run: Trained| {
            let found = run.figures.get(task.figures[0]).copied();
            found.with_context(|| format!("a run of {} has no {}", task.name, task.figures[0]))
        };
        seeds.iter().map(|seed| of(self.fine_tune(pretrained, task, *seed, own)?)).collect()
    }
}

/// What a task's config is changed by for a small model whose head is new.
pub fn tuned(rate: &str, task: &Task) -> Vec<String> {
    let mut sets = vec![format!("optimizer.lr={rate}"), "model.dropout.hidden=0.2".to_owned()];
    // A word's state is its own; a sequence's is the mean of its tokens'.
    if !OF_TOKENS.contains(&task.name) {
        sets.push("task.pooling=\"mean\"".to_owned());
    }
    sets
}

/// A config's file and what it says.
pub fn read(config: &str) -> Result<(PathBuf, String)> {
    let path = step::root().join("configs").join(config).with_extension("toml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path, text))
}

/// The figure that a pretraining is judged by, and its last value on held-out text.
fn last(records: &[serde_json::Value]) -> Result<(String, f64)> {
    let evaluations = records::evaluations(records, "heldout");
    let last = evaluations.last().context("the run has no evaluation")?;
    let figure = last["main"].as_str().context("an evaluation without a main figure")?.to_owned();
    let value = last["figures"][&figure].as_f64();
    let value = value.with_context(|| format!("the last evaluation has no {figure}"))?;
    Ok((figure, value))
}

/// The settings of a run of this many steps: those of the config's schedule in proportion.
pub fn scaled(config: &str, steps: u64) -> Result<Vec<String>> {
    let table: toml::Table = config.parse()?;
    let of = |section: &str, key: &str| table.get(section)?.get(key)?.as_integer();
    let whole = of("train", "steps").context("no train.steps")?.max(1) as f64;
    let mut sets = vec![format!("train.steps={steps}")];
    for key in ["warmup_steps", "decay_steps"] {
        if let Some(given) = of("schedule", key) {
            let part = (given as f64 / whole * steps as f64).round().clamp(1.0, steps as f64);
            sets.push(format!("schedule.{key}={part}"));
        }
    }
    Ok(sets)
}

/// The cost of a step by a printed profile: its row has calls, milliseconds, a share, and GFLOP a second.
pub fn profiled(printed: &str) -> Option<Pace> {
    let numbers: Vec<f64> = printed.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        // A line of progress begins with the same word: `step 1/26 · loss …`.
        let is_row = words.next() == Some("step") && words.clone().next()?.parse::<u64>().is_ok();
        is_row.then(|| words.filter_map(|word| word.replace(',', "").parse().ok()).collect())
    })?;
    let [_, ms, _, gflop_per_s, ..] = numbers[..] else { return None };
    Some(Pace { ms, gflop: gflop_per_s * ms / 1e3 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_run_has_a_shorter_schedule() {
        let config =
            "[train]\nsteps = 6000\n[schedule]\nkind = \"linear\"\nwarmup_steps = 200\ndecay_steps = 1500\n";
        let expected = ["train.steps=3000", "schedule.warmup_steps=100", "schedule.decay_steps=750"];
        assert_eq!(scaled(config, 3000).unwrap(), expected);
        assert_eq!(scaled(config, 3).unwrap()[1], "schedule.warmup_steps=1");
        assert!(scaled("[train]\n", 3).is_err());
    }

    #[test]
    fn a_profile_tells_the_cost_of_a_step() {
        let printed = "step 1/26 · loss 9.1 · 2 s left\nprofile of 20 steps\n                calls      ms  of a step  GFLOP/s  of the product's rate\n \
                       step          1  250.00    100.0 %      120                   70 %\n wait for data 1 0.10 0.0 %\n";
        assert_eq!(profiled(printed), Some(Pace { ms: 250.0, gflop: 30.0 }));
        assert_eq!(profiled("nothing"), None);
    }

    #[test]
    fn rows_are_chosen_by_the_beginnings_of_their_names() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen("kind", &["learned", "relative", "relative-bias"], &names, |name| name)
        };
        assert_eq!(of(&[]).unwrap().len(), 3);
        assert_eq!(of(&["REL", "lea"]).unwrap(), [&"learned", &"relative", &"relative-bias"]);
        assert_eq!(of(&["relative"]).unwrap(), [&"relative"]);
        assert_eq!(of(&["relative-"]).unwrap(), [&"relative-bias"]);
        let error = of(&["lea", "alibi"]).unwrap_err().to_string();
        assert_eq!(error, "no kind \"alibi\"; there are: learned; relative; relative-bias");
        assert!(of(&[""]).is_err());
    }

    #[test]
    fn what_was_kept_without_knowing_of_steps_alone_is_still_read() {
        let kept =
            r#"{"steps":9,"tokens":1.0,"seconds":2.0,"gflop_a_step":3.5,"figure":"masked_loss","value":5.5}"#;
        assert_eq!(serde_json::from_str::<Pretrained>(kept).unwrap().gflop_a_step, Some(3.5));
        let kept = kept.replace("3.5", "null");
        assert_eq!(serde_json::from_str::<Pretrained>(&kept).unwrap().gflop_a_step, None);
    }

    #[test]
    fn a_time_is_above_nothing() {
        assert_eq!(Length::minutes(0.5).unwrap().said(), "0.5 minutes of its own steps");
        assert_eq!(Length::Steps(2000).said(), "2,000 steps");
        assert!(Length::minutes(0.0).is_err() && Length::minutes(f64::NAN).is_err());
    }
}
