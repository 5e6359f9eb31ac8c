//! What a run was made from, stored as `run.json` in its folder. The file also marks the folder as a run's:
//! only the contents of such a folder may be replaced.

use crate::{Result, TrainerError};
use cloze_data::{CorpusConfig, file_checksum, input_files};
use cloze_files::write_atomic;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file's name.
pub(crate) const ORIGIN_FILE: &str = "run.json";

/// This program and its version.
pub(crate) const PROGRAM: &str = concat!("cloze ", env!("CARGO_PKG_VERSION"));

/// What a run was made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The program that made the folder.
    pub program: String,
    /// Where the run's tokenizer came from, if the run trained one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<TokenizerOrigin>,
    /// The files that the run read, as far as recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
}

/// Where a run's tokenizer came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenizerOrigin {
    /// The program, the settings and a hash of the texts that it was trained with.
    pub trained_from: String,
    /// The BLAKE3 hash of `tokenizer.json`.
    pub blake3: String,
}

/// A file that a run read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The file's path, as derived from the configuration.
    pub path: String,
    /// The BLAKE3 hash of its contents.
    pub blake3: String,
}

impl Default for Origin {
    fn default() -> Self {
        Self { program: PROGRAM.into(), tokenizer: None, inputs: Vec::new() }
    }
}

impl Origin {
    /// Reads the origin from a run folder; `None` if the folder has no such file, or another program's.
    ///
    /// # Errors
    /// [`TrainerError::Io`] if the file cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(ORIGIN_FILE);
        match fs::read(&path) {
            Ok(bytes) => {
                let origin = serde_json::from_slice(&bytes).ok();
                Ok(origin.filter(|origin: &Self| origin.program.starts_with("cloze ")))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TrainerError::io("read", &path)(error)),
        }
    }

    /// Writes the origin into a run folder.
    ///
    /// # Errors
    /// [`TrainerError::Io`].
    pub fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("strings serialise");
        Ok(write_atomic(&folder.join(ORIGIN_FILE), (text + "\n").as_bytes())?)
    }
}

impl Input {
    /// The files with their checksums.
    ///
    /// # Errors
    /// An unreadable file.
    pub fn of(paths: impl IntoIterator<Item = PathBuf>) -> Result<Vec<Self>> {
        let input = |path: PathBuf| {
            let blake3 = file_checksum(&path)?;
            Ok(Self { path: path.display().to_string(), blake3 })
        };
        paths.into_iter().map(input).collect()
    }
}

/// The files of a run on raw text: the corpus, and those of a checkpoint and a tokenizer.
///
/// # Errors
/// An unreadable file or folder.
pub(crate) fn inputs_of_text(corpus: &CorpusConfig, folders: [Option<&Path>; 2]) -> Result<Vec<Input>> {
    let mut paths = input_files(corpus, Path::new(""))?;
    for folder in folders.into_iter().flatten() {
        paths.extend(model_files(folder)?);
    }
    Input::of(paths)
}

/// The files of a model or tokenizer folder in order of name: weights, configuration, tokenizer; for a single
/// file, that file.
///
/// # Errors
/// [`TrainerError::Io`] if the folder cannot be read.
pub(crate) fn model_files(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.into()]);
    }
    let entries = fs::read_dir(path).map_err(TrainerError::io("read", path))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(TrainerError::io("read", path))?.path();
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        if ["json", "txt", "model", "safetensors", "bin"].contains(&ending) && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The first difference between the files `now` and those that a run was started with, in words.
pub(crate) fn difference(started: &[Input], now: &[Input]) -> Option<String> {
    let longest = started.len().max(now.len());
    let place = (0..longest).find(|place| started.get(*place) != now.get(*place))?;
    // A file may stand twice in a list, as one that is both development and test data.
    let same_path = |all: &[Input], one: &Input| all.iter().find(|input| input.path == one.path).cloned();
    if let Some(input) = now.get(place) {
        return Some(match same_path(started, input) {
            None => format!("{} is new", input.path),
            Some(before) if before.blake3 != input.blake3 => format!("{} has changed", input.path),
            Some(_) => format!("{} has moved to another position", input.path),
        });
    }
    started.get(place).map(|input| format!("{} is gone", input.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(path: &str, blake3: &str) -> Input {
        Input { path: path.into(), blake3: blake3.into() }
    }

    #[test]
    fn the_first_difference_is_named() {
        let started = [input("a", "1"), input("b", "2")];
        let differs = |now: &[Input]| difference(&started, now);
        assert_eq!(differs(&started), None);
        assert_eq!(differs(&[input("a", "1"), input("b", "3")]).unwrap(), "b has changed");
        assert_eq!(differs(&[input("a", "1")]).unwrap(), "b is gone");
        assert_eq!(differs(&[input("a", "1"), input("b", "2"), input("c", "3")]).unwrap(), "c is new");
        assert_eq!(differs(&[input("b", "2"), input("a", "1")]).unwrap(), "b has moved to another position");
        assert_eq!(differs(&[input("a", "1"), input("c", "3")]).unwrap(), "c is new");
        // Development data that is test data too.
        let twice = [input("a", "1"), input("b", "2"), input("b", "2")];
        assert_eq!(difference(&twice, &twice), None);
    }

    #[test]
    fn another_program_s_file_is_no_origin() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Origin::read(folder.path()).unwrap(), None);
        for text in ["", "{}", "[1]", r#"{"program": "other 1.0"}"#] {
            fs::write(folder.path().join(ORIGIN_FILE), text).unwrap();
            assert_eq!(Origin::read(folder.path()).unwrap(), None, "{text}");
        }
        let origin = Origin { inputs: vec![input("a", "1")], ..Origin::default() };
        origin.write(folder.path()).unwrap();
        assert_eq!(Origin::read(folder.path()).unwrap(), Some(origin));
    }
}
