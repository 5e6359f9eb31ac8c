//! `cloze eval` of a labelled file: the task, the labels and the longest sequence are the model's, so no configuration is
//! needed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use cloze_data::labelled::{Columns, DataFormat, LabelledSource, Named, TagScheme};
use cloze_trainer::captions::is_captioner;
use cloze_trainer::config::ConfigFile;
use cloze_trainer::finetune::{
    EvaluationData, FineTuneConfig, Predictor, TaskSection, read_without_training,
};
use cloze_trainer::images::is_image_model;
use cloze_trainer::{Place, TrainerError};
use toml::{Table, Value};

use super::{Args, Subject, measure};
use crate::commands::train::from_data::{NamedTask, read};
use crate::failure::WrongUsage;
use crate::model;
use crate::output::say;
use crate::rows::{BadRowArgs, RowArgs};

/// Whether a file is labelled data: its ending, the options of rows or its text say that it is no configuration.
pub fn is_data(path: &Path, rows: &RowArgs) -> bool {
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml")) {
        return false;
    }
    let is_read_otherwise = || path.exists() && ConfigFile::open(path).is_err();
    !rows.is_default() || DataFormat::of(path).is_some() || is_read_otherwise()
}

/// Measures the model on the whole file.
pub fn run(args: &Args) -> Result<()> {
    let path = args.file.config.display().to_string();
    let wrong = |problem: &str| WrongUsage::new(anyhow!("{path}: {problem}"));
    if args.split.is_some() {
        return Err(wrong(
            "--split chooses one of a configuration's data sets; leave it out: all rows of a labelled file are measured",
        )
        .into());
    }
    args.rows.check_once(&LISTS)?;
    let folder = model::folder(&args.model)?;
    if is_image_model(&folder) || is_captioner(&folder) {
        return Err(wrong(
            "a model of images is measured with a configuration that names its images, such as the config.toml of the run that \
             trained it, and --set data.dev=…",
        )
        .into());
    }
    let device = args.compute.open()?;
    let predictor = Predictor::load(&folder, &device, args.compute.int8)?;
    let config = config(args, &predictor, &path)?;
    let subject = Subject {
        folder: &folder,
        predictor: &predictor,
        config: &config,
        examples: EvaluationData::Files(&config.data.train.files),
        data: &path,
        title: &path,
    };
    measure(args, &subject).map_err(|error| match error.downcast::<TrainerError>() {
        Ok(error) => BadRowArgs::told(error).into(),
        Err(error) => error,
    })
}

/// Fields whose items may lie in several columns.
const LISTS: [&str; 2] = ["choices", "labels"];

/// The configuration of an evaluation of this model on the file. Says what the file was taken for.
fn config(args: &Args, predictor: &Predictor, path: &str) -> Result<FineTuneConfig> {
    let rows = &args.rows;
    let files = [path.to_owned()];
    let task = predictor.task().context("the model's task is of another program")?;
    // Tags that are numbers say nothing without their names, which the model has.
    let has_numbers = matches!(task, TaskSection::Tagging(tagging) if !tagging.tag_names.is_empty());
    let (source, found) = match NamedTask::of_kind(predictor.kind()).filter(|_| !has_numbers) {
        Some(task) => {
            let (source, found) = read(task, &files, rows, columns(rows))?;
            say(format_args!("data: {}", found.told(&source)));
            (source, found.section)
        }
        None => (LabelledSource { columns: columns(rows), ..rows.source(files)? }, Table::new()),
    };
    let mut section = Table::try_from(task).context("the model's task")?;
    match task {
        TaskSection::Tagging(tagging) if tagging.scheme == Some(TagScheme::Words) => {}
        // Tags of entities may be spelt in another scheme than those of the training data: without one, any is read.
        TaskSection::Tagging(_) => drop(section.remove("scheme")),
        _ => section.extend(found),
    }
    let max_len = i64::try_from(predictor.max_len()).unwrap_or(i64::MAX);
    let data = [("train".to_owned(), Value::try_from(source)?), ("max_len".to_owned(), max_len.into())];
    let model = [("path".to_owned(), Value::String(args.model.clone()))];
    let config = Table::from_iter([
        ("task".to_owned(), Value::Table(section)),
        ("model".to_owned(), Value::Table(Table::from_iter(model))),
        ("data".to_owned(), Value::Table(Table::from_iter(data))),
    ]);
    let text = toml::to_string(&config).context("the configuration made for the data")?;
    let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    let file = ConfigFile::parse(&text, &name, &Place::file(Path::new(path)))?;
    let mut config = read_without_training(&file, &args.file.settings).map_err(WrongUsage::new)?;
    config.data.train.named = Named::CommandLine;
    Ok(config)
}

/// The columns as `--columns` gives them: a field that is given several times has a list.
fn columns(rows: &RowArgs) -> BTreeMap<String, Columns> {
    let mut columns: BTreeMap<String, Columns> = BTreeMap::new();
    for (field, column) in &rows.columns {
        let column = column.clone();
        let all = match columns.remove(field) {
            None => Columns::One(column),
            Some(Columns::One(first)) => Columns::Many(vec![first, column]),
            Some(Columns::Many(mut all)) => {
                all.push(column);
                Columns::Many(all)
            }
        };
        columns.insert(field.clone(), all);
    }
    columns
}
