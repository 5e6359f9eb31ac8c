//! CoNLL-U, the format of Universal Dependencies: one word per line in ten named columns, a blank line
//! between sentences (<https://universaldependencies.org/format.html>).

use super::conll::{Line, ParseLine, Sentences, trimmed};
use super::rows::{Read, file_problem, n_columns, row_problem};
use super::source::{Column, LabelledSource};
use super::tagged::Numbered;
use crate::corpus::Problem;
use std::path::Path;

/// The column names, in order.
const COLUMNS: [&str; 10] =
    ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"];

/// Stands for a missing value.
const UNSPECIFIED: &str = "_";

struct Words {
    /// Columns from 0.
    words: usize,
    tags: usize,
    labelled: bool,
}

pub(super) fn open(path: &Path, source: &LabelledSource, labelled: bool) -> Result<Read<Numbered>, Problem> {
    let place = |field: &str, usual: &str| {
        let column = source.configured(field).unwrap_or_else(|| Column::Name(usual.into()));
        let place = match &column {
            Column::Number(number) => number.checked_sub(1).filter(|place| *place < COLUMNS.len()),
            Column::Name(name) => COLUMNS.iter().position(|column| column == name),
        };
        place.ok_or_else(|| {
            let known = COLUMNS.join(", ");
            let detail = format!("no {column} (`columns.{field}`); CoNLL-U has the columns {known}");
            file_problem(None, "missing column", detail)
        })
    };
    let words = Words { words: place("words", "form")?, tags: place("tags", "upos")?, labelled };
    Ok(Box::new(Sentences::open(path, source, words, labelled)?))
}

impl ParseLine for Words {
    fn parse(&self, number: u64, line: &str, place: Option<usize>) -> Result<Line, Problem> {
        if trimmed(line).is_empty() {
            return Ok(Line::Blank);
        }
        if line.starts_with('#') {
            return Ok(Line::Comment);
        }
        let problem = |kind, detail: String| row_problem(Some(number), kind, detail);
        let columns: Vec<&str> = line.split('\t').map(trimmed).collect();
        if columns.len() != COLUMNS.len() {
            let (found, expected) = (n_columns(columns.len()), COLUMNS.len());
            return Err(problem("number of columns", format!("{found} between tabs, expected {expected}")));
        }
        let id = columns[0];
        let is_number = |text: &str| text.parse::<u32>().is_ok();
        // `2-3 zum` stands before the words `2 zu` and `3 dem` that it is written for, and has no values of its own;
        // `5.1` is a word that the sentence does not have.
        if id.split_once(['-', '.']).is_some_and(|(first, last)| is_number(first) && is_number(last)) {
            return Ok(Line::Comment);
        }
        let expected = place.map(|place| (place + 1).to_string());
        if expected.as_ref().is_some_and(|expected| expected != id) {
            let expected = expected.unwrap_or_default();
            return Err(problem(
                "number of a word",
                format!("column `id` is `{id}`, expected {expected}, the word's number"),
            ));
        }
        let column = |place: usize, field: &str| match columns[place] {
            "" => {
                let detail = format!("column `{}` is empty, expected the {field}", COLUMNS[place]);
                Err(problem("missing column", detail))
            }
            text => Ok(text.to_owned()),
        };
        let word = column(self.words, "word")?;
        let tag = match self.labelled {
            false => String::new(),
            true if columns[self.tags] == UNSPECIFIED => {
                let detail = format!("column `{}` is `_` (no value), expected the tag", COLUMNS[self.tags]);
                return Err(problem("no label", detail));
            }
            true => column(self.tags, "tag")?,
        };
        Ok(Line::Word(word, tag))
    }
}
