//! Smaller and faster models beside one another and beside their peers.

mod forms;
mod frontier;
mod methods;
mod models;

use anyhow::{Result, bail};

use super::finetune::side::Side;
use super::finetune::table::Spread;
use super::finetune::tasks::{TASKS, Task};
use super::kept::{Kept, target};
use super::measure::Rounds;
use super::report;
use crate::{program, step};
use frontier::Point;
use methods::{METHODS, Method};
use models::{Made, Maker};

/// What is made and measured.
#[derive(clap::Args)]
#[command(after_long_help = "\
Without --forms, models of tasks are made by every method, and measured with `cloze eval --cost`. Each is kept in
target/compress-bench, and a training that was interrupted goes on where it was; remove the folder to begin anew. A task and a
seed take about an hour on two cores.

With --forms, one sentence encoder is embedded with in every form of its weights, beside the programs that read the same
integers. They are looked for in CLOZE_PYTHON: onnxruntime, openvino, xllamacpp.")]
pub struct Args {
    /// The forms of one encoder's weights instead, beside ONNX Runtime, OpenVINO and llama.cpp.
    #[arg(long)]
    forms: bool,
    /// Only these tasks.
    #[arg(long, value_delimiter = ',', value_name = "TASKS", default_value = "sst2,mrpc,cola")]
    tasks: Vec<String>,
    /// A model of each method for each of these.
    #[arg(long, value_delimiter = ',', value_name = "SEEDS", default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// Only the methods whose name contains one of these.
    #[arg(long, value_delimiter = ',', value_name = "METHODS", conflicts_with = "write")]
    methods: Vec<String>,
    /// Make nothing: measure the models that are there.
    #[arg(long)]
    kept: bool,
    /// With --forms: how often the sides take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Put the tables and pictures into benches/.
    #[arg(long)]
    write: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let program = program::build(None)?;
    if args.forms {
        let rounds = Rounds { rounds: args.rounds, only: args.methods.first().cloned(), write: args.write };
        let text = forms::run(program, &rounds)?;
        println!("{text}");
        return if args.write { report::write_class("forms", &text) } else { Ok(()) };
    }
    let tasks = args.tasks.iter().map(|name| task(name)).collect::<Result<Vec<&Task>>>()?;
    let maker = Maker {
        version: Side::ours(program.clone())?.version().to_owned(),
        program,
        python: super::measure::python(),
        kept: Kept::open(target().join("compress-bench"))?,
        only_kept: args.kept,
    };
    let mut text = String::new();
    for task in tasks {
        let (mut rows, mut points) = (Vec::new(), Vec::new());
        for (place, method) in
            METHODS.iter().enumerate().filter(|(_, method)| is_wanted(method, &args.methods))
        {
            let made = args.seeds.iter().map(|seed| maker.make(task, method, *seed));
            let made: Vec<Made> = made.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
            if made.is_empty() {
                continue;
            }
            let row = Row::of(place + 1, method, task.figures[0], &made);
            // A peer has no cost here.
            points.extend(Some(row.point).filter(|point| point.latency_ms.is_finite()));
            rows.push(row.cells);
        }
        let header = [
            "",
            "model",
            task.figures[0],
            "weights, MB",
            "parameters, M",
            "GFLOP",
            "latency, ms",
            "examples/s",
            "memory, MB",
        ];
        let picture = format!("compress-{}.svg", task.name);
        if args.write {
            frontier::draw(&step::root().join("benches").join(&picture), task.figures[0], &points)?;
        }
        text += &format!(
            "#### {}\n\n{}\n\n![Figure against latency and bytes]({picture})\n\n",
            task.name,
            report::table(header, rows)
        );
    }
    text += &format!(
        "Development data, {} of seed: means ± standard deviations. Latency: the median of single examples. {}.",
        match args.seeds.len() {
            1 => "one run".to_owned(),
            n => format!("{n} runs"),
        },
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write_class("compress", &text) } else { Ok(()) }
}

fn task(name: &str) -> Result<&'static Task> {
    let found = TASKS.iter().find(|task| task.name == name);
    let names = || TASKS.iter().map(|task| task.name).collect::<Vec<_>>().join(", ");
    found.map_or_else(|| bail!("no task {name:?}; there are: {}", names()), Ok)
}

fn is_wanted(method: &Method, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| method.name.contains(name.as_str()))
}

/// A row of the table, and its point in the picture.
struct Row {
    cells: Vec<String>,
    point: Point,
}

impl Row {
    fn of(number: usize, method: &Method, figure: &str, made: &[Made]) -> Self {
        let figures = Spread::of(made.iter().filter_map(|made| made.figures.get(figure)));
        let mean = |name: &str| {
            let all: Vec<f64> =
                made.iter().filter_map(|made| made.cost.get(name).copied().flatten()).collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let (bytes, latency) = (mean("bytes"), mean("latency_ms"));
        let cells = vec![
            number.to_string(),
            method.name.to_owned(),
            figures.shown(),
            report::short(bytes / 1e6),
            report::short(mean("parameters") / 1e6),
            report::short(mean("gflops")),
            report::short(latency),
            report::short(mean("examples_per_second")),
            report::short(mean("peak_memory") / 1e6),
        ];
        let percent =
            100.0 * made.iter().filter_map(|made| made.figures.get(figure)).sum::<f64>() / made.len() as f64;
        Self { cells, point: Point { number, figure: percent, latency_ms: latency, megabytes: bytes / 1e6 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_row_has_the_means_of_its_runs() {
        let made = |accuracy: f64, latency: f64| Made {
            figures: BTreeMap::from([("accuracy".to_owned(), accuracy)]),
            cost: BTreeMap::from([
                ("bytes".to_owned(), Some(9e7)),
                ("latency_ms".to_owned(), Some(latency)),
                ("gflops".to_owned(), None),
            ]),
        };
        let row = Row::of(3, &METHODS[0], "accuracy", &[made(0.86, 2.0), made(0.88, 4.0)]);
        assert_eq!((row.point.figure.round(), row.point.latency_ms, row.point.megabytes), (87.0, 3.0, 90.0));
        assert_eq!(row.cells[..2], ["3", "fine-tuned"]);
        assert_eq!(
            (row.cells[3].as_str(), row.cells[5].as_str(), row.cells[6].as_str()),
            ("90.0", "–", "3.00")
        );
        assert!(row.cells[2].starts_with("0.870"), "{}", row.cells[2]);
    }

    #[test]
    fn an_unknown_task_is_named() {
        assert!(task("sst3").unwrap_err().to_string().contains("sst2, mrpc"));
        assert_eq!(task("mrpc").unwrap().name, "mrpc");
    }
}
