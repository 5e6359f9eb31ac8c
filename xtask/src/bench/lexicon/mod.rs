//! Vectors of words by layer: each word alone, or averaged over sentences that it occurs in (Vulić et al. 2020).

mod evaluations;
mod vectors;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::evaluations::{Evaluation, Figures};
use self::vectors::Vectors;
use super::kept::{Kept, Key, target};
use super::{measure, report};
use crate::{program, step};

/// What is measured.
#[derive(clap::Args)]
#[command(after_long_help = "\
All vectors and figures are kept in target/lexicon-bench, so that an interrupted benchmark continues, and another model is added
without computing the others again. The words are those of the tables that are asked for: with --only, there are fewer. A part in
a few minutes:
  cargo xtask bench lexicon --only similarity --special none --layers 0,3 --per-word 2 --contexts ../shared/data/corpus/sotu.txt")]
pub struct Args {
    /// A model, a folder in Hugging Face's format, with a name for the table; may be repeated.
    #[arg(
        long = "model",
        value_name = "NAME=DIR",
        default_value = "MiniLM=../shared/models/all-MiniLM-L6-v2"
    )]
    models: Vec<String>,
    /// Only these layers, such as 0,3: the rows of each alone and of the mean from 0 to each.
    #[arg(long, value_delimiter = ',', value_name = "LAYERS", conflicts_with = "write")]
    layers: Vec<u64>,
    /// Only these evaluations.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "EVALUATIONS", conflicts_with = "write")]
    only: Vec<Evaluation>,
    /// Without the special tokens around a text, with them, or both.
    #[arg(long, value_delimiter = ',', value_name = "SPECIAL", default_value = "none,all", value_parser = ["none", "all"])]
    special: Vec<String>,
    /// Sentences a word.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    per_word: u64,
    /// Text that sentences are drawn from, or JSON lines with `tokens`; may be repeated. [default: SemCor and the corpus]
    #[arg(long, value_name = "FILE")]
    contexts: Vec<PathBuf>,
    /// Splits of the words for relations, each of which trains a probe.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// The folder with words, xling, semcor and corpus.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Forget all that is kept, of every model, and compute it anew.
    #[arg(long)]
    again: bool,
    /// Put the tables into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// What a word is read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Alone,
    Contexts,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alone => "alone",
            Self::Contexts => "contexts",
        })
    }
}

/// Layers from the first to the last one, whose mean is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layers(u64, u64);

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(first, last) if first == last => write!(f, "{first}"),
            Self(first, last) => write!(f, "{first}–{last}"),
        }
    }
}

/// An encoder.
struct Model {
    name: String,
    folder: PathBuf,
    n_layers: u64,
    /// A hash of its weights.
    hash: String,
}

impl Model {
    /// Of `NAME=DIR`; a relative folder is that of the repository's root.
    fn open(text: &str) -> Result<Self> {
        let Some((name, folder)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            bail!("--model {text}; expected NAME=DIR");
        };
        let folder = step::root().join(folder);
        let read = |file: &str| {
            let path = folder.join(file);
            fs::read(&path).with_context(|| format!("--model {text}: cannot read {}", path.display()))
        };
        let config: Value = serde_json::from_slice(&read("config.json")?)
            .with_context(|| format!("--model {text}: config.json"))?;
        let keys = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
        let n_layers = keys.iter().find_map(|key| config[*key].as_u64());
        let n_layers =
            n_layers.with_context(|| format!("--model {text}: config.json has no num_hidden_layers"))?;
        let hash = blake3::hash(&read("model.safetensors")?).to_hex()[..16].to_owned();
        Ok(Self { name: name.into(), folder, n_layers, hash })
    }

    /// The rows of a table: each layer alone, then the means from the first one on.
    fn rows(&self, wanted: &[u64]) -> Vec<Layers> {
        let layers = || (0..=self.n_layers).filter(|layer| wanted.is_empty() || wanted.contains(layer));
        let means = layers().filter(|layer| *layer > 0).map(|layer| Layers(0, layer));
        layers().map(|layer| Layers(layer, layer)).chain(means).collect()
    }
}

struct Bench<'a> {
    program: PathBuf,
    version: String,
    kept: Kept,
    data: PathBuf,
    args: &'a Args,
    contexts: Vec<PathBuf>,
}

/// A list of words to make vectors of: options of `lexicon build`, and all that decides about the result.
struct Words {
    options: Vec<String>,
    reading: Reading,
}

pub fn run(args: &Args) -> Result<()> {
    let models = args.models.iter().map(|text| Model::open(text)).collect::<Result<Vec<_>>>()?;
    let program = program::build(None)?;
    let version = measure::output(Command::new(&program).arg("--version"))?;
    let data = args.data.clone().unwrap_or_else(|| step::root().join("../shared/data"));
    let folder = target().join("lexicon-bench");
    if args.again && folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let kept = Kept::open(folder)?;
    let contexts = contexts(args, &data)?;
    let bench = Bench { program, version, kept, data: std::path::absolute(data)?, args, contexts };
    let mut text = String::new();
    for model in &models {
        let (table, words) = bench.table(model)?;
        text += &format!("{}, {words}:\n\n{table}\n\n", model.name);
    }
    text += &format!(
        "Similarity is Spearman's correlation; analogies are answered by 3CosAdd among all words; purity is the mean of AP's, \
         Battig's and BLESS's; relations are a probe's accuracy on unseen words, beside one that sees the second word alone; \
         translations are by CSLS, words alone. Contexts are up to {} sentences a word, and a word without one is in no row. {}.",
        args.per_word,
        report::machine(None)
    );
    println!("{text}");
    if args.write { report::write("lexicon", &text) } else { Ok(()) }
}

/// Files of contexts as text: JSON lines are written as sentences.
fn contexts(args: &Args, data: &Path) -> Result<Vec<PathBuf>> {
    let mut files = args.contexts.clone();
    if files.is_empty() {
        files.push(data.join("semcor/semcor.jsonl"));
        let folder = data.join("corpus");
        let found = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let found = found.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        files.extend(found.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "txt")));
        files.sort();
    }
    let as_text = |path: PathBuf| {
        if path.extension().is_none_or(|ending| ending != "jsonl") {
            return Ok(std::path::absolute(path)?);
        }
        let lines = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let sentences = sentences(&lines).with_context(|| path.display().to_string())?;
        let to =
            target().join("lexicon-bench").join(path.with_extension("txt").file_name().unwrap_or_default());
        fs::write(&to, sentences).with_context(|| format!("cannot write {}", to.display()))?;
        Ok(to)
    };
    files.into_iter().map(as_text).collect()
}

/// The sentences of lines with `tokens`, one a line; a token of several words has underscores between them.
pub fn sentences(lines: &str) -> Result<String> {
    let mut text = String::new();
    for (number, line) in lines.lines().enumerate() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("line {}", number + 1))?;
        let tokens =
            line["tokens"].as_array().with_context(|| format!("line {} has no tokens", number + 1))?;
        let words: Vec<String> =
            tokens.iter().filter_map(Value::as_str).map(|token| token.replace('_', " ")).collect();
        text += &words.join(" ");
        text.push('\n');
    }
    Ok(text)
}

impl Bench<'_> {
    fn evaluations(&self) -> Vec<Evaluation> {
        let all = <Evaluation as clap::ValueEnum>::value_variants().iter().copied();
        all.filter(|one| self.args.only.is_empty() || self.args.only.contains(one)).collect()
    }

    /// A model's table, and how many words it is about.
    fn table(&self, model: &Model) -> Result<(String, String)> {
        let evaluations = self.evaluations();
        let in_contexts = self.in_contexts(&evaluations);
        // The same words in both readings: those that occur in a sentence.
        let known = match in_contexts.options.is_empty() {
            true => None,
            false => {
                let build = self.build(model, &in_contexts, "none", 0)?;
                Some(build.with_extension("words"))
            }
        };
        let alone = known.as_ref().map(|words| Words {
            options: vec!["--words".into(), words.to_string_lossy().into_owned()],
            reading: Reading::Alone,
        });
        let columns: Vec<&str> = evaluations.iter().flat_map(|one| one.columns()).copied().collect();
        let mut rows = Vec::new();
        for reading in [Reading::Alone, Reading::Contexts] {
            for special in &self.args.special {
                for layers in model.rows(&self.args.layers) {
                    let mut figures = Figures::new();
                    for evaluation in &evaluations {
                        let words = match (evaluation, reading) {
                            (Evaluation::Translation, Reading::Alone) => None,
                            (Evaluation::Translation, Reading::Contexts) => continue,
                            (_, Reading::Alone) => alone.as_ref(),
                            (_, Reading::Contexts) => Some(&in_contexts),
                        };
                        figures.extend(self.evaluate(*evaluation, model, words, special, layers)?);
                    }
                    // Translations alone have no rows of contexts.
                    if !figures.is_empty() {
                        rows.push(row(reading, special, layers, &columns, &figures));
                    }
                }
            }
        }
        let count = match &known {
            None => "words of the dictionaries".to_owned(),
            Some(words) => {
                let words =
                    fs::read_to_string(words).with_context(|| format!("cannot read {}", words.display()))?;
                format!("{} words", report::short(words.lines().count() as f64))
            }
        };
        let header = ["words", "special", "layers"].into_iter().chain(columns);
        Ok((report::table(header, rows), count))
    }

    /// The words of all tables that are asked for, in contexts.
    fn in_contexts(&self, evaluations: &[Evaluation]) -> Words {
        let tables = evaluations.iter().flat_map(|one| one.tables());
        let mut options: Vec<String> =
            tables.flat_map(|table| ["--words".to_owned(), self.table_path(table)]).collect();
        if !options.is_empty() {
            let contexts = self.contexts.iter();
            options
                .extend(contexts.flat_map(|path| ["--contexts".into(), path.to_string_lossy().into_owned()]));
            options.extend(["--per-word".into(), self.args.per_word.to_string()]);
        }
        Words { options, reading: Reading::Contexts }
    }

    fn table_path(&self, table: &str) -> String {
        self.data.join("words").join(table).with_extension("csv").to_string_lossy().into_owned()
    }

    /// The vectors of a layer, `NAME.npy` beside `NAME.words`; if they are not there, those of all layers are built.
    fn build(&self, model: &Model, words: &Words, special: &str, layer: u64) -> Result<PathBuf> {
        let last = model.rows(&self.args.layers).iter().map(|layers| layers.1).max().unwrap_or(layer);
        let layers = format!("0-{last}");
        let options: Vec<&str> = words.options.iter().map(String::as_str).collect();
        let sets = [&[&*model.hash, special, &layers], &options[..]].concat();
        let key = Key::new("vectors", &words.reading.to_string(), 0, "", &sets, &self.version);
        let folder = self.kept.scratch(&key);
        let path = folder.join(format!("words-{layer}.npy"));
        if folder.exists() {
            return Ok(path);
        }
        eprintln!("{}, words {}, special {special}, layers {layers} …", model.name, words.reading);
        // Whole or not at all.
        let partial = folder.with_extension("partial");
        fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).args(["lexicon", "build", "--model"]).arg(&model.folder);
        command.args(&options).args(["--special", special, "--layers", &layers, "--each-layer", "--out"]);
        measure::output(command.arg(partial.join("words")))?;
        // The same as text, which nothing here reads.
        for layer in 0..=last {
            let text = partial.join(format!("words-{layer}.vec"));
            fs::remove_file(&text).with_context(|| format!("cannot remove {}", text.display()))?;
        }
        fs::rename(&partial, &folder).with_context(|| format!("cannot write {}", folder.display()))?;
        Ok(path)
    }

    /// The vectors of one layer or of the mean of several; these lie at `place`, and are the caller's.
    fn vectors(
        &self,
        model: &Model,
        words: &Words,
        special: &str,
        layers: Layers,
        place: &str,
    ) -> Result<PathBuf> {
        let build = |layer| self.build(model, words, special, layer);
        if layers.0 == layers.1 {
            return build(layers.0);
        }
        let all =
            (layers.0..=layers.1).map(|layer| Vectors::read(&build(layer)?)).collect::<Result<Vec<_>>>()?;
        let path = target().join("lexicon-bench").join(place).with_extension("npy");
        Vectors::mean(&all)?.write(&path)?;
        let (from, to) = (build(layers.0)?.with_extension("words"), path.with_extension("words"));
        fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        Ok(path)
    }

    /// The figures of an evaluation, as they are kept or now; `words` is none for translations, which have their own.
    fn evaluate(
        &self,
        evaluation: Evaluation,
        model: &Model,
        words: Option<&Words>,
        special: &str,
        layers: Layers,
    ) -> Result<Figures> {
        let (all_layers, runs) = (layers.to_string(), self.args.runs.to_string());
        let mut sets = vec![&*model.hash, special, &all_layers];
        let reading = words.map_or(Reading::Alone, |words| words.reading);
        sets.extend(words.iter().flat_map(|words| &words.options).map(String::as_str));
        if evaluation == Evaluation::Relations {
            sets.push(&runs);
        }
        let key = Key::new(evaluation.command(), &reading.to_string(), 0, "", &sets, &self.version);
        if let Some(kept) = self.kept.read::<Figures>(&key)? {
            return Ok(kept);
        }
        eprintln!(
            "{}, words {reading}, special {special}, layers {layers}: {} …",
            model.name,
            evaluation.command()
        );
        let figures = match words {
            Some(words) => self.ask(evaluation, &self.vectors(model, words, special, layers, "mean")?)?,
            None => self.translate(model, special, layers)?,
        };
        self.kept.write(&key, &figures)?;
        Ok(figures)
    }

    /// What an evaluation with tables of words says of vectors.
    fn ask(&self, evaluation: Evaluation, vectors: &Path) -> Result<Figures> {
        let mut command = self.eval(evaluation);
        // Some rows of BLESS lack their word.
        command.args(["--on-bad-row", "skip", "--max-skipped", "0.1", "--vectors"]).arg(vectors);
        if evaluation == Evaluation::Relations {
            command.args(["--runs", &self.args.runs.to_string()]);
        }
        command.args(evaluation.tables().iter().map(|table| self.table_path(table)));
        evaluation.figures(&printed(&mut command)?)
    }

    /// Translations from English by the vectors of both languages' words.
    fn translate(&self, model: &Model, special: &str, layers: Layers) -> Result<Figures> {
        let mut figures = Figures::new();
        for languages in evaluations::LANGUAGES {
            let file = |part: &str| {
                let name = format!("xling/{languages}/yacle.{part}.{languages}.tsv");
                self.data.join(name).to_string_lossy().into_owned()
            };
            let (train, test) = (file("train.freq.5k"), file("test.freq.2k"));
            let side = |column: &str| {
                let options = ["--no-header", "--columns", column, "--words", &train, "--words", &test];
                let options = options.map(str::to_owned).to_vec();
                let words = Words { options, reading: Reading::Alone };
                self.vectors(model, &words, special, layers, &format!("mean-{column}"))
            };
            let mut command = self.eval(Evaluation::Translation);
            command.arg("--no-header").arg("--source").arg(side("1")?).arg("--target").arg(side("2")?);
            command.args(["--train", &train, "--test", &test]);
            figures.extend(evaluations::translation(languages, &printed(&mut command)?)?);
        }
        Ok(figures)
    }

    fn eval(&self, evaluation: Evaluation) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["lexicon", "eval", evaluation.command(), "--json"]);
        command
    }
}

fn printed(command: &mut Command) -> Result<Value> {
    let printed = measure::output(command)?;
    serde_json::from_str(&printed).with_context(|| format!("{command:?} printed no figures"))
}

fn row(reading: Reading, special: &str, layers: Layers, columns: &[&str], figures: &Figures) -> Vec<String> {
    let shown = |column: &&str| figures.get(*column).map_or("–".into(), |value| format!("{value:.3}"));
    let facts = [reading.to_string(), special.to_owned(), layers.to_string()];
    facts.into_iter().chain(columns.iter().map(shown)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_layers_and_means_from_the_first_one() {
        let model = Model { name: "m".into(), folder: PathBuf::new(), n_layers: 2, hash: String::new() };
        let names = |wanted: &[u64]| model.rows(wanted).iter().map(Layers::to_string).collect::<Vec<_>>();
        assert_eq!(names(&[]), ["0", "1", "2", "0–1", "0–2"]);
        assert_eq!(names(&[0, 2, 9]), ["0", "2", "0–2"]);
        for text in ["/folder", "=/folder", "m=/no/such/folder"] {
            assert!(Model::open(text).is_err(), "{text}");
        }
    }

    #[test]
    fn figures_have_their_columns() {
        let figures = Figures::from([("SimLex".to_owned(), 0.40266), ("purity".to_owned(), 0.5)]);
        let found = row(Reading::Contexts, "all", Layers(0, 4), &["SimLex", "analogies", "purity"], &figures);
        assert_eq!(found, ["contexts", "all", "0–4", "0.403", "–", "0.500"]);
    }

    #[test]
    fn tokens_are_read_as_sentences() {
        let lines = "{\"tokens\":[\"The\",\"Grand_Jury\",\"sat\",\".\"]}\n{\"tokens\":[\"No\"]}\n";
        assert_eq!(sentences(lines).unwrap(), "The Grand Jury sat .\nNo\n");
        let error = sentences("{\"tokens\":[]}\n{}\n").unwrap_err().to_string();
        assert_eq!(error, "line 2 has no tokens");
    }
}
