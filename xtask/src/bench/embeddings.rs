//! Figures of a sentence encoder beside sentence-transformers' own: whether they agree, and how long they take.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::embedding_training::{self, Wanted, Which};
use super::measure;
use super::report;
use crate::{program, step};

/// What is measured, and how.
#[derive(clap::Args)]
pub struct Args {
    /// A sentence-transformers folder of a BERT encoder.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// The folder with `sts2015/test.tsv` and `sick/test.tsv`.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How often the sides take turns.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Train the sentence encoders of configs/ on both sides instead. Each finished run is kept in target/embeddings-bench.
    #[arg(long, conflicts_with_all = ["model", "data", "rounds"])]
    train: bool,
    /// With --train, a run of each side for each of these.
    #[arg(long, value_delimiter = ',', value_name = "SEEDS", default_value = "1,2,3", requires = "train")]
    seeds: Vec<u64>,
    /// With --train, only these rows of the table, such as sick,sts: beginnings of their names.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", requires = "train", conflicts_with = "write")]
    trainings: Vec<String>,
    /// With --train, only from these checkpoints, such as all-MiniLM: beginnings of their names.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", requires = "train", conflicts_with = "write")]
    from: Vec<String>,
    /// With --train, train nothing: the table of what is kept.
    #[arg(long, requires = "train", conflicts_with = "again")]
    kept: bool,
    /// With --train, train anew what is kept.
    #[arg(long, requires = "train")]
    again: bool,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// A set of scored pairs: its name, its file, how ours is told its columns, and how theirs is.
const SETS: [(&str, &str, &[&str], &[&str]); 2] = [
    ("STS 2015", "sts2015/test.tsv", &["--no-header", "--columns", "label=1,text=2,pair=3"], &[]),
    (
        "SICK",
        "sick/test.tsv",
        &["--columns", "text=sentence_A,pair=sentence_B,label=relatedness_score"],
        &["sentence_A", "sentence_B", "relatedness_score"],
    ),
];

const FIGURES: [&str; 2] = ["spearman_cosine", "pearson_cosine"];

/// What a side prints.
#[derive(Debug, Deserialize)]
struct Printed {
    examples: usize,
    figures: Map<String, Value>,
    #[serde(default)]
    version: String,
}

/// A side's figures, and the seconds of each round.
#[derive(Debug, Default)]
struct Side {
    examples: usize,
    figures: Vec<f64>,
    seconds: Vec<f64>,
    version: String,
}

impl Side {
    fn measure(&mut self, command: &mut Command) -> Result<()> {
        let start = Instant::now();
        let line = measure::last_line(command)?;
        self.seconds.push(start.elapsed().as_secs_f64());
        let printed: Printed =
            serde_json::from_str(&line).with_context(|| format!("{command:?} printed no figures"))?;
        let figure = |name: &&str| printed.figures.get(*name).and_then(Value::as_f64).unwrap_or(f64::NAN);
        self.figures = FIGURES.iter().map(figure).collect();
        (self.examples, self.version) = (printed.examples, printed.version);
        Ok(())
    }

    fn median(&self) -> f64 {
        measure::median(self.seconds.iter().copied()).unwrap_or(f64::NAN)
    }
}

pub fn run(args: &Args) -> Result<()> {
    if args.train {
        let Args { seeds, trainings, from, kept, again, write, .. } = args;
        let which = match (kept, again) {
            (true, _) => Which::Kept,
            (_, true) => Which::Anew,
            _ => Which::Missing,
        };
        return embedding_training::run(&Wanted { seeds, trainings, from, which, write: *write });
    }
    let shared = step::root().join("../shared");
    let model = args.model.clone().unwrap_or_else(|| shared.join("models/all-MiniLM-L6-v2"));
    let data = args.data.clone().unwrap_or_else(|| shared.join("data"));
    let (python, cloze) = (measure::python(), program::build(None)?);
    let mut rows = Vec::new();
    for (name, file, ours_columns, their_columns) in SETS {
        let path = data.join(file);
        let (mut ours, mut theirs) = (Side::default(), Side::default());
        for round in 1..=args.rounds {
            eprintln!("{name}, round {round} of {}", args.rounds);
            let mut command = Command::new(&cloze);
            command.args([
                "eval-embeddings",
                "sts",
                "--json",
                "--on-bad-row",
                "skip",
                "--max-skipped",
                "1",
                "--model",
            ]);
            ours.measure(command.arg(&model).args(ours_columns).arg(&path))?;
            if let Some(python) = &python {
                let mut command = measure::peer(python, "embeddings.py", &[]);
                theirs.measure(command.arg(&model).arg(&path).args(their_columns))?;
            }
        }
        rows.push((name, ours, theirs));
    }
    let version =
        rows.iter().map(|(_, _, theirs)| theirs.version.as_str()).find(|version| !version.is_empty());
    let text = format!(
        "{}\n\n{}; seconds are those of the whole process, medians of {} alternating rounds. {}{}.",
        table(&rows),
        model.file_name().unwrap_or_default().to_string_lossy(),
        args.rounds,
        report::machine(python.as_ref()),
        version.map(|version| format!("; sentence-transformers {version}")).unwrap_or_default()
    );
    println!("{text}");
    if args.write { report::write_class("embeddings", &text) } else { Ok(()) }
}

fn table(rows: &[(&str, Side, Side)]) -> String {
    let header = ["pairs", "count", "Spearman", "theirs", "Pearson", "theirs ", "s", "their s", "ratio"];
    let row = |(name, ours, theirs): &(&str, Side, Side)| {
        let figure = |side: &Side, place: usize| {
            side.figures.get(place).map_or("–".to_owned(), |figure| format!("{figure:.6}"))
        };
        let ratio = theirs.median() / ours.median();
        vec![
            (*name).to_owned(),
            report::short(ours.examples as f64),
            figure(ours, 0),
            figure(theirs, 0),
            figure(ours, 1),
            figure(theirs, 1),
            report::short(ours.median()),
            report::short(theirs.median()),
            if ratio.is_nan() { "–".into() } else { format!("{ratio:.2} ×") },
        ]
    };
    report::table(header, rows.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_read_and_compared() {
        let side = |line: &str| {
            let mut side = Side::default();
            side.measure(Command::new("sh").args(["-c", &format!("echo '{line}'")])).unwrap();
            side
        };
        let mut ours = side(
            r#"{"examples":3,"main":"spearman_cosine","figures":{"spearman_cosine":0.5,"pearson_cosine":0.25}}"#,
        );
        let mut theirs = side(r#"{"examples":3,"figures":{"pearson_cosine":0.25},"version":"5.1"}"#);
        assert_eq!((ours.examples, theirs.version.as_str()), (3, "5.1"));
        (ours.seconds, theirs.seconds) = (vec![2.0, 1.0, 4.0], vec![3.0]);
        let text = table(&[("SICK", ours, theirs), ("alone", Side::default(), Side::default())]);
        assert!(text.contains("0.500000") && text.contains("NaN") && text.contains("1.50 ×"), "{text}");
    }

    #[test]
    fn what_prints_no_figures_is_an_error() {
        let error =
            Side::default().measure(Command::new("sh").args(["-c", "echo '{\"examples\":1}'"])).unwrap_err();
        assert!(error.to_string().ends_with("printed no figures"), "{error}");
    }
}
