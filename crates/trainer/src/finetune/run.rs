//! A fine-tuning run from the config to the saved model.

use super::config::{FineTuneRun, unset};
use super::kind::TaskSettings;
use super::reading::{TaskData, missing};
use super::recurrent;
use super::task::PretrainedTask;
use super::task_run::TaskRun;
use super::validate::validate;
use crate::config::{ConfigFile, Run, layered};
use crate::engine::origin::{Input, model_files};
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions};
use crate::metrics::progress::RunProgress;
use crate::runs::RunKind;
use crate::{Result, TrainerError};
use cloze_data::labelled::Named;
use cloze_tokenizer::Tokenizer;
use std::path::{Path, PathBuf};

/// Fine-tunes a checkpoint as configured: data, steps, evaluations, the best model, its report.
///
/// # Errors
/// Invalid data, checkpoint or run folder; a non-finite loss if the config says to stop on one.
pub fn fine_tune<S: TaskSettings>(
    config: &Run<FineTuneRun<S>>,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    folder.check_inputs(inputs_of(config)?)?;
    let kind = config.task.kind();
    let run = TaskRun { config: config.tuning(), options, folder, pruning: None };
    match recurrent::Body::of(run.config) {
        Some(body) => recurrent::fine_tune(body, kind.recurrent(), run, progress),
        None => kind.tune(run, progress),
    }
}

/// Fine-tunes for a task on in-memory data, as configured; of the config's `[task]` and `[data]` only `max_len`
/// is used.
///
/// # Errors
/// Those of [`fine_tune`].
pub fn fine_tune_task<S: TaskSettings, T: PretrainedTask>(
    task: &T,
    data: TaskData<T>,
    tokenizer: &Tokenizer,
    config: &Run<FineTuneRun<S>>,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    TaskRun { config: config.tuning(), options, folder, pruning: None }.train(task, data, tokenizer, progress)
}

/// The files that a run reads, with their checksums: those of the data, and the checkpoint's.
///
/// # Errors
/// Missing or unreadable data files.
fn inputs_of<S: TaskSettings>(config: &FineTuneRun<S>) -> Result<Vec<Input>> {
    let section = &config.data;
    let mut paths = section.train.paths(Path::new(""))?;
    for (split, files) in [("dev", &section.dev), ("test", &section.test)] {
        let source = section.train.with_files(files.to_vec());
        if !files.is_empty() {
            paths.extend(source.paths(Path::new("")).map_err(|error| missing(split, error.into()))?);
        }
    }
    match &config.model.recurrent {
        None if config.model.path.as_os_str().is_empty() => {}
        None => paths.extend(model_files(&config.model.path)?),
        Some(section) => {
            if let Some(path) = section.tokenizer.path() {
                paths.extend(model_files(path)?);
            }
        }
    }
    if let Some(section) = &config.distillation {
        paths.extend(model_files(&section.teacher)?);
    }
    for path in config.task.kind().models() {
        paths.extend(model_files(path)?);
    }
    Input::of(paths)
}

impl<S: TaskSettings> RunKind for FineTuneRun<S> {
    const FREE_KEYS: &'static [&'static str] =
        &["run.name", "train.recompute", "eval.batch_tokens", "checkpoint.", "log.", "data.test"];

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("task").is_some_and(S::is_of)
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        layered::read(file, sets, |config: &mut Run<Self>| {
            config.data.train.named = Named::TrainingData;
            if config.data.max_len == unset() {
                let max_len = config.task.kind().default_max_len();
                config.data.max_len = max_len;
            }
            validate(&*config.task.kind(), config.tuning())
        })
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        self.model.recurrent.is_none().then_some(&mut self.model.path)
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        inputs_of(self)
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        fine_tune(run, options, progress).map_err(TrainerError::of_training_data)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::FineTuneConfig;
    use super::*;
    use crate::Place;
    use crate::config::FolderConfig;

    const FILE: &str = r#"[task]
kind = "classification"

[model]
path = "model"

[data]
train = { files = ["train.tsv"] }
dev = ["dev.tsv"]

[train]
epochs = 3
batch_size = 32

[optimizer]
lr = 5e-5

[schedule]
kind = "linear"
"#;

    fn load(text: &str, sets: &[&str]) -> Result<FineTuneConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sst2.toml");
        std::fs::write(&path, text).unwrap();
        assert!(<FineTuneRun>::is_of(&ConfigFile::open(&path).unwrap()));
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let loaded = FineTuneConfig::load(&path, &sets);
        if let Ok(loaded) = &loaded {
            let parsed = FineTuneConfig::parse(text, "sst2", &Place::file(Path::new("memory")), &sets);
            assert_eq!(&parsed.unwrap(), loaded);
        }
        loaded
    }

    #[test]
    fn a_file_is_completed_and_reads_back() {
        let config = load(FILE, &["train.epochs=2", "model.dropout.hidden=0.2"]).unwrap();
        assert_eq!(
            (config.common.run.name.as_str(), config.train.epochs, config.data.max_len),
            ("sst2", 2, 128)
        );
        assert_eq!(config.model.dropout.hidden, Some(0.2));
        assert_eq!(load(&config.to_toml(), &[]).unwrap(), config);
        let other = load(FILE, &["train.epochs=2", "optimizer.lr=1e-4", "log.every=3"]).unwrap();
        let differences: Vec<String> = config.differences(&other).iter().map(ToString::to_string).collect();
        assert_eq!(
            differences,
            ["model.dropout.hidden: 0.2 became absent", "optimizer.lr: 0.00005 became 0.0001"]
        );
    }

    #[test]
    fn development_files_of_an_argument_replace_a_share() {
        let share = FILE.replace("dev = [\"dev.tsv\"]", "dev_fraction = 0.2");
        let files = ["data.dev=[\"mine.tsv\"]"];
        let config = load(&share, &files).unwrap();
        assert_eq!(config.data.dev, ["mine.tsv"]);
        assert_eq!(config.data.dev_fraction, None);
        let told = |text: &str, sets: &[&str]| {
            let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
            ConfigFile::parse(text, "run", &Place::file(Path::new("run.toml"))).unwrap().replaced(&sets)
        };
        assert_eq!(
            told(&share, &files),
            ["`data.dev` is given by --set: `data.dev_fraction` of run.toml:9 is not used"]
        );
        // Nothing is replaced where nothing is named, or where both are the user's.
        assert!(told(&share, &["data.dev=[]"]).is_empty() && told(FILE, &files).is_empty());
        assert_eq!(load(&share, &["data.dev=[]"]).unwrap().data.dev_fraction, Some(0.2));
        let both = [files[0], "data.dev_fraction=0.1"];
        assert!(told(&share, &both).is_empty());
        assert!(load(&share, &both).unwrap_err().to_string().contains("expected nothing with `data.dev`"));
        assert!(load(&FILE.replace("dev = [", "dev_fraction = 0.2\ndev = ["), &[]).is_err());
    }

    #[test]
    fn mistakes_have_a_place() {
        let error = |text: &str, sets: &[&str]| load(text, sets).unwrap_err().to_string();
        let typo = error(&FILE.replace("epochs", "epoch"), &[]);
        assert!(typo.ends_with(":12: unknown key `train.epoch`; did you mean `train.epochs`?"), "{typo}");
        let zero = error(&FILE.replace("batch_size = 32", "batch_size = 0"), &[]);
        assert!(
            zero.ends_with(":13: `train.batch_size` is 0; expected a whole number of 1 or more"),
            "{zero}"
        );
        assert_eq!(
            error(FILE, &["model.layer_decay=1.5"]),
            "--set model.layer_decay=1.5: `model.layer_decay` is 1.5; expected a number above 0, at most 1"
        );
        assert_eq!(
            error(FILE, &["data.dev=[]", "data.dev_fraction=1.2"]),
            "--set data.dev_fraction=1.2: `data.dev_fraction` is 1.2; expected a number above 0 and below 1"
        );
        // Several at once, with what is missing.
        let all = error(&FILE.replace("lr = 5e-5", ""), &["train.batch_size=0", "data.max_len=0"]);
        for told in ["missing key `optimizer.lr`", "`train.batch_size` is 0", "`data.max_len` is 0"] {
            assert!(all.contains(told), "{told}: {all}");
        }
        // Within a table of a kind, too; and what only some configs need.
        let loss = error(&FILE.replace("classification", "embedding"), &[]);
        assert!(loss.ends_with(":1: missing key `task.loss.kind`, which has no default"), "{loss}");
        let several = error(&FILE.replace("path = \"model\"", "").replace("lr = 5e-5", ""), &[]);
        let told = ": missing keys, which have no default: `lr` in `[optimizer]`, `path` in `[model]`";
        assert!(several.ends_with(told), "{several}");
        let answers = FILE.replace("classification", "answers");
        assert_eq!(load(&answers, &[]).unwrap().data.max_len, 384);
        assert_eq!(
            error(&answers, &["task.n_best=0"]),
            "--set task.n_best=0: `task.n_best` is 0; expected a whole number of 1 or more"
        );
        assert_eq!(
            error(&answers, &["task.null_threshold=nan"]),
            "--set task.null_threshold=nan: `task.null_threshold` is NaN; expected a number"
        );
    }
}
