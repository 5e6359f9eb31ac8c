//! What translations add to several languages: encoders pretrained with them and without, fine-tuned on English alone and
//! asked in the other languages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::finetune::side::Side;
use super::finetune::table::Spread;
use super::kept::{Kept, Key, target};
use super::pretrained::scaled;
use super::{measure, records, report};
use crate::{program, step};

/// The config that is pretrained with, and the one that is fine-tuned with.
const PRETRAINING: &str = "xlm-mini-multi30k";
const FINE_TUNING: &str = "ud-ewt";

/// A row of the table.
struct Row {
    name: &'static str,
    /// What is set in the config.
    sets: &'static [&'static str],
    /// Whether what was pretrained is left aside for random weights, so that the vocabulary alone is of it.
    untrained: bool,
}

const ROWS: [Row; 3] = [
    Row { name: "none", sets: &["objective.kind=\"masked\""], untrained: true },
    Row { name: "MLM", sets: &["objective.kind=\"masked\""], untrained: false },
    Row { name: "MLM and TLM", sets: &[], untrained: false },
];

/// A language that a fine-tuned model is asked in, and its treebank where it is not the config's own test data.
struct Language {
    name: &'static str,
    treebank: Option<&'static str>,
}

const LANGUAGES: [Language; 3] = [
    Language { name: "English", treebank: None },
    Language { name: "German", treebank: Some("../shared/data/ud-de/test.conllu") },
    Language { name: "French", treebank: Some("../shared/data/ud-fr/test.conllu") },
];

/// What is trained, and for how long.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each finished run is kept in target/languages-bench, and one that was interrupted goes on where it was. Needs Multi30k and
the treebanks that the configs name.")]
pub struct Args {
    /// Steps of pretraining in place of the config's.
    #[arg(long, value_name = "STEPS")]
    steps: Option<u64>,
    /// Epochs of fine-tuning: the models are small and have read little.
    #[arg(long, default_value_t = 5, value_name = "EPOCHS")]
    epochs: u64,
    /// Each pretrained model is fine-tuned once with each of these.
    #[arg(long, value_delimiter = ',', value_name = "SEEDS", default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// In what precision matrices are multiplied in pretraining: f32 or bf16.
    #[arg(long, default_value = "f32", value_parser = ["f32", "bf16"])]
    precision: String,
    /// Override a key of the pretraining's configuration, such as model.preset=tiny; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "write")]
    sets: Vec<String>,
    /// Train anew what is kept.
    #[arg(long)]
    again: bool,
    /// Put the table into benches/.
    #[arg(long)]
    write: bool,
}

/// A pretrained model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pretrained {
    steps: u64,
    tokens: f64,
    seconds: f64,
    /// The masked-token loss on held-out text of all languages.
    loss: f64,
}

/// The accuracy of a fine-tuned model in each language.
type Accuracies = BTreeMap<String, f64>;

struct Bench<'a> {
    program: PathBuf,
    version: String,
    kept: Kept,
    args: &'a Args,
}

pub fn run(args: &Args) -> Result<()> {
    if args.seeds.is_empty() || args.epochs == 0 || args.steps == Some(0) {
        bail!("expected a seed, an epoch and a step at least");
    }
    let program = program::build(None)?;
    let version = Side::ours(program.clone())?.version().to_owned();
    let bench = Bench { program, version, kept: Kept::open(target().join("languages-bench"))?, args };
    let mut rows = Vec::new();
    for row in &ROWS {
        let (key, pretrained) = bench.pretrain(row)?;
        let runs =
            args.seeds.iter().map(|seed| bench.fine_tune(&key, row, *seed)).collect::<Result<Vec<_>>>()?;
        rows.push(line(row, &pretrained, &runs));
    }
    let header = ["pretraining", "steps", "M tokens", "min", "held out"].into_iter();
    let header: Vec<&str> = header.chain(LANGUAGES.iter().map(|language| language.name)).collect();
    let text = format!(
        "{}\n\nPretrained on English, German and French captions, {}, then fine-tuned for parts of speech on {} epochs of the \
         English treebank with {} seeds: accuracy of words on the test data, means ± standard deviations. No German or \
         French sentence has a tag in training. {}.",
        report::table(header, rows),
        args.precision,
        args.epochs,
        args.seeds.len(),
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write_class("languages", &text) } else { Ok(()) }
}

fn line(row: &Row, pretrained: &Pretrained, runs: &[Accuracies]) -> Vec<String> {
    let Pretrained { steps, tokens, seconds, loss } = *pretrained;
    let facts = [
        report::short(steps as f64),
        report::short(tokens / 1e6),
        report::short(seconds / 60.0),
        format!("{loss:.3}"),
    ];
    let facts = if row.untrained { std::array::from_fn(|_| "–".to_owned()) } else { facts };
    let of = |language: &Language| Spread::of(runs.iter().filter_map(|run| run.get(language.name))).shown();
    [row.name.to_owned()].into_iter().chain(facts).chain(LANGUAGES.iter().map(of)).collect()
}

fn config(name: &str) -> Result<(PathBuf, String)> {
    let path = step::root().join("configs").join(name).with_extension("toml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path, text))
}

impl Bench<'_> {
    /// `cloze` on a config, to be resumed if its folder was begun.
    fn train(&self, path: &Path, folder: &Path, sets: &[&str]) -> Result<()> {
        if self.args.again && folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).arg("train").arg(path).arg("--out").arg(folder);
        command.args(sets.iter().flat_map(|set| ["--set", *set]));
        if folder.join("config.toml").exists() {
            command.arg("--resume");
        }
        measure::output(&mut command).map(|_| ())
    }

    /// Pretrains what is not kept; the model stays in the key's folder.
    fn pretrain(&self, row: &Row) -> Result<(Key, Pretrained)> {
        let (path, text) = config(PRETRAINING)?;
        let mut sets = vec![format!("train.precision=\"{}\"", self.args.precision)];
        sets.extend(row.sets.iter().map(|set| (*set).to_owned()));
        if let Some(steps) = self.args.steps {
            sets.extend(scaled(&text, steps)?);
        }
        sets.extend(self.args.sets.iter().cloned());
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let key = Key::new(PRETRAINING, "pretrained", 0, &text, &sets, &self.version);
        if let Some(kept) = self.kept.read::<Pretrained>(&key)?.filter(|_| !self.args.again) {
            eprintln!("{key}: kept, masked loss {:.4} after {} steps", kept.loss, kept.steps);
            return Ok((key, kept));
        }
        eprintln!("{key}: {} …", row.name);
        let folder = self.kept.scratch(&key);
        self.train(&path, &folder, &sets)?;
        let records = records::read(&folder)?;
        let all = records::steps(&records)?;
        let evaluations = records::evaluations(&records, "heldout");
        let last = evaluations.last().context("the run has no evaluation")?;
        let loss = last["figures"]["masked_loss"].as_f64().unwrap_or(f64::NAN);
        let pretrained = Pretrained { steps: all.steps, tokens: all.tokens, seconds: all.seconds, loss };
        self.kept.write(&key, &pretrained)?;
        Ok((key, pretrained))
    }

    /// Fine-tunes what is not kept, and asks it in every language.
    fn fine_tune(&self, pretrained: &Key, row: &Row, seed: u64) -> Result<Accuracies> {
        let (path, text) = config(FINE_TUNING)?;
        let sets = [
            format!("model.path={:?}", self.kept.scratch(pretrained).join("model")),
            format!("train.epochs={}", self.args.epochs),
            format!("run.seed={seed}"),
            // For a small model whose head is new.
            "optimizer.lr=5e-4".to_owned(),
            "model.dropout.hidden=0.2".to_owned(),
            "checkpoint.keep_last=1".to_owned(),
            format!("model.untrained={}", row.untrained),
        ];
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let key = Key::new(FINE_TUNING, &pretrained.to_string(), seed, &text, &sets, &self.version);
        if let Some(kept) = self.kept.read::<Accuracies>(&key)?.filter(|_| !self.args.again) {
            return Ok(kept);
        }
        eprintln!("{key} …");
        let folder = self.kept.scratch(&key);
        self.train(&path, &folder, &sets)?;
        let mut accuracies = Accuracies::new();
        for language in &LANGUAGES {
            let mut command = Command::new(&self.program);
            command.current_dir(step::root()).arg("eval").arg(&path).arg("--model").arg(folder.join("model"));
            command.args(["--split", "test", "--json"]);
            if let Some(treebank) = language.treebank {
                command.args(["--set", &format!("data.test=[{treebank:?}]")]);
            }
            let printed = measure::output(&mut command)?;
            let accuracy = accuracy(&printed).with_context(|| format!("{command:?} printed no accuracy"))?;
            accuracies.insert(language.name.to_owned(), accuracy);
        }
        eprintln!("{key}: {accuracies:?}");
        self.kept.write(&key, &accuracies)?;
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        Ok(accuracies)
    }
}

/// The accuracy in what `cloze eval --json` prints.
fn accuracy(printed: &str) -> Option<f64> {
    let figures: Value = serde_json::from_str(printed.trim()).ok()?;
    figures["figures"]["accuracy"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configs_are_there_and_can_be_shortened() {
        let (_, text) = config(PRETRAINING).unwrap();
        assert_eq!(scaled(&text, 10).unwrap()[0], "train.steps=10");
        assert!(text.contains("kind = \"translation-language-model\""));
        assert!(config(FINE_TUNING).unwrap().1.contains("scheme = \"words\""));
    }

    #[test]
    fn a_row_has_an_accuracy_for_each_language() {
        let pretrained = Pretrained { steps: 3000, tokens: 24.5e6, seconds: 1800.0, loss: 2.25 };
        let run = |de: f64| {
            let of = |name: &str, value| (name.to_owned(), value);
            Accuracies::from([of("English", 0.9), of("German", de), of("French", 0.5)])
        };
        let found = line(&ROWS[2], &pretrained, &[run(0.6), run(0.7)]);
        let expected = [
            "MLM and TLM",
            "3,000",
            "24.5",
            "30.0",
            "2.250",
            "0.9000 ± 0.0000",
            "0.6500 ± 0.0707",
            "0.5000 ± 0.0000",
        ];
        assert_eq!(found, expected);
        assert_eq!(line(&ROWS[0], &pretrained, &[run(0.6)])[..6], ["none", "–", "–", "–", "–", "0.9000"]);
    }

    #[test]
    fn an_evaluation_prints_an_accuracy() {
        let printed = "{\"examples\":9,\"main\":\"accuracy\",\"figures\":{\"accuracy\":0.75,\"loss\":1.0}}\n";
        assert_eq!(accuracy(printed), Some(0.75));
        assert_eq!(accuracy("{}"), None);
    }
}
