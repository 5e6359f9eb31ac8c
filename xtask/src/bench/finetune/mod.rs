//! Fine-tuning beside transformers' Trainer: how good, and how long.

pub mod side;
pub mod table;
pub mod tasks;

use std::fs;

use anyhow::{Context, Result, bail};

use self::side::Side;
use self::tasks::{TASKS, Task};
use super::kept::{Kept, Key, target};
use super::{measure, report};
use crate::program;

/// Settings of a run that only its time is wanted of.
const TIMED: [&str; 3] = ["train.epochs=1", "data.dev=[]", "data.test=[]"];

/// What is trained.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each finished run is kept in target/finetune-bench, so that an interrupted benchmark goes on where it was.
Quality does not suffer from a busy machine, times do: --timing-only measures them afterwards.")]
pub struct Args {
    /// A few minutes: trec and mrpc, seed 1 and one epoch, unless other options say otherwise.
    #[arg(long, conflicts_with_all = ["timing_only", "write"])]
    quick: bool,
    /// Only these tasks, such as sst2,wnut17-crf.
    #[arg(long, value_delimiter = ',', value_name = "TASKS", conflicts_with = "write")]
    tasks: Vec<String>,
    /// A run of each side for each of these. [default: 1,2,3; for SQuAD, which takes long, 1]
    #[arg(long, value_delimiter = ',', value_name = "SEEDS")]
    seeds: Vec<u64>,
    /// Train anew what is kept.
    #[arg(long)]
    again: bool,
    /// Train one epoch of each run, anew, without evaluations: the times in the table are then of these.
    #[arg(long)]
    timing_only: bool,
    /// In what precision both sides multiply; the peer's bf16 is the Trainer's.
    #[arg(long, value_enum, default_value_t = Precision::F32, conflicts_with = "write")]
    precision: Precision,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Precision {
    F32,
    Bf16,
}

impl Precision {
    /// What it sets in a run's config.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::F32 => &[],
            Self::Bf16 => &["train.precision=\"bf16\""],
        }
    }
}

/// Both sides and where their runs are kept.
struct Bench {
    ours: Side,
    theirs: Option<Side>,
    kept: Kept,
    again: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let tasks = chosen(args)?;
    let python = measure::python();
    let bench = Bench {
        ours: Side::ours(program::build(None)?)?,
        theirs: python.as_ref().map(Side::theirs).transpose()?,
        kept: Kept::open(target().join("finetune-bench"))?,
        again: args.again || args.timing_only,
    };
    let with_precision = |sets: &[&'static str]| [sets, args.precision.settings()].concat();
    let timed = with_precision(&TIMED);
    let whole = with_precision(if args.quick { &["train.epochs=1"] } else { &[] });
    let sets = if args.timing_only { &timed } else { &whole };
    for task in &tasks {
        for &seed in seeds(args, task) {
            bench.pair(task, seed, sets)?;
        }
    }
    let of_quality = if args.timing_only { with_precision(&[]) } else { whole };
    let rows = tasks.iter().map(|task| bench.row(task, seeds(args, task), &of_quality, &timed));
    let text = table::text(&rows.collect::<Result<Vec<_>>>()?, &report::machine(python.as_ref()));
    println!("{text}");
    if args.write { report::write("finetune", &text) } else { Ok(()) }
}

/// The tasks that are asked for.
fn chosen(args: &Args) -> Result<Vec<&'static Task>> {
    let names: Vec<&str> = match (args.tasks.is_empty(), args.quick) {
        (false, _) => args.tasks.iter().map(String::as_str).collect(),
        (true, true) => vec!["trec", "mrpc"],
        (true, false) => TASKS.iter().map(|task| task.name).collect(),
    };
    let find = |name: &str| match TASKS.iter().find(|task| task.name == name) {
        Some(task) => Ok(task),
        None => {
            let known: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
            bail!("no task {name:?}; there are {}", known.join(", "))
        }
    };
    names.into_iter().map(find).collect()
}

/// The seeds that a task is trained with.
fn seeds<'a>(args: &'a Args, task: &Task) -> &'a [u64] {
    match (args.seeds.is_empty(), args.quick) {
        (false, _) => &args.seeds,
        (true, true) => &[1],
        (true, false) => task.seeds,
    }
}

impl Bench {
    /// Trains what is not kept of a task's two sides, one after the other.
    fn pair(&self, task: &Task, seed: u64, sets: &[&str]) -> Result<()> {
        let ours = self.train(&self.ours, task, seed, sets, &[])?;
        let Some(theirs) = &self.theirs else {
            return Ok(());
        };
        let theirs = self.train(theirs, task, seed, sets, &ours.held_out)?;
        if ours.examples != theirs.examples {
            let (ours, theirs) = (ours.examples, theirs.examples);
            bail!("{}: our side is measured with {ours} examples, the peer with {theirs}", task.name);
        }
        Ok(())
    }

    /// One side's run, as it is kept or anew.
    fn train(
        &self,
        side: &Side,
        task: &Task,
        seed: u64,
        sets: &[&str],
        held_out: &[u64],
    ) -> Result<side::Trained> {
        let key = self.key(side, task, seed, sets)?;
        if let Some(kept) = self.kept.read::<side::Trained>(&key)?.filter(|_| !self.again) {
            eprintln!("{key}: kept, {}", kept.line());
            return Ok(kept);
        }
        eprintln!("{key} …");
        let sets: Vec<&str> = side.settings(task).iter().chain(sets).copied().collect();
        let trained = side.train(task, seed, &sets, held_out, &self.kept.scratch(&key), self.again)?;
        eprintln!("{key}: {}", trained.line());
        self.kept.write(&key, &trained)?;
        Ok(trained)
    }

    fn key(&self, side: &Side, task: &Task, seed: u64, sets: &[&str]) -> Result<Key> {
        let path = task.path();
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let sets: Vec<&str> = side.settings(task).iter().chain(sets).copied().collect();
        Ok(Key::new(task.config, side.name(), seed, &config, &sets, side.version()))
    }

    /// What is kept of a task.
    fn row(
        &self,
        task: &'static Task,
        seeds: &[u64],
        of_quality: &[&str],
        timed: &[&str],
    ) -> Result<table::Row> {
        let kept = |side: &Side, sets: &[&str]| -> Result<Vec<side::Trained>> {
            let of = |seed: &u64| self.kept.read(&self.key(side, task, *seed, sets)?);
            Ok(seeds.iter().map(of).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
        };
        let both = |sets: &[&str]| -> Result<table::Both> {
            let theirs = self.theirs.as_ref().map(|side| kept(side, sets)).transpose()?;
            Ok(table::Both { ours: kept(&self.ours, sets)?, theirs: theirs.unwrap_or_default() })
        };
        Ok(table::Row { task, quality: both(of_quality)?, timed: both(timed)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        use clap::Parser;
        Command::try_parse_from(line.split_whitespace()).unwrap().args
    }

    #[test]
    fn quick_is_a_subset_and_lists_are_read() {
        let names = |args: &Args| chosen(args).unwrap().iter().map(|task| task.name).collect::<Vec<_>>();
        let seeds =
            |args: &Args| chosen(args).unwrap().iter().map(|task| seeds(args, task).to_vec()).collect();
        let of = |line: &str| -> (Vec<&str>, Vec<Vec<u64>>) { (names(&args(line)), seeds(&args(line))) };
        assert_eq!(of("bench --quick"), (vec!["trec", "mrpc"], vec![vec![1]; 2]));
        assert_eq!(of("bench --tasks squad,rte"), (vec!["squad", "rte"], vec![vec![1], vec![1, 2, 3]]));
        let given = of("bench --tasks squad,wnut17-crf --seeds 4,5");
        assert_eq!(given, (vec!["squad", "wnut17-crf"], vec![vec![4, 5]; 2]));
        assert_eq!(of("bench --write").0.len(), TASKS.len());
        let error = chosen(&args("bench --tasks sst3")).unwrap_err().to_string();
        assert!(error.starts_with("no task \"sst3\"; there are sst2, "), "{error}");
    }

    #[test]
    fn every_task_has_its_config() {
        for task in TASKS {
            assert!(task.path().is_file(), "{}", task.path().display());
        }
    }
}
