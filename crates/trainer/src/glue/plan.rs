//! The configuration of a task's run: the published settings, changed by the user's.

use super::files::TaskFiles;
use super::tasks::{GlueTask, Place};
use crate::finetune::FineTuneConfig;
use crate::{Place as Location, Result, TrainerError};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The learning rates that Devlin et al. 2019, §4.1, choose from on the development data.
pub const PUBLISHED_RATES: [f64; 4] = [5e-5, 4e-5, 3e-5, 2e-5];

/// The learning rate if nothing is said: that of transformers' `run_glue`.
const RATE: f64 = 2e-5;

/// The share of the steps over which the learning rate rises: that of BERT's code.
const WARMUP: f64 = 0.1;

/// The learning rates that a task's is chosen from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LearningRates(Vec<f64>);

impl LearningRates {
    /// These rates; none for the default, 2e-5.
    ///
    /// # Errors
    /// [`TrainerError::Setting`] for a rate that is not a number above 0, or that occurs twice.
    pub fn new(rates: Vec<f64>) -> Result<Self> {
        let bad = |(place, rate): &(usize, &f64)| {
            !rate.is_finite() || **rate <= 0.0 || rates[..*place].contains(rate)
        };
        match rates.iter().enumerate().find(bad) {
            None => Ok(Self(rates)),
            Some((_, rate)) => Err(TrainerError::Setting {
                key: "rates".into(),
                found: format!("{rate:e}"),
                expected: "different numbers above 0, such as 5e-5,4e-5,3e-5,2e-5".into(),
            }),
        }
    }

    /// The rates to choose from: at least one.
    pub fn all(&self) -> &[f64] {
        match self.0.is_empty() {
            true => &[RATE],
            false => &self.0,
        }
    }
}

/// A change of a configuration key, for all tasks or for one.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// The task; none for all of them.
    pub task: Option<GlueTask>,
    /// `section.key=value`.
    pub set: String,
}

impl Override {
    /// Reads `section.key=value` or, for one task, `task:section.key=value`.
    ///
    /// # Errors
    /// [`TrainerError::Setting`] for an unknown task.
    pub fn parse(text: &str) -> Result<Self> {
        let key = text.split_once('=').map_or(text, |(key, _)| key);
        let Some((name, _)) = key.split_once(':') else {
            return Ok(Self { task: None, set: text.into() });
        };
        let trained = GlueTask::ALL.iter().filter(|task| task.is_trained());
        let names: Vec<&str> = trained.map(|task| task.name()).collect();
        match GlueTask::named(name).filter(|task| task.is_trained()) {
            Some(task) => Ok(Self { task: Some(task), set: text[name.len() + 1..].into() }),
            None => Err(TrainerError::Setting {
                key: format!("--set {text}"),
                found: format!("for the task `{name}`"),
                expected: format!("a task with training data before the colon: one of {}", names.join(", ")),
            }),
        }
    }

    fn applies(&self, task: GlueTask) -> bool {
        self.task.is_none_or(|of| of == task)
    }
}

/// The configuration of a task.
///
/// It is that of Devlin et al. 2019, §4.1 and A.3: batches of 32, three epochs, AdamW with a weight decay of 0.01, a
/// learning rate that rises over the first tenth of the steps and falls to 0, sequences of up to 128 tokens. The overrides
/// come last.
///
/// # Errors
/// Those of reading a config; training data that cannot be read.
pub(super) fn plan(
    files: &TaskFiles,
    model: &Path,
    rate: f64,
    overrides: &[Override],
) -> Result<FineTuneConfig> {
    let task = files.task;
    let sets = overrides.iter().filter(|change| change.applies(task)).map(|change| change.set.clone());
    let sets: Vec<String> = sets.collect();
    let text = toml::to_string(&table(files, model, rate)).expect("a table of plain values");
    let place = Location::file(Path::new(&format!("the configuration of {task}")));
    FineTuneConfig::parse(&text, &format!("glue-{}", task.name()), &place, &sets)
}

fn table(files: &TaskFiles, model: &Path, rate: f64) -> Table {
    let facts = files.task.facts();
    let labelled = facts.labelled.as_ref().expect("a task that is trained has training data");
    let table = |pairs: Vec<(&str, Value)>| {
        Value::Table(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    };
    let text = |path: &PathBuf| Value::String(path.to_string_lossy().into_owned());
    let column = |place: &Place| match place {
        Place::Named(name) => Value::from(*name),
        Place::Numbered(number) => Value::from(*number as i64),
    };
    let mut columns = vec![("text", column(&labelled.text)), ("label", column(&labelled.label))];
    if let Some(pair) = &labelled.pair {
        columns.push(("pair", column(pair)));
    }
    let mut source = vec![
        ("files", Value::Array(files.train.iter().map(text).collect())),
        ("format", "tsv".into()),
        ("columns", table(columns)),
    ];
    if let Place::Numbered(_) = labelled.label {
        source.push(("header", false.into()));
    }
    if labelled.has_broken_rows {
        // Some rows of QQP are cut in the middle; they are a share of less than 0.0001.
        source.extend([("on_bad_row", "skip".into()), ("max_skipped", 0.001.into())]);
    }
    let mut data = vec![("train", table(source)), ("max_len", 128.into())];
    // The second development file, of MNLI, is measured like test data: it does not choose the model.
    for (key, path) in ["dev", "test"].into_iter().zip(&files.dev) {
        data.push((key, Value::Array(vec![text(path)])));
    }
    let section = match facts.labels {
        [] => vec![("kind", "regression".into())],
        labels => {
            let labels = labels.iter().map(|label| Value::from(*label)).collect();
            vec![("kind", "classification".into()), ("labels", Value::Array(labels))]
        }
    };
    Table::from_iter([
        ("task".to_owned(), table(section)),
        ("model".to_owned(), table(vec![("path", model.to_string_lossy().as_ref().into())])),
        ("data".to_owned(), table(data)),
        ("train".to_owned(), table(vec![("epochs", 3.into()), ("batch_size", 32.into())])),
        ("optimizer".to_owned(), table(vec![("lr", rate.into()), ("weight_decay", 0.01.into())])),
        ("schedule".to_owned(), table(vec![("kind", "linear".into()), ("warmup_fraction", WARMUP.into())])),
        ("eval".to_owned(), table(vec![("metric", facts.metrics[0].into())])),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::files::GlueFolder;
    use super::*;
    use crate::engine::Plan;
    use crate::finetune::TaskSection;
    use std::fs;

    fn files(folder: &Path, rows: usize) -> TaskFiles {
        let row = "a\t1\t\tOne \"quoted.\n";
        fs::create_dir_all(folder.join("CoLA")).unwrap();
        fs::write(folder.join("CoLA/train.tsv"), row.repeat(rows)).unwrap();
        fs::write(folder.join("CoLA/dev.tsv"), row).unwrap();
        GlueFolder::find(folder, &[GlueTask::Cola], false).unwrap().tasks.remove(0)
    }

    #[test]
    fn a_task_has_the_published_settings() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), 330);
        let plan = |sets: &[&str]| {
            let overrides: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
            plan(&files, Path::new("model"), 3e-5, &overrides).unwrap()
        };
        let published = plan(&[]);
        assert_eq!(Plan::name(&published), "glue-cola");
        assert_eq!(
            (published.train.epochs, published.train.batch_size, published.data.max_len),
            (3, 32, 128)
        );
        assert_eq!(published.common.optimizer.lr, 3e-5);
        assert_eq!(published.eval.metric.as_deref(), Some("matthews"));
        // Eleven batches an epoch, 33 steps.
        assert_eq!(published.common.schedule.warmup_steps(33), 3);
        let TaskSection::Classification { labels, .. } = &published.task else { panic!() };
        assert_eq!(labels, &["0", "1"]);

        let changed = plan(&["train.epochs=10", "cola:train.accumulate=2", "rte:optimizer.lr=1.0"]);
        // Six steps an epoch, 60 in all.
        assert_eq!(changed.common.schedule.warmup_steps(60), 6);
        assert_eq!(changed.common.optimizer.lr, 3e-5);
        assert_eq!(plan(&["schedule.warmup_steps=7"]).common.schedule.warmup_steps(33), 7);
    }

    #[test]
    fn overrides_and_rates_are_checked() {
        assert_eq!(
            Override::parse("sts-b:train.epochs=5").unwrap(),
            Override { task: Some(GlueTask::Stsb), set: "train.epochs=5".into() }
        );
        // A colon in a value belongs to the value.
        let value = Override::parse("data.train.label_before=:").unwrap();
        assert_eq!((value.task, &*value.set), (None, "data.train.label_before=:"));
        let error = Override::parse("snli:train.epochs=5").unwrap_err().to_string();
        assert!(error.contains("`--set snli:train.epochs=5` is for the task `snli`; expected"), "{error}");
        assert!(Override::parse("ax:train.epochs=5").is_err());
        assert_eq!(LearningRates::new(Vec::new()).unwrap().all(), [2e-5]);
        for rates in [vec![1e-5, 1e-5], vec![0.0], vec![f64::NAN]] {
            assert!(LearningRates::new(rates).is_err());
        }
    }
}
