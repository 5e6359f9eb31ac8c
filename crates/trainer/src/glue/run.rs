//! All of it: trains the tasks one after another, answers their tests, and packs the submission.

use super::average::{GlueScores, PartScores, TaskScores};
use super::files::GlueFolder;
use super::plan::{LearningRates, Override, plan};
use super::submission::{answer, pack};
use super::tasks::GlueTask;
use crate::Result;
use crate::TrainerError;
use crate::engine::run_folder::claim_for_runs;
use crate::engine::{OverSeeds, RunOptions, train_seeds};
use crate::finetune::{DataSection, FineTuneConfig, TextTask};
use crate::metrics::progress::RunProgress;
use cloze_evaluation::figures::Better;
use cloze_evaluation::seeds::Seeds;
use cloze_files::write_atomic;
use std::path::{Path, PathBuf};

/// What to train, and with what.
#[derive(Debug, Clone, PartialEq)]
pub struct GlueOptions {
    /// The folder, as GLUE distributes it.
    pub data: PathBuf,
    /// The folder of the model to fine-tune.
    pub model: PathBuf,
    /// The tasks.
    pub tasks: Vec<GlueTask>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// The learning rates that each task's is chosen from, on the development data and with the first seed.
    pub rates: LearningRates,
    /// Changes of the configurations.
    pub overrides: Vec<Override>,
    /// Whether to answer the tests.
    pub has_submission: bool,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq)]
pub enum GlueOutcome {
    /// All is done.
    Done {
        /// The scores on the development data.
        scores: GlueScores,
        /// The archive for the site, if it was asked for.
        submission: Option<PathBuf>,
    },
    /// It was stopped. The same call goes on from there.
    Stopped {
        /// The task.
        task: GlueTask,
    },
}

/// The files of the folder with the scores.
const SCORES: &str = "glue.json";

/// The folder of the files that the submission is made of.
const SUBMISSION: &str = "submission";

/// Where MRPC's files lie if they had to be made.
const DATA: &str = "data";

/// Fine-tunes the model for every task, with every seed, in the options' folder, which has a folder a task, as
/// [`train_seeds`] makes it; measures the results on the development data; and answers the tests with the seed that is best
/// there. Writes the scores to `glue.json` and the answers to `submission.zip`.
///
/// It always continues: what was done before with the same settings and files is not done again.
///
/// # Errors
/// [`TrainerError::GlueFolder`]; no task, or the diagnostic set without MNLI; a setting for a task that is not among them;
/// those of [`train_seeds`].
pub fn run_glue(
    glue: &GlueOptions,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<GlueOutcome> {
    check(glue)?;
    let mut folder = GlueFolder::find(&glue.data, &glue.tasks, glue.has_submission)?;
    claim_for_runs(&options.folder)?;
    folder.split_originals(&options.folder.join(DATA))?;
    // All of them first, so that a mistake in one costs no training of another.
    let mut plans = Vec::new();
    for files in folder.tasks.iter().filter(|files| files.task.is_trained()) {
        let of_rate = |rate: &f64| Ok((*rate, plan(files, &glue.model, *rate, &glue.overrides)?));
        let plans_of_task = glue.rates.all().iter().map(of_rate).collect::<Result<Vec<_>>>()?;
        check_rows(&plans_of_task[0].1)?;
        plans.push((files, plans_of_task));
    }
    let answers = options.folder.join(SUBMISSION);
    let mut tasks = Vec::new();
    for (place, (files, rates)) in plans.iter().enumerate() {
        let task = files.task;
        progress.note(&format!("{task}, {} of {}", place + 1, plans.len()));
        let place = options.folder.join(task.title());
        let Some(Trained { rate, model, splits }) = train(rates, &glue.seeds, &place, options, progress)?
        else {
            return Ok(GlueOutcome::Stopped { task });
        };
        tasks.push(TaskScores { task, rate, parts: parts(task, &splits) });
        let answered = folder.tasks.iter().filter(|files| files.task.answered_by() == task);
        for files in answered.filter(|_| glue.has_submission) {
            if !answer(files, &model, &answers, &options.device, options.stop, progress)? {
                return Ok(GlueOutcome::Stopped { task });
            }
        }
    }
    let scores = GlueScores { seeds: glue.seeds.clone(), tasks };
    let json = serde_json::to_string_pretty(&scores.to_json()).expect("numbers and strings serialise");
    write_atomic(&options.folder.join(SCORES), (json + "\n").as_bytes())?;
    let submission = glue.has_submission.then(|| pack(&folder, &answers, progress)).transpose()?;
    Ok(GlueOutcome::Done { scores, submission })
}

/// Checks the choice of tasks.
fn check(glue: &GlueOptions) -> Result<()> {
    let refuse = |found: &str, expected: &str| {
        Err(TrainerError::Setting { key: "tasks".into(), found: found.into(), expected: expected.into() })
    };
    let has = |task| glue.tasks.contains(&task);
    if has(GlueTask::Ax) && !has(GlueTask::Mnli) {
        return refuse("ax without mnli", "mnli beside it, whose model answers the diagnostic set");
    }
    let for_another = |change: &&Override| change.task.is_some_and(|task| !has(task));
    if let Some(Override { task: Some(task), set }) = glue.overrides.iter().find(for_another) {
        let names: Vec<&str> = glue.tasks.iter().map(|task| task.name()).collect();
        return Err(TrainerError::Setting {
            key: format!("--set {}:{set}", task.name()),
            found: "for a task that is not trained".into(),
            expected: format!("one of the tasks that are: {}", names.join(", ")),
        });
    }
    match glue.tasks.is_empty() {
        true => refuse("empty", "one task or more, such as cola,rte"),
        false => Ok(()),
    }
}

/// Reads a task's labelled rows as its run will.
fn check_rows(config: &FineTuneConfig) -> Result<()> {
    let DataSection { train, dev, test, .. } = &config.data;
    let (task, _) = TextTask::read(&config.task, train)?;
    for files in [dev, test].into_iter().filter(|files| !files.is_empty()) {
        task.read_more(&train.with_files(files.iter().cloned()))?;
    }
    Ok(())
}

/// A task that has been trained.
struct Trained {
    rate: f64,
    /// The model of the best seed.
    model: PathBuf,
    splits: Vec<(String, Seeds)>,
}

/// Trains a task with every seed; with several learning rates after the first seed has chosen one. None if it was
/// stopped.
fn train(
    rates: &[(f64, FineTuneConfig)],
    seeds: &[u64],
    folder: &Path,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Option<Trained>> {
    let of_rate = |rate: f64| match rates.len() {
        1 => folder.to_owned(),
        _ => folder.join(format!("lr-{rate:e}")),
    };
    let mut train = |(rate, plan): &(f64, FineTuneConfig), seeds: &[u64]| {
        let options = RunOptions { folder: of_rate(*rate), ..options.clone() };
        train_seeds(plan, seeds, &options, progress)
    };
    let mut chosen: Option<(&(f64, FineTuneConfig), f64)> = None;
    for of_rate in rates.iter().filter(|_| rates.len() > 1) {
        let trained = train(of_rate, &seeds[..seeds.len().min(1)])?;
        let OverSeeds::Done { splits, .. } = trained else { return Ok(None) };
        let (name, value) = main_figure(&splits).unwrap_or(("accuracy".into(), f64::NAN));
        if chosen.is_none_or(|(_, best)| Better::of(&name).improves(value, best)) {
            chosen = Some((of_rate, value));
        }
    }
    let chosen = chosen.map_or(&rates[0], |(of_rate, _)| of_rate);
    match train(chosen, seeds)? {
        OverSeeds::Done { model, splits, .. } => Ok(Some(Trained { rate: chosen.0, model, splits })),
        OverSeeds::Stopped { .. } => Ok(None),
    }
}

/// The figure of the first run on the development data that chooses a model.
fn main_figure(splits: &[(String, Seeds)]) -> Option<(String, f64)> {
    let (_, seeds) = splits.iter().find(|(split, _)| split == "dev")?;
    let (name, value) = seeds.runs().first()?.figures.main();
    Some((name.to_owned(), value))
}

/// The scores of a task's parts: the development data, and of MNLI the second file of it, which the run measured as
/// test data.
fn parts(task: GlueTask, splits: &[(String, Seeds)]) -> Vec<PartScores> {
    let titles =
        task.facts().labelled.iter().flat_map(|labelled| labelled.dev.iter().map(|(title, _)| *title));
    let part = |(title, split): (&'static str, &str)| {
        let (_, seeds) = splits.iter().find(|(known, _)| known == split)?;
        let values = |metric: &str| {
            seeds.runs().iter().map(|run| run.figures.get(metric).unwrap_or(f64::NAN)).collect()
        };
        let metrics = task.metrics().iter().map(|metric| (*metric, values(metric))).collect();
        Some(PartScores { title, metrics })
    };
    titles.zip(["dev", "test"]).filter_map(part).collect()
}
