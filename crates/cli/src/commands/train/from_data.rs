//! `cloze train TASK --data FILE`: a config made for labelled data, so that a first model needs no file of its own.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Error, Result, anyhow, bail};
use clap::ValueEnum;
use cloze_data::DataError;
use cloze_data::labelled::{
    Columns, DataFormat, LabelSet, LabelledSource, Labels, TagScheme, Target, classified_sentences,
    questions, sentences, tagged_sentences, texts,
};
use cloze_evaluation::table::grouped;
use cloze_trainer::Place;
use cloze_trainer::config::ConfigFile;
use toml::{Table, Value};

use crate::failure::WrongUsage;
use crate::model;
use crate::output::say;
use crate::rows::{BadRowArgs, RowArgs, columns_between};

/// A task that `cloze train` makes a config for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NamedTask {
    Classification,
    Regression,
    MultiLabel,
    Tagging,
    Answers,
    Embedding,
}

impl NamedTask {
    /// The task of this name, unless it names a file.
    pub fn of(config: &Path) -> Option<Self> {
        let name = config.to_str().filter(|_| !config.exists())?;
        Self::from_str(name, false).ok()
    }

    /// The task that reads the same data as models of this kind; none for kinds that `cloze train` makes no config for.
    pub fn of_kind(kind: &str) -> Option<Self> {
        match kind {
            "prompt" => Some(Self::Classification),
            kind => Self::from_str(kind, false).ok(),
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What a config is made of.
#[derive(clap::Args)]
#[command(next_help_heading = "Options without a CONFIG file")]
pub struct DataArgs {
    /// The checkpoint that training begins with.
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: Option<String>,
    /// Labelled data: CSV, TSV, JSON lines, Parquet, XML, CoNLL or SQuAD's JSON. The fields of a row, for
    /// --columns, are text, pair and label; labels for multi-label; words and tags for tagging.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    data: Vec<String>,
    #[command(flatten)]
    rows: RowArgs,
    /// Files to choose the best model by (default: a share of the data is held out).
    #[arg(long, value_name = "FILE", num_args = 1..)]
    dev: Vec<String>,
    /// Files to measure the result with.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    test: Vec<String>,
}

impl DataArgs {
    /// Whether nothing was given.
    fn is_empty(&self) -> bool {
        let Self { model, data, rows, dev, test } = self;
        model.is_none() && rows.is_default() && [data, dev, test].iter().all(|files| files.is_empty())
    }

    /// Checks that nothing was given beside a file.
    ///
    /// # Errors
    /// [`WrongUsage`].
    pub fn check_unused(&self) -> Result<()> {
        match self.is_empty() {
            true => Ok(()),
            false => {
                let names =
                    NamedTask::value_variants().iter().map(|task| task.name()).collect::<Vec<_>>().join(", ");
                let problem = "--model, --data, --dev, --test and options of rows go with a task in the place of CONFIG";
                Err(WrongUsage::new(anyhow!(
                    "{problem} ({names}); with a file, use --set, as in --set model.path=MODEL"
                ))
                .into())
            }
        }
    }

    /// The config of a task on this data, over which the `settings` will be laid. Says what the data was taken for.
    ///
    /// # Errors
    /// [`WrongUsage`] if the model or the data is missing; data that cannot be read.
    pub fn config(&self, task: NamedTask, run: Option<&Path>, settings: &[String]) -> Result<ConfigFile> {
        let missing = |what: &str| WrongUsage::new(anyhow!("`cloze train {}` needs {what}", task.name()));
        let model =
            self.model.as_ref().ok_or_else(|| missing("--model MODEL, the checkpoint to begin with"))?;
        if self.data.is_empty() {
            return Err(missing("--data FILE, the labelled data").into());
        }
        self.rows.check_once(&[])?;
        let columns = self.rows.columns.iter();
        let columns = columns.map(|(field, column)| (field.clone(), Columns::One(column.clone()))).collect();
        let (source, found) = read(task, &self.data, &self.rows, columns)?;
        if found.rows < FEWEST {
            bail!("the data has {} rows; expected {FEWEST} at least to fine-tune on", found.rows);
        }
        let is_held_out =
            self.dev.is_empty() && found.is_measurable && !settings.iter().any(|set| sets_dev(set));
        let held_out = is_held_out.then(|| held_out(found.rows));
        let held = held_out.map_or_else(String::new, |share| {
            format!("; {:.0} % held out to choose the best model by", 100.0 * share)
        });
        say(format_args!("data: {}{held}", found.told(&source)));
        let name = run
            .and_then(Path::file_name)
            .unwrap_or_else(|| Path::new(&self.data[0]).file_stem().unwrap_or_default());
        let name = name.to_string_lossy();
        let text = self.text(task, model, &source, &found, held_out, &name)?;
        let place = Place::file(Path::new(&format!("the config for {}", self.data.join(", "))));
        Ok(ConfigFile::parse(&text, &name, &place)?)
    }

    /// The config's text; what it leaves out follows the size of the data.
    fn text(
        &self,
        task: NamedTask,
        model: &str,
        source: &LabelledSource,
        found: &Found,
        held_out: Option<f64>,
        name: &str,
    ) -> Result<String> {
        let table = |pairs: Vec<(&str, Value)>| {
            Value::Table(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        let files = |files: &[String]| Value::Array(files.iter().cloned().map(Value::String).collect());
        let mut section = found.section.clone();
        section.insert("kind".into(), task.name().into());
        let mut data = vec![("train", Value::try_from(source)?)];
        match held_out {
            Some(share) => data.push(("dev_fraction", share.into())),
            None if self.dev.is_empty() => {}
            None => data.push(("dev", files(&self.dev))),
        }
        if !self.test.is_empty() {
            data.push(("test", files(&self.test)));
        }
        let config = Table::from_iter([
            ("run".to_owned(), table(vec![("name", name.into())])),
            ("task".to_owned(), Value::Table(section)),
            ("model".to_owned(), table(vec![("path", model.into())])),
            ("data".to_owned(), table(data)),
        ]);
        toml::to_string(&config).context("the config made for the data")
    }
}

/// Labelled data and how it is read: as its ending says, else with whatever separates its columns.
///
/// # Errors
/// Those of reading the data.
pub fn read(
    task: NamedTask,
    files: &[String],
    rows: &RowArgs,
    columns: BTreeMap<String, Columns>,
) -> Result<(LabelledSource, Found)> {
    let source = LabelledSource { columns, ..rows.source_untold(files)? };
    let format = DataFormat::of(Path::new(&files[0]));
    // What is said of the file is not guessed.
    let is_told = rows.has_format() || rows.delimiter.is_some() || rows.quoting.is_some();
    let is_delimited = matches!(format, Some(DataFormat::Csv | DataFormat::Tsv) | None)
        && !matches!(task, NamedTask::Tagging | NamedTask::Answers);
    let first = Found::of(task, &source).map_err(told);
    if is_told || !is_delimited || first.is_ok() {
        return Ok((source, first?));
    }
    let format = if format.is_none() { DataFormat::Csv } else { source.format };
    for (delimiter, quoting) in
        [(',', true), (';', true), ('\t', true), ('|', true), ('\t', false), (',', false)]
    {
        let other =
            LabelledSource { format, delimiter: Some(delimiter), quoting: Some(quoting), ..source.clone() };
        if let Ok(found) = Found::of(task, &other) {
            return Ok((other, found));
        }
    }
    // What is wrong with the file as it seems to be.
    Err(first.err().unwrap_or_else(|| anyhow!("cannot be read")))
}

/// Words the error of an unusable row for the command line.
fn told(error: Error) -> Error {
    match error.downcast::<DataError>() {
        Ok(error) => BadRowArgs::told(error).into(),
        Err(error) => error,
    }
}

/// What data has.
pub struct Found {
    rows: usize,
    /// The task's keys that follow from it.
    pub section: Table,
    /// Its labels, for people.
    labels: String,
    /// Whether the rows can be evaluated on: single sentences cannot.
    is_measurable: bool,
}

impl Found {
    /// Reads data.
    fn of(task: NamedTask, source: &LabelledSource) -> Result<Self> {
        let mut is_measurable = true;
        let (mut section, base) = (Table::new(), Path::new(""));
        let (rows, labels) = match task {
            NamedTask::Classification => {
                let (loaded, set) = texts(source, base, Labels::Found)?;
                let classes = loaded.examples.iter().filter_map(|example| match example.target {
                    Target::Class(class) => Some(class),
                    _ => None,
                });
                (loaded.examples.len(), shares(set.as_ref(), classes))
            }
            NamedTask::MultiLabel => {
                let (loaded, set) = texts(source, base, Labels::Several(None))?;
                let labels = loaded.examples.iter().flat_map(|example| match &example.target {
                    Target::Labels(labels) => labels.clone(),
                    _ => Vec::new(),
                });
                (loaded.examples.len(), shares(set.as_ref(), labels))
            }
            NamedTask::Regression => {
                let (loaded, _) = texts(source, base, Labels::Values)?;
                let values = loaded.examples.iter().filter_map(|example| match example.target {
                    Target::Value(value) => Some(value),
                    _ => None,
                });
                let [least, most] = values
                    .fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], value| {
                        [least.min(value), most.max(value)]
                    });
                (loaded.examples.len(), format!(", numbers from {least} to {most}"))
            }
            NamedTask::Tagging => {
                let loaded = tagged_sentences(source, base, true, &[])?;
                let scheme = scheme(loaded.examples.iter().map(|sentence| &sentence.tags[..]));
                section.insert("scheme".into(), Value::try_from(scheme)?);
                (loaded.examples.len(), format!(", tags as {}", section["scheme"]))
            }
            NamedTask::Answers => (questions(source, base, true)?.examples.len(), String::new()),
            NamedTask::Embedding => {
                let (rows, loss) = embedding(source, base)?;
                is_measurable = loss != "simcse";
                section.insert(
                    "loss".into(),
                    Value::Table(Table::from_iter([("kind".to_owned(), loss.into())])),
                );
                (rows, format!(", trained by {loss}"))
            }
        };
        Ok(Self { rows, section, labels, is_measurable })
    }

    /// Says what the data was taken for.
    pub fn told(&self, source: &LabelledSource) -> String {
        let separated = source.delimiter.map(|delimiter| format!(", {}", columns_between(delimiter)));
        let quotes = if source.quoting == Some(false) { ", quotation marks read as text" } else { "" };
        format!(
            "{}{}{quotes}, {} row{}{}",
            source.files.join(", "),
            separated.unwrap_or_default(),
            grouped(self.rows as u64),
            if self.rows == 1 { "" } else { "s" },
            self.labels
        )
    }
}

/// The sentences of data, and the loss that its columns allow: classes or scores of pairs, pairs alone, or single sentences.
fn embedding(source: &LabelledSource, base: &Path) -> Result<(usize, &'static str)> {
    if source.columns.contains_key("class") {
        return Ok((classified_sentences(source, base)?.0.examples.len(), "softmax"));
    }
    let examples = sentences(source, base)?.examples;
    let loss = match examples.first() {
        Some(first) if first.score.is_some() => "cosent",
        Some(first) if first.pair.is_some() => "in-batch-negatives",
        _ => "simcse",
    };
    Ok((examples.len(), loss))
}

/// How often each label occurs.
fn shares(set: Option<&LabelSet>, labels: impl Iterator<Item = usize>) -> String {
    let names = set.map_or(&[][..], LabelSet::names);
    let mut counts = vec![0u64; names.len()];
    labels.for_each(|label| counts[label] += 1);
    let mut all: Vec<(&String, u64)> = names.iter().zip(counts).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown: Vec<String> =
        all.iter().take(8).map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
    let rest = if all.len() > 8 { format!(" and {} more", all.len() - 8) } else { String::new() };
    format!(", labels {}{rest}", shown.join(", "))
}

/// The scheme that tags seem to follow. A few tags without a prefix among many with one are mistakes, which whoever reads
/// the tags in that scheme tells with their place.
fn scheme<'t>(sentences: impl Iterator<Item = &'t [String]>) -> TagScheme {
    /// Tags with a prefix for each one without, at least, in a scheme of entities.
    const MOSTLY: u64 = 9;
    let (mut has_ends, mut begins_inside) = (false, false);
    let (mut prefixed, mut bare) = (0, 0);
    for tags in sentences {
        let mut before = "O";
        for tag in tags {
            let parts = tag.split_once('-');
            match parts {
                Some(("B" | "I" | "E" | "S", _)) => prefixed += 1,
                _ => bare += u64::from(tag != "O"),
            }
            match parts {
                Some(("E" | "S", _)) => has_ends = true,
                Some(("I", kind)) => {
                    // What stands before it may be its beginning, without a prefix.
                    begins_inside |=
                        before == "O" || before.split_once('-').is_some_and(|(_, other)| other != kind);
                }
                _ => {}
            }
            before = tag;
        }
    }
    if prefixed < MOSTLY * bare {
        return TagScheme::Words;
    }
    match (has_ends, begins_inside) {
        (true, _) => TagScheme::Bioes,
        (false, true) => TagScheme::Iob1,
        (false, false) => TagScheme::Bio,
    }
}

/// Whether an argument of `--set` says what the best model is chosen by.
fn sets_dev(set: &str) -> bool {
    let (key, value) = set.split_once('=').unwrap_or((set, ""));
    // An empty list names no files.
    matches!(key.trim(), "data.dev" | "data.dev_fraction") && value.trim() != "[]"
}

/// Fewest rows that a model learns from.
const FEWEST: usize = 20;

/// The share of rows that is held out to choose the best model by.
fn held_out(rows: usize) -> f64 {
    if rows < 1_000 { 0.2 } else { 0.1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_of_files_is_no_development_data() {
        for (set, expected) in [
            ("data.dev=[\"a.csv\"]", true),
            ("data.dev_fraction=0.1", true),
            ("data.dev = []", false),
            ("run.seed=1", false),
        ] {
            assert_eq!(sets_dev(set), expected, "{set}");
        }
    }

    #[test]
    fn tags_tell_their_scheme() {
        let of = |tags: &[&str]| {
            let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
            scheme([&tags[..]].into_iter())
        };
        assert_eq!(of(&["O", "B-PER", "I-PER", "B-PER"]), TagScheme::Bio);
        assert_eq!(of(&["I-PER", "I-PER", "O", "B-LOC"]), TagScheme::Iob1);
        assert_eq!(of(&["S-PER", "O", "B-LOC", "E-LOC"]), TagScheme::Bioes);
        assert_eq!(of(&["NOUN", "VERB"]), TagScheme::Words);
        // Words' classes may look like prefixes now and then, and a prefix may be forgotten.
        assert_eq!(of(&["NOUN", "B-PER", "I-PER", "O"]), TagScheme::Words);
        let forgotten = [vec!["B-LOC"; 5], vec!["LOC"], vec!["O", "I-LOC", "O"], vec!["B-LOC"; 4]].concat();
        assert_eq!(of(&forgotten), TagScheme::Iob1);
        assert_eq!(of(&["B-LOC"; 9].into_iter().chain(["LOC"]).collect::<Vec<_>>()), TagScheme::Bio);
        assert_eq!(of(&["O", "O"]), TagScheme::Bio);
    }
}
