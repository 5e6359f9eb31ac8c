//! The best model so far, for runs whose result it is: kept in `model/` during the run, with its checksums in
//! the checkpoints.
//!
//! A model is exported before the next checkpoint is written. So that a run killed in between can still
//! identify the contents of `model/`, the checksums are also in `best.json`, written before the model is moved
//! into place.

use super::run_folder::{RunFolder, write_folder_atomic};
use crate::{Result, TrainerError};
use cloze_data::file_checksum;
use cloze_files::write_atomic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The BLAKE3 hashes of a model's files, by name.
pub type Checksums = BTreeMap<String, String>;

/// The last exported best model.
#[derive(Debug, Serialize, Deserialize)]
struct Exported {
    step: u64,
    files: Checksums,
}

/// The location of a run's best model.
#[derive(Debug, Clone)]
pub(crate) struct BestModel {
    model: PathBuf,
    record: PathBuf,
}

impl BestModel {
    pub fn of(folder: &RunFolder) -> Self {
        Self { model: folder.model(), record: folder.path().join("best.json") }
    }

    /// Exports the model of a step with `save`; returns its checksums.
    pub fn write(&self, step: u64, save: impl FnOnce(&Path) -> Result<()>) -> Result<Checksums> {
        let mut files = Checksums::new();
        write_folder_atomic(&self.model, |folder| {
            save(folder)?;
            files = checksums(folder)?;
            let exported = Exported { step, files: files.clone() };
            let text = serde_json::to_string_pretty(&exported).expect("plain values serialise");
            Ok(write_atomic(&self.record, (text + "\n").as_bytes())?)
        })?;
        Ok(files)
    }

    /// Whether the exported model has these checksums; for runs of versions without checksums, whether there is
    /// a model.
    pub fn is(&self, files: &Checksums) -> bool {
        self.model.is_dir()
            && files
                .iter()
                .all(|(name, sum)| file_checksum(&self.model.join(name)).is_ok_and(|found| found == *sum))
    }

    /// Whether the exported model is from after `step`; a run resumed from there recreates it.
    pub fn is_later_than(&self, step: u64) -> bool {
        let exported = fs::read(&self.record).ok();
        let exported = exported.and_then(|text| serde_json::from_slice::<Exported>(&text).ok());
        exported.is_some_and(|exported| exported.step > step && self.is(&exported.files))
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.model
    }
}

/// The checksums of a folder's files.
fn checksums(folder: &Path) -> Result<Checksums> {
    let mut sums = Checksums::new();
    for entry in fs::read_dir(folder).map_err(TrainerError::io("read", folder))? {
        let entry = entry.map_err(TrainerError::io("read", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            let inner = checksums(&entry.path())?;
            sums.extend(inner.into_iter().map(|(file, sum)| (format!("{name}/{file}"), sum)));
        } else {
            sums.insert(name, file_checksum(&entry.path())?);
        }
    }
    Ok(sums)
}
