//! Sentences of tagged words.

use super::labels::LabelSet;
use super::rows::{self, Read, RequestedColumn, Row, kind_of, row_problem};
use super::source::{DataFormat, LabelledSource, Loaded, Task};
use super::tags::{TagScheme, bad_entity_tag, unknown_tag};
use super::{conll, conllu};
use crate::Result;
use crate::corpus::Problem;
use serde_json::Value;
use std::path::Path;

/// A sentence's words and their tags.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaggedSentence {
    /// The words.
    pub words: Vec<String>,
    /// A tag for each word; empty if the tags are unknown.
    pub tags: Vec<String>,
}

/// Reads tagged sentences: the columns `words` and, unless they are not `labelled`, `tags`.
///
/// In CoNLL format, columns are identified by number; words are in the first and tags in the last unless
/// `columns` says otherwise. Comments and lines that begin with `-DOCSTART-` are skipped; a bad line makes
/// its sentence bad. In CoNLL-U, columns are identified by name or number; words are in `form` and tags in
/// `upos` unless `columns` says otherwise. Multiword tokens (`2-3`), whose words follow, and empty nodes
/// (`5.1`) are skipped. In JSON lines and Parquet both columns hold lists of equal length. Numeric tags
/// are indices in `tag_names`.
///
/// # Errors
/// As [`texts`](super::texts).
pub fn tagged_sentences(
    source: &LabelledSource,
    base: &Path,
    labelled: bool,
    tag_names: &[String],
) -> Result<Loaded<TaggedSentence>> {
    read(source, base, labelled, tag_names, &|_| None)
}

/// The same for labelled sentences, checking their tags: a sentence with a `problem` is a bad row, reported
/// with its line.
///
/// # Errors
/// As [`texts`](super::texts).
pub fn checked_sentences(
    source: &LabelledSource,
    base: &Path,
    problem: &dyn Fn(&[String]) -> Option<String>,
) -> Result<Loaded<TaggedSentence>> {
    read(source, base, true, &[], &|tags| Some(("unfit tags", problem(tags)?)))
}

/// The expected tags of sentences with entities.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntityTags<'a> {
    /// The names of numeric tags, from 0.
    pub names: &'a [String],
    /// The scheme that all tags follow; `None` allows any.
    pub scheme: Option<TagScheme>,
    /// Labels that cover all entity types; `None` allows any type.
    pub labels: Option<&'a LabelSet>,
}

/// Reads tagged sentences whose tags mark entities or, with [`TagScheme::Words`], classify words. A sentence
/// with other tags than `expected` is a bad row.
///
/// # Errors
/// As [`texts`](super::texts).
pub fn entity_sentences(
    source: &LabelledSource,
    base: &Path,
    expected: EntityTags<'_>,
) -> Result<Loaded<TaggedSentence>> {
    read(source, base, true, expected.names, &|tags| {
        if expected.scheme == Some(TagScheme::Words) {
            return Some(("unknown tag", unknown_tag(tags, expected.labels?)?));
        }
        if let Some(detail) = bad_entity_tag(tags, expected.labels) {
            return Some(("unknown tag", detail));
        }
        let error = expected.scheme?.spans(tags).err()?;
        Some(("tag invalid in the scheme", format!("{error} (the `scheme` is set)")))
    })
}

/// The problem with a sentence's tags, in short and in full.
type Wrong = (&'static str, String);

/// Reads sentences whose tags have no `problem`.
fn read(
    source: &LabelledSource,
    base: &Path,
    labelled: bool,
    tag_names: &[String],
    problem: &dyn Fn(&[String]) -> Option<Wrong>,
) -> Result<Loaded<TaggedSentence>> {
    let files = source.open(Task::Tags, base)?;
    let mut wanted = vec![RequestedColumn::required("words", source)];
    if labelled {
        wanted.push(RequestedColumn::required("tags", source));
    }
    let checked = |line, sentence: TaggedSentence| match problem(&sentence.tags) {
        Some((reason, detail)) => Err(row_problem(Some(line), reason, detail)),
        None => Ok(sentence),
    };
    let convert = |found: Found| {
        let Row { line, cells } = match found {
            Found::Sentence((line, sentence)) => return checked(line, sentence),
            Found::Row(row) => row,
        };
        let mut cells = cells.into_iter().zip(&wanted);
        let mut sentence = TaggedSentence::default();
        if let Some((cell, wanted)) = cells.next() {
            sentence.words = rows::texts(cell, wanted, line)?;
        }
        if let Some((cell, wanted)) = cells.next() {
            sentence.tags = tags(cell, wanted, line, tag_names)?;
            if sentence.tags.len() != sentence.words.len() {
                let detail = format!("{} tags, expected {}", sentence.tags.len(), sentence.words.len());
                return Err(wanted.bad(line, "number of tags", detail));
            }
        }
        match sentence.words.is_empty() {
            true => Err(wanted[0].bad(line, "no words", "an empty list, expected words")),
            false => checked(line, sentence),
        }
    };
    let open = |path: &Path, format| -> std::result::Result<Read<Found>, Problem> {
        Ok(match format {
            DataFormat::Conll => {
                Box::new(conll::open(path, source, labelled)?.map(|found| found.map(Found::Sentence)))
            }
            DataFormat::Conllu => {
                Box::new(conllu::open(path, source, labelled)?.map(|found| found.map(Found::Sentence)))
            }
            _ => Box::new(rows::open(path, format, source, &wanted)?.map(|found| found.map(Found::Row))),
        })
    };
    rows::load(source, &files, open, convert)
}

/// A sentence and its first line.
pub(super) type Numbered = (u64, TaggedSentence);

/// A file's contents for a sentence.
enum Found {
    Sentence(Numbered),
    Row(Row),
}

impl rows::Lined for Found {
    fn line(&self) -> Option<u64> {
        match self {
            Self::Sentence((line, _)) | Self::Row(Row { line, .. }) => Some(*line),
        }
    }
}

fn tags(
    cell: Value,
    wanted: &RequestedColumn,
    line: u64,
    names: &[String],
) -> std::result::Result<Vec<String>, Problem> {
    let Value::Array(cells) = cell else {
        let detail = format!("{}, expected a list of tags", kind_of(&cell));
        return Err(wanted.bad(line, "column without a list", detail));
    };
    let tag = |cell: Value| match cell {
        Value::String(tag) if !tag.trim().is_empty() => Ok(tag.trim().to_owned()),
        Value::Number(number) => {
            let place = number.as_u64().and_then(|place| usize::try_from(place).ok());
            place.and_then(|place| names.get(place)).cloned().ok_or_else(|| {
                let detail = match names.is_empty() {
                    true => format!("tag {number}, expected a name: the tags' names must be configured"),
                    false => format!("tag {number}, expected one of 0 to {}", names.len() - 1),
                };
                wanted.bad(line, "unknown label", detail)
            })
        }
        other => Err(wanted.bad(line, "no label", format_args!("{}, expected a tag", kind_of(&other)))),
    };
    cells.into_iter().map(tag).collect()
}
