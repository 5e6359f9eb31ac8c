//! Objectives of pretraining beside one another: the same text, tokenizer, size and time; each result is fine-tuned.

use std::fs;

use anyhow::{Context, Result};

use super::finetune::side::Trained;
use super::finetune::table::Spread;
use super::finetune::tasks::{TASKS, Task};
use super::pretrained::{Bench, Length, Pretrained, RATE, SHORT_RUN, TUNED, chosen, tuned};
use super::report;
use crate::{program, step};

/// A row of the table: its name, its config in `configs/`, and the rates that it is pretrained and fine-tuned with.
struct Objective {
    name: &'static str,
    config: &'static str,
    rate: f64,
    tuned: &'static str,
}

/// Those whose result is an encoder that is fine-tuned. ELECTRA's rate of fine-tuning is that of its authors for the small
/// model. With a rate of 1e-3 all tokens of ELECTRA's encoder become alike: it finds no replaced token in 5,000 steps, and no
/// rate of fine-tuning helps.
const OBJECTIVES: [Objective; 5] = [
    Objective { name: "BERT", config: "bert-mini-corpus", rate: RATE, tuned: TUNED },
    Objective { name: "SpanBERT", config: "spanbert-mini-corpus", rate: RATE, tuned: TUNED },
    Objective { name: "ALBERT", config: "albert-mini-corpus", rate: RATE, tuned: TUNED },
    Objective { name: "ELECTRA", config: "electra-mini-corpus", rate: 3e-4, tuned: "3e-4" },
    Objective { name: "ModernBERT's recipe", config: "modernbert-mini-corpus", rate: 2e-3, tuned: TUNED },
];

/// What each result is fine-tuned for.
const FINE_TUNED: [&str; 4] = ["sst2", "trec", "mrpc", "wikigold"];

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

pub fn run(args: &Args) -> Result<()> {
    let length = Length::minutes(args.minutes)?;
    let objectives = chosen("objective", &OBJECTIVES, &args.objectives, |objective| objective.name)?;
    let bench = Bench::open(program::build(None)?, "objectives-bench", length, args.again)?;
    let mut rows = Vec::new();
    for objective in &objectives {
        let (key, pretrained) = bench.pretrain(objective.config, &sets(args, objective))?;
        let mut spreads = Vec::new();
        for task in tasks() {
            let own = tuned(objective.tuned, task);
            let runs = args.seeds.iter().map(|seed| bench.fine_tune(&key, task, *seed, &own));
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
        "{}\n\nEach pretrained for {} minutes of its own steps, {}, then fine-tuned with {}: means ± standard \
         deviations, of the best epoch by development data or the last one by test data. {}.",
        report::table(header.iter().map(String::as_str), rows),
        args.minutes,
        args.precision,
        report::seeds(args.seeds.len()),
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write_class("objectives", &text) } else { Ok(()) }
}

/// The tasks, in the order of the table.
fn tasks() -> impl Iterator<Item = &'static Task> {
    FINE_TUNED.iter().filter_map(|name| TASKS.iter().find(|task| task.name == *name))
}

fn row(objective: &Objective, run: &Pretrained, spreads: Vec<String>) -> Vec<String> {
    let facts = [
        objective.name.to_owned(),
        report::count(run.steps),
        report::short(run.tokens / 1e6),
        report::short(run.gflop_a_step.unwrap_or(f64::NAN) * run.steps as f64 / 1e6),
        report::short(run.seconds / 60.0),
        format!("{} {:.3}", run.figure.replace('_', " "), run.value),
    ];
    facts.into_iter().chain(spreads).collect()
}

/// What an objective's config is changed by.
fn sets(args: &Args, objective: &Objective) -> Vec<String> {
    let first = [format!("train.precision=\"{}\"", args.precision)];
    let short = SHORT_RUN.iter().map(|set| (*set).to_owned());
    first.into_iter().chain(short).chain([format!("optimizer.lr={:e}", objective.rate)]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pretrained::scaled;
    use super::*;

    #[test]
    fn every_objective_has_its_config_and_every_task_is_known() {
        for objective in &OBJECTIVES {
            let path = step::root().join("configs").join(objective.config).with_extension("toml");
            assert!(path.is_file(), "{}", path.display());
            scaled(&fs::read_to_string(path).unwrap(), 10).unwrap();
        }
        assert_eq!(tasks().count(), FINE_TUNED.len());
    }

    #[test]
    fn a_row_has_what_was_spent_and_what_came_of_it() {
        let run = Pretrained {
            steps: 3000,
            tokens: 24.5e6,
            seconds: 1800.0,
            gflop_a_step: Some(100.0),
            figure: "masked_loss".into(),
            value: 3.5,
        };
        let row = row(&OBJECTIVES[0], &run, vec!["0.80".into()]);
        assert_eq!(row, ["BERT", "3,000", "24.5", "0.30", "30.0", "masked loss 3.500", "0.80"]);
    }
}
