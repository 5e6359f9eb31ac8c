//! Runs that are not to be made twice.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::step;

/// Which run: what is trained, by whom, and a hash of all that decides about the result.
pub struct Key(String);

impl Key {
    /// Of a config, what its comments say decides nothing.
    pub fn new(task: &str, side: &str, seed: u64, config: &str, sets: &[&str], version: &str) -> Self {
        let table = config.parse::<toml::Table>();
        let config = &*table.map_or_else(|_| config.to_owned(), |table| table.to_string());
        let mut hasher = blake3::Hasher::new();
        // Each part with its length, so that none runs into the next.
        for part in [config, side, &seed.to_string(), version].iter().chain(sets) {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let hash = hasher.finalize().to_hex();
        Self(format!("{task}-{side}-{seed}-{}", &hash[..10]))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A folder with a file for each finished run.
pub struct Kept {
    folder: PathBuf,
}

impl Kept {
    pub fn open(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// The run, if it was finished.
    pub fn read<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>> {
        let path = self.path(key);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).map(Some).with_context(|| format!("{} is no run", path.display()))
    }

    /// Keeps a finished run in place of an earlier one.
    pub fn write(&self, key: &Key, run: &impl Serialize) -> Result<()> {
        let (path, partial) = (self.path(key), self.folder.join(format!("{key}.partial")));
        let write =
            |path: &Path| fs::write(path, serde_json::to_string(run)? + "\n").map_err(anyhow::Error::new);
        write(&partial)
            .and_then(|()| Ok(fs::rename(&partial, &path)?))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Where a run may keep what it needs to go on.
    pub fn scratch(&self, key: &Key) -> PathBuf {
        self.folder.join(key.to_string())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}

/// Removes the checkpoints of finished runs in a folder and in those below it: each is four times as large as the model.
pub fn remove_checkpoints(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
        let path = entry.path();
        if entry.file_name() == "checkpoints" {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        } else if path.is_dir() {
            remove_checkpoints(&path)?;
        }
    }
    Ok(())
}

/// The folder that cargo builds into.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| step::root().join("target"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_decides_about_a_run_is_in_its_key() {
        let key = |side, seed, config, sets: &[&str], version| {
            Key::new("trec", side, seed, config, sets, version).to_string()
        };
        let all = [
            key("ours", 1, "lr = 1", &[], "0.1"),
            key("theirs", 1, "lr = 1", &[], "0.1"),
            key("ours", 2, "lr = 1", &[], "0.1"),
            key("ours", 1, "lr = 2", &[], "0.1"),
            key("ours", 1, "lr = 1", &["train.epochs=1"], "0.1"),
            key("ours", 1, "lr = 1", &["train.epochs", "=1"], "0.1"),
            key("ours", 1, "lr = 1", &[], "0.2"),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other != one), "{all:?}");
        }
        assert_eq!(all[0], key("ours", 1, "lr = 1", &[], "0.1"));
        assert_eq!(all[0], key("ours", 1, "# Lifts it to 0.82.\nlr = 1 # as theirs", &[], "0.1"));
        assert!(all[0].starts_with("trec-ours-1-") && all[0].len() == 22, "{}", all[0]);
    }

    #[test]
    fn checkpoints_are_removed_wherever_they_lie() {
        let folder = std::env::temp_dir().join(format!("cloze-kept-checkpoints-{}", std::process::id()));
        let runs = ["seed-1", "rte/seed-2"].map(|run| folder.join(run));
        for run in &runs {
            fs::create_dir_all(run.join("checkpoints/step-2")).unwrap();
            fs::write(run.join("result.json"), "{}").unwrap();
        }
        remove_checkpoints(&folder).unwrap();
        for run in &runs {
            assert!(run.join("result.json").exists() && !run.join("checkpoints").exists());
        }
        fs::remove_dir_all(&folder).unwrap();
        assert!(remove_checkpoints(&folder).is_err());
    }

    #[test]
    fn what_is_finished_is_kept() {
        let folder = std::env::temp_dir().join(format!("cloze-kept-{}", std::process::id()));
        let kept = Kept::open(folder.clone()).unwrap();
        let (one, other) = (Key::new("t", "ours", 1, "", &[], ""), Key::new("t", "ours", 2, "", &[], ""));
        assert!(kept.read::<Vec<f64>>(&one).unwrap().is_none());
        for seconds in [12.5, 11.0] {
            let run = vec![0.5, seconds];
            kept.write(&one, &run).unwrap();
            assert_eq!(Kept::open(folder.clone()).unwrap().read(&one).unwrap(), Some(run));
        }
        assert!(kept.read::<Vec<f64>>(&other).unwrap().is_none());
        fs::write(kept.path(&other), "{").unwrap();
        assert!(kept.read::<Vec<f64>>(&other).unwrap_err().to_string().ends_with("is no run"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
