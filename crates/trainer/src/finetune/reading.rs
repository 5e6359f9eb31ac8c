//! Reads a run's splits: the training data, what is held out of it, and the evaluation files.

use super::config::Tuning;
use super::held_out::{held_out, rows_held_out};
use super::shots;
use super::task::{Encoded, Task, bad_setting};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use cloze_data::labelled::{LabelSet, LabelledSource, TextExample};
use cloze_data::{DataError, SkipReport};
use cloze_files::write_atomic;
use std::path::PathBuf;

/// A task's splits.
pub struct TaskData<T: Task> {
    /// The training data.
    pub train: Encoded<T::Example, T::Features>,
    /// The data evaluated during training.
    pub dev: Option<Encoded<T::Example, T::Features>>,
    /// If that is held out of the training data, the row of each of its examples among the usable
    /// ones there, counted from 1.
    pub dev_rows: Option<Vec<usize>>,
    /// The data that the result is evaluated on.
    pub test: Option<Encoded<T::Example, T::Features>>,
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
    /// Reports what was skipped in a split.
    fn note(&mut self, split: &str, skipped: &SkipReport) {
        if !skipped.is_empty() {
            self.progress.note(&format!("{split}: skipped {skipped}"));
        }
    }

    /// All splits; `train` is already read.
    ///
    /// # Errors
    /// Those of `read` and `encode`; a file that cannot be written.
    pub fn data<T: Task>(
        self,
        train: (Vec<T::Example>, SkipReport),
        read: impl Fn(&LabelledSource) -> Result<(Vec<T::Example>, SkipReport)>,
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
        train: (Vec<T::Example>, SkipReport),
        read: impl Fn(&LabelledSource) -> Result<(Vec<T::Example>, SkipReport)>,
        mut encode: impl FnMut(Vec<T::Example>) -> Result<Encoded<T::Example, T::Features>>,
        select: impl FnOnce(Vec<T::Example>) -> Result<Vec<T::Example>>,
    ) -> Result<TaskData<T>> {
        let (examples, skipped) = train;
        self.note("train", &skipped);
        let (examples, held, dev_rows) = self.hold_out(examples)?;
        let examples = select(examples)?;
        let examples = match self.config.data.examples {
            Some(n) => shots::draw_any(examples, n, self.config.common.run.seed)?,
            None => examples,
        };
        let train = encode(examples)?;
        let held = held.map(&mut encode).transpose()?;
        let section = &self.config.data;
        let [dev, test] = [("dev", &section.dev), ("test", &section.test)].map(|(split, files)| {
            self.split(split, files, |source| {
                let (examples, skipped) = read(source)?;
                Ok((encode(examples)?, skipped))
            })
        });
        Ok(TaskData { train, dev: held.or(dev?), dev_rows, test: test? })
    }

    /// Holds the development data out of the training data, if configured. Writes the indices of held-out
    /// examples into the run folder. Returns the rest, what is held out, and its rows.
    fn hold_out<E>(&self, examples: Vec<E>) -> Result<HeldOut<E>> {
        let Some(share) = self.config.data.dev_fraction else {
            return Ok((examples, None, None));
        };
        let held = held_out(examples.len(), share, self.config.common.run.seed);
        let rows = rows_held_out(&held);
        let places = rows.iter().map(|row| (row - 1).to_string()).collect::<Vec<_>>().join(",");
        write_atomic(&self.held_out, format!("[{places}]\n").as_bytes())?;
        let (out, kept): (Vec<_>, Vec<_>) = held.into_iter().zip(examples).partition(|(held, _)| *held);
        let [out, kept] = [out, kept].map(|part| part.into_iter().map(|(_, example)| example).collect());
        Ok((kept, Some(out), Some(rows)))
    }

    fn split<T>(
        &mut self,
        split: &str,
        files: &[String],
        read: impl FnOnce(&LabelledSource) -> Result<(T, SkipReport)>,
    ) -> Result<Option<T>> {
        if files.is_empty() {
            return Ok(None);
        }
        let source = self.config.data.train.with_files(files.to_vec());
        let (data, skipped) = read(&source).map_err(|error| missing(split, error))?;
        self.note(split, &skipped);
        Ok(Some(data))
    }
}

/// Training examples, and those held out with their rows, if any are.
type HeldOut<E> = (Vec<E>, Option<Vec<E>>, Option<Vec<usize>>);

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
