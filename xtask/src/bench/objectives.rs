//! Objectives of pretraining beside one another: the same text, tokenizer, size and time; each result is fine-tuned.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::finetune::side::{Side, Trained};
use super::finetune::table::Spread;
use super::finetune::tasks::{TASKS, Task};
use super::kept::{Kept, Key, target};
use super::{measure, records, report};
use crate::{program, step};

/// A row of the table: its name, its config in `configs/`, and the rates that it is pretrained and fine-tuned with.
struct Objective {
    name: &'static str,
    config: &'static str,
    rate: f64,
    tuned: &'static str,
}

/// The rate of fine-tuning; ELECTRA's is that of its authors for the small model.
const TUNED: &str = "5e-4";

/// Those whose result is an encoder that is fine-tuned. With a rate of 1e-3 all tokens of ELECTRA's encoder become alike: it finds
/// no replaced token in 5,000 steps, and no rate of fine-tuning helps.
const OBJECTIVES: [Objective; 5] = [
    Objective { name: "BERT", config: "bert-mini-corpus", rate: 1e-3, tuned: TUNED },
    Objective { name: "SpanBERT", config: "spanbert-mini-corpus", rate: 1e-3, tuned: TUNED },
    Objective { name: "ALBERT", config: "albert-mini-corpus", rate: 1e-3, tuned: TUNED },
    Objective { name: "ELECTRA", config: "electra-mini-corpus", rate: 3e-4, tuned: "3e-4" },
    Objective { name: "ModernBERT's recipe", config: "modernbert-mini-corpus", rate: 2e-3, tuned: TUNED },
];

/// What all are trained with in place of their configs' batches of 64, which are for a few times as many tokens: with those
/// and a rate of 2e-3, BERT's loss is still that of word frequencies after half an hour on two cores with AVX2.
const SHORT_RUN: [&str; 3] = ["train.batch_size=16", "eval.every=500", "checkpoint.every=500"];

/// What each result is fine-tuned for.
const FINE_TUNED: [&str; 4] = ["sst2", "trec", "mrpc", "wikigold"];

/// Steps that are measured to know how many fit into the time, and those before them.
const MEASURED: u64 = 20;
const BEFORE: u64 = 5;

/// What is trained, and for how long.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each finished run is kept in target/objectives-bench, and one that was interrupted goes on where it was. With the defaults
all of it takes about four hours on two cores. Needs the corpus and the data sets that the configs name.")]
pub struct Args {
    /// How long each objective is pretrained, in minutes of its steps on this machine.
    #[arg(long, default_value_t = 30.0, value_name = "MINUTES")]
    minutes: f64,
    /// Only these, such as albert,span: beginnings of their names.
    #[arg(long, value_delimiter = ',', value_name = "OBJECTIVES", conflicts_with = "write")]
    objectives: Vec<String>,
    /// Each result is fine-tuned once with each of these.
    #[arg(long, value_delimiter = ',', value_name = "SEEDS", default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// In what precision matrices are multiplied: f32 or bf16.
    #[arg(long, default_value = "f32", value_parser = ["f32", "bf16"])]
    precision: String,
    /// Train anew what is kept.
    #[arg(long)]
    again: bool,
    /// Put the table and the curves into benches/.
    #[arg(long)]
    write: bool,
}

/// What a step costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Pace {
    pub ms: f64,
    gflop: f64,
}

/// A pretrained model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pretrained {
    steps: u64,
    tokens: f64,
    seconds: f64,
    gflop_a_step: f64,
    /// The figure that the run is judged by, and its last value on held-out text.
    figure: String,
    value: f64,
}

struct Bench {
    program: PathBuf,
    ours: Side,
    kept: Kept,
    minutes: f64,
    sets: Vec<String>,
    again: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if !(args.minutes > 0.0 && args.minutes.is_finite()) {
        bail!("--minutes is {}; expected a number above 0", args.minutes);
    }
    let objectives = chosen(&args.objectives)?;
    let program = program::build(None)?;
    let bench = Bench {
        ours: Side::ours(program.clone())?,
        program,
        kept: Kept::open(target().join("objectives-bench"))?,
        minutes: args.minutes,
        sets: vec![format!("train.precision=\"{}\"", args.precision)],
        again: args.again,
    };
    let mut rows = Vec::new();
    for objective in &objectives {
        let (key, pretrained) = bench.pretrain(objective)?;
        let mut spreads = Vec::new();
        for task in tasks() {
            let runs = args.seeds.iter().map(|seed| bench.fine_tune(&key, objective, task, *seed));
            let runs = runs.collect::<Result<Vec<Trained>>>()?;
            let figure = task.figures[0];
            spreads.push(Spread::of(runs.iter().filter_map(|run| run.figures.get(figure))).shown());
        }
        rows.push(row(objective, &pretrained, spreads));
        let picture = bench.kept.scratch(&key).join("curve.svg");
        if args.write && picture.exists() {
            let to = step::root().join(format!("benches/objective-{}.svg", objective.config));
            fs::copy(&picture, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    let names = tasks().map(|task| format!("{}, {}", task.name, task.figures[0]));
    let header: Vec<String> = ["objective", "steps", "M tokens", "PFLOP", "min", "held out"]
        .map(str::to_owned)
        .into_iter()
        .chain(names)
        .collect();
    let text = format!(
        "{}\n\nEach pretrained for {} minutes of its own steps, {}, then fine-tuned with {} seeds: means ± standard \
         deviations, of the best epoch by development data or the last one by test data. {}.",
        report::table(header.iter().map(String::as_str), rows),
        args.minutes,
        args.precision,
        args.seeds.len(),
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write_class("objectives", &text) } else { Ok(()) }
}

/// The objectives that are asked for.
fn chosen(names: &[String]) -> Result<Vec<&'static Objective>> {
    let is = |objective: &Objective, name: &String| {
        objective.name.to_lowercase().starts_with(&name.trim().to_lowercase())
    };
    if let Some(name) = names.iter().find(|name| !OBJECTIVES.iter().any(|objective| is(objective, name))) {
        bail!("no objective {name:?}; there are: {}", OBJECTIVES.map(|objective| objective.name).join("; "));
    }
    let wanted = |objective: &&Objective| names.is_empty() || names.iter().any(|name| is(objective, name));
    Ok(OBJECTIVES.iter().filter(wanted).collect())
}

/// The tasks, in the order of the table.
fn tasks() -> impl Iterator<Item = &'static Task> {
    FINE_TUNED.iter().filter_map(|name| TASKS.iter().find(|task| task.name == *name))
}

fn row(objective: &Objective, run: &Pretrained, spreads: Vec<String>) -> Vec<String> {
    let facts = [
        objective.name.to_owned(),
        report::short(run.steps as f64),
        report::short(run.tokens / 1e6),
        report::short(run.gflop_a_step * run.steps as f64 / 1e6),
        report::short(run.seconds / 60.0),
        format!("{} {:.3}", run.figure.replace('_', " "), run.value),
    ];
    facts.into_iter().chain(spreads).collect()
}

impl Bench {
    /// What an objective's config is changed by.
    fn sets(&self, objective: &Objective) -> Vec<String> {
        let short = SHORT_RUN.iter().map(|set| (*set).to_owned());
        self.sets.iter().cloned().chain(short).chain([format!("optimizer.lr={:e}", objective.rate)]).collect()
    }

    /// Pretrains what is not kept; the model stays in the key's folder.
    fn pretrain(&self, objective: &Objective) -> Result<(Key, Pretrained)> {
        let path = step::root().join("configs").join(objective.config).with_extension("toml");
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let minutes = format!("minutes={}", self.minutes);
        let own = self.sets(objective);
        let sets: Vec<&str> = own.iter().map(String::as_str).chain([minutes.as_str()]).collect();
        let key = Key::new(objective.config, "pretrained", 0, &config, &sets, self.ours.version());
        if let Some(kept) = self.kept.read::<Pretrained>(&key)?.filter(|_| !self.again) {
            eprintln!("{key}: kept, {} {:.4} after {} steps", kept.figure, kept.value, kept.steps);
            return Ok((key, kept));
        }
        let folder = self.kept.scratch(&key);
        if self.again && folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let pace = self.pace(objective, &path, &config)?;
        let steps = ((self.minutes * 60e3 / pace.ms) as u64).max(1);
        eprintln!("{key}: {steps} steps of {:.0} ms …", pace.ms);
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).arg("train").arg(&path).arg("--out").arg(&folder);
        command.args(own.iter().chain(&scaled(&config, steps)?).flat_map(|set| ["--set", set]));
        if folder.join("config.toml").exists() {
            command.arg("--resume");
        }
        measure::output(&mut command)?;
        let records = records::read(&folder)?;
        let all = records::steps(&records)?;
        let evaluations = records::evaluations(&records, "heldout");
        let last = evaluations.last().context("the run has no evaluation")?;
        let figure = last["main"].as_str().context("an evaluation without a main figure")?.to_owned();
        let value = last["figures"][&figure].as_f64().unwrap_or(f64::NAN);
        // What its steps cost at their pace: a run beside other work, or an interrupted one, takes longer.
        let seconds = pace.ms / 1e3 * all.steps as f64;
        let pretrained = Pretrained {
            steps: all.steps,
            tokens: all.tokens,
            seconds,
            gflop_a_step: pace.gflop,
            figure,
            value,
        };
        self.kept.write(&key, &pretrained)?;
        Ok((key, pretrained))
    }

    /// What a step costs on this machine, measured once.
    fn pace(&self, objective: &Objective, path: &PathBuf, config: &str) -> Result<Pace> {
        let own = self.sets(objective);
        let sets: Vec<&str> = own.iter().map(String::as_str).collect();
        let key = Key::new(objective.config, "pace", 0, config, &sets, self.ours.version());
        if let Some(kept) = self.kept.read::<Pace>(&key)?.filter(|_| !self.again) {
            return Ok(kept);
        }
        let folder = self.kept.scratch(&key);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).arg("train").arg(path).arg("--out").arg(&folder);
        command.arg("--profile").arg(MEASURED.to_string());
        let short = scaled(config, MEASURED + BEFORE + 1)?;
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

    /// Fine-tunes what is not kept.
    fn fine_tune(&self, pretrained: &Key, objective: &Objective, task: &Task, seed: u64) -> Result<Trained> {
        let path = task.path();
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let model = format!("model.path={:?}", self.kept.scratch(pretrained).join("model"));
        let rate = format!("optimizer.lr={}", objective.tuned);
        let mut sets = vec![model.as_str(), rate.as_str(), "model.dropout.hidden=0.2"];
        // A word's state is its own; a sequence's is the mean of its tokens'.
        sets.extend((task.name != "wikigold").then_some("task.pooling=\"mean\""));
        let side = format!("ours-{pretrained}");
        let key = Key::new(task.name, &side, seed, &config, &sets, self.ours.version());
        if let Some(kept) = self.kept.read::<Trained>(&key)?.filter(|_| !self.again) {
            return Ok(kept);
        }
        eprintln!("{key} …");
        let trained = self.ours.train(task, seed, &sets, &[], &self.kept.scratch(&key), self.again)?;
        eprintln!("{key}: {}", trained.line());
        self.kept.write(&key, &trained)?;
        Ok(trained)
    }
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
pub(super) fn profiled(printed: &str) -> Option<Pace> {
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
    fn every_objective_has_its_config_and_every_task_is_known() {
        for objective in &OBJECTIVES {
            let path = step::root().join("configs").join(objective.config).with_extension("toml");
            assert!(path.is_file(), "{}", path.display());
            scaled(&fs::read_to_string(path).unwrap(), 10).unwrap();
        }
        assert_eq!(tasks().count(), FINE_TUNED.len());
        assert_eq!(chosen(&["span".into(), "ALB".into()]).unwrap().len(), 2);
        assert!(chosen(&["gpt".into()]).is_err());
    }

    #[test]
    fn a_row_has_what_was_spent_and_what_came_of_it() {
        let run = Pretrained {
            steps: 3000,
            tokens: 24.5e6,
            seconds: 1800.0,
            gflop_a_step: 100.0,
            figure: "masked_loss".into(),
            value: 3.5,
        };
        let row = row(&OBJECTIVES[0], &run, vec!["0.80".into()]);
        assert_eq!(row, ["BERT", "3,000", "24.5", "0.30", "30.0", "masked loss 3.500", "0.80"]);
    }
}
