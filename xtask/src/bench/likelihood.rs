//! Scores of sentences beside minicons': whether they agree, and how long they take.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Deserialize;
use serde_json::Value;

use super::measure;
use super::report;
use crate::program;

/// What is measured, and how.
#[derive(clap::Args)]
pub struct Args {
    /// A folder of a masked or left-to-right model.
    #[arg(long, value_name = "DIR", required = true)]
    model: PathBuf,
    /// What the model is.
    #[arg(long, value_enum, default_value_t = Kind::Masked)]
    kind: Kind,
    /// Sentences, one a line.
    #[arg(long, value_name = "FILE", required = true)]
    sentences: PathBuf,
    /// How often the sides take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Kind {
    Masked,
    LeftToRight,
}

/// The scores of a side, and the seconds of each round.
#[derive(Debug, Default)]
struct Side {
    sums: Vec<f64>,
    seconds: Vec<f64>,
    version: String,
}

impl Side {
    fn median(&self) -> f64 {
        measure::median(self.seconds.iter().copied()).unwrap_or(f64::NAN)
    }
}

/// What minicons' side prints.
#[derive(Debug, Deserialize)]
struct Printed {
    seconds: f64,
    version: String,
    sums: Vec<f64>,
}

pub fn run(args: &Args) -> Result<()> {
    let (python, cloze) = (measure::python(), program::build(None)?);
    let metrics = match args.kind {
        Kind::Masked => vec![Some("pll"), Some("word-l2r")],
        Kind::LeftToRight => vec![None],
    };
    let mut rows = Vec::new();
    for metric in metrics {
        let (mut ours, mut theirs) = (Side::default(), Side::default());
        for round in 1..=args.rounds {
            eprintln!("{}, round {round} of {}", metric.unwrap_or("left to right"), args.rounds);
            score(&mut ours, &cloze, args, metric)?;
            if let Some(python) = &python {
                let kind = if args.kind == Kind::Masked { "masked" } else { "left-to-right" };
                let mut command = measure::peer(python, "likelihood.py", &[kind]);
                command.arg(&args.model).arg(&args.sentences).arg(metric.unwrap_or("pll"));
                let line = measure::last_line(&mut command)?;
                let printed: Printed =
                    serde_json::from_str(&line).with_context(|| format!("{command:?} printed no scores"))?;
                theirs.seconds.push(printed.seconds);
                (theirs.sums, theirs.version) = (printed.sums, printed.version);
            }
        }
        rows.push((metric.unwrap_or("left to right"), ours, theirs));
    }
    let version = rows.iter().map(|(_, _, theirs)| &theirs.version).find(|version| !version.is_empty());
    println!(
        "{}\n\nOur seconds are those of the whole process, theirs of scoring alone; medians of {} alternating rounds. {}{}.",
        table(&rows)?,
        args.rounds,
        report::machine(python.as_ref()),
        version.map(|version| format!("; minicons {version}")).unwrap_or_default()
    );
    Ok(())
}

/// A round of ours.
fn score(side: &mut Side, cloze: &PathBuf, args: &Args, metric: Option<&str>) -> Result<()> {
    let file =
        File::open(&args.sentences).with_context(|| format!("cannot read {}", args.sentences.display()))?;
    let mut command = Command::new(cloze);
    command.args(["likelihood", "--json", "--model"]).arg(&args.model).stdin(file).stderr(Stdio::inherit());
    command.args(metric.iter().flat_map(|metric| ["--metric", metric]));
    let start = Instant::now();
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    side.seconds.push(start.elapsed().as_secs_f64());
    if !output.status.success() {
        bail!("{command:?} failed");
    }
    let sum = |line: &str| {
        let score: Value = serde_json::from_str(line).ok()?;
        score["sum"].as_f64()
    };
    side.sums = String::from_utf8_lossy(&output.stdout).lines().filter_map(sum).collect();
    Ok(())
}

fn table(rows: &[(&str, Side, Side)]) -> Result<String> {
    let mut cells = Vec::new();
    for (name, ours, theirs) in rows {
        if !theirs.sums.is_empty() && theirs.sums.len() != ours.sums.len() {
            bail!("{name}: {} scores of ours, {} of theirs", ours.sums.len(), theirs.sums.len());
        }
        let apart = ours.sums.iter().zip(&theirs.sums).map(|(a, b)| (a - b).abs()).reduce(f64::max);
        let ratio = theirs.median() / ours.median();
        cells.push(vec![
            (*name).to_owned(),
            report::short(ours.sums.len() as f64),
            apart.map_or("–".to_owned(), |apart| format!("{apart:.1e}")),
            report::short(ours.median()),
            report::short(theirs.median()),
            if ratio.is_nan() { "–".into() } else { format!("{ratio:.2} ×") },
        ]);
    }
    Ok(report::table(["scores", "sentences", "at most apart, nats", "s", "their s", "ratio"], cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_compared() {
        let side = |sums: &[f64], seconds: f64| Side {
            sums: sums.to_vec(),
            seconds: vec![seconds],
            ..Side::default()
        };
        let text = table(&[("pll", side(&[-1.0, -2.0], 2.0), side(&[-1.0, -2.5], 9.0))]).unwrap();
        assert!(text.contains("5.0e-1") && text.contains("4.50 ×"), "{text}");
        assert!(table(&[("pll", side(&[-1.0], 2.0), side(&[-1.0, -2.5], 9.0))]).is_err());
        assert!(table(&[("pll", side(&[-1.0], 2.0), Side::default())]).unwrap().contains('–'));
    }
}
