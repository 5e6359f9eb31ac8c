//! Whether any number of ranks ends with the weights of one process.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::super::measure::Rounds;
use super::super::report;
use crate::step;

use super::{Training, launcher, weights};

/// The most ranks.
const RANKS: usize = 4;

/// What is trained.
struct Run {
    name: &'static str,
    config: &'static str,
    sets: &'static [&'static str],
    /// A file of labelled rows, of which a few are enough.
    rows: Option<&'static str>,
}

const fn pretraining(name: &'static str, config: &'static str, sets: &'static [&'static str]) -> Run {
    Run { name, config, sets, rows: None }
}

const RUNS: [Run; 8] = [
    pretraining(
        "BERT-mini, f32, clipping, average",
        "bert-mini-corpus",
        &[STEPS, WARM, FEW, SMALL, AVERAGE, CLIP],
    ),
    pretraining("BERT-mini, bf16", "bert-mini-corpus", &[STEPS, WARM, FEW, SMALL, "train.precision=bf16"]),
    pretraining(
        "BERT-mini, LAMB",
        "bert-mini-corpus",
        &[STEPS, WARM, FEW, SMALL, "optimizer.algorithm=lamb"],
    ),
    pretraining(
        "BERT-mini, bf16 exchange",
        "bert-mini-corpus",
        &[STEPS, WARM, FEW, SMALL, "ranks.exchange=bf16"],
    ),
    pretraining("AWD-LSTM", "ulmfit-mini-corpus", &[STEPS, WARM, "train.batch_size=16", CLIP]),
    pretraining("Transformer, Multi30k", "multi30k-transformer", &[STEPS, WARM, "eval.bleu_every=0", CLIP]),
    Run {
        name: "LoRA, SST-2",
        config: "sst2",
        sets: &["train.epochs=1", WARM, "model.lora={ rank = 4, alpha = 8.0 }"],
        rows: Some("../shared/data/sst2/train.tsv"),
    },
    Run {
        name: "SimCSE, SICK",
        config: "simcse-sick",
        sets: &["train.epochs=1", WARM],
        rows: Some("../shared/data/sick/train.tsv"),
    },
];

/// So many rows of a file: a few steps.
const ROWS: usize = 200;

const STEPS: &str = "train.steps=6";
const WARM: &str = "schedule.warmup_steps=2";
/// Evaluations are short.
const FEW: &str = "eval.max_examples=16";
const SMALL: &str = "train.batch_size=16";
const CLIP: &str = "optimizer.clip_norm=0.1";
const AVERAGE: &str = "average={ kind = \"ema\", decay = 0.9 }";

pub fn run(args: &Rounds, program: &Path, mpich: Option<&Path>, place: &Path) -> Result<()> {
    let mut rows = Vec::new();
    for Run { name, config, sets, rows: labelled } in RUNS {
        if args.only.as_ref().is_some_and(|only| !name.contains(&**only)) {
            continue;
        }
        eprintln!("{name}");
        let shards = format!("train.shards={RANKS}");
        let mut sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).chain([shards]).collect();
        if let Some(labelled) = labelled {
            let text = fs::read_to_string(step::root().join(labelled))?;
            let few = place.join("few.tsv");
            fs::write(&few, text.split_inclusive('\n').take(ROWS + 1).collect::<String>())?;
            let only = |key: &str| format!("data.{key}=[{few:?}]");
            sets.extend([only("train.files"), only("dev"), "data.test=[]".into()]);
        }
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let out = place.join("bits");
        let hash = |mut command: Command| -> Result<String> {
            Training { config, sets: &sets, out: &out }.run(command.env("RAYON_NUM_THREADS", "1"))?;
            Ok(blake3::hash(&weights(&out)?).to_hex()[..12].to_owned())
        };
        let expected = hash(Command::new(program))?;
        let mut row = vec![name.to_owned(), expected.clone()];
        for ranks in 1..=RANKS {
            let mut command = launcher(ranks);
            command.arg(program);
            let found = hash(command)?;
            row.push(if found == expected { "equal".into() } else { format!("**{found}**") });
        }
        row.push(match mpich {
            None => "–".into(),
            Some(program) => {
                let mut command = Command::new("mpirun.mpich");
                command.args(["-n", "4"]).arg(program);
                let found = hash(command)?;
                if found == expected { "equal".into() } else { format!("**{found}**") }
            }
        });
        rows.push(<[String; RANKS + 3]>::try_from(row).expect("as many columns"));
    }
    let header = ["weights' hash", "one process", "1 rank", "2 ranks", "3 ranks", "4 ranks", "4, MPICH"];
    let text = format!(
        "{}\n\nA few steps in {RANKS} shards, whole `cloze train` on the development data. {}.",
        report::table(header, rows),
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write_class("ranks-bits", &text) } else { Ok(()) }
}
