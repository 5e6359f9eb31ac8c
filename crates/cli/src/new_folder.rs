//! A folder that is there when all of it is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;

use crate::failure::WrongUsage;

/// A folder that is being filled beside its place.
pub struct NewFolder {
    out: PathBuf,
    /// For this user alone, as temporary folders are; the folder inside is moved.
    partial: TempDir,
}

impl NewFolder {
    /// Checks that `out` is a new or an empty folder.
    ///
    /// # Errors
    /// [`WrongUsage`] if it is not.
    pub fn check(out: &Path) -> Result<()> {
        let is_taken = match fs::read_dir(out) {
            Ok(mut entries) => entries.next().is_some(),
            Err(_) => out.exists(),
        };
        match is_taken {
            true => {
                let error = anyhow!("{} already exists: choose a new or empty folder", out.display());
                Err(WrongUsage::new(error).into())
            }
            false => Ok(()),
        }
    }

    /// An empty folder beside `out`.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and a folder that cannot be created.
    pub fn new(out: &Path) -> Result<Self> {
        Self::check(out)?;
        let parent = match out.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let cannot = || format!("cannot create {}", out.display());
        fs::create_dir_all(parent).with_context(cannot)?;
        let partial = tempfile::Builder::new().prefix(".cloze-").tempdir_in(parent).with_context(cannot)?;
        fs::create_dir(partial.path().join("model")).with_context(cannot)?;
        Ok(Self { out: out.into(), partial })
    }

    /// The folder to fill.
    pub fn path(&self) -> PathBuf {
        self.partial.path().join("model")
    }

    /// A folder for intermediate files, which is removed at the end.
    ///
    /// # Errors
    /// A folder that cannot be created.
    pub fn work(&self, name: &str) -> Result<PathBuf> {
        let path = self.partial.path().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", self.out.display()))?;
        Ok(path)
    }

    /// Moves the folder to its place.
    ///
    /// # Errors
    /// A place that another process has taken, or that the folder cannot be moved to; then nothing is left of it.
    pub fn finish(self) -> Result<()> {
        let out = &self.out;
        // An empty one in its place: not every system replaces it.
        let _ = fs::remove_dir(out);
        fs::rename(self.path(), out).map_err(|error| {
            // It was new or empty before.
            match fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
                true => {
                    anyhow!("another process wrote {} in the meantime; it is left unchanged", out.display())
                }
                false => anyhow::Error::new(error).context(format!("cannot create {}", out.display())),
            }
        })
    }
}
