//! A folder that a command writes as a whole.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;

use crate::failure::WrongUsage;

/// A folder that is filled beside its place and moved there when it is complete.
pub struct NewFolder {
    out: PathBuf,
    /// For this user alone, as temporary folders are; the one inside is moved.
    partial: TempDir,
}

impl NewFolder {
    /// A folder for `out`.
    ///
    /// # Errors
    /// [`WrongUsage`] if `out` is there and not empty; a folder that cannot be created.
    pub fn create(out: &Path) -> Result<Self> {
        let is_taken = match fs::read_dir(out) {
            Ok(mut entries) => entries.next().is_some(),
            Err(_) => out.exists(),
        };
        if is_taken {
            let error = anyhow!("{} already exists: choose a new or empty folder", out.display());
            return Err(WrongUsage::new(error).into());
        }
        let parent = match out.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let cannot = || format!("cannot create {}", out.display());
        fs::create_dir_all(parent).with_context(cannot)?;
        let partial = tempfile::Builder::new().prefix(".cloze-").tempdir_in(parent).with_context(cannot)?;
        let folder = Self { out: out.into(), partial };
        folder.work("model")?;
        Ok(folder)
    }

    /// Where to write what will be moved.
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

    /// Moves the folder into its place.
    ///
    /// # Errors
    /// Another process that wrote it in the meantime; a folder that cannot be moved.
    pub fn finish(self) -> Result<()> {
        let out = &self.out;
        // An empty one in its place: not every system replaces it.
        let _ = fs::remove_dir(out);
        let Err(error) = fs::rename(self.path(), out) else { return Ok(()) };
        // It was new or empty before.
        Err(match fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
            true => anyhow!("another process wrote {} in the meantime; it is left unchanged", out.display()),
            false => anyhow::Error::new(error).context(format!("cannot create {}", out.display())),
        })
    }
}
