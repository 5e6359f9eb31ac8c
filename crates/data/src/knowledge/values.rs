//! Survey questions as sentences with a masked word, and two opposite words for it.

use super::files::SuiteFile;
use super::items::{SuiteItem, SuiteItems};
use crate::labelled::n_columns;
use std::path::PathBuf;

/// Where the word stands in a question.
const MASK: &str = "[MASK]";

/// A question of a survey.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueProbe {
    /// The survey: the name of the file's folder.
    pub survey: String,
    /// The language: the file's name.
    pub language: String,
    /// The question's number in the survey.
    pub question: String,
    /// The sentence before the mask.
    pub before: String,
    /// The sentence after it.
    pub after: String,
    /// The word that agrees.
    pub word: String,
    /// Its opposite.
    pub opposite: String,
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: u64,
}

/// Iterator over the questions of files as those of Arora et al. 2023: columns between tabs, of which the last four are the
/// question's number, a sentence with `[MASK]`, a word for it, and the opposite word. A first line without `[MASK]` is a
/// header.
pub type ValueProbes = SuiteItems<ValueProbe>;

impl SuiteItem for ValueProbe {
    fn of_line(file: &SuiteFile, line: u64, text: &str) -> Result<Option<Self>, (&'static str, String)> {
        if line == 1 && !text.contains(MASK) {
            return Ok(None);
        }
        let fields: Vec<&str> = text.split('\t').map(str::trim).collect();
        let [number, before, after, word, opposite] =
            question(&fields).map_err(|problem| ("no question", problem))?;
        Ok(Some(Self {
            survey: file.folder(),
            language: file.stem(),
            question: number.into(),
            before: before.into(),
            after: after.into(),
            word: word.into(),
            opposite: opposite.into(),
            path: file.path.clone(),
            line,
        }))
    }
}

/// The number of a question, what is before and after its mask, and the two words.
fn question<'a>(fields: &[&'a str]) -> Result<[&'a str; 5], String> {
    let [.., number, sentence, word, opposite] = fields else {
        return Err(format!(
            "{}; expected a question's number, its sentence, a word and the opposite one, between tabs",
            n_columns(fields.len())
        ));
    };
    let (before, after) = sentence.split_once(MASK).ok_or_else(|| {
        format!("the sentence {sentence:?} has no {MASK}; expected one in place of the word")
    })?;
    if after.contains(MASK) {
        let n = sentence.matches(MASK).count();
        return Err(format!("the sentence {sentence:?} has {n} {MASK}; expected one in place of the word"));
    }
    if word.is_empty() || opposite.is_empty() || word == opposite {
        return Err(format!("the words are {word:?} and {opposite:?}; expected two that are opposite"));
    }
    Ok([number, before, after, word, opposite])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::suite_files;
    use crate::labelled::{LabelledSource, OnBadRow};
    use std::fs;

    #[test]
    fn questions_have_a_mask_and_two_words() {
        let found = question(&["0", "1", "Family is [MASK] to me", "important", "unimportant"]).unwrap();
        assert_eq!(found, ["1", "Family is ", " to me", "important", "unimportant"]);
        for (fields, problem) in [
            (&["1", "a"][..], "2 columns; expected a question's number"),
            (&["1", "a", "b", "c"], "the sentence \"a\" has no [MASK]"),
            (&["1", "[MASK] a [MASK]", "b", "c"], "has 2 [MASK]; expected one"),
            (&["1", "a [MASK]", "b", "b"], "the words are \"b\" and \"b\""),
        ] {
            let found = question(fields).unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
    }

    #[test]
    fn a_header_is_no_question() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("wvs")).unwrap();
        let path = folder.path().join("wvs/de.csv");
        fs::write(&path, "\t0\t1\t2\t3\r\n0\t1\tFamilie ist [MASK]\twichtig\tunwichtig\r\n").unwrap();
        let files = suite_files(&[folder.path().into()], &["csv"]).unwrap();
        let probes: Vec<_> =
            ValueProbes::new(files, &LabelledSource::default()).map(Result::unwrap).collect();
        assert_eq!(probes.len(), 1);
        assert_eq!(
            (probes[0].survey.as_str(), probes[0].language.as_str(), probes[0].line),
            ("wvs", "de", 2)
        );
        assert_eq!((probes[0].question.as_str(), probes[0].opposite.as_str()), ("1", "unwichtig"));
    }

    #[test]
    fn the_published_probes_are_read() {
        let path =
            PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/values/probes.zip"));
        if !path.exists() {
            println!("skipped: {} is absent", path.display());
            return;
        }
        let source = LabelledSource { on_bad_row: OnBadRow::Skip, ..LabelledSource::default() };
        let mut probes = ValueProbes::new(suite_files(&[path], &["csv"]).unwrap(), &source);
        let n = probes.by_ref().map(Result::unwrap).count() as u64;
        let skipped: u64 = probes.skipped().0.values().sum();
        assert_eq!(n + skipped, 13 * (24 + 272));
        // Five have no mask. Those of the World Values Survey have 18 without an opposite word, in most languages.
        assert_eq!(skipped, 5 + 232);
    }
}
