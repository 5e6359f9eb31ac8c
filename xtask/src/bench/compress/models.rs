//! Smaller models of tasks: how good they are, and what their answers take.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::methods::{METHODS, Make, Method};
use crate::bench::finetune::tasks::Task;
use crate::bench::kept::{Kept, Key};
use crate::bench::measure;
use crate::step;

/// Texts that ranges and GPTQ are measured on.
const CALIBRATION: usize = 1_000;

/// A finished model: its figures and its cost, as `cloze eval --cost --json` prints them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Made {
    pub figures: BTreeMap<String, f64>,
    pub cost: BTreeMap<String, Option<f64>>,
}

/// Makes models, or reads what was kept of them.
pub struct Maker {
    pub program: PathBuf,
    pub version: String,
    /// The peers' Python, if there is one.
    pub python: Option<OsString>,
    pub kept: Kept,
    /// Whether nothing is made: only what is there is measured.
    pub only_kept: bool,
}

impl Maker {
    /// A task's model by a method, and what it begins from before it. None for a peer's if there is no Python, and for one that is
    /// not there if nothing is to be made.
    pub fn make(&self, task: &Task, method: &Method, seed: u64) -> Result<Option<Made>> {
        let key = self.key(task, method, seed)?;
        if let Some(made) = self.kept.read(&key)? {
            return Ok(Some(made));
        }
        let made = match method.make {
            _ if self.only_kept && !self.place(&key, method).join("config.json").exists() => return Ok(None),
            Make::Train(_) | Make::Run(_) => self.measured(task, &self.folder(task, method, seed)?)?,
            Make::Peer(arguments) => {
                let Some(python) = &self.python else { return Ok(None) };
                eprintln!("{key}: {} …", method.name);
                self.trained_by_peer(python, task, method, arguments, seed)?
            }
        };
        self.kept.write(&key, &made)?;
        Ok(Some(made))
    }

    /// What `cloze eval --cost` says of a model.
    fn measured(&self, task: &Task, folder: &Path) -> Result<Made> {
        let mut eval = Command::new(&self.program);
        eval.current_dir(step::root()).arg("eval").arg("--model").arg(folder).arg(task.path());
        eval.args(["--cost", "--json"]);
        let printed: Value = serde_json::from_str(measure::output(&mut eval)?.trim())?;
        let numbers = |name: &str| printed[name].as_object().into_iter().flatten();
        let figures = numbers("figures").filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
        let cost = numbers("cost").map(|(name, value)| (name.clone(), value.as_f64()));
        Ok(Made { figures: figures.collect(), cost: cost.collect() })
    }

    /// What a peer says of the model that it made.
    fn trained_by_peer(
        &self,
        python: &OsString,
        task: &Task,
        method: &Method,
        arguments: &[&str],
        seed: u64,
    ) -> Result<Made> {
        let from = method.from.context("a peer begins from a model")?;
        let from = self.folder_of(task, from, seed)?;
        let arguments = arguments.iter().map(|part| part.replace("{from}", &from.to_string_lossy()));
        let config = task.path().to_string_lossy().into_owned();
        let mut command = measure::peer(python, "finetune.py", &[&config, &seed.to_string()]);
        command.current_dir(step::root()).args(arguments).env("TOKENIZERS_PARALLELISM", "false");
        let printed: Value = serde_json::from_str(&measure::last_line(&mut command)?)?;
        let figures = printed["figures"].as_object().into_iter().flatten();
        let figures = figures.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
        Ok(Made { figures: figures.collect(), cost: BTreeMap::new() })
    }

    /// The folder of a method's model, which is made if it is not there.
    fn folder(&self, task: &Task, method: &Method, seed: u64) -> Result<PathBuf> {
        let key = self.key(task, method, seed)?;
        let (scratch, folder) = (self.kept.scratch(&key), self.place(&key, method));
        if folder.join("config.json").exists() {
            return Ok(folder);
        }
        let from = method.from.and_then(named).map(|from| self.folder(task, from, seed)).transpose()?;
        let teacher = self.folder_of(task, super::methods::TEACHER, seed)?;
        let texts = self.texts(task)?;
        let filled = |part: &&str| {
            part.replace("{from}", &from.as_deref().unwrap_or(Path::new("")).to_string_lossy())
                .replace("{teacher}", &teacher.to_string_lossy())
                .replace("{texts}", &texts.to_string_lossy())
                .replace("{config}", &task.path().to_string_lossy())
        };
        eprintln!("{key}: {} …", method.name);
        let mut command = Command::new(&self.program);
        command.current_dir(step::root());
        match method.make {
            Make::Train(settings) => {
                command.arg("train").arg(task.path());
                if scratch.join("config.toml").exists() {
                    command.arg("--resume");
                }
                let seed = format!("run.seed={seed}");
                let all = settings.iter().map(filled).chain([seed, "checkpoint.keep_last=1".to_owned()]);
                command.args(all.flat_map(|set| ["--set".to_owned(), set]));
            }
            Make::Run(arguments) | Make::Peer(arguments) => {
                command.args(arguments.iter().map(filled));
            }
        }
        measure::output(command.arg("--out").arg(&scratch))?;
        Ok(folder)
    }

    /// Where a method's model lies.
    fn place(&self, key: &Key, method: &Method) -> PathBuf {
        let scratch = self.kept.scratch(key);
        match method.make {
            Make::Train(_) => scratch.join("model"),
            Make::Run(_) | Make::Peer(_) => scratch,
        }
    }

    /// Where the model of a named method lies.
    fn folder_of(&self, task: &Task, name: &str, seed: u64) -> Result<PathBuf> {
        let method = named(name).with_context(|| format!("no method {name:?}"))?;
        Ok(self.place(&self.key(task, method, seed)?, method))
    }

    /// The key of a method's model.
    fn key(&self, task: &Task, method: &Method, seed: u64) -> Result<Key> {
        let path = task.path();
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // What a method begins from decides about its result too.
        let mut decides: Vec<&str> = Vec::new();
        let mut next = Some(method);
        while let Some(method) = next {
            let (Make::Train(parts) | Make::Run(parts) | Make::Peer(parts)) = method.make;
            decides.extend(parts);
            decides.push(method.name);
            next = method.from.and_then(named);
        }
        let side: String = method.name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        Ok(Key::new(task.name, &side, seed, &config, &decides, &self.version))
    }

    /// Texts of a task's training data, one a line.
    fn texts(&self, task: &Task) -> Result<PathBuf> {
        let path = self.kept.scratch(&Key::new(task.name, "texts", 0, "", &[], "")).with_extension("txt");
        if path.exists() {
            return Ok(path);
        }
        let config: toml::Table = fs::read_to_string(task.path())?.parse()?;
        let train = config.get("data").and_then(|data| data.get("train")).context("no data.train")?;
        let file = train.get("files").and_then(|files| files.get(0)).and_then(toml::Value::as_str);
        let file = step::root().join(file.context("no data.train.files")?);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let lines = text.lines().filter_map(longest).take(CALIBRATION);
        fs::write(&path, lines.fold(String::new(), |all, line| all + line + "\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// The longest field of a row: its text, or one of its texts.
fn longest(row: &str) -> Option<&str> {
    row.split('\t').max_by_key(|field| field.len()).filter(|field| !field.is_empty())
}

/// The method of this name.
fn named(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::finetune::tasks::TASKS;

    #[test]
    fn a_key_names_what_a_method_begins_from() {
        let folder = std::env::temp_dir().join(format!("cloze-compress-{}", std::process::id()));
        let kept = Kept::open(folder.clone()).unwrap();
        let maker =
            Maker { program: "cloze".into(), version: "1".into(), python: None, kept, only_kept: false };
        let key = |name, seed| maker.key(&TASKS[0], named(name).unwrap(), seed).unwrap().to_string();
        assert_ne!(key("half of the heads, one epoch", 1), key("half of heads and neurons, one epoch", 1));
        assert_ne!(key("int8", 1), key("int8", 2));
        assert!(key("int8, static", 1).starts_with("sst2-int8--static-1-"));
        assert_eq!(longest("1\tA text.\tb"), Some("A text."));
        assert_eq!(longest(""), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
