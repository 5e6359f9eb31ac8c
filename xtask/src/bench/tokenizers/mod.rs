//! Compression beside quality (Goldman et al. 2024): byte-pair encoders trained on more or less text, and a small BERT with
//! each; and a tokenizer whose Rényi efficiency rises while its quality falls (Cognetta et al. 2024).

mod bpe;
mod ranks;
mod text;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::finetune::table::Spread;
use super::finetune::tasks::{TASKS, Task};
use super::kept::Key;
use super::positions::verdict::means;
use super::pretrained::{self, Bench, Options, TUNED, chosen, tuned};
use super::{measure, report};
use bpe::{Bpe, drawn};
use ranks::spearman;

/// The config that all models are pretrained with, and what it is changed by. With learned positions a BERT-mini is still
/// at the loss of word frequencies after ten minutes, whatever its tokenizer: rotary ones let it find neighbouring words sooner.
const CONFIG: &str = "bert-mini-corpus";
const POSITIONS: [&str; 2] = ["model.positions=\"rotary\"", "model.max_positions=256"];

/// Texts are cut so late in fine-tuning that characters lose few of them.
const LONGEST: &str = "data.max_len=256";

/// Of all tokenizers, special and unused pieces included.
const VOCABULARY: usize = 8192;

/// What each model is fine-tuned for: tasks of short texts.
const FINE_TUNED: [&str; 3] = ["sst2", "trec", "cola"];

/// How many pieces are dropped, of how many most frequent ones. The most efficient of several draws is taken.
const DROPPED: usize = 500;
const FREQUENT: usize = 1000;
const DRAWS: u64 = 8;

/// How often the speeds are measured.
const ROUNDS: usize = 5;

/// How a tokenizer is made.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Made {
    /// Trained on each so manieth line.
    Trained(usize),
    /// Trained on nothing: bytes, which are characters in English.
    Characters,
    /// That of all lines without some of its frequent pieces.
    Dropped,
}

/// A row of the table.
struct Row {
    name: &'static str,
    shown: &'static str,
    made: Made,
}

const ALL: Row = Row { name: "all", shown: "all of the text", made: Made::Trained(1) };

const ROWS: [Row; 6] = [
    ALL,
    Row { name: "tenth", shown: "10 %", made: Made::Trained(10) },
    Row { name: "hundredth", shown: "1 %", made: Made::Trained(100) },
    Row { name: "thousandth", shown: "0.1 %", made: Made::Trained(1000) },
    Row { name: "characters", shown: "none: characters", made: Made::Characters },
    Row { name: "dropped", shown: "all, 500 pieces dropped", made: Made::Dropped },
];

/// What is trained, and for how long.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each finished run is kept in target/tokenizers-bench, and one that was interrupted goes on where it was: --only, --tasks and
--seeds make a part of the tables, and the next run takes it over. Rows: all, tenth, hundredth, thousandth, characters, dropped.
Needs the corpus and the data sets that the configs name.

  cargo xtask bench tokenizers --only all,dropped --tasks trec --seeds 1 --minutes 2")]
pub struct Args {
    /// How long each model is pretrained, in minutes of its steps on this machine.
    #[arg(long, default_value_t = 10.0, value_name = "MINUTES")]
    minutes: f64,
    #[command(flatten)]
    options: Options,
}

/// What a tokenizer makes of the corpus.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Compression {
    tokens: f64,
    bytes_per_token: f64,
    /// Pieces that occur.
    used: f64,
    efficiency: f64,
}

/// What is measured of a row.
struct Measured {
    row: &'static Row,
    compression: Compression,
    steps: u64,
    tokens: f64,
    /// The figures of each task, one for each seed.
    figures: Vec<Vec<f64>>,
}

/// Milliseconds of each command on the corpus.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Speed {
    evaluate: f64,
    text: f64,
    binary: f64,
    megabytes: f64,
}

/// The corpus and what tokenizers are made of it.
struct Workshop<'a> {
    bench: &'a Bench,
    files: Vec<PathBuf>,
    /// All files in one.
    corpus: PathBuf,
    /// What a key of a tokenizer depends on.
    of: String,
}

pub fn run(args: &Args) -> Result<()> {
    let options = &args.options;
    let rows = chosen("row", &ROWS, &options.only, |row| row.name)?;
    let all: Vec<Task> =
        FINE_TUNED.iter().filter_map(|name| TASKS.iter().find(|task| task.name == *name)).copied().collect();
    let tasks = chosen("task", &all, &options.tasks, |task| task.name)?;
    let bench = options.bench("tokenizers-bench", args.minutes)?;
    let workshop = Workshop::open(&bench)?;
    let mut measured = Vec::new();
    for row in rows {
        let (folder, compression) = workshop.tokenizer(row)?;
        let mut own = POSITIONS.map(str::to_owned).to_vec();
        own.push(format!("tokenizer={{ kind = \"load\", path = {folder:?} }}"));
        let (key, pretrained) = bench.pretrain(CONFIG, &options.sets(&own))?;
        let mut figures = Vec::new();
        for task in &tasks {
            let mut own = tuned(TUNED, task);
            own.push(LONGEST.to_owned());
            figures.push(bench.figures(&key, task, &options.seeds, &own)?);
        }
        let (steps, tokens) = (pretrained.steps, pretrained.tokens);
        measured.push(Measured { row, compression, steps, tokens, figures });
    }
    let speed = workshop.speed()?;
    let text = format!(
        "{}\n\nByte-level BPE of {VOCABULARY} pieces, those included that occur in no text; pieces that occur, tokens and Rényi efficiency \
         (α = 2.5) of the corpus, {} MB. A BERT-mini with each, pretrained for {}, {}, then fine-tuned with {}: means ± \
         standard deviations. Dropped: of the {FREQUENT} most frequent pieces that no other is made of, those {DROPPED} of \
         {DRAWS} draws without which the efficiency is highest.\n\n{}{}{}\n\nMedians of {ROUNDS} alternating rounds on the \
         corpus, from the start of the process to its end. {}.",
        table(&measured, &tasks),
        report::short(speed.megabytes),
        bench.length.said(),
        options.precision,
        report::seeds(options.seeds.len()),
        correlations(&measured, &tasks)
            .map(|table| table + "\n\nSpearman's coefficient over the trained ones and characters.\n\n")
            .unwrap_or_default(),
        published(&measured).map(|said| said + "\n\n").unwrap_or_default(),
        speeds(&speed),
        report::machine(None)
    );
    println!("{text}");
    if options.write { report::write_class("tokenizers", &text) } else { Ok(()) }
}

impl<'a> Workshop<'a> {
    fn open(bench: &'a Bench) -> Result<Self> {
        let files = text::files(&pretrained::read(CONFIG)?.1)?;
        let mut of = format!("{VOCABULARY}");
        for file in &files {
            let size = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
            of += &format!(" {} {size}", file.display());
        }
        let mut workshop = Self { bench, files, corpus: PathBuf::new(), of };
        workshop.corpus = workshop.part(1)?;
        Ok(workshop)
    }

    fn key(&self, name: &str, what: &str, sets: &[&str]) -> Key {
        Key::new(name, what, 0, &self.of, sets, self.bench.version())
    }

    /// A file with every so manieth line of the corpus.
    fn part(&self, every: usize) -> Result<PathBuf> {
        let key = self.key("corpus", "part", &[&every.to_string()]);
        let path = self.bench.kept.scratch(&key).with_extension("txt");
        if !path.exists() {
            let partial = path.with_extension("partial");
            text::lines(&self.files, every, &partial)?;
            fs::rename(&partial, &path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(path)
    }

    /// A row's tokenizer and what it makes of the corpus.
    fn tokenizer(&self, row: &Row) -> Result<(PathBuf, Compression)> {
        let draw = format!("{DROPPED} of {FREQUENT}, {DRAWS}");
        let sets: &[&str] = if row.made == Made::Dropped { &[&draw] } else { &[] };
        let key = self.key(row.name, "tokenizer", sets);
        let folder = self.bench.kept.scratch(&key);
        let compression = self.bench.once(&key, || {
            match row.made {
                Made::Trained(every) => self.train(every, &folder)?,
                Made::Characters => {
                    let all = self.all()?;
                    write(&folder, &all.without(&all.made()))?;
                }
                Made::Dropped => self.drop(&folder)?,
            }
            self.compression(&folder)
        })?;
        if !folder.join(FILE).exists() {
            bail!("{} is gone; make it again with --again", folder.display());
        }
        Ok((folder, compression))
    }

    /// Trains byte-level BPE. A small part of the text has fewer words than fill the vocabulary.
    fn train(&self, every: usize, folder: &Path) -> Result<()> {
        let size = VOCABULARY.to_string();
        let mut command =
            self.bench.cloze(&["tokenizer", "train", "--model", "byte-bpe", "--min-frequency", "1"]);
        command.args(["--vocab-size", &size]).arg("--out").arg(folder).arg(self.part(every)?);
        measure::output(&mut command)?;
        write(folder, &read(folder)?.filled(VOCABULARY))
    }

    /// The tokenizer of the whole corpus.
    fn all(&self) -> Result<Bpe> {
        read(&self.tokenizer(&ALL)?.0)
    }

    /// Drops pieces of the tokenizer of the whole corpus by several draws, and keeps the most efficient one.
    fn drop(&self, folder: &Path) -> Result<()> {
        let all = self.all()?;
        let pieces = frequent(&all, &self.ids(&self.tokenizer(&ALL)?.0)?);
        let mut best: Option<(f64, HashSet<String>)> = None;
        for seed in 0..DRAWS {
            let dropped = drawn(&pieces, FREQUENT, DROPPED, seed);
            write(folder, &all.without(&dropped))?;
            let efficiency = self.compression(folder)?.efficiency;
            if best.as_ref().is_none_or(|(highest, _)| efficiency > *highest) {
                best = Some((efficiency, dropped));
            }
        }
        let (_, dropped) = best.context("no draw")?;
        write(folder, &all.without(&dropped))
    }

    /// How often each id occurs in the corpus.
    fn ids(&self, folder: &Path) -> Result<Vec<u64>> {
        let scratch = self.bench.kept.scratch(&self.key("corpus", "ids", &[])).with_extension("u16");
        measure::process(&mut self.encode(folder, "u16"), &self.corpus, &scratch)?;
        let bytes = fs::read(&scratch).with_context(|| format!("cannot read {}", scratch.display()))?;
        fs::remove_file(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
        let mut counts = vec![0; 1 << 16];
        bytes.as_chunks::<2>().0.iter().for_each(|id| counts[usize::from(u16::from_le_bytes(*id))] += 1);
        Ok(counts)
    }

    fn encode(&self, folder: &Path, format: &str) -> Command {
        let mut command = self.bench.cloze(&["tokenizer", "encode", "--no-special", "--format", format]);
        command.arg("--tokenizer").arg(folder);
        command
    }

    fn evaluate(&self, folder: &Path) -> Command {
        let mut command = self.bench.cloze(&["tokenizer", "evaluate", "--json"]);
        command.arg("--tokenizer").arg(folder);
        command
    }

    fn compression(&self, folder: &Path) -> Result<Compression> {
        let mut command = self.evaluate(folder);
        let printed = measure::output(command.arg(&self.corpus))?;
        compression(&printed).with_context(|| format!("{command:?} printed no figures"))
    }

    /// How fast tokenizers are evaluated, beside encoding: measured whenever the tables are printed.
    fn speed(&self) -> Result<Speed> {
        let (folder, _) = self.tokenizer(&ALL)?;
        eprintln!("speeds …");
        let mut commands = [self.evaluate(&folder), self.encode(&folder, "ids"), self.encode(&folder, "u32")];
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for (command, times) in commands.iter_mut().zip(&mut times) {
                times.push(measure::process(command, &self.corpus, Path::new("/dev/null"))?);
            }
        }
        let [evaluate, text, binary] =
            times.map(|times| measure::median(times.into_iter()).unwrap_or(f64::NAN));
        let size = fs::metadata(&self.corpus).context("the corpus is gone")?.len();
        Ok(Speed { evaluate, text, binary, megabytes: size as f64 / 1e6 })
    }
}

const FILE: &str = "tokenizer.json";

fn read(folder: &Path) -> Result<Bpe> {
    let path = folder.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Bpe::read(&text).with_context(|| path.display().to_string())
}

fn write(folder: &Path, bpe: &Bpe) -> Result<()> {
    let path = folder.join(FILE);
    fs::create_dir_all(folder)
        .map_err(anyhow::Error::new)
        .and_then(|()| Ok(fs::write(&path, bpe.text()?)?))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The pieces that may be dropped, the most frequent one first.
fn frequent(bpe: &Bpe, counts: &[u64]) -> Vec<String> {
    let ends = bpe.ends();
    let mut ids: Vec<usize> = (0..bpe.size().min(counts.len())).filter(|id| counts[*id] > 0).collect();
    ids.sort_by_key(|id| std::cmp::Reverse(counts[*id]));
    let pieces = ids.into_iter().filter_map(|id| bpe.piece(id));
    pieces.filter(|piece| ends.contains(*piece)).map(str::to_owned).collect()
}

/// What `cloze tokenizer evaluate --json` prints of the one tokenizer.
fn compression(printed: &str) -> Option<Compression> {
    let figures: Value = serde_json::from_str(printed.trim()).ok()?;
    let of = |name: &str| figures["tokenizers"][0]["text"][name].as_f64();
    Some(Compression {
        tokens: of("tokens")?,
        bytes_per_token: of("bytes_per_token")?,
        used: of("vocabulary_used")?,
        efficiency: of("renyi_efficiency")?,
    })
}

impl Measured {
    /// The mean over the tasks, for each seed.
    fn means(&self) -> Vec<f64> {
        means(&self.figures.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }
}

fn table(rows: &[Measured], tasks: &[&Task]) -> String {
    let facts =
        ["trained on", "pieces", "M tokens", "bytes a piece", "Rényi efficiency", "steps", "M trained on"];
    let header = facts.map(str::to_owned).into_iter();
    let header = header.chain(tasks.iter().map(|task| format!("{}, {}", task.name, task.figures[0])));
    let header: Vec<String> = header.chain(["mean".to_owned()]).collect();
    let cells = rows.iter().map(|measured| {
        let Compression { tokens, bytes_per_token, used, efficiency } = measured.compression;
        let facts = [
            measured.row.shown.to_owned(),
            report::short(used),
            report::short(tokens / 1e6),
            report::short(bytes_per_token),
            format!("{efficiency:.4}"),
            report::count(measured.steps),
            report::short(measured.tokens / 1e6),
        ];
        let means = measured.means();
        let figures = measured.figures.iter().chain([&means]);
        let figures: Vec<String> = figures.map(|values| Spread::of(values.iter()).shown()).collect();
        facts.into_iter().chain(figures)
    });
    report::table(header.iter().map(String::as_str), cells)
}

/// Whether better compression, and more efficient pieces, go with better figures; nothing where there are too few rows.
fn correlations(rows: &[Measured], tasks: &[&Task]) -> Option<String> {
    let rows: Vec<&Measured> = rows.iter().filter(|measured| measured.row.made != Made::Dropped).collect();
    if rows.len() < 3 {
        return None;
    }
    let mean = |values: &[f64]| Spread::of(values.iter()).mean;
    let mut qualities: Vec<Vec<f64>> = Vec::new();
    for task in 0..tasks.len() {
        qualities.push(rows.iter().map(|measured| mean(&measured.figures[task])).collect());
    }
    qualities.push(rows.iter().map(|measured| mean(&measured.means())).collect());
    let names = tasks.iter().map(|task| task.name).chain(["mean"]);
    let header: Vec<&str> = ["rank correlation"].into_iter().chain(names).collect();
    let line = |name: &str, of: fn(&Compression) -> f64| {
        let values: Vec<f64> = rows.iter().map(|measured| of(&measured.compression)).collect();
        let cell = |quality: &Vec<f64>| {
            spearman(&values, quality).map_or_else(|| "–".to_owned(), |found| format!("{found:.2}"))
        };
        [name.to_owned()].into_iter().chain(qualities.iter().map(cell)).collect::<Vec<_>>()
    };
    let lines = [line("bytes a piece", |c| c.bytes_per_token), line("Rényi efficiency", |c| c.efficiency)];
    Some(report::table(header, lines))
}

/// Whether the counterexample is seen: a higher efficiency, and a lower figure; nothing of fewer than two seeds.
fn published(rows: &[Measured]) -> Option<String> {
    let of = |made| rows.iter().find(|measured| measured.row.made == made);
    let (all, dropped) = (of(Made::Trained(1))?, of(Made::Dropped)?);
    let figures = [all, dropped].map(Measured::means);
    if figures.iter().any(|figures| figures.len() < 2) {
        return None;
    }
    let [a, b] = figures.map(|figures| Spread::of(figures.iter()));
    let [before, after] = [all, dropped].map(|measured| measured.compression.efficiency);
    let seen = match (after > before && b.mean < a.mean, a.mean - b.mean <= a.deviation.max(b.deviation)) {
        (true, false) => "seen",
        (true, true) => "seen, but within a deviation",
        (false, _) => "not seen",
    };
    Some(format!(
        "Published: with dropped pieces the efficiency rises and the quality falls. From {before:.4} to {after:.4}, and from {} \
         to {}: {seen}.",
        a.shown(),
        b.shown()
    ))
}

fn speeds(speed: &Speed) -> String {
    let rows = [
        ("tokenizer evaluate", speed.evaluate),
        ("tokenizer encode, ids as text", speed.text),
        ("tokenizer encode, ids as u32", speed.binary),
    ];
    let cells = rows.map(|(name, ms)| {
        let rate = report::short(speed.megabytes / ms * 1e3);
        [name.to_owned(), report::short(ms), rate, format!("{:.2} ×", ms / speed.evaluate)]
    });
    report::table(["command", "ms", "MB/s", "time beside evaluate's"], cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(row: usize, bytes_per_token: f64, efficiency: f64, figures: [f64; 2]) -> Measured {
        let compression = Compression { tokens: 7.5e6, bytes_per_token, used: 8000.0, efficiency };
        let figures = vec![figures.into(), figures.into(), figures.into()];
        Measured { row: &ROWS[row], compression, steps: 3000, tokens: 4e6, figures }
    }

    fn tasks() -> Vec<&'static Task> {
        FINE_TUNED.iter().map(|name| TASKS.iter().find(|task| task.name == *name).unwrap()).collect()
    }

    fn cells(text: &str, line: usize) -> Vec<String> {
        text.lines().nth(line).unwrap().split('|').map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn a_row_has_compression_beside_quality() {
        let text = table(&[measured(1, 4.13, 0.5, [0.5, 0.5])], &tasks());
        let expected = ["10 %", "8,000", "7.50", "4.13", "0.5000", "3,000", "4.00", "0.5000 ± 0.0000"];
        assert_eq!(cells(&text, 2)[1..9], expected);
        assert_eq!(cells(&text, 0)[11], "mean");
    }

    #[test]
    fn compression_is_ranked_beside_quality() {
        let mut rows = vec![measured(0, 4.0, 0.5, [0.9; 2]), measured(1, 3.9, 0.6, [0.8; 2])];
        assert_eq!(correlations(&rows, &tasks()), None);
        rows.push(measured(4, 1.0, 0.7, [0.5; 2]));
        // What is dropped is a case of its own.
        rows.push(measured(5, 3.5, 0.8, [1.0; 2]));
        let text = correlations(&rows, &tasks()).unwrap();
        assert_eq!(cells(&text, 2)[1..6], ["bytes a piece", "1.00", "1.00", "1.00", "1.00"]);
        assert_eq!(cells(&text, 3)[1..3], ["Rényi efficiency", "-1.00"]);
    }

    #[test]
    fn the_counterexample_is_seen_or_not() {
        let said = |efficiency, figures| {
            published(&[measured(0, 4.0, 0.5, [0.8; 2]), measured(5, 3.5, efficiency, figures)]).unwrap()
        };
        assert!(said(0.6, [0.7; 2]).ends_with("0.8000 ± 0.0000 to 0.7000 ± 0.0000: seen."));
        assert!(said(0.6, [0.6, 0.9]).ends_with(": seen, but within a deviation."));
        assert!(said(0.6, [0.9; 2]).ends_with(": not seen."));
        assert!(said(0.4, [0.7; 2]).ends_with(": not seen."));
        assert_eq!(published(&[measured(0, 4.0, 0.5, [0.8; 2])]), None);
    }

    #[test]
    fn the_evaluation_is_read() {
        let printed = r#"{"alpha":2.5,"tokenizers":[{"tokenizer":"t","text":{"bytes":49,"words":11,"tokens":16,"bytes_per_token":3.0625,"vocabulary":8192,"vocabulary_used":15,"renyi_efficiency":0.97}}]}"#;
        let expected = Compression { tokens: 16.0, bytes_per_token: 3.0625, used: 15.0, efficiency: 0.97 };
        assert_eq!(compression(printed), Some(expected));
        assert_eq!(compression("{}"), None);
    }

    #[test]
    fn the_most_frequent_ends_come_first() {
        let file = r#"{"model":{"vocab":{"a":0,"b":1,"ab":2,"ba":3,"abb":4,"aa":5},"merges":[["a","b"],["b","a"],["ab","b"],["a","a"]]}}"#;
        let bpe = Bpe::read(file).unwrap();
        // "ab" makes "abb", and "aa" does not occur.
        assert_eq!(frequent(&bpe, &[90, 80, 70, 5, 6, 0, 50]), ["abb", "ba"]);
    }

    #[test]
    fn speeds_stand_beside_that_of_the_evaluation() {
        let text = speeds(&Speed { evaluate: 200.0, text: 300.0, binary: 150.0, megabytes: 30.0 });
        assert_eq!(cells(&text, 2)[1..5], ["tokenizer evaluate", "200", "150", "1.00 ×"]);
        assert_eq!(cells(&text, 3)[1..5], ["tokenizer encode, ids as text", "300", "100", "1.50 ×"]);
    }
}
