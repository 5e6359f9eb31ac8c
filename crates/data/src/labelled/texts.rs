//! Texts and pairs of texts with a class or a value.

use super::labels::LabelSet;
use super::rows::{self, RequestedColumn, Row, excerpt, kind_of, text};
use super::source::{LabelledSource, Loaded, Task};
use crate::Result;
use crate::corpus::Problem;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// A text or a pair of texts, and what a model has to predict about it.
#[derive(Debug, Clone, PartialEq)]
pub struct TextExample {
    /// The text, or the first of two.
    pub text: String,
    /// The second text.
    pub pair: Option<String>,
    /// What is to be predicted.
    pub target: Target,
}

/// What is to be predicted of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// One of the classes of a [`LabelSet`].
    Class(usize),
    /// A number, such as a degree of similarity.
    Value(f64),
    /// Nothing is known.
    None,
}

/// How the column `label` is read.
#[derive(Debug, Clone, Copy)]
pub enum Labels<'a> {
    /// Classes. They are collected from the data ([`LabelSet::found`]).
    Found,
    /// Classes of this set, such as the training data's for a test split. A row with another class is a bad one.
    Of(&'a LabelSet),
    /// Finite numbers.
    Values,
    /// It is not read, for example when it is to be predicted.
    Unread,
}

/// Reads texts: the columns `text` and `label`, and the second texts of pairs in the column `pair`, if there is one. Either every
/// row has a second text or none has.
///
/// Also returns the classes, if there are any.
///
/// # Errors
/// What [`LabelledSource`] says, with file, line and column: settings, files, and the rows that are bad.
pub fn texts(
    source: &LabelledSource,
    base: &Path,
    labels: Labels,
) -> Result<(Loaded<TextExample>, Option<LabelSet>)> {
    let files = source.open(Task::Texts, base)?;
    let mut wanted =
        vec![RequestedColumn::required("text", source), RequestedColumn::optional("pair", source)];
    let labelled = !matches!(labels, Labels::Unread);
    if labelled {
        wanted.push(RequestedColumn::required("label", source));
    }
    let mut found = Found::default();
    // Whether the first row is a pair, which then decides for all.
    let mut pairs = None;
    let convert = |Row { line, cells }: Row| {
        let mut cells = cells.into_iter().zip(&wanted);
        let mut next = || cells.next().expect("a row has a cell for each wanted column");
        let (cell, column) = next();
        let first = text(cell, column, line)?;
        let second = match next() {
            (Value::Null, column) if !column.required => None,
            (cell, column) => Some(text(cell, column, line)?),
        };
        if *pairs.get_or_insert(second.is_some()) != second.is_some() {
            let detail = match second {
                Some(_) => "a second text, where the first row has none",
                None => "no second text, where the first row has one",
            };
            return Err(wanted[1].bad(line, "pairs and single texts", detail));
        }
        let target = match labelled.then(next) {
            None => Target::None,
            Some((cell, column)) => target(cell, column, line, source, labels, &mut found)?,
        };
        Ok(TextExample { text: first, pair: second, target })
    };
    let mut loaded =
        rows::load(source, &files, |path, format| rows::open(path, format, source, &wanted), convert)?;
    let set = match labels {
        Labels::Found => {
            let (set, ids) = found.into_set()?;
            for example in &mut loaded.examples {
                if let Target::Class(seen) = &mut example.target {
                    *seen = ids[*seen];
                }
            }
            Some(set)
        }
        Labels::Of(set) => Some(set.clone()),
        Labels::Values | Labels::Unread => None,
    };
    Ok((loaded, set))
}

/// Labels in the order in which they occur.
#[derive(Default)]
pub(super) struct Found {
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl Found {
    /// The set of the labels, and the number in it of each of [`place`](Self::place)'s.
    ///
    /// # Errors
    /// As [`LabelSet::found`].
    pub fn into_set(self) -> Result<(LabelSet, Vec<usize>)> {
        let set = LabelSet::found(self.names.iter().cloned())?;
        let ids = self.names.iter().map(|name| set.id(name).expect("the set was made of these names"));
        let ids = ids.collect();
        Ok((set, ids))
    }

    /// The place of a label in the order in which labels occur.
    pub fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.names.push(name.to_owned());
        self.places.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }
}

fn target(
    cell: Value,
    wanted: &RequestedColumn,
    line: u64,
    source: &LabelledSource,
    labels: Labels,
    found: &mut Found,
) -> std::result::Result<Target, Problem> {
    let (name, is_number) = label(cell, wanted, line)?;
    let name = match &source.label_before {
        None => name.as_str(),
        Some(separator) => match name.split_once(separator.as_str()) {
            Some((name, _)) => name.trim(),
            None => {
                let detail = format!("`{}`, expected `{separator}` after the label", excerpt(&name));
                return Err(wanted.bad(line, "label without separator", detail));
            }
        },
    };
    if name.is_empty() {
        return Err(wanted.bad(line, "no label", "empty, expected a label"));
    }
    match labels {
        Labels::Unread => Ok(Target::None),
        Labels::Found => Ok(Target::Class(found.place(name))),
        Labels::Of(set) => {
            let id = if is_number { set.id_of_number(name) } else { set.id(name) };
            id.map(Target::Class).ok_or_else(|| {
                let detail = format!("`{}`, expected one of {}", excerpt(name), set.shown());
                wanted.bad(line, "unknown label", detail)
            })
        }
        Labels::Values => match name.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Target::Value(value)),
            _ => {
                let detail = format!("`{}`, expected a finite number", excerpt(name));
                Err(wanted.bad(line, "label is not a number", detail))
            }
        },
    }
}

/// A label as text without white space around it, and whether the file has it as a number.
pub(super) fn label(
    cell: Value,
    wanted: &RequestedColumn,
    line: u64,
) -> std::result::Result<(String, bool), Problem> {
    match cell {
        Value::String(label) => Ok((label.trim().to_owned(), false)),
        Value::Number(number) => Ok((number.to_string(), true)),
        Value::Bool(label) => Ok((label.to_string(), false)),
        other => {
            let detail = format!("{}, expected a string or a number", kind_of(&other));
            Err(wanted.bad(line, "no label", detail))
        }
    }
}
