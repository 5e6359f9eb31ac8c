//! Minimal pairs: a good sentence and a bad one.

use super::files::SuiteFile;
use super::items::{SuiteItem, SuiteItems};
use serde::Deserialize;
use std::path::PathBuf;

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
#[serde(expecting = "an object")]
struct BlimpLine {
    sentence_good: String,
    sentence_bad: String,
    #[serde(rename = "UID")]
    paradigm: Option<String>,
    linguistics_term: Option<String>,
}

/// Iterator over the pairs of files of JSON lines as BLiMP's (Warstadt et al. 2020): `sentence_good`, `sentence_bad`, and if
/// present `UID` and `linguistics_term`.
pub type MinimalPairs = SuiteItems<MinimalPair>;

impl SuiteItem for MinimalPair {
    fn of_line(file: &SuiteFile, line: u64, text: &str) -> Result<Option<Self>, (&'static str, String)> {
        let found: BlimpLine = serde_json::from_str(text).map_err(|error| {
            let expected = r#"{"sentence_good": "…", "sentence_bad": "…"}"#;
            ("no pair", format!("no minimal pair ({error}); expected {expected}"))
        })?;
        if found.sentence_good == found.sentence_bad {
            let problem =
                "`sentence_good` and `sentence_bad` are equal; expected two sentences, of which one is bad";
            return Err(("equal sentences", problem.into()));
        }
        let paradigm = found.paradigm.unwrap_or_else(|| file.stem());
        Ok(Some(Self {
            good: found.sentence_good,
            bad: found.sentence_bad,
            phenomenon: found.linguistics_term.unwrap_or_else(|| paradigm.clone()),
            paradigm,
            path: file.path.clone(),
            line,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::suite_files;
    use crate::labelled::{LabelledSource, OnBadRow};
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
        fs::write(&path, "\"Boats sail.\"\n").unwrap();
        let files = suite_files(std::slice::from_ref(&path), &["jsonl"]).unwrap();
        let error =
            MinimalPairs::new(files, &LabelledSource::default()).next().unwrap().unwrap_err().to_string();
        assert!(error.contains("expected an object"), "{error}");
    }
}
