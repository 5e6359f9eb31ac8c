//! Facts as subjects and objects of relations, and the patterns that state them.

use super::files::{SuiteFile, SuiteLines};
use crate::Result;
use crate::SkipReport;
use crate::labelled::LabelledSource;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where the subject and the object of a fact stand in a pattern.
const SUBJECT: &str = "[X]";
const OBJECT: &str = "[Y]";

/// A relation, such as the capital of a country.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relation {
    /// Sentences that state it: paraphrases.
    pub patterns: Vec<FactPattern>,
    /// Its facts.
    pub facts: Vec<Fact>,
}

/// A sentence that states a relation, with `[X]` for the subject and `[Y]` for the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactPattern {
    /// The sentence.
    pub text: String,
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: u64,
}

impl FactPattern {
    /// What is before the object and after it, with this subject.
    pub fn around_object(&self, subject: &str) -> (String, String) {
        let (before, after) = self.text.split_once(OBJECT).unwrap_or((&self.text, ""));
        (before.replace(SUBJECT, subject), after.replace(SUBJECT, subject))
    }
}

/// A fact of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The subject.
    pub subject: String,
    /// The object.
    pub object: String,
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: u64,
}

/// A line of LAMA's or ParaRel's files: a pattern or a fact. Other keys are ignored.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct FactLine {
    #[serde(alias = "template")]
    pattern: Option<String>,
    sub_label: Option<String>,
    obj_label: Option<String>,
    #[serde(alias = "predicate_id")]
    relation: Option<String>,
}

/// Relations, read from files of JSON lines, and where bad lines are reported.
pub struct Relations {
    lines: SuiteLines,
    relations: BTreeMap<String, Relation>,
}

impl Relations {
    /// Reads patterns and facts as LAMA (Petroni et al. 2019) and ParaRel (Elazar et al. 2021) have them, in any order:
    /// a line with `pattern` or `template` is a pattern, and one with `sub_label` and `obj_label` a fact. The relation is
    /// `relation` or `predicate_id`; default: the file's name. All of them are held in memory.
    ///
    /// Of the source's keys, `on_bad_row` and `max_line_bytes` apply.
    ///
    /// # Errors
    /// A file that cannot be read; a line that is neither, or a pattern without `[X]` or with several `[Y]`, unless bad lines
    /// are skipped.
    pub fn read(files: Vec<SuiteFile>, source: &LabelledSource) -> Result<Self> {
        let mut lines = SuiteLines::new(files, source);
        let mut relations: BTreeMap<String, Relation> = BTreeMap::new();
        while let Some(line) = lines.next()? {
            let expected = r#"expected {"pattern": "… [X] … [Y]"} or {"sub_label": "…", "obj_label": "…"}"#;
            let found: FactLine = match serde_json::from_str(&line.text) {
                Ok(found) => found,
                Err(error) => {
                    lines.refuse(
                        line.number,
                        "no object",
                        format!("neither a pattern nor a fact ({error}); {expected}"),
                    )?;
                    continue;
                }
            };
            let file = lines.file();
            let path = file.map(|file| file.path.clone()).unwrap_or_default();
            let name = found.relation.or_else(|| file.map(SuiteFile::stem)).unwrap_or_default();
            match (found.pattern, found.sub_label, found.obj_label) {
                (Some(text), _, _) => match pattern_problem(&text) {
                    Some(problem) => lines.refuse(line.number, "bad pattern", problem)?,
                    None => relations.entry(name).or_default().patterns.push(FactPattern {
                        text,
                        path,
                        line: line.number,
                    }),
                },
                (None, Some(subject), Some(object)) if !object.trim().is_empty() => {
                    relations.entry(name).or_default().facts.push(Fact {
                        subject,
                        object,
                        path,
                        line: line.number,
                    });
                }
                _ => lines.refuse(
                    line.number,
                    "no fact",
                    format!("neither a pattern nor a fact; {expected}"),
                )?,
            }
        }
        Ok(Self { lines, relations })
    }

    /// The relations by their names.
    pub fn relations(&self) -> &BTreeMap<String, Relation> {
        &self.relations
    }

    /// The lines skipped so far, by reason.
    pub fn skipped(&self) -> &SkipReport {
        self.lines.skipped()
    }

    /// Rejects a fact for this `reason`; it is counted if bad lines are skipped.
    ///
    /// # Errors
    /// [`DataError::BadRow`](crate::DataError::BadRow) with the `problem`, if they are not.
    pub fn refuse(&mut self, fact: &Fact, reason: &str, problem: String) -> Result<()> {
        self.lines.refuse_in(&fact.path, fact.line, reason, problem)
    }
}

fn pattern_problem(text: &str) -> Option<String> {
    let count = |part: &str| text.matches(part).count();
    match (count(SUBJECT), count(OBJECT)) {
        (1.., 1) => None,
        (0, _) => Some(format!("the pattern {text:?} has no [X]; expected one for the subject")),
        (_, 0) => Some(format!("the pattern {text:?} has no [Y]; expected one for the object")),
        (_, n) => Some(format!("the pattern {text:?} has {n} [Y]; expected one for the object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::suite_files;
    use crate::labelled::OnBadRow;
    use std::fs;

    #[test]
    fn patterns_and_facts_find_their_relation() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("patterns")).unwrap();
        fs::create_dir_all(path("facts")).unwrap();
        fs::write(
            path("patterns/P36.jsonl"),
            "{\"pattern\": \"The capital of [X] is [Y].\", \"tense\": \"present\"}\n",
        )
        .unwrap();
        fs::write(
            path("lama.jsonl"),
            "{\"relation\": \"P36\", \"template\": \"[Y] is the capital of [X] .\"}\n",
        )
        .unwrap();
        fs::write(
            path("facts/P36.jsonl"),
            "{\"sub_label\": \"France\", \"obj_label\": \"Paris\", \"predicate_id\": \"P36\"}\n{\"sub_label\": \"Italy\", \"obj_label\": \"Rome\"}\n",
        )
        .unwrap();
        let files = suite_files(&[folder.path().into()], &["jsonl"]).unwrap();
        let found = Relations::read(files, &LabelledSource::default()).unwrap();
        let relation = &found.relations()["P36"];
        assert_eq!((found.relations().len(), relation.patterns.len(), relation.facts.len()), (1, 2, 2));
        let around: Vec<_> = relation.patterns.iter().map(|pattern| pattern.around_object("Italy")).collect();
        assert!(around.contains(&("The capital of Italy is ".into(), ".".into())));
        assert!(around.contains(&(String::new(), " is the capital of Italy .".into())));
    }

    #[test]
    fn bad_patterns_and_facts_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("P1.jsonl");
        for (line, problem) in [
            (r#"{"pattern": "[X] is."}"#, "P1.jsonl:1: the pattern \"[X] is.\" has no [Y]"),
            (r#"{"pattern": "[X] is [Y] [Y]."}"#, "has 2 [Y]; expected one"),
            (r#"{"pattern": "It is [Y]."}"#, "has no [X]"),
            (r#"{"sub_label": "a"}"#, "neither a pattern nor a fact; expected {"),
            ("[]", "neither a pattern nor a fact (invalid "),
        ] {
            fs::write(&path, line).unwrap();
            let files = suite_files(std::slice::from_ref(&path), &["jsonl"]).unwrap();
            let error = Relations::read(files.clone(), &LabelledSource::default()).err().unwrap().to_string();
            assert!(error.contains(problem), "{error}");
            let source = LabelledSource { on_bad_row: OnBadRow::Skip, ..LabelledSource::default() };
            assert_eq!(Relations::read(files, &source).unwrap().skipped().0.values().sum::<u64>(), 1);
        }
    }
}
