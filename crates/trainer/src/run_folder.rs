//! A run's folder: what lies where, and one process at a time.
//!
//! ```text
//! config.toml       the resolved config
//! tokenizer.json    the tokenizer, trained or copied
//! metrics.jsonl     the metrics; tensorboard/ has them for TensorBoard
//! held-out.json     of a fine-tuning run, which training examples it held out
//! checkpoints/      what --resume goes on from
//! curve.svg         the learning curve
//! model/            the result, as a Hugging Face folder
//! result.json       of a fine-tuning run that has ended, its figures
//! ```

use crate::checkpoint::flush;
use crate::config::FolderConfig;
use crate::metrics::METRICS_FILE;
use crate::{Result, TrainerError};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// A run's folder, held by this process until dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl RunFolder {
    /// Takes `path` for a new run. One that ended over its data or checkpoint, before its first step, does not
    /// stand in the way of the corrected one.
    ///
    /// # Errors
    /// [`TrainerError::RunExists`] if a run has made a step there before, [`TrainerError::RunInUse`] if
    /// another process is at it, [`TrainerError::Io`].
    pub fn create(path: &Path, config: &impl FolderConfig) -> Result<Self> {
        let folder = Self::take(path)?;
        if Self::has_begun(path) {
            return Err(TrainerError::RunExists { path: path.into() });
        }
        write_whole(&folder.config(), config.to_toml().as_bytes())?;
        Ok(folder)
    }

    /// Whether a run was started in `path` that is more than a config.
    pub fn has_begun(path: &Path) -> bool {
        path.join(METRICS_FILE).exists()
    }

    /// Takes `path`, where a run with the same config was started before.
    ///
    /// # Errors
    /// [`TrainerError::NoRun`] if none was, [`TrainerError::ConfigChanged`] naming what differs,
    /// [`TrainerError::RunInUse`], [`TrainerError::Io`].
    pub fn resume<C: FolderConfig>(path: &Path, config: &C) -> Result<Self> {
        if !path.join("config.toml").exists() {
            return Err(TrainerError::NoRun { path: path.into() });
        }
        let folder = Self::take(path)?;
        let saved = C::load(&folder.config())?;
        let differences = saved.differences(config);
        if differences.is_empty() {
            // What may differ, such as how often to log, is as it is now.
            write_whole(&folder.config(), config.to_toml().as_bytes())?;
            return Ok(folder);
        }
        let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
        Err(TrainerError::ConfigChanged { path: folder.config(), differences: differences.join("; ") })
    }

    fn take(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(TrainerError::io("make", path))?;
        let lock_path = path.join(".lock");
        let lock = File::create(&lock_path).map_err(TrainerError::io("write", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.into(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(TrainerError::RunInUse { path: path.into() }),
            Err(TryLockError::Error(source)) => {
                Err(TrainerError::Io { action: "lock", path: lock_path, source })
            }
        }
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

    /// The places, from 0, of the training examples that a fine-tuning run held out: a JSON list.
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

    /// The figures of a fine-tuning run that has ended.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// The result, as a Hugging Face folder.
    pub fn model(&self) -> PathBuf {
        self.path.join("model")
    }
}

/// Writes a file that is found whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, bytes).map_err(TrainerError::io("write", &partial))?;
    flush(&partial)?;
    fs::rename(&partial, path).map_err(TrainerError::io("write", path))
}

/// Fills a folder that is found whole or not at all: `fill` writes into a folder beside it, which
/// then takes its place.
pub(crate) fn write_whole_folder(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let partial = path.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(TrainerError::io("remove", &partial))?;
    }
    fs::create_dir_all(&partial).map_err(TrainerError::io("make", &partial))?;
    fill(&partial)?;
    for entry in fs::read_dir(&partial).map_err(TrainerError::io("read", &partial))?.flatten() {
        flush(&entry.path())?;
    }
    if path.exists() {
        fs::remove_dir_all(path).map_err(TrainerError::io("replace", path))?;
    }
    fs::rename(&partial, path).map_err(TrainerError::io("write", path))
}
