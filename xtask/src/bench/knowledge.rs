//! What small models of one corpus know: grammar, common sense and facts, each model trained for the same number of steps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::kept::{Kept, Key, target};
use super::pretrained::scaled;
use super::{measure, report};
use crate::{program, step};

/// A model: its name, its config in `configs/`, and the folder in its run that scores sentences.
struct Model {
    name: &'static str,
    config: &'static str,
    folder: &'static str,
}

const MODELS: [Model; 6] = [
    Model { name: "BERT", config: "bert-mini-corpus", folder: "model" },
    Model { name: "ModernBERT", config: "modernbert-mini-corpus", folder: "model" },
    Model { name: "ELECTRA's generator", config: "electra-mini-corpus", folder: "model/generator" },
    Model { name: "GPT-2", config: "gpt-mini-corpus", folder: "model" },
    Model { name: "Llama", config: "llama-mini-corpus", folder: "model" },
    Model { name: "XLNet", config: "xlnet-mini-corpus", folder: "model" },
];

/// What is trained, and what it is asked.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each trained model and the answers to each kind of question are kept in target/knowledge-bench, and a run that was interrupted
goes on where it was. Needs the corpus that the configs name, and blimp, cats and pararel in the folder of data.")]
pub struct Args {
    /// How many steps each model is trained.
    #[arg(long, default_value_t = 6_000, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Only these, such as bert,llama: beginnings of their names.
    #[arg(long, value_delimiter = ',', value_name = "MODELS")]
    models: Vec<String>,
    /// How many facts of each relation are asked for.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    facts: u64,
    /// The folder with the test suites.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Train and ask anew what is kept.
    #[arg(long)]
    again: bool,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// What a model knows, in percent.
#[derive(Debug, Clone, PartialEq)]
struct Known {
    pairs: f64,
    choices: f64,
    both_right: f64,
    both_wrong: f64,
    facts: f64,
    most_frequent: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let models = chosen(&args.models)?;
    let program = program::build(None)?;
    let version = measure::output(Command::new(&program).arg("--version"))?;
    let data = args.data.clone().unwrap_or_else(|| step::root().join("../shared/data"));
    let kept = Kept::open(target().join("knowledge-bench"))?;
    let mut rows = Vec::new();
    for model in models {
        let path = step::root().join("configs").join(model.config).with_extension("toml");
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let sets = scaled(&config, args.steps)?;
        let key = Key::new(
            model.config,
            "knows",
            0,
            &config,
            &sets.iter().map(String::as_str).collect::<Vec<_>>(),
            version.trim(),
        );
        let folder = kept.scratch(&key);
        train(&program, &path, &sets, &folder, args.again)?;
        let asked = Asked { program: &program, model: &folder.join(model.folder), data: &data };
        let answers = |kind: &str, more: &[&str], suite: &str| -> Result<Value> {
            let key = Key::new(model.config, kind, 0, &key.to_string(), more, "");
            if let Some(figures) = kept.read::<Value>(&key)?.filter(|_| !args.again) {
                return Ok(figures);
            }
            eprintln!("{key} …");
            let figures = asked.figures(kind, more, suite)?;
            kept.write(&key, &figures)?;
            Ok(figures)
        };
        let n_facts = args.facts.to_string();
        let known = known(
            &answers("pairs", &[], "blimp/BLiMP.zip")?,
            &answers("choices", &[], "cats")?,
            &answers("facts", &["--candidates", "objects", "--per-relation", &n_facts], "pararel")?,
        )?;
        rows.push(row(model.name, &known));
    }
    let published = [
        ("5-gram, published", 61.2),
        ("LSTM, published", 69.8),
        ("Transformer-XL, published", 69.6),
        ("GPT-2, published", 83.0),
        ("human, published", 88.6),
    ];
    for (name, pairs) in published {
        let dash = || "–".to_owned();
        rows.push(vec![name.to_owned(), format!("{pairs:.1}"), dash(), dash(), dash(), dash(), dash()]);
    }
    let header =
        ["model", "BLiMP", "CATs", "both right", "both wrong", "ParaRel, P@1", "most frequent object"];
    let text = format!(
        "{}\n\nIn percent, after {} steps each. Of each relation, {} facts are asked for, and their objects ranked \
         among all those of the relation. Published: Warstadt et al. 2020. {}.",
        report::table(header, rows),
        report::count(args.steps),
        args.facts,
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write_class("knowledge", &text) } else { Ok(()) }
}

/// The models that are asked for.
fn chosen(names: &[String]) -> Result<Vec<&'static Model>> {
    let is =
        |model: &Model, name: &String| model.name.to_lowercase().starts_with(&name.trim().to_lowercase());
    if let Some(name) = names.iter().find(|name| !MODELS.iter().any(|model| is(model, name))) {
        bail!("no model {name:?}; there are: {}", MODELS.map(|model| model.name).join("; "));
    }
    let wanted = |model: &&Model| names.is_empty() || names.iter().any(|name| is(model, name));
    Ok(MODELS.iter().filter(wanted).collect())
}

/// Trains a model, or goes on with it, unless it was trained.
fn train(program: &Path, config: &Path, sets: &[String], folder: &Path, again: bool) -> Result<()> {
    if again && folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    if folder.join("result.json").exists() {
        return Ok(());
    }
    eprintln!("{} …", folder.display());
    let mut command = Command::new(program);
    command.current_dir(step::root()).arg("train").arg(config).arg("--out").arg(folder);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    if folder.join("config.toml").exists() {
        command.arg("--resume");
    }
    measure::output(&mut command).map(drop)
}

/// A model that is asked.
struct Asked<'a> {
    program: &'a Path,
    model: &'a Path,
    /// The folder with the test suites.
    data: &'a Path,
}

impl Asked<'_> {
    /// What `cloze knowledge` prints.
    fn figures(&self, kind: &str, more: &[&str], suite: &str) -> Result<Value> {
        let mut command = Command::new(self.program);
        command.args(["knowledge", kind, "--json", "--on-bad-row", "skip", "--model"]).arg(self.model);
        let printed = measure::output(command.args(more).arg(self.data.join(suite)))?;
        serde_json::from_str(&printed).with_context(|| format!("{command:?} printed no figures"))
    }
}

/// The figures of the table.
fn known(pairs: &Value, choices: &Value, facts: &Value) -> Result<Known> {
    let percent = |value: &Value, what: &str| {
        value.as_f64().map(|share| 100.0 * share).with_context(|| format!("no {what}"))
    };
    let mean = |tests: &Value, figure: &str| {
        let tests = tests.as_array().filter(|tests| !tests.is_empty()).context("no test of choices")?;
        let shares = tests.iter().map(|test| percent(&test[figure], figure)).collect::<Result<Vec<_>>>()?;
        Ok::<_, anyhow::Error>(shares.iter().sum::<f64>() / shares.len() as f64)
    };
    Ok(Known {
        pairs: percent(&pairs["overall"]["accuracy"], "accuracy of pairs")?,
        choices: mean(&choices["single"], "accuracy")?,
        both_right: mean(&choices["dual"], "both_right")?,
        both_wrong: mean(&choices["dual"], "both_wrong")?,
        facts: percent(&facts["mean"]["p_at_1"], "P@1")?,
        most_frequent: percent(&facts["mean"]["most_frequent"], "most frequent object")?,
    })
}

fn row(name: &str, known: &Known) -> Vec<String> {
    let Known { pairs, choices, both_right, both_wrong, facts, most_frequent } = known;
    let shares = [pairs, choices, both_right, both_wrong, facts, most_frequent];
    std::iter::once(name.to_owned()).chain(shares.map(|share| format!("{share:.1}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_model_has_its_config() {
        for model in &MODELS {
            let path = step::root().join("configs").join(model.config).with_extension("toml");
            scaled(&fs::read_to_string(path).unwrap(), 10).unwrap();
        }
        assert_eq!(chosen(&["llama".into(), "BE".into()]).unwrap().len(), 2);
        assert!(chosen(&["t5".into()]).is_err());
    }

    #[test]
    fn figures_are_those_that_the_program_prints() {
        let choices = json!({"single": [{"accuracy": 0.5}, {"accuracy": 0.6}], "dual": [{"both_right": 0.25, "both_wrong": 0.125}]});
        let facts = json!({"mean": {"p_at_1": 0.125, "most_frequent": 0.25}});
        let known = known(&json!({"overall": {"accuracy": 0.585}}), &choices, &facts).unwrap();
        assert_eq!(row("BERT", &known), ["BERT", "58.5", "55.0", "25.0", "12.5", "12.5", "25.0"]);
        assert!(super::known(&json!({}), &choices, &facts).is_err());
    }
}
