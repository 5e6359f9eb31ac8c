//! Sentence encoders trained beside sentence-transformers: how good, and how long.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::finetune::table::Spread;
use super::kept::{Kept, Key, target};
use super::{measure, records, report};
use crate::{program, step};

/// The configs in `configs/` that are trained.
const CONFIGS: [&str; 5] =
    ["simcse-sick", "sick-in-batch", "sick-cosent", "sick-softmax", "sts2015-embedding"];

/// The figure that is compared, on the test data.
const FIGURE: &str = "spearman";

/// Both sides get as many, whatever the machine has.
const THREADS: &str = "2";

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Trained {
    /// Of the test data.
    figure: f64,
    /// Of the whole process.
    seconds: f64,
}

/// Runs of both sides, and the figure that they start from.
struct Row {
    config: &'static str,
    start: f64,
    ours: Vec<Trained>,
    theirs: Vec<Trained>,
}

/// Which runs, and how.
pub struct Wanted<'a> {
    pub seeds: &'a [u64],
    /// Beginnings of configs' names; all where there is none.
    pub configs: &'a [String],
    /// Train anew what is kept.
    pub again: bool,
    pub write: bool,
}

struct Bench {
    program: PathBuf,
    version: String,
    /// The Python and its versions.
    peer: Option<(OsString, String)>,
    kept: Kept,
    again: bool,
}

pub fn run(wanted: &Wanted<'_>) -> Result<()> {
    let configs = chosen(wanted.configs)?;
    let python = measure::python();
    let program = program::build(None)?;
    let said = |command: &mut Command| Ok::<_, anyhow::Error>(measure::output(command)?.trim().to_owned());
    let versions = "import torch, transformers, sentence_transformers as s; \
                    print(torch.__version__, transformers.__version__, s.__version__)";
    let peer = |python: &OsString| {
        let version = said(Command::new(python).args(["-c", versions]))?;
        Ok::<_, anyhow::Error>((python.clone(), version))
    };
    let bench = Bench {
        version: said(Command::new(&program).arg("--version"))?,
        program,
        peer: python.as_ref().map(peer).transpose()?,
        kept: Kept::open(target().join("embeddings-bench"))?,
        again: wanted.again,
    };
    let rows = configs.into_iter().map(|config| bench.row(config, wanted.seeds));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let text =
        text(&rows, &report::machine(python.as_ref()), bench.peer.as_ref().map(|(_, version)| version));
    println!("{text}");
    if wanted.write { report::write_class("embedding-training", &text) } else { Ok(()) }
}

/// The configs whose names begin so.
fn chosen(names: &[String]) -> Result<Vec<&'static str>> {
    let is_wanted =
        |config: &&str| names.is_empty() || names.iter().any(|name| config.starts_with(name.as_str()));
    let found: Vec<&str> = CONFIGS.iter().copied().filter(is_wanted).collect();
    let unknown = names.iter().find(|name| !CONFIGS.iter().any(|config| config.starts_with(name.as_str())));
    match unknown {
        Some(name) => bail!("no config {name:?}; there are {}", CONFIGS.join(", ")),
        None => Ok(found),
    }
}

fn path(config: &str) -> PathBuf {
    step::root().join("configs").join(config).with_extension("toml")
}

impl Bench {
    /// Trains what is not kept of a config, the sides one after the other for each seed.
    fn row(&self, config: &'static str, seeds: &[u64]) -> Result<Row> {
        let text = fs::read_to_string(path(config)).with_context(|| format!("cannot read {config}.toml"))?;
        let start = self.start(config, &text)?;
        let mut row = Row { config, start, ours: Vec::new(), theirs: Vec::new() };
        for &seed in seeds {
            let key = Key::new(config, "ours", seed, &text, &[], &self.version);
            row.ours.push(self.kept_or(&key, || self.ours(config, seed, &self.kept.scratch(&key)))?);
            if let Some((python, version)) = &self.peer {
                let key = Key::new(config, "theirs", seed, &text, &[], version);
                row.theirs.push(self.kept_or(&key, || theirs(python, config, seed))?);
            }
        }
        Ok(row)
    }

    /// A run as it is kept, or anew.
    fn kept_or(&self, key: &Key, train: impl FnOnce() -> Result<Trained>) -> Result<Trained> {
        if let Some(kept) = self.kept.read::<Trained>(key)?.filter(|_| !self.again) {
            return Ok(kept);
        }
        eprintln!("{key} …");
        let trained = train()?;
        eprintln!("{key}: {FIGURE} {:.4}, {:.0} s", trained.figure, trained.seconds);
        self.kept.write(key, &trained)?;
        Ok(trained)
    }

    /// The figure of the checkpoint that a config begins with.
    fn start(&self, config: &str, text: &str) -> Result<f64> {
        let key = Key::new(config, "start", 0, text, &[], &self.version);
        let measured = self.kept_or(&key, || {
            let mut command = Command::new(&self.program);
            command.current_dir(step::root()).args(measuring(text)?);
            let (line, seconds) = timed(&mut command, measure::last_line)?;
            let printed: Value = serde_json::from_str(&line)?;
            let figure = printed["figures"]["spearman_cosine"].as_f64();
            Ok(Trained { figure: figure.with_context(|| format!("{command:?} printed no figure"))?, seconds })
        })?;
        Ok(measured.figure)
    }

    fn ours(&self, config: &str, seed: u64, scratch: &Path) -> Result<Trained> {
        let clear = || match scratch.exists() {
            true => {
                fs::remove_dir_all(scratch).with_context(|| format!("cannot remove {}", scratch.display()))
            }
            false => Ok(()),
        };
        // One that was interrupted begins anew: the time of the whole process is wanted.
        clear()?;
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).env("RAYON_NUM_THREADS", THREADS);
        command.arg("train").arg(path(config)).arg("--out").arg(scratch);
        command.args(["--set", &format!("run.seed={seed}"), "--set", "checkpoint.keep_last=1"]);
        let (_, seconds) = timed(&mut command, measure::output)?;
        let records = records::read(scratch)?;
        let evaluations = records::evaluations(&records, "test");
        let figure = evaluations.last().and_then(|last| last["figures"][FIGURE].as_f64());
        let figure = figure.with_context(|| format!("{config}: the run has no {FIGURE} of test data"))?;
        clear()?;
        Ok(Trained { figure, seconds })
    }
}

fn theirs(python: &OsString, config: &str, seed: u64) -> Result<Trained> {
    let config = path(config).to_string_lossy().into_owned();
    let mut command = measure::peer(python, "train_embeddings.py", &[&config, &seed.to_string()]);
    command.current_dir(step::root()).env("OMP_NUM_THREADS", THREADS);
    command.env("TOKENIZERS_PARALLELISM", "false").env("PYTHONDONTWRITEBYTECODE", "1");
    let (line, seconds) = timed(&mut command, measure::last_line)?;
    let printed: Value = serde_json::from_str(&line)?;
    let figure = printed["figures"][FIGURE].as_f64();
    Ok(Trained { figure: figure.with_context(|| format!("{command:?} printed no {FIGURE}"))?, seconds })
}

/// What a command prints, and the seconds that it takes.
fn timed(command: &mut Command, run: impl FnOnce(&mut Command) -> Result<String>) -> Result<(String, f64)> {
    let start = Instant::now();
    let printed = run(command)?;
    Ok((printed, start.elapsed().as_secs_f64()))
}

/// The arguments that measure a config's checkpoint on its test data.
fn measuring(config: &str) -> Result<Vec<String>> {
    let config: toml::Table = config.parse()?;
    let model = config.get("model").and_then(|model| model.get("path")).and_then(toml::Value::as_str);
    let data = config.get("data").context("no [data]")?;
    let file = data.get("test").and_then(|test| test.get(0)).and_then(toml::Value::as_str);
    let train = data.get("train").context("no data.train")?;
    let columns = train.get("columns").and_then(toml::Value::as_table).context("no data.train.columns")?;
    let mut args: Vec<String> = ["eval-embeddings", "sts", "--json", "--model"].map(str::to_owned).to_vec();
    args.push(model.context("no model.path")?.to_owned());
    let column = |field: &str| {
        let column = columns.get(field).with_context(|| format!("no column for {field}"))?;
        // Names stand in quotation marks in TOML, numbers do not.
        let name = column.as_str().map_or_else(|| column.to_string(), str::to_owned);
        Ok::<_, anyhow::Error>(format!("{field}={name}"))
    };
    let all = ["text", "pair", "label"].map(column).into_iter().collect::<Result<Vec<_>>>()?;
    args.extend(["--columns".to_owned(), all.join(",")]);
    if train.get("header").and_then(toml::Value::as_bool) == Some(false) {
        args.push("--no-header".to_owned());
    }
    if train.get("on_bad_row").and_then(toml::Value::as_str) == Some("skip") {
        args.extend(["--on-bad-row", "skip"].map(str::to_owned));
    }
    args.push(file.context("no data.test")?.to_owned());
    Ok(args)
}

/// The table and what it says.
fn text(rows: &[Row], machine: &str, versions: Option<&String>) -> String {
    let header = ["config", "seeds", "start", "ours", "theirs", "ours, s", "theirs, s", "ratio"];
    let line = |Row { config, start, ours, theirs }: &Row| {
        let spread = |runs: &[Trained]| Spread::of(runs.iter().map(|run| &run.figure)).shown();
        let seconds = |runs: &[Trained]| measure::median(runs.iter().map(|run| run.seconds));
        let (our_time, their_time) = (seconds(ours), seconds(theirs));
        let shown = |seconds: Option<f64>| seconds.map_or("–".to_owned(), report::short);
        let ratio = our_time.zip(their_time).map(|(ours, theirs)| format!("{:.2} ×", theirs / ours));
        [
            (*config).to_owned(),
            ours.len().to_string(),
            format!("{start:.4}"),
            spread(ours),
            spread(theirs),
            shown(our_time),
            shown(their_time),
            ratio.unwrap_or_else(|| "–".to_owned()),
        ]
    };
    let versions =
        versions.map(|versions| format!("; torch, transformers, sentence-transformers {versions}"));
    format!(
        "{}\n\nSpearman's correlation of cosines with people's scores, on the test data: of the checkpoint, and means ± standard \
         deviations over the seeds. Seconds are those of the whole process, training and measuring, medians of alternating runs \
         with {THREADS} threads. {machine}{}.",
        report::table(header, rows.iter().map(line)),
        versions.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_config_is_there_and_can_be_measured() {
        for config in CONFIGS {
            let args = measuring(&fs::read_to_string(path(config)).unwrap()).unwrap();
            assert_eq!(args[..4], ["eval-embeddings", "sts", "--json", "--model"]);
            assert!(args.last().unwrap().ends_with("test.tsv"), "{args:?}");
        }
        let numbered = measuring(&fs::read_to_string(path("sts2015-embedding")).unwrap()).unwrap();
        assert!(numbered.contains(&"text=2,pair=3,label=1".to_owned()), "{numbered:?}");
        assert!(["--no-header", "skip"].iter().all(|arg| numbered.contains(&(*arg).to_owned())));
        let named = measuring(&fs::read_to_string(path("sick-cosent")).unwrap()).unwrap();
        assert!(
            named.contains(&"text=sentence_A,pair=sentence_B,label=relatedness_score".to_owned()),
            "{named:?}"
        );
        assert_eq!(chosen(&[]).unwrap(), CONFIGS);
        assert_eq!(chosen(&["sick".into()]).unwrap().len(), 3);
        assert!(chosen(&["sick".into(), "snli".into()]).is_err());
    }

    #[test]
    fn sides_stand_beside_one_another() {
        let runs = |all: &[(f64, f64)]| {
            all.iter().map(|(figure, seconds)| Trained { figure: *figure, seconds: *seconds }).collect()
        };
        let row = |theirs: &[(f64, f64)]| Row {
            config: "sick-cosent",
            start: 0.7715,
            ours: runs(&[(0.80, 20.0), (0.82, 40.0)]),
            theirs: runs(theirs),
        };
        let text = text(&[row(&[(0.81, 90.0)]), row(&[])], "A machine", None);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("sick-cosent")).collect();
        for shown in ["0.7715", "0.8100 ± 0.0141", "0.8100", "30.0", "90.0", "3.00 ×"] {
            assert!(lines[0].contains(shown), "{shown} in {}", lines[0]);
        }
        assert!(lines[1].contains('–'), "{}", lines[1]);
    }
}
