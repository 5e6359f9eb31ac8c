//! A run folder: its layout, and its lock against concurrent processes.
//!
//! ```text
//! run.json          what the run was made from; marks the folder as a run's
//! config.toml       the resolved config
//! tokenizer.json    the tokenizer, trained or copied; tokenizer_config.json has its special pieces
//! metrics.jsonl     the metrics; tensorboard/ has them for TensorBoard
//! held-out.json     which training examples were held out, if any
//! checkpoints/      what --resume continues from
//! best.json         the checksums of the best model so far, if that is the result and in model/
//! curve.svg         the learning curve
//! model/            the result, as a Hugging Face folder
//! report/           the evaluation of the result on each split, a page and files for each
//! result.json       the metrics of a finished run
//! index.html        the page of a finished run, which leads to all of these
//! ```

use crate::engine::folder_config::FolderConfig;
use crate::engine::origin::{Input, ORIGIN_FILE, Origin, difference};
use crate::metrics::METRICS_FILE;
use crate::{Result, TrainerError};
use cloze_evaluation::report::IndexLink;
use cloze_files::{PARTIAL, flush, write_atomic};
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The extension of a folder that is about to be replaced.
const REPLACED: &str = "replaced";
/// The page of a run.
pub(crate) const INDEX: &str = "index.html";
/// What a run's folder may hold, for its page.
const CONTENTS: [(&str, &str); 11] = [
    ("model/", "the result, as a Hugging Face folder"),
    ("report/", "the evaluation of the result on each split: pages, tables and every prediction"),
    ("curve.svg", "the learning curve"),
    ("result.json", "the result's metrics on each split"),
    ("metrics.jsonl", "the metrics of every logged step and every evaluation"),
    ("tensorboard/", "the same metrics for TensorBoard"),
    ("config.toml", "the complete config of the run"),
    ("run.json", "the files that the run read, with their checksums"),
    ("tokenizer.json", "the tokenizer"),
    ("held-out.json", "the training examples that were held out"),
    ("checkpoints/", "the training state that `--resume` continues from; not needed to use the model"),
];
/// The lock file.
const LOCK: &str = ".lock";

/// A run folder, locked by this process until dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl RunFolder {
    /// Claims `path` to resume the run in it, or for a new one.
    ///
    /// # Errors
    /// Those of [`resume`](Self::resume), or of [`create`](Self::create).
    pub fn open<C: FolderConfig>(path: &Path, config: &C, resume: bool) -> Result<Self> {
        if resume { Self::resume(path, config) } else { Self::create(path, config) }
    }

    /// Claims `path` for a new run. The folder is new or empty, or holds a run that failed before its first
    /// step, which is replaced.
    ///
    /// # Errors
    /// [`TrainerError::NotARun`] if the folder has other contents, [`TrainerError::RunExists`] if a run has
    /// already made a step there, [`TrainerError::RunInUse`] if another process is using it,
    /// [`TrainerError::Io`].
    pub fn create(path: &Path, config: &impl FolderConfig) -> Result<Self> {
        let folder = Self::take(path)?;
        if Self::has_begun(path) {
            return Err(TrainerError::RunExists { path: path.into() });
        }
        mark(path)?;
        write_atomic(&folder.config(), config.to_toml().as_bytes())?;
        Ok(folder)
    }

    /// Whether the run in `path` got beyond writing its config.
    pub fn has_begun(path: &Path) -> bool {
        path.join(METRICS_FILE).exists()
    }

    /// Claims `path`, where a run with the same config was started before.
    ///
    /// # Errors
    /// [`TrainerError::NoRun`] if there was none, [`TrainerError::ConfigChanged`] naming what differs,
    /// [`TrainerError::NotARun`], [`TrainerError::RunInUse`], [`TrainerError::Io`].
    pub fn resume<C: FolderConfig>(path: &Path, config: &C) -> Result<Self> {
        if !path.join("config.toml").exists() {
            return Err(TrainerError::NoRun { path: path.into() });
        }
        let folder = Self::take(path)?;
        let saved = C::load(&folder.config())?;
        let differences = saved.differences(config);
        if differences.is_empty() {
            mark(path)?;
            // What may differ, such as how often to log, is as it is now.
            write_atomic(&folder.config(), config.to_toml().as_bytes())?;
            return Ok(folder);
        }
        let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
        Err(TrainerError::ConfigChanged { path: folder.config(), differences: differences.join("; ") })
    }

    fn take(path: &Path) -> Result<Self> {
        claim(path)?;
        let lock_path = path.join(LOCK);
        let lock = File::create(&lock_path).map_err(TrainerError::io("write", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {
                let reports = path.join("report");
                clear(path)?;
                clear(&reports)?;
                for report in fs::read_dir(&reports).into_iter().flatten().flatten() {
                    if report.path().is_dir() {
                        clear(&report.path())?;
                    }
                }
                Ok(Self { path: path.into(), _lock: lock })
            }
            Err(TryLockError::WouldBlock) => Err(TrainerError::RunInUse { path: path.into() }),
            Err(TryLockError::Error(source)) => {
                Err(TrainerError::Io { action: "lock", path: lock_path, source })
            }
        }
    }

    /// What the run was made from, as far as recorded.
    pub(crate) fn origin(&self) -> Result<Origin> {
        Ok(Origin::read(&self.path)?.unwrap_or_default())
    }

    /// Compares the files that a run reads `now` with those that it was started with. A run without steps has
    /// not read any yet: its files are then recorded.
    ///
    /// # Errors
    /// [`TrainerError::InputsChanged`] naming the first file that differs, [`TrainerError::Io`].
    pub(crate) fn check_inputs(&self, now: Vec<Input>) -> Result<()> {
        let origin = self.origin()?;
        if Self::has_begun(&self.path) && !origin.inputs.is_empty() {
            return same_inputs(&self.path, &origin.inputs, &now);
        }
        Origin { inputs: now, ..origin }.write(&self.path)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resolved config.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> PathBuf {
        self.path.join("tokenizer.json")
    }

    /// The indices of the training examples that the run held out: a JSON list.
    pub fn held_out(&self) -> PathBuf {
        self.path.join("held-out.json")
    }

    /// The checkpoints' folder.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// The learning curve.
    pub fn curve(&self) -> PathBuf {
        self.path.join("curve.svg")
    }

    /// The metrics of a finished run.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// The page of a finished run.
    pub fn index(&self) -> PathBuf {
        self.path.join(INDEX)
    }

    /// The files and folders that exist, for the run's page.
    pub(crate) fn links(&self) -> Vec<IndexLink> {
        let there = CONTENTS.iter().filter(|(path, _)| self.path.join(path).exists());
        there.map(|(path, what)| IndexLink { path: (*path).into(), what: (*what).into() }).collect()
    }

    /// The result, as a Hugging Face folder.
    pub fn model(&self) -> PathBuf {
        self.path.join("model")
    }
}

/// Creates `path` if needed, and checks that its contents may be replaced: it is empty or a run folder.
///
/// # Errors
/// [`TrainerError::NotARun`], [`TrainerError::Io`].
fn claim(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(TrainerError::io("make", path))?;
    // Of versions that wrote no mark, runs that have made a step are known by what every run has.
    let unmarked = [LOCK, "config.toml", METRICS_FILE].iter().all(|file| path.join(file).is_file());
    if unmarked || Origin::read(path)?.is_some() {
        return Ok(());
    }
    // A process that is killed while it makes the mark leaves these.
    let own = [Path::new(LOCK).into(), Path::new(ORIGIN_FILE).with_extension(PARTIAL)];
    for entry in fs::read_dir(path).map_err(TrainerError::io("read", path))? {
        let name = entry.map_err(TrainerError::io("read", path))?.file_name();
        if !own.contains(&PathBuf::from(&name)) {
            return Err(TrainerError::NotARun {
                path: path.into(),
                found: name.to_string_lossy().into_owned(),
            });
        }
    }
    Ok(())
}

/// Removes what a killed run left half-written in a folder, and restores what it was about to replace.
fn clear(path: &Path) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(TrainerError::io("read", path)(error)),
    };
    for entry in entries.flatten() {
        let left = entry.path();
        let place = left.with_extension("");
        match left.extension().and_then(OsStr::to_str) {
            Some(REPLACED) if !place.exists() => {
                fs::rename(&left, &place).map_err(TrainerError::io("write", &place))?;
            }
            Some(PARTIAL | REPLACED) => remove(&left)?,
            _ => {}
        }
    }
    Ok(())
}

/// Marks a claimable folder as a run's.
fn mark(path: &Path) -> Result<()> {
    match Origin::read(path)? {
        Some(_) => Ok(()),
        None => Origin::default().write(path),
    }
}

/// Claims `path` for the folders of several runs.
///
/// # Errors
/// [`TrainerError::NotARun`] if the folder has other contents, [`TrainerError::Io`].
pub(crate) fn claim_for_runs(path: &Path) -> Result<()> {
    claim(path)?;
    mark(path)
}

/// Checks that the run in `folder` read exactly the files `now`.
///
/// # Errors
/// [`TrainerError::InputsChanged`] naming the first file that differs.
pub(crate) fn same_inputs(folder: &Path, started: &[Input], now: &[Input]) -> Result<()> {
    match difference(started, now) {
        None => Ok(()),
        Some(difference) => Err(TrainerError::InputsChanged { path: folder.into(), difference }),
    }
}

/// Fills a folder atomically: `fill` writes into a temporary folder next to it, which then replaces it.
pub(crate) fn write_folder_atomic(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let partial = path.with_extension(PARTIAL);
    remove(&partial)?;
    replace_folder(path, &partial, fill).inspect_err(|_| drop(fs::remove_dir_all(&partial)))
}

fn replace_folder(path: &Path, partial: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    fs::create_dir_all(partial).map_err(TrainerError::io("make", partial))?;
    fill(partial)?;
    flush_all(partial)?;
    // Moved aside and not removed in its place: a reader, and a run that is killed here, finds one of the two.
    let replaced = path.with_extension(REPLACED);
    remove(&replaced)?;
    if path.exists() {
        fs::rename(path, &replaced).map_err(TrainerError::io("replace", path))?;
    }
    fs::rename(partial, path).map_err(TrainerError::io("write", path)).inspect_err(|_| {
        // Back in its place, unless there was none.
        let _ = fs::rename(&replaced, path);
    })?;
    remove(&replaced)
}

/// Flushes the files of a folder and its subfolders.
fn flush_all(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(TrainerError::io("read", folder))?.flatten() {
        let path = entry.path();
        if path.is_dir() { flush_all(&path)? } else { flush(&path)? }
    }
    Ok(())
}

/// Removes a file if it exists.
pub(crate) fn forget(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(TrainerError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes a file or folder if it exists.
fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    removed.map_err(TrainerError::io("remove", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_replaced_whole_or_stays() {
        let run = tempfile::tempdir().unwrap();
        let (path, weights) = (run.path().join("model"), "weights");
        let write = |text: &str| {
            write_folder_atomic(&path, |folder| {
                fs::write(folder.join(weights), text).map_err(TrainerError::io("write", folder))
            })
        };
        write("one").unwrap();
        write("two").unwrap();
        let failed = write_folder_atomic(&path, |folder| {
            fs::write(folder.join(weights), "three").unwrap();
            Err(TrainerError::BadInput { problem: "a full disk".into() })
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(path.join(weights)).unwrap(), "two");
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 1);

        // Killed between the two renames, and after them.
        for (left, expected) in [("model.partial", "old"), ("model", "new")] {
            fs::remove_dir_all(&path).unwrap();
            for (folder, text) in [("model.replaced", "old"), (left, "new")] {
                fs::create_dir(run.path().join(folder)).unwrap();
                fs::write(run.path().join(folder).join(weights), text).unwrap();
            }
            clear(run.path()).unwrap();
            assert_eq!(fs::read_to_string(path.join(weights)).unwrap(), expected);
            assert_eq!(fs::read_dir(run.path()).unwrap().count(), 1);
        }
    }
}
