//! The speed of several processes, beside one process and beside PyTorch's DistributedDataParallel.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::super::measure::{self, Measured, Rounds, median};
use super::super::report;
use super::{Training, distributed, tokens_per_second, weights};

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

    /// The name of its run's folder.
    fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Shards => "shards",
            Self::Ranks => "ranks",
        }
    }
}

pub fn run(args: &Rounds, program: &Path, place: &Path) -> Result<()> {
    let python = measure::python();
    let mut rows = Vec::new();
    for (name, sets, peer) in MODELS {
        if args.only.as_ref().is_some_and(|only| !name.contains(&**only)) {
            continue;
        }
        let (mut ours, mut theirs) = (Side::ALL.map(|_| Vec::new()), Vec::new());
        for round in 0..args.rounds {
            eprintln!("{name}, round {}", round + 1);
            for (side, rates) in Side::ALL.into_iter().zip(&mut ours) {
                rates.push(rate(program, place, side, sets)?);
            }
            let [shards, ranks] = [Side::Shards, Side::Ranks].map(|side| weights(&place.join(side.name())));
            ensure!(shards? == ranks?, "{name}: the weights of {RANKS} ranks are not those of one process");
            if let Some(python) = &python {
                let batch = if peer[0] == "base" { "16" } else { "64" };
                let mut peer = distributed(python, &["--standalone"], peer, batch);
                theirs.push(Measured::from(peer.env("OMP_NUM_THREADS", "1"))?.per_s);
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
    if args.write { report::write_class("ranks", &text) } else { Ok(()) }
}

/// Trains; the median of the tokens a second.
fn rate(program: &Path, place: &Path, side: Side, sets: &[&str]) -> Result<f64> {
    let out = place.join(side.name());
    let mut command = match side {
        Side::Ranks => {
            let mut command = super::launcher(RANKS);
            command.args(["--bind-to", "core"]).arg(program).env("RAYON_NUM_THREADS", "1");
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
    let sets: Vec<&str> = usual.iter().chain(shards).chain(sets).copied().collect();
    Training { config: "bert-mini-corpus", sets: &sets, out: &out }.run(&mut command)?;
    tokens_per_second(&out)
}
