//! The items of a test suite, one a line.

use super::files::{SuiteFile, SuiteLines};
use crate::Result;
use crate::SkipReport;
use crate::labelled::LabelledSource;
use std::marker::PhantomData;
use std::path::Path;

/// An item that a line of a test suite's file describes.
pub trait SuiteItem: Sized {
    /// The item of the line with this `number`, from 1, and this `text`; none of a header.
    ///
    /// # Errors
    /// What is wrong with the line: the reason that it is counted by, and the problem.
    fn of_line(
        file: &SuiteFile,
        number: u64,
        text: &str,
    ) -> std::result::Result<Option<Self>, (&'static str, String)>;
}

/// Iterator over the items of files. It ends at the first error; bad lines are skipped and counted if the source's
/// `on_bad_row` says so.
pub struct SuiteItems<T> {
    lines: SuiteLines,
    items: PhantomData<fn() -> T>,
}

impl<T: SuiteItem> SuiteItems<T> {
    /// Of the source's keys, `on_bad_row` and `max_line_bytes` apply.
    pub fn new(files: Vec<SuiteFile>, source: &LabelledSource) -> Self {
        Self { lines: SuiteLines::new(files, source), items: PhantomData }
    }

    /// The lines skipped so far, by reason.
    pub fn skipped(&self) -> &SkipReport {
        self.lines.skipped()
    }

    /// Rejects a line for this `reason`; it is counted if bad lines are skipped.
    ///
    /// # Errors
    /// [`DataError::BadRow`](crate::DataError::BadRow) with the `problem`, if they are not.
    pub fn refuse(&mut self, path: &Path, line: u64, reason: &str, problem: String) -> Result<()> {
        self.lines.refuse_in(path, line, reason, problem)
    }

    fn read(&mut self) -> Result<Option<T>> {
        while let Some(line) = self.lines.next()? {
            let Some(file) = self.lines.file() else { break };
            match T::of_line(file, line.number, &line.text) {
                Ok(Some(item)) => return Ok(Some(item)),
                Ok(None) => {}
                Err((reason, problem)) => self.lines.refuse(line.number, reason, problem)?,
            }
        }
        Ok(None)
    }
}

impl<T: SuiteItem> Iterator for SuiteItems<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}
