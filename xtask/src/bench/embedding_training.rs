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

/// A training that both sides make.
struct Training {
    /// In the table; that of its config, where nothing is set.
    name: &'static str,
    /// In `configs/`.
    config: &'static str,
    sets: &'static [&'static str],
}

const fn config(name: &'static str) -> Training {
    Training { name, config: name, sets: &[] }
}

const TRAININGS: [Training; 6] = [
    config("simcse-sick"),
    config("sick-in-batch"),
    config("sick-cosent"),
    config("sick-softmax"),
    Training {
        name: "simcse-sts2015",
        config: "sts2015-embedding",
        sets: &[
            "task.loss={ kind = \"simcse\", temperature = 0.05 }",
            "train.epochs=1",
            "train.batch_size=64",
            "schedule.warmup_steps=10",
        ],
    },
    config("sts2015-embedding"),
];

/// A checkpoint that the trainings begin with.
struct Checkpoint {
    name: &'static str,
    /// Its folder, the config's own where there is none.
    folder: Option<&'static str>,
    sets: &'static [&'static str],
    /// How it is made, where it is not of the shared models.
    made_by: &'static str,
}

const CHECKPOINTS: [Checkpoint; 2] = [
    Checkpoint { name: "all-MiniLM-L6-v2", folder: None, sets: &[], made_by: "" },
    Checkpoint {
        name: "BERT-mini",
        folder: Some("runs/bert-mini-corpus/model"),
        // It is smaller, has learnt from masked tokens alone, and was pretrained without dropout.
        sets: &["optimizer.lr=2e-4", "model.dropout.hidden=0.1", "model.dropout.attention=0.1"],
        made_by: "cloze train configs/bert-mini-corpus.toml --set 'train.precision=\"bf16\"'",
    },
];

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
    checkpoint: &'static str,
    training: &'static str,
    start: f64,
    ours: Vec<Trained>,
    theirs: Vec<Trained>,
}

/// Which runs, and how.
pub struct Wanted<'a> {
    pub seeds: &'a [u64],
    /// Beginnings of trainings' names; all where there is none.
    pub trainings: &'a [String],
    /// Beginnings of checkpoints' names; all where there is none.
    pub from: &'a [String],
    pub which: Which,
    pub write: bool,
}

/// Which runs are made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that are not kept.
    Missing,
    /// All.
    Anew,
    /// None: those that are kept are shown.
    Kept,
}

struct Bench {
    program: PathBuf,
    version: String,
    /// The Python and its versions.
    peer: Option<(OsString, String)>,
    kept: Kept,
    which: Which,
}

pub fn run(wanted: &Wanted<'_>) -> Result<()> {
    let trainings = chosen("training", &TRAININGS, |training| training.name, wanted.trainings)?;
    let checkpoints = chosen("checkpoint", &CHECKPOINTS, |checkpoint| checkpoint.name, wanted.from)?;
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
        which: wanted.which,
    };
    let mut rows = Vec::new();
    for checkpoint in checkpoints {
        let Some(start) = Start::of(checkpoint)? else {
            eprintln!("without {}, which `{}` makes", checkpoint.name, checkpoint.made_by);
            continue;
        };
        for training in &trainings {
            rows.extend(bench.row(&start, training, wanted.seeds)?);
        }
    }
    if rows.is_empty() {
        bail!("no run is kept: without --kept they are made");
    }
    let text =
        text(&rows, &report::machine(python.as_ref()), bench.peer.as_ref().map(|(_, version)| version));
    println!("{text}");
    if wanted.write { report::write_class("embedding-training", &text) } else { Ok(()) }
}

/// Those whose names begin so.
fn chosen<T>(
    what: &str,
    all: &'static [T],
    name_of: fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<&'static T>> {
    let begins = |one: &T, name: &String| name_of(one).starts_with(name.as_str());
    if let Some(name) = names.iter().find(|name| !all.iter().any(|one| begins(one, name))) {
        let all: Vec<&str> = all.iter().map(name_of).collect();
        bail!("no {what} {name:?}; there are {}", all.join(", "));
    }
    Ok(all.iter().filter(|one| names.is_empty() || names.iter().any(|name| begins(one, name))).collect())
}

fn path(config: &str) -> PathBuf {
    step::root().join("configs").join(config).with_extension("toml")
}

/// A checkpoint as the runs need it.
struct Start {
    checkpoint: &'static Checkpoint,
    /// What is set in the configs for it.
    sets: Vec<String>,
    /// A hash of its weights, where the config does not name them.
    hash: Option<String>,
}

impl Start {
    /// `None` where it was not made yet.
    fn of(checkpoint: &'static Checkpoint) -> Result<Option<Self>> {
        let mut sets: Vec<String> = checkpoint.sets.iter().map(|set| (*set).to_owned()).collect();
        let Some(folder) = checkpoint.folder else { return Ok(Some(Self { checkpoint, sets, hash: None })) };
        let weights = step::root().join(folder).join("model.safetensors");
        if !weights.exists() {
            return Ok(None);
        }
        let bytes = fs::read(&weights).with_context(|| format!("cannot read {}", weights.display()))?;
        sets.push(format!("model.path={folder:?}"));
        Ok(Some(Self { checkpoint, sets, hash: Some(blake3::hash(&bytes).to_hex().to_string()) }))
    }

    /// What is set in a training's config. The checkpoint's own come last, as they know it better.
    fn sets<'a>(&'a self, training: &'a Training) -> Vec<&'a str> {
        training.sets.iter().copied().chain(self.sets.iter().map(String::as_str)).collect()
    }
}

/// A training from a checkpoint, and all that decides about it.
struct Run<'a> {
    training: &'static Training,
    /// Of its config.
    text: String,
    sets: Vec<&'a str>,
    hash: Option<&'a str>,
}

impl<'a> Run<'a> {
    fn new(start: &'a Start, training: &'static Training) -> Result<Self> {
        let config = path(training.config);
        let text =
            fs::read_to_string(&config).with_context(|| format!("cannot read {}", config.display()))?;
        Ok(Self { training, text, sets: start.sets(training), hash: start.hash.as_deref() })
    }

    fn key(&self, side: &str, seed: u64, version: &str) -> Key {
        let sets: Vec<&str> = self.sets.iter().copied().chain(self.hash).collect();
        Key::new(self.training.name, side, seed, &self.text, &sets, version)
    }

    /// The arguments that set it.
    fn args(&self) -> impl Iterator<Item = &'a str> {
        self.sets.iter().flat_map(|set| ["--set", *set])
    }
}

impl Bench {
    /// Makes the runs of a training, the sides one after the other for each seed; none where nothing is kept of it and
    /// nothing is to be trained.
    fn row(&self, start: &Start, training: &'static Training, seeds: &[u64]) -> Result<Option<Row>> {
        let run = Run::new(start, training)?;
        let Some(figure) = self.start(start, &run)? else { return Ok(None) };
        let (checkpoint, training) = (start.checkpoint.name, training.name);
        let mut row = Row { checkpoint, training, start: figure, ours: Vec::new(), theirs: Vec::new() };
        for &seed in seeds {
            let key = run.key("ours", seed, &self.version);
            row.ours.extend(self.made(&key, || self.ours(&run, seed, &self.kept.scratch(&key)))?);
            if let Some((python, version)) = &self.peer {
                let key = run.key("theirs", seed, version);
                row.theirs.extend(self.made(&key, || theirs(python, &run, seed))?);
            }
        }
        Ok(Some(row).filter(|row| !row.ours.is_empty()))
    }

    /// A run as it is kept, or anew; none where it is not kept and nothing is to be trained.
    fn made(&self, key: &Key, train: impl FnOnce() -> Result<Trained>) -> Result<Option<Trained>> {
        let kept = self.kept.read::<Trained>(key)?.filter(|_| self.which != Which::Anew);
        if kept.is_some() || self.which == Which::Kept {
            return Ok(kept);
        }
        eprintln!("{key} …");
        let trained = train()?;
        eprintln!("{key}: {FIGURE} {:.4}, {:.0} s", trained.figure, trained.seconds);
        self.kept.write(key, &trained)?;
        Ok(Some(trained))
    }

    /// The figure of the checkpoint that a training begins with.
    fn start(&self, start: &Start, run: &Run<'_>) -> Result<Option<f64>> {
        let key = run.key("start", 0, &self.version);
        let measured = self.made(&key, || {
            let mut command = Command::new(&self.program);
            command.current_dir(step::root()).args(measuring(&run.text, start.checkpoint.folder)?);
            let (line, seconds) = timed(&mut command, measure::last_line)?;
            let printed: Value = serde_json::from_str(&line)?;
            let figure = printed["figures"]["spearman_cosine"].as_f64();
            Ok(Trained { figure: figure.with_context(|| format!("{command:?} printed no figure"))?, seconds })
        })?;
        Ok(measured.map(|measured| measured.figure))
    }

    fn ours(&self, run: &Run<'_>, seed: u64, scratch: &Path) -> Result<Trained> {
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
        command.arg("train").arg(path(run.training.config)).arg("--out").arg(scratch).args(run.args());
        command.args(["--set", &format!("run.seed={seed}"), "--set", "checkpoint.keep_last=1"]);
        let (_, seconds) = timed(&mut command, measure::output)?;
        let records = records::read(scratch)?;
        let evaluations = records::evaluations(&records, "test");
        let figure = evaluations.last().and_then(|last| last["figures"][FIGURE].as_f64());
        let figure =
            figure.with_context(|| format!("{}: the run has no {FIGURE} of test data", run.training.name))?;
        clear()?;
        Ok(Trained { figure, seconds })
    }
}

fn theirs(python: &OsString, run: &Run<'_>, seed: u64) -> Result<Trained> {
    let config = path(run.training.config).to_string_lossy().into_owned();
    let mut command = measure::peer(python, "train_embeddings.py", &[&config, &seed.to_string()]);
    command.args(run.args()).current_dir(step::root()).env("OMP_NUM_THREADS", THREADS);
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

/// The arguments that measure a config's checkpoint, or the one in a folder, on the config's test data.
fn measuring(config: &str, folder: Option<&str>) -> Result<Vec<String>> {
    let config: toml::Table = config.parse()?;
    let model = || config.get("model")?.get("path")?.as_str();
    let data = config.get("data").context("no [data]")?;
    let file = data.get("test").and_then(|test| test.get(0)).and_then(toml::Value::as_str);
    let train = data.get("train").context("no data.train")?;
    let columns = train.get("columns").and_then(toml::Value::as_table).context("no data.train.columns")?;
    let mut args: Vec<String> = ["eval-embeddings", "sts", "--json", "--model"].map(str::to_owned).to_vec();
    args.push(folder.or_else(model).context("no model.path")?.to_owned());
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
        args.extend(["--on-bad-row", "skip", "--max-skipped", "1"].map(str::to_owned));
    }
    args.push(file.context("no data.test")?.to_owned());
    Ok(args)
}

/// The table and what it says.
fn text(rows: &[Row], machine: &str, versions: Option<&String>) -> String {
    let header = ["training", "from", "seeds", "start", "ours", "theirs", "ours, s", "theirs, s", "ratio"];
    let line = |Row { checkpoint, training, start, ours, theirs }: &Row| {
        let spread = |runs: &[Trained]| Spread::of(runs.iter().map(|run| &run.figure)).shown();
        let seconds = |runs: &[Trained]| measure::median(runs.iter().map(|run| run.seconds));
        let (our_time, their_time) = (seconds(ours), seconds(theirs));
        let shown = |seconds: Option<f64>| seconds.map_or("–".to_owned(), report::short);
        let ratio = our_time.zip(their_time).map(|(ours, theirs)| format!("{:.2} ×", theirs / ours));
        [
            (*training).to_owned(),
            (*checkpoint).to_owned(),
            ours.len().to_string(),
            format!("{start:.4}"),
            spread(ours),
            spread(theirs),
            shown(our_time),
            shown(their_time),
            ratio.unwrap_or_else(|| "–".to_owned()),
        ]
    };
    // The machine's line has those of the others.
    let version = versions.and_then(|versions| versions.split(' ').next_back());
    let version = version.map(|version| format!("; sentence-transformers {version}"));
    format!(
        "{}\n\nSpearman's correlation of cosines with people's scores, on the test data: of the checkpoint, and means ± standard \
         deviations over the seeds. Seconds are those of the whole process, training and measuring, medians of alternating runs \
         with {THREADS} threads. {machine}{}.",
        report::table(header, rows.iter().map(line)),
        version.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(config: &str) -> String {
        fs::read_to_string(path(config)).unwrap()
    }

    #[test]
    fn every_config_is_there_and_can_be_measured() {
        for training in &TRAININGS {
            let args = measuring(&text_of(training.config), None).unwrap();
            assert_eq!(args[..4], ["eval-embeddings", "sts", "--json", "--model"]);
            assert!(args[4].ends_with("all-MiniLM-L6-v2") && args.last().unwrap().ends_with("test.tsv"));
        }
        let numbered = measuring(&text_of("sts2015-embedding"), None).unwrap();
        assert!(numbered.contains(&"text=2,pair=3,label=1".to_owned()), "{numbered:?}");
        assert!(["--no-header", "skip"].iter().all(|arg| numbered.contains(&(*arg).to_owned())));
        let named = measuring(&text_of("sick-cosent"), Some("runs/mine/model")).unwrap();
        assert!(
            named.contains(&"text=sentence_A,pair=sentence_B,label=relatedness_score".to_owned()),
            "{named:?}"
        );
        assert_eq!(named[4], "runs/mine/model");
    }

    #[test]
    fn trainings_are_chosen_by_the_beginnings_of_their_names() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let chosen = chosen("training", &TRAININGS, |training| training.name, &names);
            chosen.map(|all| all.iter().map(|training| training.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), TRAININGS.len());
        assert_eq!(names(&["sick", "sts"]).unwrap().len(), 4);
        assert_eq!(names(&["simcse-sts"]).unwrap(), ["simcse-sts2015"]);
        assert!(names(&["sick", "snli"]).unwrap_err().to_string().starts_with("no training \"snli\""));
    }

    #[test]
    fn runs_from_other_weights_are_other_runs() {
        let start = |checkpoint: &'static Checkpoint, hash: Option<&str>| Start {
            checkpoint,
            sets: checkpoint.sets.iter().map(|set| (*set).to_owned()).collect(),
            hash: hash.map(str::to_owned),
        };
        let key = |start: &Start, training: &'static Training| {
            Run::new(start, training).unwrap().key("ours", 1, "0.1").to_string()
        };
        let [minilm, mini] = &CHECKPOINTS;
        let (first, second, other) = (start(mini, Some("a")), start(mini, Some("b")), start(minilm, None));
        let [.., unlabelled, scored] = &TRAININGS;
        let all =
            [key(&first, unlabelled), key(&second, unlabelled), key(&other, unlabelled), key(&first, scored)];
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|earlier| earlier != one), "{all:?}");
        }
        let run = Run::new(&first, unlabelled).unwrap();
        let args: Vec<&str> = run.args().collect();
        assert_eq!(args.len(), 2 * (unlabelled.sets.len() + mini.sets.len()));
        assert!(args.chunks(2).all(|pair| pair[0] == "--set"));
        // A run's key has no hash where the config names the weights.
        assert_eq!(
            key(&other, scored),
            Key::new(scored.name, "ours", 1, &text_of(scored.config), &[], "0.1").to_string()
        );
    }

    #[test]
    fn sides_stand_beside_one_another() {
        let runs = |all: &[(f64, f64)]| {
            all.iter().map(|(figure, seconds)| Trained { figure: *figure, seconds: *seconds }).collect()
        };
        let row = |theirs: &[(f64, f64)]| Row {
            checkpoint: "BERT-mini",
            training: "sick-cosent",
            start: 0.7715,
            ours: runs(&[(0.80, 20.0), (0.82, 40.0)]),
            theirs: runs(theirs),
        };
        let text = text(&[row(&[(0.81, 90.0)]), row(&[])], "A machine", None);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("sick-cosent")).collect();
        for shown in ["BERT-mini", "0.7715", "0.8100 ± 0.0141", "0.8100", "30.0", "90.0", "3.00 ×"] {
            assert!(lines[0].contains(shown), "{shown} in {}", lines[0]);
        }
        assert!(lines[1].contains('–'), "{}", lines[1]);
    }
}
