//! Outputs for a large vocabulary beside a softmax over all of it: how long a step takes, and how well text is predicted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::kept::{Kept, Key, target};
use super::pretrained::{profiled, scaled};
use super::{measure, records, report};
use crate::{program, step};

/// The config that all rows change.
const CONFIG: &str = "configs/gpt-mini-corpus.toml";

/// Words, up to 100,000 of them.
const WORDS: &str = "tokenizer={ kind = \"train-words\", vocab_size = 100000, min_frequency = 1 }";

/// A row of the table: its name, the output in the config, and the peer's name for it, if there is one.
struct Output {
    name: &'static str,
    set: &'static str,
    peer: Option<&'static str>,
}

const OUTPUTS: [Output; 4] = [
    Output { name: "whole", set: "model.output={ kind = \"whole\" }", peer: Some("whole") },
    Output { name: "sampled, 8,192", set: "model.output={ kind = \"sampled\", samples = 8192 }", peer: None },
    Output {
        name: "adaptive, 2,000 and 20,000",
        set: "model.output={ kind = \"adaptive\", cutoffs = [2000, 20000] }",
        peer: Some("adaptive"),
    },
    Output {
        name: "adaptive, divided by 2",
        set: "model.output={ kind = \"adaptive\", cutoffs = [2000, 20000], divisor = 2.0 }",
        peer: None,
    },
];

/// Steps that are measured, and those before them.
const MEASURED: u64 = 10;
const BEFORE: u64 = 3;

/// How long each is trained.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each finished run is kept in target/vocabulary-bench, and one that was interrupted goes on where it was. Needs the corpus that the
config names.")]
pub struct Args {
    /// Steps of each run.
    #[arg(long, default_value_t = 3000, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Train and measure anew what is kept.
    #[arg(long)]
    again: bool,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// What is kept of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Run {
    ms: f64,
    perplexity: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let (program, python) = (program::build(None)?, measure::python());
    let kept = Kept::open(target().join("vocabulary-bench"))?;
    let config =
        fs::read_to_string(step::root().join(CONFIG)).with_context(|| format!("cannot read {CONFIG}"))?;
    let version = measure::output(Command::new(&program).arg("--version"))?;
    let files = corpus(&config)?;
    let mut rows: Vec<(&Output, Run, Option<f64>)> = Vec::new();
    for output in &OUTPUTS {
        let steps = args.steps.to_string();
        let key = Key::new("vocabulary", "ours", 0, &config, &[WORDS, output.set, &steps], &version);
        let run = match kept.read::<Run>(&key)?.filter(|_| !args.again) {
            Some(run) => run,
            None => {
                eprintln!("{}: {} steps …", output.name, args.steps);
                let folder = kept.scratch(&key);
                let run = Run {
                    ms: pace(&program, &config, output, &folder.with_extension("pace"))?,
                    perplexity: perplexity(&program, &config, output, args, &folder)?,
                };
                kept.write(&key, &run)?;
                run
            }
        };
        let peer = python.as_ref().zip(output.peer).map(|(python, kind)| {
            let steps = MEASURED.to_string();
            let arguments =
                [&[kind, &steps][..], &files.iter().map(String::as_str).collect::<Vec<_>>()].concat();
            measure::Measured::from(&mut measure::peer(python, "vocabulary.py", &arguments))
        });
        rows.push((output, run, peer.transpose()?.map(|peer| peer.ms)));
    }
    let text = format!(
        "{}\n\nThe words of the corpus, up to 100,000, in order of frequency; GPT-2 of 4 layers and width 256, 32 × 128 tokens a step, {} \
         steps. Steps are means of {MEASURED}; PyTorch's are those of the same model and text. {}.",
        table(&rows),
        args.steps,
        report::machine(python.as_ref())
    );
    println!("{text}");
    if args.write { report::write_class("vocabulary", &text) } else { Ok(()) }
}

fn table(rows: &[(&Output, Run, Option<f64>)]) -> String {
    let whole = rows[0].1;
    let header = [
        "output",
        "ms a step",
        "× as fast as whole",
        "PyTorch's ms",
        "× as fast",
        "perplexity",
        "of whole's",
    ];
    let cells = rows.iter().map(|(output, run, peer)| {
        vec![
            output.name.to_owned(),
            report::short(run.ms),
            format!("{:.2}", whole.ms / run.ms),
            peer.map(report::short).unwrap_or_default(),
            peer.map(|peer| format!("{:.2}", peer / run.ms)).unwrap_or_default(),
            format!("{:.1}", run.perplexity),
            format!("{:+.1} %", 100.0 * (run.perplexity / whole.perplexity - 1.0)),
        ]
    });
    report::table(header, cells)
}

/// The files that the config's patterns name, for the peer.
fn corpus(config: &str) -> Result<Vec<String>> {
    let table: toml::Table = config.parse()?;
    let files = table.get("corpus").and_then(|corpus| corpus.get("files")).and_then(toml::Value::as_array);
    let files = files.with_context(|| format!("{CONFIG} has no corpus.files"))?;
    Ok(files.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

fn train(program: &Path, output: &Output, folder: &Path, sets: &[String]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(step::root()).arg("train").arg(CONFIG).arg("--out").arg(folder);
    command.args(["--set", WORDS, "--set", output.set]);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    command
}

/// The mean time of a step, in milliseconds.
fn pace(program: &Path, config: &str, output: &Output, folder: &PathBuf) -> Result<f64> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let mut sets = scaled(config, MEASURED + BEFORE + 1)?;
    sets.push("eval.max_blocks=1".into());
    let mut command = train(program, output, folder, &sets);
    command.arg("--profile").arg(MEASURED.to_string());
    let ran = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let printed = String::from_utf8_lossy(&ran.stderr);
    if !ran.status.success() {
        bail!("{command:?} failed: {}", printed.lines().last().unwrap_or_default());
    }
    let pace = profiled(&printed).with_context(|| format!("{command:?} printed no profile"))?;
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(pace.ms)
}

/// The perplexity of held-out text after training.
fn perplexity(program: &Path, config: &str, output: &Output, args: &Args, folder: &PathBuf) -> Result<f64> {
    if args.again && folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let mut sets = scaled(config, args.steps)?;
    sets.push(format!("eval.every={}", args.steps));
    let mut command = train(program, output, folder, &sets);
    if folder.join("config.toml").exists() {
        command.arg("--resume");
    }
    measure::output(&mut command)?;
    let records = records::read(folder)?;
    let evaluations = records::evaluations(&records, "heldout");
    let last = evaluations.last().context("the run has no evaluation")?;
    last["figures"]["perplexity"].as_f64().context("an evaluation without a perplexity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stands_beside_the_whole_softmax_and_the_peer() {
        let (whole, adaptive) = (Run { ms: 3000.0, perplexity: 100.0 }, Run { ms: 750.0, perplexity: 102.5 });
        let text = table(&[(&OUTPUTS[0], whole, Some(4500.0)), (&OUTPUTS[1], adaptive, None)]);
        let cells = |line: usize| -> Vec<String> {
            text.lines().nth(line).unwrap().split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        assert_eq!(cells(2)[1..8], ["whole", "3,000", "1.00", "4,500", "1.50", "100.0", "+0.0 %"]);
        assert_eq!(cells(3)[1..8], ["sampled, 8,192", "750", "4.00", "", "", "102.5", "+2.5 %"]);
    }

    #[test]
    fn the_config_names_its_corpus() {
        let config = fs::read_to_string(step::root().join(CONFIG)).unwrap();
        assert_eq!(corpus(&config).unwrap().len(), 1);
        scaled(&config, 10).unwrap();
    }
}
