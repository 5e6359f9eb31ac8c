//! Decoding beside transformers' `generate`, CTranslate2 and llama.cpp, and a small language model beside PyTorch's.

use std::ffi::OsString;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::kept::target;
use super::measure::{self, path_text};
use super::translate::models::TRANSFORMER;
use super::translate::side::{BEAMS, Data, Ours, THREADS, parameters, remove};
use super::{records, report};
use crate::{program, step};

/// Sentences that are translated at a time, on every side.
const BATCH: &str = "32";

/// Tokens that a short and a long continuation have; their difference is timed, without loading and prompt.
const NEW: [u32; 2] = [16, 144];

/// The same from integers: `--int8` rounds the weights while it loads, in seconds that vary by more than a hundred tokens take.
const NEW_FROM_INTEGERS: [u32; 2] = [16, 400];

const PROMPT: &str = "The history of the world is";

/// nanoGPT's configuration for a CPU, ours.
const NANO: &str = "configs/gpt-shakespeare-char.toml";

/// What is measured, and how.
#[derive(clap::Args)]
#[command(after_long_help = "\
Needs a translation model: --model, or what `cargo xtask bench translate --models transformer` left.")]
pub struct Args {
    /// How often the sides take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One round, a hundred sentences, a hundred steps, and a GPT-2 and a Llama of two layers.
    #[arg(long, conflicts_with = "write")]
    quick: bool,
    /// Only `translate`, `gpt2`, `llama` or `train`.
    #[arg(long, value_name = "PART", value_parser = ["translate", "gpt2", "llama", "train"], conflicts_with = "write")]
    only: Option<String>,
    /// A translation run's folder, with its model of Marian's architecture in `model`.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// A folder with Multi30k.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Put the tables into benches/README.md.
    #[arg(long)]
    write: bool,
}

struct Bench<'a> {
    args: &'a Args,
    ours: Ours,
    python: Option<OsString>,
    /// What is made for this benchmark; it stays.
    place: PathBuf,
    rounds: u32,
}

/// Medians of both sides.
struct Row {
    work: String,
    ours: f64,
    peer: &'static str,
    theirs: Option<f64>,
    /// How many times faster ours is to be.
    floor: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let place = target().join("generate-bench");
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let rounds = if args.quick { 1 } else { args.rounds };
    let python = measure::python();
    let bench = Bench { args, ours: Ours::new(program::build(None)?)?, python, place, rounds };
    let wanted = |part: &str| args.only.as_ref().is_none_or(|only| only == part);
    let mut parts = Vec::new();
    if wanted("translate") {
        parts.push(bench.translation()?);
    }
    if wanted("gpt2") {
        parts.push(bench.continuation()?);
    }
    if wanted("llama") {
        parts.push(bench.integers()?);
    }
    if wanted("train") {
        parts.push(bench.training()?);
    }
    let text = format!(
        "{}\n\nMedians of {rounds} alternating rounds. {}.",
        parts.join("\n\n"),
        report::machine(bench.python.as_ref())
    );
    println!("{text}");
    if args.write { report::write_class("generate", &text) } else { Ok(()) }
}

/// Writes a GPT-2 of random weights, by transformers.
pub fn make_gpt2(python: &OsString, folder: &Path, layers: &str) -> Result<()> {
    make("make-gpt2", python, folder, layers)
}

fn make(what: &str, python: &OsString, folder: &Path, layers: &str) -> Result<()> {
    let tokenizer = path_text(&step::root().join("../shared/tokenizers/gpt2"))?;
    let folder = folder.to_string_lossy();
    let arguments = [what, &folder, "--tokenizer", &tokenizer, "--layers", layers];
    measure::output(&mut measure::peer(python, "generate.py", &arguments)).map(drop)
}

impl Bench<'_> {
    /// A peer's program.
    fn peer(&self, arguments: &[&str]) -> Option<Command> {
        let mut command = measure::peer(self.python.as_ref()?, "generate.py", arguments);
        command.env("OMP_NUM_THREADS", THREADS).env("TOKENIZERS_PARALLELISM", "false");
        Some(command)
    }

    /// Whole processes that translate a file with beams.
    fn translation(&self) -> Result<String> {
        let shared = step::root().join("../shared/data/multi30k");
        let test = Data(self.args.data.clone().unwrap_or(shared)).test("en");
        let text = fs::read_to_string(&test).with_context(|| format!("cannot read {}", test.display()))?;
        let lines: Vec<&str> = text.lines().take(if self.args.quick { 100 } else { usize::MAX }).collect();
        let (input, output) = (self.place.join("source.txt"), self.place.join("hypotheses.txt"));
        fs::write(&input, lines.join("\n") + "\n")
            .with_context(|| format!("cannot write {}", input.display()))?;
        let run = self.run_folder()?;
        let model = path_text(&run.join("model"))?;
        let source = path_text(&input)?;
        let converted = ["f32", "int8"].map(|precision| self.place.join(format!("ctranslate2-{precision}")));
        for (precision, converted) in ["f32", "int8"].into_iter().zip(&converted) {
            remove(converted)?;
            let converted = converted.to_string_lossy();
            if let Some(mut convert) = self.peer(&["convert", &model, &converted, "--precision", precision]) {
                measure::output(&mut convert)?;
            }
        }
        let [ct_f32, ct_int8] = converted.map(|path| path.to_string_lossy().into_owned());
        let shape = ["--beams", BEAMS, "--batch", BATCH];
        let by = |words: &[&str]| self.peer(&[words, &shape].concat());
        let rows = [
            ("f32", &[][..], "transformers", by(&["transformers", &model, &source]), 3.0),
            (
                "f32",
                &[][..],
                "CTranslate2",
                by(&["ctranslate2", &model, &source, "--converted", &ct_f32]),
                1.0,
            ),
            (
                "bf16",
                &["--precision", "bf16"][..],
                "transformers",
                by(&["transformers", &model, &source, "--precision", "bf16"]),
                3.0,
            ),
            (
                "int8",
                &["--int8"][..],
                "CTranslate2",
                by(&["ctranslate2", &model, &source, "--converted", &ct_int8]),
                1.0,
            ),
        ];
        let mut measured = Vec::new();
        for (precision, options, peer, mut theirs, floor) in rows {
            let work = format!("{} sentences, beam {BEAMS}, {precision}", lines.len());
            eprintln!("{work}, {peer}");
            let options: Vec<&str> = options.iter().chain(&["--batch", BATCH]).copied().collect();
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for _ in 0..self.rounds {
                a.push(measure::process(&mut self.ours.translate(&run, &options), &input, &output)?);
                if let Some(theirs) = &mut theirs {
                    b.push(measure::process(theirs, &input, &output)?);
                }
            }
            let ours = measure::median(a.into_iter()).unwrap_or(f64::NAN);
            measured.push(Row { work, ours, peer, theirs: measure::median(b.into_iter()), floor });
        }
        let count = lines.len() as f64;
        Ok(format!(
            "Whole processes, from a file to a file, with loading:\n\n{}",
            beside(&measured, "sentences/s", |ms| count / ms * 1e3)
        ))
    }

    /// A translation run with its model.
    fn run_folder(&self) -> Result<PathBuf> {
        if let Some(folder) = &self.args.model {
            return Ok(folder.clone());
        }
        let place = target().join("translate-bench");
        let name = format!("{}-ours-", TRANSFORMER.config);
        let entries = fs::read_dir(&place).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_run = |path: &PathBuf| {
            let named = path.file_name().is_some_and(|found| found.to_string_lossy().starts_with(&name));
            named && path.join("model/model.safetensors").exists()
        };
        let newest = entries.filter(is_run).max_by_key(|path| {
            fs::metadata(path.join("model/model.safetensors")).and_then(|found| found.modified()).ok()
        });
        newest.with_context(|| {
            format!(
                "{} has no run of {}: `cargo xtask bench translate --models transformer` makes one",
                place.display(),
                TRANSFORMER.config
            )
        })
    }

    /// A GPT-2 of random weights that continues a prompt greedily: milliseconds a token.
    fn continuation(&self) -> Result<String> {
        let Some(python) = &self.python else {
            bail!("CLOZE_PYTHON is not set: the GPT-2 of random weights is made there (or --only translate)")
        };
        let layers = if self.args.quick { "2" } else { "12" };
        let folder = self.place.join(format!("gpt2-{layers}"));
        let converted = self.place.join(format!("gpt2-{layers}-int8"));
        let (model, converted) = (folder.to_string_lossy(), converted.to_string_lossy());
        if !folder.join("tokenizer.json").exists() {
            make_gpt2(python, &folder, layers)?;
            let arguments = ["convert", &model, &converted, "--precision", "int8"];
            measure::output(&mut measure::peer(python, "generate.py", &arguments))?;
        }
        let bytes = parameters(&folder)? as f64;
        let bandwidth = bandwidth();
        let new = (NEW[1] - NEW[0]).to_string();
        let (mut rows, mut limits) = (Vec::new(), Vec::new());
        for (precision, options, peer, floor, width) in [
            ("f32", &[][..], "transformers", 3.0, 4.0),
            ("bf16", &["--precision", "bf16"], "transformers", 3.0, 2.0),
            ("int8", &["--int8"], "CTranslate2", 0.0, 1.0),
        ] {
            let work = format!("GPT-2, {layers} layers, greedy, {precision}");
            eprintln!("{work}");
            let arguments = [
                "gpt2",
                &model,
                "--new",
                &new,
                "--prompt",
                PROMPT,
                "--precision",
                precision,
                "--converted",
                &converted,
            ];
            let [ours, theirs] = self.tokens(&folder, options, NEW, &arguments)?;
            let ours = ours.unwrap_or(f64::NAN);
            let limit = bandwidth / (bytes * width);
            limits.push(format!("{precision} {:.0} ({:.0} %)", limit, 100.0 * 1e3 / ours / limit));
            rows.push(Row { work, ours, peer, theirs, floor });
        }
        Ok(format!(
            "A token of a continuation, without loading:\n\n{}\n\nMemory is read at {:.1} GB/s, which limits tokens a second, \
             if each weight is read once a token, to: {}.",
            beside(&rows, "tokens/s", |ms| 1e3 / ms),
            bandwidth / 1e9,
            limits.join(", ")
        ))
    }

    /// A Llama of random weights that continues a prompt greedily from integers, beside llama.cpp: milliseconds a token.
    fn integers(&self) -> Result<String> {
        let Some(python) = &self.python else {
            bail!("CLOZE_PYTHON is not set: the Llama of random weights is made there (or --only translate)")
        };
        let layers = if self.args.quick { "2" } else { "12" };
        let folder = self.place.join(format!("llama-{layers}"));
        let [q8_0, four_bits, q4_0] =
            ["q8_0.gguf", "q4_0", "q4_0.gguf"].map(|end| folder.with_extension(end));
        if !q4_0.exists() {
            remove(&folder)?;
            remove(&four_bits)?;
            make("make-llama", python, &folder, layers)?;
            self.cloze(&["export", "gguf", "--weights", "q8_0", "--model"], &folder, &q8_0)?;
            self.cloze(&["quantize", "--weights", "q4_0", "--tables", "--model"], &folder, &four_bits)?;
            // The same blocks, bit for bit.
            self.cloze(&["export", "gguf", "--model"], &four_bits, &q4_0)?;
        }
        let new = (NEW_FROM_INTEGERS[1] - NEW_FROM_INTEGERS[0]).to_string();
        let mut rows = Vec::new();
        for (bits, folder, options, file, floor) in [
            ("int8, llama.cpp in Q8_0", &folder, &["--int8"][..], &q8_0, 0.0),
            ("Q4_0", &four_bits, &[], &q4_0, 1.0),
        ] {
            let work = format!("Llama, {layers} layers, greedy, {bits}");
            eprintln!("{work}");
            let arguments = ["llama.cpp", &path_text(file)?, "--new", &new, "--prompt", PROMPT];
            let [ours, theirs] = self.tokens(folder, options, NEW_FROM_INTEGERS, &arguments)?;
            rows.push(Row { work, ours: ours.unwrap_or(f64::NAN), peer: "llama.cpp", theirs, floor });
        }
        Ok(format!(
            "A token of a continuation from integers, without loading:\n\n{}\n\nFrom 4 bits, ours is {:.2} × as fast as from 8, \
             where 1.3 × is wanted.",
            beside(&rows, "tokens/s", |ms| 1e3 / ms),
            rows[0].ours / rows[1].ours
        ))
    }

    /// Runs the program on a model, into a place.
    fn cloze(&self, arguments: &[&str], model: &Path, out: &Path) -> Result<()> {
        let mut command = Command::new(&self.ours.program);
        measure::output(command.args(arguments).arg(model).arg("--out").arg(out)).map(drop)
    }

    /// The milliseconds of a further token, by the program and by the peer with these arguments: medians of the rounds.
    fn tokens(
        &self,
        folder: &Path,
        options: &[&str],
        new: [u32; 2],
        arguments: &[&str],
    ) -> Result<[Option<f64>; 2]> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            let [short, long] =
                [self.generate(folder, options, new[0])?, self.generate(folder, options, new[1])?];
            ours.push((long - short) / f64::from(new[1] - new[0]));
            if let Some(mut peer) = self.peer(arguments) {
                theirs.push(measure::value(&mut peer, "ms")?);
            }
        }
        Ok([ours, theirs].map(|times| measure::median(times.into_iter())))
    }

    /// The milliseconds of the program that continues the prompt by this many tokens.
    fn generate(&self, folder: &Path, options: &[&str], new: u32) -> Result<f64> {
        let mut command = Command::new(&self.ours.program);
        command.env("RAYON_NUM_THREADS", THREADS).arg("generate").arg("--model").arg(folder);
        command.args(["--max-new", &new.to_string()]).args(options).arg(PROMPT);
        let (input, output) = (self.place.join("nothing.txt"), self.place.join("continued.txt"));
        fs::write(&input, "").with_context(|| format!("cannot write {}", input.display()))?;
        measure::process(&mut command, &input, &output)
    }

    /// nanoGPT's configuration, both sides to their end.
    fn training(&self) -> Result<String> {
        let folder = self.place.join("shakespeare");
        let steps = if self.args.quick { 100 } else { 2_000 };
        let text = path_text(&step::root().join("../shared/data/corpus/tinyshakespeare.txt"))?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let (mut our_loss, mut their_loss) = (f64::NAN, None);
        for round in 1..=self.rounds {
            eprintln!("{NANO}, {steps} steps, round {round} of {}", self.rounds);
            remove(&folder)?;
            let mut command = Command::new(&self.ours.program);
            command.current_dir(step::root()).env("RAYON_NUM_THREADS", THREADS);
            command.args(["train", NANO, "--out"]).arg(&folder);
            command.args(["--set", &format!("train.steps={steps}"), "--set", &format!("eval.every={steps}")]);
            measure::output(&mut command)?;
            let found = records::read(&folder)?;
            let made = records::steps(&found)?;
            ours.push(made.seconds / made.steps as f64 * 1e3);
            let last = records::evaluations(&found, "heldout").into_iter().next_back();
            our_loss = last.and_then(|figures| figures["figures"]["loss"].as_f64()).unwrap_or(f64::NAN);
            if let Some(python) = &self.python {
                let mut peer = measure::peer(python, "nanogpt.py", &[&text, "--steps", &steps.to_string()]);
                let line = measure::last_line(peer.env("OMP_NUM_THREADS", THREADS))?;
                let line: serde_json::Value = serde_json::from_str(&line)?;
                theirs.push(line["ms"].as_f64().context("the peer printed no time")?);
                their_loss = line["held_out_loss"].as_f64();
            }
        }
        let row = Row {
            work: format!("4 layers, width 128, 12 × 64, {steps} steps"),
            ours: measure::median(ours.into_iter()).unwrap_or(f64::NAN),
            peer: "PyTorch",
            theirs: measure::median(theirs.into_iter()),
            floor: 2.0,
        };
        let shown = their_loss.map_or("–".into(), |loss| format!("{loss:.3}"));
        Ok(format!(
            "Characters of tiny Shakespeare by nanoGPT's configuration for a CPU, a step:\n\n{}\n\nHeld-out loss, in nats a \
             character: ours {our_loss:.3}, PyTorch {shown}.",
            beside(&[row], "tokens/s", |ms| 768.0 / ms * 1e3)
        ))
    }
}

/// Both sides' times, rates and their ratio.
fn beside(rows: &[Row], unit: &str, rate: impl Fn(f64) -> f64) -> String {
    let peers_unit = format!("its {unit}");
    let header = ["work", "ours, ms", unit, "peer", "its ms", &peers_unit, "ratio", "at least"];
    report::table(
        header,
        rows.iter().map(|row| {
            let theirs = |of: &dyn Fn(f64) -> String| row.theirs.map_or("–".into(), of);
            [
                row.work.clone(),
                report::short(row.ours),
                report::short(rate(row.ours)),
                row.peer.to_owned(),
                theirs(&report::short),
                theirs(&|ms| report::short(rate(ms))),
                theirs(&|ms| format!("{:.2} ×", ms / row.ours)),
                if row.floor > 0.0 { format!("{} ×", row.floor) } else { "–".into() },
            ]
        }),
    )
}

/// Bytes a second that two threads read from memory: the fastest of a few passes over more than any cache holds.
fn bandwidth() -> f64 {
    const WORDS: usize = 1 << 26;
    let memory: Vec<u64> = (0..WORDS as u64).collect();
    let pass = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for half in memory.chunks(WORDS / 2) {
                scope.spawn(move || black_box(half.iter().fold(0u64, |sum, word| sum ^ word)));
            }
        });
        (WORDS * 8) as f64 / start.elapsed().as_secs_f64()
    };
    (0..5).map(|_| pass()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_stand_beside_one_another() {
        let row = |theirs, floor| Row { work: "a".into(), ours: 500.0, peer: "b", theirs, floor };
        let table = beside(&[row(Some(1_750.0), 3.0), row(None, 0.0)], "sentences/s", |ms| 1e6 / ms);
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
        assert_eq!(lines[0][5], "its sentences/s");
        assert_eq!(lines[2], ["a", "500", "2,000", "b", "1,750", "571", "3.50 ×", "3 ×"]);
        assert_eq!(lines[3][4..], ["–", "–", "–", "–"]);
    }
}
