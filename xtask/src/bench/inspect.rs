//! Explanations of a classifier: how faithful they are, and how long they take beside Captum.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::kept::target;
use super::measure::{self, Measured};
use super::report;
use crate::{program, step};

/// How to measure.
#[derive(clap::Args)]
#[command(after_long_help = "\
Without --model, configs/sst2.toml is trained first, and kept in target/inspect-bench.")]
pub struct Args {
    /// A folder of a classifier of single texts.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Texts with labels, tab-separated under a header, the text first.
    #[arg(long, value_name = "FILE")]
    texts: Option<PathBuf>,
    /// Texts that are explained in turn with Captum.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    timed: u32,
    /// How often the sides take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// The methods, and whether Captum has them.
const METHODS: [(&str, bool); 5] = [
    ("attention rollout", false),
    ("gradient × input", true),
    ("integrated gradients", true),
    ("gradient-weighted attention", false),
    ("occlusion", true),
];

const RANDOM: &str = "random ranks";

/// A ranking's figures, each with its deviation over texts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Faithful {
    method: String,
    comprehensiveness: [f64; 2],
    sufficiency: [f64; 2],
}

pub fn run(args: &Args) -> Result<()> {
    let texts = args.texts.clone().unwrap_or_else(|| step::root().join("../shared/data/sst2/dev.tsv"));
    let model = args.model.clone().map_or_else(trained, Ok)?;
    let place = target().join("inspect-bench");
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let [all, timed] = [("all.txt", usize::MAX), ("timed.txt", args.timed as usize)]
        .map(|(name, most)| (place.join(name), most));
    let n_texts = write_texts(&texts, &all.0, all.1)?;
    write_texts(&texts, &timed.0, timed.1)?;
    let model = measure::path_text(&model)?;
    let (all, timed) = (measure::path_text(&all.0)?, measure::path_text(&timed.0)?);
    let bench = measure::build("cloze", "inspect")?;
    let python = measure::python();

    eprintln!("how faithful, {n_texts} texts …");
    let printed = measure::output(&mut measure::ours(&bench, &["faithful", &model, &all]))?;
    let faithful = read(&printed)?;
    let mut rows = Vec::new();
    for (name, has_peer) in METHODS.into_iter().chain([(RANDOM, false)]) {
        let Some(figures) = faithful.get(name) else { continue };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 1..=if name == RANDOM { 0 } else { args.rounds } {
            eprintln!("{name}, round {round} of {}", args.rounds);
            let given = ["time", &model, &timed, name, "1"];
            ours.push(Measured::from(&mut measure::ours(&bench, &given))?);
            if let Some(python) = python.as_ref().filter(|_| has_peer) {
                let given = [name, &model, &timed, "1"];
                theirs.push(Measured::from(&mut measure::peer(python, "explain.py", &given))?);
            }
        }
        rows.push(row(name, figures, &ours, &theirs));
    }
    let header =
        ["method", "comprehensiveness", "sufficiency", "ours, ms a text", "Captum's", "ratio", "at least"];
    let page = format!(
        "{}\n\n{n_texts} texts of SST-2's development data: means ± deviations over texts, words taken away by 1, 5, 10, 20 and 50 % \
         (ERASER). High comprehensiveness and low sufficiency are good. Times: {} texts, medians of {} alternating rounds. {}.",
        report::table(header, rows),
        args.timed,
        args.rounds,
        report::machine(python.as_ref())
    );
    println!("{page}");
    if args.write { report::write_class("inspect", &page) } else { Ok(()) }
}

fn row(name: &str, figures: &Faithful, ours: &[Measured], theirs: &[Measured]) -> [String; 7] {
    let shown = |[mean, deviation]: [f64; 2]| format!("{mean:.3} ± {deviation:.3}");
    let (ours, theirs) = (Measured::median(ours), Measured::median(theirs));
    let ratio = theirs.ms / ours.ms;
    [
        name.to_owned(),
        shown(figures.comprehensiveness),
        shown(figures.sufficiency),
        report::short(ours.ms),
        report::short(theirs.ms),
        if ratio.is_nan() { "–".to_owned() } else { format!("{ratio:.2} ×") },
        if ratio.is_nan() { "–".to_owned() } else { "2 ×".to_owned() },
    ]
}

/// The classifier of `configs/sst2.toml`, trained unless it is kept.
fn trained() -> Result<PathBuf> {
    let run = target().join("inspect-bench/sst2");
    let model = run.join("model");
    if !model.join("config.json").exists() {
        let mut train = Command::new(program::build(None)?);
        train.current_dir(step::root()).args(["train", "configs/sst2.toml", "--out"]).arg(&run);
        if run.join("config.toml").exists() {
            train.arg("--resume");
        }
        measure::output(&mut train)?;
    }
    Ok(model)
}

/// Writes the first texts of a table, one a line; how many there are.
fn write_texts(table: &Path, to: &Path, most: usize) -> Result<usize> {
    let read = fs::read_to_string(table).with_context(|| format!("cannot read {}", table.display()))?;
    let texts = read.lines().skip(1).filter_map(|line| Some(line.split_once('\t')?.0)).take(most);
    let texts: Vec<&str> = texts.collect();
    fs::write(to, texts.join("\n") + "\n").with_context(|| format!("cannot write {}", to.display()))?;
    Ok(texts.len())
}

/// The figures of each method, from JSON lines.
fn read(printed: &str) -> Result<BTreeMap<String, Faithful>> {
    let line = |line| {
        let figures: Faithful = serde_json::from_str(line).with_context(|| format!("no figures: {line}"))?;
        Ok((figures.method.clone(), figures))
    };
    printed.lines().filter(|line| line.starts_with('{')).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_both_sides_or_of_ours() {
        let printed = r#"loading
{"method":"occlusion","comprehensiveness":[0.5,0.25],"sufficiency":[0.125,0.5]}"#;
        let figures = read(printed).unwrap().remove("occlusion").unwrap();
        let one = |ms: f64| Measured { ms, per_s: 1e3 / ms, peak_mb: 1.0, gflop: 0.0, gflop_per_s: 0.0 };
        let both = row("occlusion", &figures, &[one(2.0)], &[one(5.0)]);
        assert_eq!(both[1..], ["0.500 ± 0.250", "0.125 ± 0.500", "2.00", "5.00", "2.50 ×", "2 ×"]);
        assert_eq!(row("occlusion", &figures, &[], &[])[3..], ["–", "–", "–", "–"]);
    }

    #[test]
    fn texts_are_the_first_column() {
        let place = tempfile::tempdir().unwrap();
        let (table, to) = (place.path().join("a.tsv"), place.path().join("b.txt"));
        fs::write(&table, "sentence\tlabel\na b\t1\nc\t0\n").unwrap();
        assert_eq!(write_texts(&table, &to, 5).unwrap(), 2);
        assert_eq!(fs::read_to_string(&to).unwrap(), "a b\nc\n");
    }
}
