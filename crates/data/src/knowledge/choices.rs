//! Choices between sentences: the label of the right one, and the sentences.

use super::files::SuiteFile;
use super::items::{SuiteItem, SuiteItems};
use std::path::PathBuf;

/// What separates the fields of a line.
const SEPARATOR: char = '\u{1}';

/// Sentences, of which one is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentenceChoice {
    /// The number of the right sentence, from 0.
    pub label: usize,
    /// The sentences.
    pub sentences: Vec<String>,
}

/// A line of a test: a choice, or two of a dual item, one of which is a variant of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChoiceItem {
    /// One choice, or two.
    pub choices: Vec<SentenceChoice>,
    /// The test: the file's name.
    pub test: String,
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: u64,
}

/// Iterator over the items of files as those of CATs (Zhou et al. 2020): a label and its sentences, twice for a dual item, all
/// separated by the byte 0x01.
pub type ChoiceItems = SuiteItems<ChoiceItem>;

impl SuiteItem for ChoiceItem {
    fn of_line(file: &SuiteFile, line: u64, text: &str) -> Result<Option<Self>, (&'static str, String)> {
        let choices = choices(text).map_err(|problem| ("no choice", problem))?;
        Ok(Some(Self { choices, test: file.stem(), path: file.path.clone(), line }))
    }
}

/// The choices of a line.
fn choices(line: &str) -> Result<Vec<SentenceChoice>, String> {
    // A label is a number; a sentence is not, unless it is one that nobody scores.
    let label = |field: &str| field.trim().parse::<usize>().ok();
    let mut choices: Vec<SentenceChoice> = Vec::new();
    for field in line.trim_end_matches(['\r', '\n']).split(SEPARATOR) {
        match (label(field), choices.last_mut()) {
            (Some(label), _) => choices.push(SentenceChoice { label, sentences: Vec::new() }),
            (None, Some(choice)) => choice.sentences.push(field.trim().to_owned()),
            (None, None) => {
                return Err("no label at its beginning; expected a label, its sentences, and the byte 0x01 between them".into());
            }
        }
    }
    for SentenceChoice { label, sentences } in &choices {
        let n = sentences.len();
        if n < 2 {
            return Err(format!(
                "{n} sentences after the label {label}; expected two or more, with the byte 0x01 between them"
            ));
        }
        if *label >= n {
            return Err(format!("the label {label} of {n} sentences; expected a number from 0 to {}", n - 1));
        }
        if let Some(at) = (1..n).find(|at| sentences[..*at].contains(&sentences[*at])) {
            return Err(format!("two equal sentences, {:?}; expected different ones", sentences[at]));
        }
    }
    match choices.len() {
        1 | 2 => Ok(choices),
        n => Err(format!("{n} labels; expected one, or two in a dual item")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::suite_files;
    use crate::labelled::{LabelledSource, OnBadRow};

    #[test]
    fn items_are_single_or_dual() {
        let choice = |label, sentences: &[&str]| SentenceChoice {
            label,
            sentences: sentences.iter().map(|sentence| (*sentence).into()).collect(),
        };
        assert_eq!(choices("1\u{1}A b\u{1}A c\u{1}A d\r").unwrap(), [choice(1, &["A b", "A c", "A d"])]);
        let dual = choices("1\u{1}A\u{1}B\u{1}0\u{1}not A\u{1}not B").unwrap();
        assert_eq!(dual, [choice(1, &["A", "B"]), choice(0, &["not A", "not B"])]);
        for (line, problem) in [
            ("A\u{1}B", "no label at its beginning"),
            ("0\u{1}A", "1 sentences after the label 0"),
            ("2\u{1}A\u{1}B", "the label 2 of 2 sentences; expected a number from 0 to 1"),
            ("0\u{1}A\u{1}A", "two equal sentences, \"A\""),
            ("0\u{1}A\u{1}B\u{1}0\u{1}A\u{1}B\u{1}0\u{1}A\u{1}B", "3 labels; expected one"),
        ] {
            let found = choices(line).unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
    }

    #[test]
    fn the_published_tests_have_their_sizes() {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/cats"));
        if !folder.exists() {
            println!("skipped: {} is absent", folder.display());
            return;
        }
        let files = suite_files(&[folder], &["txt"]).unwrap();
        let mut counts = std::collections::BTreeMap::new();
        let source = LabelledSource { on_bad_row: OnBadRow::Skip, ..LabelledSource::default() };
        let mut items = ChoiceItems::new(files, &source);
        for item in items.by_ref() {
            let item = item.unwrap();
            *counts.entry((item.test, item.choices.len())).or_insert(0) += 1;
        }
        let single = [("arct_1", 1, 444), ("ca", 1, 183), ("sm", 1, 1875), ("wsc", 1, 283)];
        let dual = [("add", 2, 92), ("del", 2, 82), ("sub", 2, 75), ("swap", 2, 74)];
        for (test, n_choices, n) in single.into_iter().chain(dual) {
            assert_eq!(counts.get(&(test.to_owned(), n_choices)), Some(&n), "{test}");
        }
        assert_eq!(items.skipped().to_string(), "2 × no choice", "two equal sentences each");
    }
}
