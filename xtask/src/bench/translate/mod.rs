//! Translation models beside one another and beside PyTorch's: how good, and how fast they are trained.

pub mod models;
pub mod side;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::models::{MODELS, Model};
use self::side::{Data, Ours, Theirs, Trained};
use super::kept::{Kept, Key, target};
use super::measure::{self, Measured, Outcome};
use super::{records, report};
use crate::{program, step};

/// Settings of a run that is over in a minute: to try, and to take times.
const SHORT: [&str; 4] =
    ["train.steps=60", "schedule.warmup_steps=60", "eval.every=1000000", "eval.bleu_every=0"];

/// What is trained, and how it is measured.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each finished run is kept in target/translate-bench with its model, so that an interrupted benchmark goes on where it
was. Quality does not suffer from a busy machine, times do: --timing-only measures them afterwards.")]
pub struct Args {
    /// A few minutes: sixty steps of each model, which learn nothing.
    #[arg(long, conflicts_with_all = ["timing_only", "write"])]
    quick: bool,
    /// Only these models, such as transformer,rnn: beginnings of their names.
    #[arg(long, value_delimiter = ',', value_name = "MODELS", conflicts_with = "write")]
    models: Vec<String>,
    /// Train anew what is kept.
    #[arg(long)]
    again: bool,
    /// Train nothing: take the times of sixty steps, both sides in turn.
    #[arg(long)]
    timing_only: bool,
    /// How often the sides take turns at sixty steps.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A folder with Multi30k: train, val and test_2016 in en, de and fr.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Put the tables and the picture into benches/.
    #[arg(long)]
    write: bool,
}

/// Both sides and where their runs are kept.
pub struct Bench {
    pub ours: Ours,
    theirs: Option<Theirs>,
    kept: Kept,
    pub data: Data,
    again: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let models = chosen(&args.models)?;
    let python = measure::python();
    let theirs = python.as_ref().map(Theirs::new).transpose()?;
    let bench = Bench { theirs, ..Bench::ours(args.data.as_deref(), args.again)? };
    let sets: &[&str] = if args.quick { &SHORT } else { &[] };
    if !args.timing_only {
        for model in &models {
            bench.train(model, sets)?;
        }
    }
    let mut text = table::quality(&bench.rows(&models, sets)?);
    text += "\n\nmulti30k, en→de unless the name says otherwise; test 2016, beam 5. Minutes are those of \
             training's steps, beside whatever else the machine did.";
    let rounds = if args.quick { 1 } else { args.rounds };
    let outcomes = bench.times(&models, rounds)?;
    if !outcomes.is_empty() {
        text += "\n\nTraining, a step of each side in milliseconds and its tokens a second:\n\n";
        text += &report::beside(&outcomes, "tokens/s");
        text += &format!("\n\nMedians of {rounds} alternating rounds of 60 steps.");
    }
    if let Some(lengths) = bench.by_length(&models, sets, args.write)? {
        text += "\n\nBLEU by the number of words of the source:\n\n";
        text += &lengths;
    }
    text += &format!("\n\n{}.", report::machine(python.as_ref()));
    println!("{text}");
    if args.write { report::write_class("translate", &text) } else { Ok(()) }
}

/// The models that are asked for.
fn chosen(names: &[String]) -> Result<Vec<&'static Model>> {
    let is = |model: &Model, name: &String| begins(model.name, name);
    if let Some(name) = names.iter().find(|name| !MODELS.iter().any(|model| is(model, name))) {
        let known: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
        bail!("no model {name:?}; there are: {}", known.join("; "))
    }
    let wanted = |model: &&Model| names.is_empty() || names.iter().any(|name| is(model, name));
    Ok(MODELS.iter().filter(wanted).collect())
}

fn begins(name: &str, beginning: &str) -> bool {
    name.to_lowercase().starts_with(&beginning.to_lowercase())
}

impl Bench {
    /// Our side alone, on Multi30k in `data` or where it usually lies.
    pub fn ours(data: Option<&Path>, again: bool) -> Result<Self> {
        let data = data.map_or_else(|| step::root().join("../shared/data/multi30k"), Path::to_owned);
        Ok(Self {
            ours: Ours::new(program::build(None)?)?,
            theirs: None,
            kept: Kept::open(target().join("translate-bench"))?,
            data: Data(std::path::absolute(data)?),
            again,
        })
    }

    /// Our run of a model, as it is kept or made now, and its folder.
    pub fn trained(&self, model: &Model, sets: &[&str]) -> Result<(PathBuf, Trained)> {
        let key = self.key(model, "ours", &self.ours.version, sets)?;
        let folder = self.kept.scratch(&key);
        let trained = self.one(&key, || {
            self.ours.train(model, sets, &folder, self.again)?;
            self.ours.measure(model, &folder, &self.data)
        })?;
        Ok((folder, trained))
    }

    /// Trains what is not kept of a model's two sides, one after the other.
    fn train(&self, model: &Model, sets: &[&str]) -> Result<()> {
        let (folder, trained) = self.trained(model, sets)?;
        let Some(theirs) = self.theirs.as_ref().filter(|_| model.is_trained_by_both) else { return Ok(()) };
        let key = self.key(model, "theirs", &theirs.version, sets)?;
        // As many steps as ours made: it may have stopped early.
        let steps = format!("train.steps={}", trained.steps);
        let sets: Vec<&str> = sets.iter().copied().chain([steps.as_str()]).collect();
        let theirs_folder = self.kept.scratch(&key);
        self.one(&key, || {
            theirs.train(model, &sets, &folder.join("model"), &theirs_folder, &self.data, &self.ours)
        })
        .map(drop)
    }

    /// A run as it is kept, or made now.
    fn one(&self, key: &Key, make: impl FnOnce() -> Result<Trained>) -> Result<Trained> {
        if let Some(kept) = self.kept.read::<Trained>(key)?.filter(|_| !self.again) {
            eprintln!("{key}: kept, {}", kept.line());
            return Ok(kept);
        }
        eprintln!("{key} …");
        let trained = make()?;
        eprintln!("{key}: {}", trained.line());
        self.kept.write(key, &trained)?;
        Ok(trained)
    }

    fn key(&self, model: &Model, side: &str, version: &str, sets: &[&str]) -> Result<Key> {
        let path = model.path();
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let sets: Vec<&str> = model.sets.iter().chain(sets).copied().collect();
        Ok(Key::new(model.config, side, 0, &config, &sets, version))
    }

    /// What is kept of the models.
    fn rows(&self, models: &[&Model], sets: &[&str]) -> Result<Vec<table::Row>> {
        let mut rows = Vec::new();
        for model in models {
            let trained = self.kept.read(&self.key(model, "ours", &self.ours.version, sets)?)?;
            rows.push(table::Row { name: model.name.into(), trained });
            if let Some(theirs) = self.theirs.as_ref().filter(|_| model.is_trained_by_both) {
                let trained = self.kept.read(&self.key(model, "theirs", &theirs.version, sets)?)?;
                rows.push(table::Row { name: format!("{}, PyTorch", model.name), trained });
            }
        }
        Ok(rows)
    }

    /// Both sides' rates over a few steps, in turn.
    fn times(&self, models: &[&Model], rounds: u32) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for model in models {
            let Some(floor) = model.peer else { continue };
            let (folder, other) = (self.place("timing-ours"), self.place("timing-theirs"));
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for round in 1..=rounds {
                eprintln!("{}, 60 steps, round {round} of {rounds}", model.name);
                self.ours.train(model, &SHORT, &folder, true)?;
                let steps = records::steps(&records::read(&folder)?)?;
                a.push(measured(steps.seconds, steps.steps, steps.tokens));
                if let Some(theirs) = &self.theirs {
                    let mut command = theirs.command(model, &SHORT, &folder.join("model"), &other);
                    b.push(Measured::from(command.args(["--held-out", "0"]))?);
                }
            }
            side::remove(&folder)?;
            side::remove(&other)?;
            let theirs = (!b.is_empty()).then(|| Measured::median(&b));
            outcomes.push(Outcome {
                work: model.name,
                peer: "PyTorch",
                floor,
                ours: Measured::median(&a),
                theirs,
            });
        }
        Ok(outcomes)
    }

    fn place(&self, name: &str) -> PathBuf {
        target().join("translate-bench").join(name)
    }

    /// BLEU by length of all trained models from English to German, and its picture.
    fn by_length(&self, models: &[&Model], sets: &[&str], write: bool) -> Result<Option<String>> {
        let mut hypotheses = Vec::new();
        for model in models.iter().filter(|model| model.target == "de") {
            let key = self.key(model, "ours", &self.ours.version, sets)?;
            let path = self.kept.scratch(&key).join("hypotheses.txt");
            if self.kept.read::<Trained>(&key)?.is_some() && path.exists() {
                // The table and the picture's legend have the files' names.
                let named = self.place(model.name);
                fs::copy(&path, &named).with_context(|| format!("cannot write {}", named.display()))?;
                hypotheses.push(model.name.to_owned());
            }
        }
        if hypotheses.is_empty() {
            return Ok(None);
        }
        let picture = match write {
            true => step::root().join("benches/bleu-by-length.svg"),
            false => self.place("bleu-by-length.svg"),
        };
        let table = self.ours.by_length(
            &self.data,
            "de",
            &target().join("translate-bench"),
            &hypotheses,
            &picture,
        )?;
        eprintln!("{}", shown(&picture));
        Ok(Some(format!("```text\n{}\n```", table.trim_end())))
    }
}

/// Our side's steps as what the peer's script prints. Peak memory is not known.
fn measured(seconds: f64, steps: u64, tokens: f64) -> Measured {
    let ms = seconds / steps.max(1) as f64 * 1e3;
    Measured { ms, per_s: tokens / seconds, peak_mb: f64::NAN, gflop: 0.0, gflop_per_s: 0.0 }
}

fn shown(path: &Path) -> String {
    format!("the picture is {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_chosen_by_the_beginnings_of_their_names() {
        let names = |line: &str| {
            let names: Vec<String> = line.split_terminator(", ").map(str::to_owned).collect();
            chosen(&names).map(|models| models.iter().map(|model| model.name).collect::<Vec<_>>())
        };
        assert_eq!(names("").unwrap().len(), MODELS.len());
        assert_eq!(names("transformer").unwrap(), ["Transformer", "Transformer, en→fr"]);
        assert_eq!(names("transformer, TRANS").unwrap().len(), 2);
        assert!(names("lstm").unwrap_err().to_string().starts_with("no model \"lstm\"; there are: RNN; "));
    }
}
