//! Minimal pairs: a good sentence and a bad one.

use super::files::{SuiteFile, SuiteLines};
use crate::Result;
use crate::corpus::SkipReport;
use crate::labelled::LabelledSource;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A good sentence and a bad one that differs in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MinimalPair {
    /// The good sentence.
    pub good: String,
    /// The bad sentence.
    pub bad: String,
    /// The paradigm: pairs made by one template. `UID` in BLiMP; default: the file's name.
    pub paradigm: String,
    /// The phenomenon that the paradigm belongs to: `linguistics_term` in BLiMP. Default: the paradigm.
    pub phenomenon: String,
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: u64,
}

/// A line of BLiMP's files. Other keys are ignored.
#[derive(Deserialize)]
struct BlimpLine {
    sentence_good: String,
    sentence_bad: String,
    #[serde(rename = "UID")]
    paradigm: Option<String>,
    linguistics_term: Option<String>,
}

/// Iterator over the pairs of files of JSON lines as BLiMP's (Warstadt et al. 2020): `sentence_good`, `sentence_bad`, and if
/// present `UID` and `linguistics_term`. It ends at the first error; bad lines are skipped and counted if the source's
/// `on_bad_row` says so.
pub struct MinimalPairs(SuiteLines);

impl MinimalPairs {
    /// Of the source's keys, `on_bad_row` and `max_line_bytes` apply.
    pub fn new(files: Vec<SuiteFile>, source: &LabelledSource) -> Self {
        Self(SuiteLines::new(files, source))
    }

    /// The lines skipped so far, by reason.
    pub fn skipped(&self) -> &SkipReport {
        self.0.skipped()
    }

    /// Rejects a line for this `reason`; it is counted if bad lines are skipped.
    ///
    /// # Errors
    /// [`DataError::BadRow`](crate::DataError::BadRow) with the `problem`, if they are not.
    pub fn refuse(&mut self, path: &Path, line: u64, reason: &str, problem: String) -> Result<()> {
        self.0.refuse_in(path, line, reason, problem)
    }

    fn read(&mut self) -> Result<Option<MinimalPair>> {
        while let Some(line) = self.0.next()? {
            let found: BlimpLine = match serde_json::from_str(&line.text) {
                Ok(found) => found,
                Err(error) => {
                    let expected = r#"{"sentence_good": "…", "sentence_bad": "…"}"#;
                    self.0.refuse(
                        line.number,
                        "no pair",
                        format!("no minimal pair ({error}); expected {expected}"),
                    )?;
                    continue;
                }
            };
            if found.sentence_good == found.sentence_bad {
                let problem = "`sentence_good` and `sentence_bad` are equal; expected two sentences, of which one is bad";
                self.0.refuse(line.number, "equal sentences", problem.into())?;
                continue;
            }
            let file = self.0.file();
            let paradigm = found.paradigm.or_else(|| file.map(SuiteFile::stem)).unwrap_or_default();
            return Ok(Some(MinimalPair {
                good: found.sentence_good,
                bad: found.sentence_bad,
                phenomenon: found.linguistics_term.unwrap_or_else(|| paradigm.clone()),
                paradigm,
                path: file.map(|file| file.path.clone()).unwrap_or_default(),
                line: line.number,
            }));
        }
        Ok(None)
    }
}

impl Iterator for MinimalPairs {
    type Item = Result<MinimalPair>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::suite_files;
    use crate::labelled::OnBadRow;
    use std::fs;

    #[test]
    fn pairs_are_read_and_bad_ones_are_told_or_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agreement.jsonl");
        let blimp = r#"{"sentence_good": "Boats sail.", "sentence_bad": "Boats sails.", "linguistics_term": "agreement", "UID": "a_1", "pairID": "0"}"#;
        let plain = r#"{"sentence_good": "A", "sentence_bad": "B"}"#;
        let equal = r#"{"sentence_good": "A", "sentence_bad": "A"}"#;
        fs::write(&path, format!("{blimp}\n{plain}\n{equal}\n{{\"sentence_good\": 1}}\n{plain}\n")).unwrap();
        let files = suite_files(std::slice::from_ref(&path), &["jsonl"]).unwrap();
        let mut pairs = MinimalPairs::new(files.clone(), &LabelledSource::default());
        let first = pairs.next().unwrap().unwrap();
        assert_eq!((first.paradigm.as_str(), first.phenomenon.as_str(), first.line), ("a_1", "agreement", 1));
        let second = pairs.next().unwrap().unwrap();
        assert_eq!((second.paradigm.as_str(), second.phenomenon.as_str()), ("agreement", "agreement"));
        let error = pairs.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("agreement.jsonl:3: `sentence_good` and `sentence_bad` are equal"), "{error}");
        assert!(pairs.next().is_none());
        let source = LabelledSource { on_bad_row: OnBadRow::Skip, ..LabelledSource::default() };
        let mut pairs = MinimalPairs::new(files, &source);
        assert_eq!(pairs.by_ref().map(Result::unwrap).count(), 3);
        assert_eq!(pairs.skipped().to_string(), "1 × equal sentences, 1 × no pair");
    }
}
