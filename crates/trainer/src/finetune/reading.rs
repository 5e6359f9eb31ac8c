//! Reads a run's splits: the training data, what is held out of it, and the evaluation files.

use super::config::Tuning;
use super::held_out::held_out;
use super::shots;
use super::task::{Encoded, Task, bad_setting};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use cloze_data::labelled::{LabelSet, LabelledSource, Loaded, Places, TextExample};
use cloze_data::{DataError, SkipReport};
use cloze_files::write_atomic;
use std::path::{Path, PathBuf};

/// A task's splits.
pub struct TaskData<T: Task> {
    /// The training data.
    pub train: Encoded<T::Example, T::Features>,
    /// The data evaluated during training.
    pub dev: Option<Encoded<T::Example, T::Features>>,
    /// Where each of its examples is from, such as its line; empty if unknown.
    pub dev_names: Vec<String>,
    /// The data that the result is evaluated on.
    pub test: Option<Encoded<T::Example, T::Features>>,
    /// Where each of its examples is from.
    pub test_names: Vec<String>,
}

/// The configured number of training examples per class, or all.
pub fn draw_shots(
    config: Tuning<'_>,
    labels: Option<&LabelSet>,
    examples: Vec<TextExample>,
) -> Result<Vec<TextExample>> {
    match (config.data.shots, labels) {
        (Some(n), Some(labels)) => shots::draw(examples, labels, n, config.common.run.seed),
        _ => Ok(examples),
    }
}

/// Reads the splits besides the training data.
pub struct Reading<'a> {
    pub(super) config: Tuning<'a>,
    /// The file that records which examples were held out.
    pub(super) held_out: PathBuf,
    pub(super) progress: &'a mut dyn RunProgress,
}

impl Reading<'_> {
    /// Reports what was skipped in a split, of which so many examples were `used`.
    fn note(&mut self, split: &str, skipped: &SkipReport, used: usize) {
        if !skipped.is_empty() {
            self.progress.note(&format!("{split}: skipped {}", skipped.among(used as u64, "rows")));
        }
    }

    /// Warns of a file that is read twice: as training data and to measure with, or in one split.
    fn warn_of_repeated(&mut self) {
        let section = &self.config.data;
        // Of files that cannot be found, whoever reads them tells.
        let paths = |files: &[String]| -> Vec<PathBuf> {
            let found = section.train.with_files(files.to_vec()).paths(Path::new("")).unwrap_or_default();
            found.into_iter().map(|path| path.canonicalize().unwrap_or(path)).collect()
        };
        let [train, dev, test] =
            [&section.train.files, &section.dev, &section.test].map(|files| paths(files));
        if let Some(warning) = repeated(&train, &dev, &test) {
            self.progress.note(&format!("warning: {warning}"));
        }
    }

    /// All splits; `train` is already read.
    ///
    /// # Errors
    /// Those of `read` and `encode`; a file that cannot be written.
    pub fn data<T: Task>(
        self,
        train: Loaded<T::Example>,
        read: impl Fn(&LabelledSource) -> Result<Loaded<T::Example>>,
        encode: impl FnMut(Vec<T::Example>) -> Result<Encoded<T::Example, T::Features>>,
    ) -> Result<TaskData<T>> {
        self.selected(train, read, encode, Ok)
    }

    /// The same with `select` applied to the training data after holding out.
    ///
    /// # Errors
    /// Those of [`data`](Self::data) and of `select`.
    pub fn selected<T: Task>(
        mut self,
        train: Loaded<T::Example>,
        read: impl Fn(&LabelledSource) -> Result<Loaded<T::Example>>,
        mut encode: impl FnMut(Vec<T::Example>) -> Result<Encoded<T::Example, T::Features>>,
        select: impl FnOnce(Vec<T::Example>) -> Result<Vec<T::Example>>,
    ) -> Result<TaskData<T>> {
        self.note("train", &train.skipped, train.examples.len());
        self.warn_of_repeated();
        let (examples, held) = self.hold_out(train.examples, train.places)?;
        let examples = select(examples)?;
        let examples = match self.config.data.examples {
            Some(n) => shots::draw_any(examples, n, self.config.common.run.seed)?,
            None => examples,
        };
        let train = encode(examples)?;
        let held = held.map(|(held, names)| Ok::<_, TrainerError>((encode(held)?, names))).transpose()?;
        let section = &self.config.data;
        let [dev, test] = [("dev", &section.dev), ("test", &section.test)].map(|(split, files)| {
            self.split(split, files, |source| {
                let Loaded { examples, places, skipped } = read(source)?;
                let used = examples.len();
                Ok(((encode(examples)?, places.names()), (skipped, used)))
            })
        });
        let (dev, dev_names) = held.or(dev?).unzip();
        let (test, test_names) = test?.unzip();
        let [dev_names, test_names] = [dev_names, test_names].map(Option::unwrap_or_default);
        Ok(TaskData { train, dev, dev_names, test, test_names })
    }

    /// Holds the development data out of the training data, if configured. Writes the indices of held-out
    /// examples into the run folder. Returns the rest, and what is held out with the names of its places.
    fn hold_out<E>(&self, examples: Vec<E>, mut places: Places) -> Result<HeldOut<E>> {
        let Some(share) = self.config.data.dev_fraction else {
            return Ok((examples, None));
        };
        let held = held_out(examples.len(), share, self.config.common.run.seed);
        let indices: Vec<String> =
            held.iter().zip(0_usize..).filter(|(held, _)| **held).map(|(_, at)| at.to_string()).collect();
        write_atomic(&self.held_out, format!("[{}]\n", indices.join(",")).as_bytes())?;
        places.retain(|index| held[index]);
        let (out, kept): (Vec<_>, Vec<_>) = held.into_iter().zip(examples).partition(|(held, _)| *held);
        let [out, kept] = [out, kept].map(|part| part.into_iter().map(|(_, example)| example).collect());
        Ok((kept, Some((out, places.names()))))
    }

    fn split<T>(
        &mut self,
        split: &str,
        files: &[String],
        read: impl FnOnce(&LabelledSource) -> Result<(T, (SkipReport, usize))>,
    ) -> Result<Option<T>> {
        if files.is_empty() {
            return Ok(None);
        }
        let source = self.config.data.train.with_files(files.to_vec());
        let (data, (skipped, used)) = read(&source).map_err(|error| missing(split, error))?;
        self.note(split, &skipped, used);
        Ok(Some(data))
    }
}

/// What is wrong with the first file that is read twice.
fn repeated(train: &[PathBuf], dev: &[PathBuf], test: &[PathBuf]) -> Option<String> {
    for (split, files) in [("dev", dev), ("test", test)] {
        if let Some(shared) = files.iter().find(|path| train.contains(path)) {
            let path = shared.display();
            return Some(format!(
                "{split}: {path} is training data too: its figures say nothing about other texts"
            ));
        }
    }
    let twice = |files: &[PathBuf]| {
        let again = files.iter().zip(0..).find(|(path, before)| files[..*before].contains(path));
        again.map(|(path, _)| path.display().to_string())
    };
    [("train", train), ("dev", dev), ("test", test)].into_iter().find_map(|(split, files)| {
        twice(files).map(|path| format!("{split}: {path} is given twice, and its rows count twice"))
    })
}

/// Training examples, and those held out with the names of their places, if any are.
type HeldOut<E> = (Vec<E>, Option<(Vec<E>, Vec<String>)>);

/// Rewords the error of a split with missing files to name its key.
pub(super) fn missing(split: &str, error: TrainerError) -> TrainerError {
    match error {
        TrainerError::Data(DataError::NoLabelledFiles { pattern, .. }) => {
            let expected = "an existing file or folder, or a pattern that matches files".into();
            bad_setting(&format!("data.{split}"), format!("{pattern:?}"), expected)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_read_twice_is_told() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let said = |train: &[&str], dev: &[&str], test: &[&str]| {
            repeated(&paths(train), &paths(dev), &paths(test)).unwrap_or_default()
        };
        let shared = "is training data too: its figures say nothing about other texts";
        assert_eq!(said(&["a", "b"], &["c", "b"], &[]), format!("dev: b {shared}"));
        assert_eq!(said(&["a"], &[], &["a"]), format!("test: a {shared}"));
        assert_eq!(said(&["a", "b", "a"], &[], &[]), "train: a is given twice, and its rows count twice");
        assert_eq!(said(&["a"], &["b", "b"], &[]), "dev: b is given twice, and its rows count twice");
        // The same data may choose the best model and measure it.
        assert_eq!(said(&["a", "b"], &["c"], &["c"]), "");
    }
}
