//! Training by several processes: beside one process, and beside PyTorch's DistributedDataParallel.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::measure::{self, Measured, Rounds, median};
use super::report;
use crate::step;

/// What is trained: a name, changes of `configs/bert-mini-corpus.toml`, and the peer's preset and precision.
const MODELS: [(&str, &[&str], [&str; 2]); 3] = [
    ("BERT-mini, f32", &[], ["mini", "f32"]),
    ("BERT-mini, bf16", &["train.precision=bf16"], ["mini", "bf16"]),
    ("BERT-base, f32", &["model.preset=base", "train.batch_size=16"], ["base", "f32"]),
];

/// Ranks and shards, of one thread each.
const RANKS: usize = 2;

/// Steps of a round; the first records are left out.
const STEPS: u64 = 24;

/// Wanted of ranks of one thread beside one process of as many threads, and beside the peer.
const GOALS: [f64; 2] = [0.95, 1.0];

/// Who trains.
#[derive(Clone, Copy)]
enum Side {
    /// One process, without shards.
    Whole,
    /// One process, with as many shards as there are ranks.
    Shards,
    Ranks,
}

impl Side {
    const ALL: [Self; 3] = [Self::Whole, Self::Shards, Self::Ranks];
}

pub fn run(args: &Rounds) -> Result<()> {
    let python = measure::python();
    let program = build()?;
    let place = std::env::temp_dir().join(format!("cloze-ranks-{}", std::process::id()));
    let mut rows = Vec::new();
    for (name, sets, peer) in MODELS {
        if args.only.as_ref().is_some_and(|only| !name.contains(&**only)) {
            continue;
        }
        let (mut ours, mut theirs) = (Side::ALL.map(|_| Vec::new()), Vec::new());
        for round in 0..args.rounds {
            eprintln!("{name}, round {}", round + 1);
            for (side, rates) in Side::ALL.into_iter().zip(&mut ours) {
                rates.push(rate(&program, &place, side, sets)?);
            }
            let [shards, ranks] = [Side::Shards, Side::Ranks].map(|side| weights(&place, side));
            ensure!(shards? == ranks?, "{name}: the weights of {RANKS} ranks are not those of one process");
            if let Some(python) = &python {
                let batch = if peer[0] == "base" { "16" } else { "64" };
                theirs.push(Measured::from(&mut distributed(python, peer, batch))?.per_s);
            }
        }
        let [whole, shards, ranks] = ours.map(|rates| median(rates.into_iter()).unwrap_or(f64::NAN));
        let theirs = median(theirs.into_iter());
        rows.push([
            name.to_owned(),
            report::short(whole),
            report::short(shards),
            report::short(ranks),
            format!("{:.2} ×", ranks / whole),
            format!("{} ×", GOALS[0]),
            theirs.map_or("–".into(), report::short),
            theirs.map_or("–".into(), |theirs| format!("{:.2} ×", ranks / theirs)),
            format!("{} ×", GOALS[1]),
        ]);
    }
    let header = [
        "tokens/s",
        "one process",
        "in 2 shards",
        "2 ranks",
        "ratio",
        "at least",
        "DDP, gloo",
        "ratio",
        "at least",
    ];
    let text = format!(
        "{}\n\nOne process has {RANKS} threads, ranks have one each; whole `cloze train` on the development corpus, 64 × 128 (BERT-base: 16 \
         × 128). Weights of {RANKS} ranks and of one process in {RANKS} shards are compared in each round, and are equal. DDP: \
         transformers' BertForPreTraining on ready ids. Medians of {} alternating rounds. {}.",
        report::table(header, rows),
        args.rounds,
        report::machine(python.as_ref())
    );
    println!("{text}");
    fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
    if args.write { report::write_class("ranks", &text) } else { Ok(()) }
}

/// The program with MPI.
fn build() -> Result<PathBuf> {
    let mut build = step::cargo("build");
    build.args(["--release", "--package", "cloze", "--bin", "cloze", "--features", "cloze/mpi"]);
    step::executable("build cloze with MPI", &mut build, "cloze")
}

fn out(place: &Path, side: Side) -> PathBuf {
    place.join(match side {
        Side::Whole => "whole",
        Side::Shards => "shards",
        Side::Ranks => "ranks",
    })
}

/// Trains; the median of the tokens a second.
fn rate(program: &Path, place: &Path, side: Side, sets: &[&str]) -> Result<f64> {
    let out = out(place, side);
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let mut command = match side {
        Side::Ranks => {
            let mut command = Command::new("mpirun");
            command.args(["-n", &RANKS.to_string(), "--bind-to", "core"]).arg(program);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command.env("RAYON_NUM_THREADS", "1");
            command
        }
        _ => {
            let mut command = Command::new(program);
            command.env("RAYON_NUM_THREADS", RANKS.to_string());
            command
        }
    };
    let (steps, shards) = (format!("train.steps={STEPS}"), format!("train.shards={RANKS}"));
    let usual = [&*steps, "schedule.warmup_steps=4", "eval.every=1000", "eval.max_examples=8", "log.every=4"];
    let shards = match side {
        Side::Whole => &[][..],
        _ => &[&*shards],
    };
    command.current_dir(step::root()).args(["train", "configs/bert-mini-corpus.toml", "--out"]).arg(&out);
    command.args(usual.iter().chain(shards).chain(sets).flat_map(|set| ["--set", set]));
    measure::output(&mut command)?;
    let path = out.join("metrics.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let records = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let rates = records.iter().filter_map(|record| record["tokens_per_second"].as_f64());
    median(rates.skip(1)).context("the run has no records")
}

fn weights(place: &Path, side: Side) -> Result<Vec<u8>> {
    let path = out(place, side).join("model/model.safetensors");
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The peer's processes, of one thread each.
fn distributed(python: &OsString, [preset, precision]: [&str; 2], batch: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", &RANKS.to_string()]);
    command.arg(step::root().join("benches/peers/pretrain.py"));
    command.args(["transformers", preset, batch, "128", "8192", "8", precision]).env("OMP_NUM_THREADS", "1");
    command
}
