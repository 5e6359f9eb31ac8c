//! Several models on the same data, each in a process of its own, so that none has another's memory.

use std::env;
use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cloze_evaluation::figures::{Figures, shown};
use cloze_evaluation::table;
use serde::Deserialize;
use serde_json::Value;

use super::cost::CostReport;
use crate::output::{Output, say};

/// The arguments that a model's own process is not given; each has a value but the last.
const OWN: [&str; 3] = ["--model", "--beside", "--json"];

/// What a process prints.
#[derive(Deserialize)]
struct Printed {
    #[serde(flatten)]
    figures: Figures,
    cost: Option<CostReport>,
}

/// Measures the models one after the other and prints a column for each, or with `json` an object.
pub fn run<'a>(models: impl Iterator<Item = &'a str>, json: bool) -> Result<()> {
    let program = env::current_exe().context("cannot find this program")?;
    let common = common(env::args_os().skip(1));
    let mut measured = Vec::new();
    for model in models {
        say(format_args!("measuring {model}"));
        let ran = Command::new(&program)
            .args(&common)
            .args(["--json", "--model", model])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start this program again")?;
        if !ran.status.success() {
            bail!("{model} was not measured: the reason stands above");
        }
        let value: Value =
            serde_json::from_slice(&ran.stdout).context("not the output of `cloze eval --json`")?;
        measured.push((model, value));
    }
    let mut output = Output::new();
    if json {
        for (model, mut value) in measured {
            value["model"] = model.into();
            output.line(value)?;
        }
        return output.flush();
    }
    let read = |(model, value)| Ok((model, serde_json::from_value(value)?));
    let measured: Vec<(&str, Printed)> = measured.into_iter().map(read).collect::<Result<_>>()?;
    // All are of the task of one configuration.
    let names: Vec<&str> = measured.first().map_or_else(Vec::new, |(_, first)| names(first));
    let of_figures = names.iter().map(|name| {
        let figure = |printed: &Printed| printed.figures.get(name).map_or_else(|| "–".to_owned(), shown);
        ((*name).to_owned(), measured.iter().map(|(_, printed)| figure(printed)).collect())
    });
    let costs: Vec<_> = measured.iter().filter_map(|(_, printed)| printed.cost.as_ref()).collect();
    let of_costs = CostReport::HEADER.iter().enumerate().filter(|_| !costs.is_empty());
    let of_costs = of_costs.map(|(place, name)| {
        ((*name).to_owned(), costs.iter().map(|cost| cost.cells()[place].clone()).collect())
    });
    let rows = of_figures
        .chain(of_costs)
        .map(|(name, values): (String, Vec<String>)| std::iter::once(name).chain(values).collect::<Vec<_>>());
    // A model is a column: there are more figures than models.
    let header = std::iter::once("").chain(measured.iter().map(|(model, _)| *model));
    output.line(table::numbers(header, rows))?;
    output.flush()
}

/// The names of the figures, the main one first.
fn names(printed: &Printed) -> Vec<&str> {
    let (main, _) = printed.figures.main();
    let rest = printed.figures.iter().map(|(name, _)| name).filter(|name| *name != main);
    std::iter::once(main).chain(rest).collect()
}

/// This process's arguments without those that only it has.
fn common(all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all = all.peekable();
    let mut kept = Vec::new();
    while let Some(argument) = all.next() {
        let text = argument.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        match OWN.iter().position(|own| *own == name) {
            None => kept.push(argument),
            Some(place) if place + 1 < OWN.len() && !text.contains('=') => {
                all.next();
            }
            Some(_) => {}
        }
    }
    kept
}
