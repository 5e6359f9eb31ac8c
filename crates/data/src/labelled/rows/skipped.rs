//! The rows that are left out: few may be.

use crate::corpus::{Problem, SkipReport};
use crate::{DataError, Result};
use std::path::{Path, PathBuf};

/// The places that an error names, besides the first.
const NAMED: usize = 4;

/// The rows of a source that were left out.
#[derive(Default)]
pub(super) struct Skipped {
    n: usize,
    first: Option<(PathBuf, Problem)>,
    /// The places of the next ones.
    others: Vec<String>,
}

impl Skipped {
    /// Adds a row for its problem.
    pub fn add(&mut self, path: &Path, problem: Problem) {
        self.n += 1;
        match (&self.first, problem.line) {
            (None, _) => self.first = Some((path.to_owned(), problem)),
            (Some((first, _)), Some(line)) if self.others.len() < NAMED => {
                self.others.push(match first == path {
                    true => format!("line {line}"),
                    false => format!("{}:{line}", path.display()),
                })
            }
            _ => {}
        }
    }

    /// Checks that not more than a `share` of the rows was left out, or a single one; `n_used` rows were not.
    ///
    /// # Errors
    /// [`DataError::ManySkipped`].
    pub fn check(self, n_used: usize, report: &SkipReport, share: f64) -> Result<()> {
        let Self { n, first: Some((path, Problem { line, detail, .. })), others } = self else {
            return Ok(());
        };
        let rows = n_used + n;
        if n <= 1 || n as f64 <= share * rows as f64 {
            return Ok(());
        }
        let others =
            if others.is_empty() { String::new() } else { format!("; the next: {}", others.join(", ")) };
        Err(DataError::ManySkipped {
            path,
            line,
            problem: format!("{detail}{others}"),
            skipped: format!("{n} of {rows} rows ({report})"),
            share,
        })
    }
}
