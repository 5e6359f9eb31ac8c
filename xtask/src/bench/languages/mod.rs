//! What translations add to several languages: encoders pretrained with them and without, fine-tuned on English alone and
//! asked in the other languages.

mod identification;
mod pieces;
mod tasks;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::identification::Identified;
use self::tasks::{Asked, Task};
use super::finetune::side::Side;
use super::finetune::table::Spread;
use super::kept::{Kept, Key, target};
use super::pretrained::scaled;
use super::{measure, records, report};
use crate::{program, step};

/// The config that is pretrained with.
const PRETRAINING: &str = "xlm-mini-multi30k";

/// How many first layers of its four are frozen.
const FROZEN: [u64; 5] = [0, 1, 2, 3, 4];

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

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Parts of speech.
    Speech,
    /// Dependency relations.
    Relations,
    /// Entities; needs `--conll2002`.
    Entities,
    /// Parts of speech with the embeddings and first layers frozen.
    Frozen,
    /// In which layers the language of a word can be told.
    Identification,
    /// Pieces that languages share with English.
    Pieces,
}

/// What is trained, and for how long.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each finished run is kept in target/languages-bench, and one that was interrupted goes on where it was. Needs Multi30k and
the treebanks that the configs name. A part in minutes:
  cargo xtask bench languages --only pieces,identification --steps 100 --set model.preset=tiny
Entities in Spanish and Dutch need the files esp.testb and ned.testb of CoNLL-2002 (nltk_data, packages/corpora/conll2002.zip).")]
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
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS", conflicts_with = "write")]
    only: Vec<Part>,
    /// More text to pretrain on, a file of a language such as de=help.txt; a language that the config does not have is added.
    /// May be repeated.
    #[arg(long, value_name = "LANGUAGE=FILE")]
    more_text: Vec<String>,
    /// The folder with CoNLL-2002.
    #[arg(long, value_name = "DIR")]
    conll2002: Option<PathBuf>,
    /// The folder with the treebanks and wikigold.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
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

/// The figure of a fine-tuned model in each language.
type Figures = BTreeMap<String, f64>;

struct Bench<'a> {
    program: PathBuf,
    version: String,
    kept: Kept,
    data: PathBuf,
    args: &'a Args,
}

pub fn run(args: &Args) -> Result<()> {
    if args.seeds.is_empty() || args.epochs == 0 || args.steps == Some(0) {
        bail!("expected a seed, an epoch and a step at least");
    }
    if args.only.contains(&Part::Entities) && args.conll2002.is_none() {
        bail!("entities need --conll2002 DIR, a folder with esp.testb and ned.testb");
    }
    let program = program::build(None)?;
    let version = Side::ours(program.clone())?.version().to_owned();
    let data = args.data.clone().unwrap_or_else(|| step::root().join("../shared/data"));
    let kept = Kept::open(target().join("languages-bench"))?;
    let bench = Bench { program, version, kept, data: std::path::absolute(data)?, args };
    let encoders = ROWS.iter().map(|row| bench.pretrain(row)).collect::<Result<Vec<_>>>()?;
    let mut measured = Measured { bench: &bench, encoders: &encoders, beside_pieces: Vec::new() };
    let mut parts = Vec::new();
    for part in <Part as clap::ValueEnum>::value_variants() {
        // Without being asked for, entities are measured where their files are.
        let is_wanted = args.only.is_empty() || args.only.contains(part);
        if is_wanted && (*part != Part::Entities || args.conll2002.is_some()) {
            parts.push(measured.part(*part)?);
        }
    }
    let more = match &args.more_text[..] {
        [] => String::new(),
        files => format!("More text: {}. ", files.join(", ")),
    };
    parts.push(format!("{more}{}.", report::machine(None)));
    let text = parts.join("\n\n");
    println!("{text}");
    if args.write { report::write_class("languages", &text) } else { Ok(()) }
}

/// The parts of the table, in their order.
struct Measured<'a> {
    bench: &'a Bench<'a>,
    encoders: &'a [(Key, Pretrained)],
    /// The runs with translations of parts that were measured before, by their names.
    beside_pieces: Vec<(&'static str, Vec<Figures>)>,
}

impl Measured<'_> {
    fn part(&mut self, part: Part) -> Result<String> {
        match part {
            Part::Speech => self.speech(),
            Part::Relations => self.relations(),
            Part::Entities => self.entities(),
            Part::Frozen => self.frozen(),
            Part::Identification => self.identification(),
            Part::Pieces => self.pieces(),
        }
    }

    /// The encoder with translations.
    fn last(&self) -> (&Key, &'static Row) {
        let last = ROWS.len() - 1;
        (&self.encoders[last].0, &ROWS[last])
    }

    fn speech(&mut self) -> Result<String> {
        let Args { precision, epochs, seeds, .. } = self.bench.args;
        let task = Task::parts_of_speech(&self.bench.data);
        let runs = self.bench.over_rows(self.encoders, &task)?;
        let text = format!(
            "{}\n\nPretrained on English, German and French captions, {precision}, then fine-tuned for parts of speech on {epochs} \
             epochs of the English treebank with {}: accuracy of words on the test data, means ± standard deviations. No \
             German or French sentence has a tag in training.",
            of_rows(&task, Some(self.encoders), &runs),
            report::seeds(seeds.len()),
        );
        self.beside_pieces.push(("parts of speech", best(runs)));
        Ok(text)
    }

    fn relations(&mut self) -> Result<String> {
        let task = Task::relations(&self.bench.data, &written())?;
        let runs = self.bench.over_rows(self.encoders, &task)?;
        let text = format!("The same with dependency relations:\n\n{}", of_rows(&task, None, &runs));
        self.beside_pieces.push(("relations", best(runs)));
        Ok(text)
    }

    fn entities(&self) -> Result<String> {
        let conll = self.bench.args.conll2002.as_ref().context("entities need --conll2002 DIR")?;
        let task = Task::entities(&self.bench.data, conll, &written())?;
        let runs = self.bench.over_rows(self.encoders, &task)?;
        Ok(format!(
            "Entities of wikigold, F1; English is the tenth that is held out, by which the epoch is chosen:\n\n{}",
            of_rows(&task, None, &runs)
        ))
    }

    fn frozen(&self) -> Result<String> {
        let (key, row) = self.last();
        let task = Task::parts_of_speech(&self.bench.data);
        let mut rows = Vec::new();
        for frozen in [None].into_iter().chain(FROZEN.map(Some)) {
            let name = frozen.map_or("nothing".into(), |layers| match layers {
                0 => "embeddings".to_owned(),
                _ => format!("embeddings, {layers} layers"),
            });
            let runs = self.bench.over_seeds(key, row, &task, frozen)?;
            rows.push([name].into_iter().chain(spreads(&task, &runs)).collect::<Vec<_>>());
        }
        let table = with_languages("frozen", &task, rows);
        Ok(format!("Parts of speech after {}, with frozen parameters:\n\n{table}", row.name))
    }

    fn identification(&self) -> Result<String> {
        let trained = self.encoders.iter().zip(&ROWS).filter(|(_, row)| !row.untrained);
        let identified = trained.map(|((key, _), row)| Ok((row.name, self.bench.identify(key)?)));
        Ok(format!(
            "The language of a word by a linear probe on each layer: accuracy on unseen sentences, and by how much it exceeds that of a \
             control task:\n\n{}",
            identification::table(&identified.collect::<Result<Vec<_>>>()?)
        ))
    }

    fn pieces(&self) -> Result<String> {
        let (key, row) = self.last();
        let bench = self.bench;
        let treebank = |name: &str| bench.data.join(name).with_extension("conllu");
        let (english, others) = (treebank("ud-ewt/train"), [treebank("ud-de/test"), treebank("ud-fr/test")]);
        let tokenizer = bench.kept.scratch(key).join("model");
        let shares = pieces::shared(&bench.program, &tokenizer, &english, &others, &written())?;
        let columns = self.beside_pieces.iter().map(|(name, _)| *name);
        let rows = ["German", "French"].into_iter().zip(shares).map(|(language, share)| {
            let figures = self.beside_pieces.iter().map(|(_, runs)| spread(language, runs));
            let facts = [language.to_owned(), format!("{:.1} %", 100.0 * share)];
            facts.into_iter().chain(figures).collect::<Vec<_>>()
        });
        Ok(format!(
            "Pieces of the test's words that occur in the English training data, beside the figures of {}:\n\n{}",
            row.name,
            report::table(["language", "shared pieces"].into_iter().chain(columns), rows)
        ))
    }
}

/// Where treebanks and texts are written that files are converted to.
fn written() -> PathBuf {
    target().join("languages-bench/data")
}

/// The runs of the last row, with translations.
fn best(mut runs: Vec<Vec<Figures>>) -> Vec<Figures> {
    runs.pop().unwrap_or_default()
}

/// The rows of [`ROWS`], with what their pretraining took if it is given.
fn of_rows(task: &Task, encoders: Option<&[(Key, Pretrained)]>, runs: &[Vec<Figures>]) -> String {
    let facts = |place: usize| encoders.map(|all| facts(&ROWS[place], &all[place].1)).into_iter().flatten();
    let row = |(place, runs): (usize, &Vec<Figures>)| {
        let name = [ROWS[place].name.to_owned()];
        name.into_iter().chain(facts(place)).chain(spreads(task, runs)).collect::<Vec<_>>()
    };
    let rows = runs.iter().enumerate().map(row).collect();
    match encoders {
        None => with_languages("pretraining", task, rows),
        Some(_) => {
            let header = ["pretraining", "steps", "M tokens", "min", "held out"].into_iter();
            report::table(header.chain(task.languages.iter().map(|(name, _)| &**name)), rows)
        }
    }
}

fn with_languages(first: &str, task: &Task, rows: Vec<Vec<String>>) -> String {
    report::table([first].into_iter().chain(task.languages.iter().map(|(name, _)| &**name)), rows)
}

fn spreads(task: &Task, runs: &[Figures]) -> Vec<String> {
    task.languages.iter().map(|(language, _)| spread(language, runs)).collect()
}

fn spread(language: &str, runs: &[Figures]) -> String {
    Spread::of(runs.iter().filter_map(|run| run.get(language))).shown()
}

/// What pretraining took.
fn facts(row: &Row, pretrained: &Pretrained) -> [String; 4] {
    let Pretrained { steps, tokens, seconds, loss } = *pretrained;
    let facts = [
        report::count(steps),
        report::short(tokens / 1e6),
        report::short(seconds / 60.0),
        format!("{loss:.3}"),
    ];
    if row.untrained { std::array::from_fn(|_| "–".to_owned()) } else { facts }
}

/// The languages of a pretraining's config with more files, as it is set.
fn with_more_text(config: &str, more: &[String]) -> Result<Vec<String>> {
    let table: toml::Table = config.parse()?;
    let languages = table.get("corpus").and_then(|corpus| corpus.get("languages"));
    let mut languages: Vec<(String, Vec<String>)> = languages
        .and_then(toml::Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|language| {
            let files = language.get("files")?.as_array()?.iter();
            let files = files.filter_map(|file| Some(file.as_str()?.to_owned())).collect();
            Some((language.get("name")?.as_str()?.to_owned(), files))
        })
        .collect();
    for text in more {
        let Some((name, file)) = text.split_once('=') else {
            bail!("--more-text {text}; expected LANGUAGE=FILE");
        };
        let file = std::path::absolute(file)?.to_string_lossy().into_owned();
        match languages.iter_mut().find(|(known, _)| known == name) {
            Some((_, files)) => files.push(file),
            None => languages.push((name.to_owned(), vec![file])),
        }
    }
    let language =
        |(name, files): &(String, Vec<String>)| format!("{{ name = {name:?}, files = {files:?} }}");
    let all: Vec<String> = languages.iter().map(language).collect();
    Ok(if more.is_empty() { Vec::new() } else { vec![format!("corpus.languages=[{}]", all.join(", "))] })
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
        sets.extend(with_more_text(&text, &self.args.more_text)?);
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

    /// A task's runs of each row.
    fn over_rows(&self, encoders: &[(Key, Pretrained)], task: &Task) -> Result<Vec<Vec<Figures>>> {
        let rows = encoders.iter().zip(&ROWS);
        rows.map(|((key, _), row)| self.over_seeds(key, row, task, None)).collect()
    }

    fn over_seeds(
        &self,
        pretrained: &Key,
        row: &Row,
        task: &Task,
        frozen: Option<u64>,
    ) -> Result<Vec<Figures>> {
        self.args.seeds.iter().map(|seed| self.fine_tune(pretrained, row, task, frozen, *seed)).collect()
    }

    /// Fine-tunes what is not kept, and asks it in every language.
    fn fine_tune(
        &self,
        pretrained: &Key,
        row: &Row,
        task: &Task,
        frozen: Option<u64>,
        seed: u64,
    ) -> Result<Figures> {
        let (path, text) = config(task.config)?;
        let mut sets = vec![
            format!("model.path={:?}", self.kept.scratch(pretrained).join("model")),
            format!("train.epochs={}", self.args.epochs),
            format!("run.seed={seed}"),
            // For a small model whose head is new.
            "optimizer.lr=5e-4".to_owned(),
            "model.dropout.hidden=0.2".to_owned(),
            "checkpoint.keep_last=1".to_owned(),
            format!("model.untrained={}", row.untrained),
        ];
        sets.extend(task.sets.iter().cloned());
        sets.extend(frozen.map(|layers| format!("model.freeze_layers={layers}")));
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let key = Key::new(task.config, &pretrained.to_string(), seed, &text, &sets, &self.version);
        if let Some(kept) = self.kept.read::<Figures>(&key)?.filter(|_| !self.args.again) {
            return Ok(kept);
        }
        eprintln!("{key} …");
        let folder = self.kept.scratch(&key);
        self.train(&path, &folder, &sets)?;
        let mut figures = Figures::new();
        for (language, asked) in &task.languages {
            figures.insert(language.clone(), self.ask(task, &path, &folder, asked)?);
        }
        eprintln!("{key}: {figures:?}");
        self.kept.write(&key, &figures)?;
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        Ok(figures)
    }

    /// A run's figure in a language.
    fn ask(&self, task: &Task, config: &Path, folder: &Path, asked: &Asked) -> Result<f64> {
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).arg("eval").arg(config).arg("--model").arg(folder.join("model"));
        command.args(["--split", "test", "--json"]).args(task.sets.iter().flat_map(|set| ["--set", set]));
        match asked {
            Asked::Config => {}
            Asked::File(file) => {
                command.args(["--set", &format!("data.test=[{file:?}]")]);
            }
            Asked::HeldOut => {
                let records = records::read(folder)?;
                let evaluations = records::evaluations(&records, "dev");
                let figures = evaluations.iter().filter_map(|all| all["figures"][task.figure].as_f64());
                return figures.reduce(f64::max).context("the run has no evaluation");
            }
        }
        let printed = measure::output(&mut command)?;
        figure(&printed, task.figure).with_context(|| format!("{command:?} printed no {}", task.figure))
    }

    /// What a probe tells of an encoder's languages, as it is kept or now.
    fn identify(&self, pretrained: &Key) -> Result<Identified> {
        let key = Key::new("identified", &pretrained.to_string(), 0, "", &[], &self.version);
        if let Some(kept) = self.kept.read::<Identified>(&key)?.filter(|_| !self.args.again) {
            return Ok(kept);
        }
        eprintln!("{key} …");
        let model = self.kept.scratch(pretrained).join("model");
        let identified = identification::probe(&self.program, &model, &self.data, &self.kept.scratch(&key))?;
        self.kept.write(&key, &identified)?;
        Ok(identified)
    }
}

/// A figure in what `cloze eval --json` prints.
fn figure(printed: &str, name: &str) -> Option<f64> {
    let figures: Value = serde_json::from_str(printed.trim()).ok()?;
    figures["figures"][name].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configs_are_there_and_can_be_shortened() {
        let (_, text) = config(PRETRAINING).unwrap();
        assert_eq!(scaled(&text, 10).unwrap()[0], "train.steps=10");
        assert!(text.contains("kind = \"translation-language-model\""));
        assert!(config("ud-ewt").unwrap().1.contains("scheme = \"words\""));
    }

    #[test]
    fn a_row_has_an_accuracy_for_each_language() {
        let pretrained = Pretrained { steps: 3000, tokens: 24.5e6, seconds: 1800.0, loss: 2.25 };
        let run = |de: f64| {
            let of = |name: &str, value| (name.to_owned(), value);
            Figures::from([of("English", 0.9), of("German", de), of("French", 0.5)])
        };
        let task = Task::parts_of_speech(Path::new("data"));
        let encoders = [(); 3].map(|()| (Key::new("", "", 0, "", &[], ""), pretrained.clone()));
        let runs = [vec![run(0.6)], vec![run(0.6), run(0.7)], Vec::new()];
        let cells = |text: &str, line: usize| -> Vec<String> {
            let line = text.lines().nth(line).unwrap().trim_matches('|');
            line.split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let text = of_rows(&task, Some(&encoders), &runs);
        assert_eq!(cells(&text, 2)[..6], ["none", "–", "–", "–", "–", "0.9000"]);
        let expected = [
            "MLM",
            "3,000",
            "24.5",
            "30.0",
            "2.250",
            "0.9000 ± 0.0000",
            "0.6500 ± 0.0707",
            "0.5000 ± 0.0000",
        ];
        assert_eq!(cells(&text, 3), expected);
        assert_eq!(cells(&text, 4)[5..], ["–", "–", "–"]);
        let text = of_rows(&task, None, &runs);
        assert_eq!(cells(&text, 0), ["pretraining", "English", "German", "French"]);
        assert_eq!(cells(&text, 2), ["none", "0.9000", "0.6000", "0.5000"]);
    }

    #[test]
    fn text_is_added_to_its_language() {
        let (_, text) = config(PRETRAINING).unwrap();
        let sets = |more: &[&str]| {
            let more: Vec<String> = more.iter().map(|one| (*one).to_owned()).collect();
            with_more_text(&text, &more)
        };
        assert!(sets(&[]).unwrap().is_empty() && sets(&["de"]).is_err());
        let set = sets(&["de=/tmp/help.de", "es=/tmp/help.es", "de=/tmp/more.de"]).unwrap().remove(0);
        let table: toml::Table = set.replacen("corpus.", "", 1).parse().unwrap();
        let languages = table["languages"].as_array().unwrap();
        let names: Vec<&str> = languages.iter().map(|language| language["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["en", "de", "fr", "es"]);
        assert_eq!(languages[1]["files"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn an_evaluation_prints_an_accuracy() {
        let printed = "{\"examples\":9,\"main\":\"accuracy\",\"figures\":{\"accuracy\":0.75,\"loss\":1.0}}\n";
        assert_eq!(figure(printed, "accuracy"), Some(0.75));
        assert_eq!(figure("{}", "accuracy"), None);
    }
}
