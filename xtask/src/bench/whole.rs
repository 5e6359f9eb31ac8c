//! The whole program, from file to file, beside the library on texts in memory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{measure, report};
use crate::{program, step};

/// What is measured, and how.
#[derive(clap::Args)]
pub struct Args {
    /// How often the sides take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only the rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Put the table into benches/README.md.
    #[arg(long, conflicts_with = "only")]
    write: bool,
    /// A folder of text files (*.txt), whose lines are encoded and decoded.
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// A folder with the folders `bert-base-cased` and `gpt2`, of vocabularies.
    #[arg(long, value_name = "DIR")]
    tokenizers: Option<PathBuf>,
    /// A sentence-transformers folder of a BERT encoder.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
}

/// Lines that a model works on.
const SENTENCES: usize = 4_000;
/// Lines whose mask is filled, each by itself.
const MASKED: usize = 500;

/// A row: a command on a file, and the library's work on the same file.
struct Row {
    name: String,
    command: Vec<String>,
    /// Which file is its input.
    input: PathBuf,
    /// What is counted in it, and how many of these there are.
    units: (&'static str, f64),
    /// Work and model of the library's benchmark.
    library: [String; 2],
    threads: usize,
    /// Arguments of the peer's program.
    peer: Option<[String; 2]>,
}

/// Medians in milliseconds.
struct Outcome {
    row: Row,
    whole: f64,
    library: f64,
    peer: Option<f64>,
}

pub fn run(args: &Args) -> Result<()> {
    let shared = step::root().join("../shared");
    let given = |path: &Option<PathBuf>, usual: &str| path.clone().unwrap_or_else(|| shared.join(usual));
    let python = measure::python();
    let cloze = program::build(None)?;
    let bench = measure::build("cloze", "whole")?;
    let place = std::env::temp_dir().join(format!("cloze-bench-whole-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let measured = Inputs::make(&place, &given(&args.corpus, "data/corpus"))
        .and_then(|inputs| {
            let model = measure::path_text(&given(&args.model, "models/all-MiniLM-L6-v2"))?;
            measure::output(Command::new(&bench).args(["models", &model]).arg(&place))?;
            inputs.rows(&place, &given(&args.tokenizers, "tokenizers"), &model)
        })
        .and_then(|rows| {
            let wanted = |row: &Row| args.only.as_ref().is_none_or(|only| row.name.contains(only.as_str()));
            let rows: Vec<Row> = rows.into_iter().filter(wanted).collect();
            let count = rows.len();
            let measure = |(number, row): (usize, Row)| {
                eprintln!("{}/{count} {}", number + 1, row.name);
                row.measure(args.rounds, &cloze, &bench, python.as_ref(), &place)
            };
            rows.into_iter().enumerate().map(measure).collect::<Result<Vec<Outcome>>>()
        });
    // It holds nothing that is needed any more; that it cannot be removed is no failure.
    let _ = fs::remove_dir_all(&place);
    let mut text = table(&measured?);
    text += &format!(
        "\n\nMedians of {} alternating rounds; the program reads a file and writes one, and its time is that of the \
         whole process, from its start, with loading. The library has the lines in memory and its model loaded. {}.",
        args.rounds,
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write_class("whole", &text) } else { Ok(()) }
}

impl Row {
    fn measure(
        self,
        rounds: u32,
        cloze: &Path,
        bench: &Path,
        python: Option<&std::ffi::OsString>,
        place: &Path,
    ) -> Result<Outcome> {
        let threads = self.threads.to_string();
        let (mut whole, mut library, mut peer) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            whole.push(self.whole(cloze, place)?);
            let mut alone = Command::new(bench);
            alone.args(&self.library).arg(&self.input).arg("3").env("RAYON_NUM_THREADS", &threads);
            library.push(measure::value(&mut alone, "ms")?);
            if let (Some(python), Some(arguments)) = (python, &self.peer) {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["1"]).collect();
                let mut theirs = measure::peer(python, "encode.py", &arguments);
                let parallel = if self.threads > 1 { "true" } else { "false" };
                theirs.env("RAYON_NUM_THREADS", &threads).env("TOKENIZERS_PARALLELISM", parallel);
                peer.push(measure::value(&mut theirs, "ms")?);
            }
        }
        let median = |times: Vec<f64>| measure::median(times.into_iter());
        let (whole, library) = (median(whole).unwrap_or(f64::NAN), median(library).unwrap_or(f64::NAN));
        eprintln!("    whole {whole:.0} ms, library {library:.0} ms");
        Ok(Outcome { row: self, whole, library, peer: median(peer) })
    }

    /// The milliseconds of the whole process.
    fn whole(&self, cloze: &Path, place: &Path) -> Result<f64> {
        let mut command = Command::new(cloze);
        command.args(&self.command).env("RAYON_NUM_THREADS", self.threads.to_string());
        measure::process(&mut command, &self.input, &place.join("out"))
    }
}

/// The files that both sides work on.
struct Inputs {
    corpus: PathBuf,
    bytes: f64,
    sentences: PathBuf,
    json: PathBuf,
    masked: PathBuf,
}

impl Inputs {
    /// Puts all texts of a folder into one file, and the first lines of 20 to 200 bytes into others.
    fn make(place: &Path, corpus: &Path) -> Result<Self> {
        let entries = fs::read_dir(corpus).with_context(|| format!("cannot read {}", corpus.display()))?;
        let mut files: Vec<PathBuf> =
            entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
        files.sort();
        let mut all = String::new();
        for path in &files {
            all += &fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        if all.is_empty() {
            bail!("{} has no text files", corpus.display());
        }
        let lines: Vec<&str> =
            all.lines().filter(|line| (20..200).contains(&line.len())).take(SENTENCES).collect();
        let write = |name: &str, write: &dyn Fn(&mut BufWriter<File>) -> std::io::Result<()>| {
            let path = place.join(name);
            let done = File::create(&path).map(BufWriter::new).and_then(|mut file| {
                write(&mut file)?;
                file.flush()
            });
            done.with_context(|| format!("cannot write {}", path.display())).map(|()| path)
        };
        Ok(Self {
            bytes: all.len() as f64,
            sentences: write("sentences", &|file| {
                lines.iter().try_for_each(|line| writeln!(file, "{line}"))
            })?,
            json: write("json", &|file| {
                lines.iter().try_for_each(|line| writeln!(file, "{}", serde_json::Value::from(*line)))
            })?,
            masked: write("masks", &|file| {
                let lines = lines.iter().take(MASKED);
                lines.into_iter().try_for_each(|line| writeln!(file, "{line} [MASK]."))
            })?,
            corpus: write("corpus", &|file| file.write_all(all.as_bytes()))?,
        })
    }

    fn rows(&self, place: &Path, tokenizers: &Path, encoder: &str) -> Result<Vec<Row>> {
        let corpus = measure::path_text(&self.corpus)?;
        let mut rows = Vec::new();
        for (name, folder) in [("WordPiece", "bert-base-cased"), ("byte-level BPE", "gpt2")] {
            let tokenizer = measure::path_text(&tokenizers.join(folder))?;
            for (format, threads) in [("ids", 1), ("ids", 2), ("u16", 2), ("npy", 2)] {
                rows.push(Row {
                    name: format!("encode, {name}, {format}, threads: {threads}"),
                    command: words(["tokenizer", "encode", "--tokenizer", &tokenizer, "--format", format]),
                    input: self.corpus.clone(),
                    units: ("MB/s", self.bytes / 1e6),
                    library: ["encode".into(), tokenizer.clone()],
                    threads,
                    peer: (format == "ids").then(|| [tokenizer.clone(), corpus.clone()]),
                });
            }
            let ids = place.join(format!("{folder}.ids"));
            self.encode(&tokenizer, &ids)?;
            let bytes = fs::metadata(&ids).map_or(f64::NAN, |found| found.len() as f64);
            for threads in [1, 2] {
                rows.push(Row {
                    name: format!("decode, {name}, threads: {threads}"),
                    command: words(["tokenizer", "decode", "--tokenizer", &tokenizer]),
                    input: ids.clone(),
                    units: ("MB/s of ids", bytes / 1e6),
                    library: ["decode".into(), tokenizer.clone()],
                    threads,
                    peer: None,
                });
            }
        }
        let [classifier, masked] = ["classifier", "masked"].map(|name| measure::path_text(&place.join(name)));
        let (classifier, masked) = (classifier?, masked?);
        let models = [
            (vec!["embed", "--model", encoder], &self.sentences, SENTENCES, ["embed", encoder]),
            (
                vec!["embed", "--model", encoder, "--format", "npy"],
                &self.sentences,
                SENTENCES,
                ["embed", encoder],
            ),
            (vec!["predict", "--model", &classifier], &self.json, SENTENCES, ["predict", &classifier]),
            (vec!["fill-mask", "--json", "--model", &masked], &self.masked, MASKED, ["fill-mask", &masked]),
        ];
        rows.extend(models.into_iter().map(|(command, input, lines, library)| {
            Row {
                name: command
                    .iter()
                    .filter(|word| !word.contains('/') && **word != "--model")
                    .copied()
                    .collect::<Vec<_>>()
                    .join(" "),
                command: words(command),
                input: input.clone(),
                units: ("lines/s", lines as f64),
                library: library.map(String::from),
                threads: 2,
                peer: None,
            }
        }));
        Ok(rows)
    }

    /// The ids of the corpus, to be decoded.
    fn encode(&self, tokenizer: &str, ids: &Path) -> Result<()> {
        let cloze = program::build(None)?;
        let mut command = Command::new(cloze);
        command.args(["tokenizer", "encode", "--tokenizer", tokenizer, "--output"]).arg(ids);
        command.stdin(File::open(&self.corpus).context("cannot read the corpus")?);
        let status = command.status().context("cannot start the program")?;
        if status.success() { Ok(()) } else { bail!("{command:?} failed") }
    }
}

/// Both sides' rates, what of the library's is left in the program, and how many times the peer's that is.
fn table(outcomes: &[Outcome]) -> String {
    let header = ["work", "program, ms", "rate", "library's rate", "share", "tokenizers, ms", "ratio"];
    let rows = outcomes.iter().map(|Outcome { row, whole, library, peer }| {
        let (unit, count) = row.units;
        let rate = |ms: f64| format!("{} {unit}", report::short(count / ms * 1e3));
        [
            row.name.clone(),
            report::short(*whole),
            rate(*whole),
            rate(*library),
            format!("{:.0} %", 100.0 * library / whole),
            peer.map_or("–".into(), report::short),
            peer.map_or("–".into(), |peer| format!("{:.1} ×", peer / whole)),
        ]
    });
    report::table(header, rows)
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_rates_and_shares() {
        let row = |peer: bool| Row {
            name: "encode".into(),
            command: words(["tokenizer"]),
            input: "in".into(),
            units: ("MB/s", 30.0),
            library: ["encode".into(), "t".into()],
            threads: 1,
            peer: peer.then(|| ["t".into(), "in".into()]),
        };
        let outcome =
            |peer: Option<f64>| Outcome { row: row(peer.is_some()), whole: 400.0, library: 380.0, peer };
        let table = table(&[outcome(Some(8_400.0)), outcome(None)]);
        let lines: Vec<Vec<&str>> = table
            .lines()
            .skip(2)
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(lines[0], ["encode", "400", "75.0 MB/s", "78.9 MB/s", "95 %", "8,400", "21.0 ×"]);
        assert_eq!(lines[1][5..], ["–", "–"]);
    }

    #[test]
    fn inputs_are_made_of_all_texts() {
        let folder = std::env::temp_dir().join(format!("cloze-xtask-whole-{}", std::process::id()));
        fs::create_dir_all(folder.join("texts")).unwrap();
        fs::write(folder.join("texts/b.txt"), "a line of text that is \"long\" enough\n").unwrap();
        fs::write(folder.join("texts/a.txt"), "short\n").unwrap();
        fs::write(folder.join("texts/c.bin"), b"\xff").unwrap();
        let inputs = Inputs::make(&folder, &folder.join("texts")).unwrap();
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
        assert_eq!(read(&inputs.corpus), "short\na line of text that is \"long\" enough\n");
        assert_eq!(read(&inputs.json), "\"a line of text that is \\\"long\\\" enough\"\n");
        assert_eq!(read(&inputs.masked), "a line of text that is \"long\" enough [MASK].\n");
        assert!(Inputs::make(&folder, &folder.join("none")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
