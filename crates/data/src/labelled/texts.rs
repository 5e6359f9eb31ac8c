//! Texts and pairs of texts with a class or a value.

use super::labels::LabelSet;
use super::rows::{self, RequestedColumn, Row, excerpt, filled_text, kind_of, row_problem};
use super::source::{Column, Columns, LabelledSource, Loaded, Task};
use crate::Result;
use crate::corpus::Problem;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// A text or a pair of texts, and its target.
#[derive(Debug, Clone, PartialEq)]
pub struct TextExample {
    /// The text, or the first of two.
    pub text: String,
    /// The second text.
    pub pair: Option<String>,
    /// The target to predict.
    pub target: Target,
}

/// A text's target.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// One of the classes of a [`LabelSet`].
    Class(usize),
    /// Any number of labels of a [`LabelSet`], ascending; possibly none.
    Labels(Vec<usize>),
    /// A number, such as a degree of similarity.
    Value(f64),
    /// Unknown.
    None,
}

/// How the column `label` is read.
#[derive(Debug, Clone, Copy)]
pub enum Labels<'a> {
    /// Classes. They are collected from the data ([`LabelSet::found`]).
    Found,
    /// Classes of this set, such as the training data's for a test split. A row with another class is bad.
    Of(&'a LabelSet),
    /// Finite numbers.
    Values,
    /// Any number of labels per row, in the column `labels`: from this set or, without one, collected from
    /// the data.
    Several(Option<&'a LabelSet>),
    /// Not read, for example when it is to be predicted.
    Unread,
}

/// Reads texts: the columns `text` and `label`, and `pair` for pairs. If `columns` does not name `pair`, rows
/// with a column of that name are pairs; either all rows are pairs, or none.
///
/// With [`Labels::Several`] the column is `labels`: a list of labels, or a string of labels separated by
/// `label_delimiter` (default a comma), empty for none. If `columns` names a list of columns for `labels`,
/// each is a label that a row has if its cell is 1 rather than 0.
///
/// Also returns the classes, if there are any.
///
/// # Errors
/// Invalid settings, files and rows of the [`LabelledSource`], with file, line and column.
pub fn texts(
    source: &LabelledSource,
    base: &Path,
    labels: Labels,
) -> Result<(Loaded<TextExample>, Option<LabelSet>)> {
    let several = matches!(labels, Labels::Several(_));
    let files = source.open(if several { Task::LabelLists } else { Task::Texts }, base)?;
    let mut wanted =
        vec![RequestedColumn::required("text", source), RequestedColumn::optional("pair", source)];
    let of_columns = if several { label_columns(source)? } else { None };
    match (labels, &of_columns) {
        (Labels::Unread, _) => {}
        (Labels::Several(_), Some(set)) => {
            let of_label =
                |name: &String| RequestedColumn::of("labels", Column::Name(name.clone()), source.named);
            wanted.extend(set.names().iter().map(of_label));
        }
        (Labels::Several(_), None) => wanted.push(RequestedColumn::required("labels", source)),
        _ => wanted.push(RequestedColumn::required("label", source)),
    }
    let labels = match (labels, &of_columns) {
        (Labels::Several(None), Some(set)) => Labels::Several(Some(set)),
        _ => labels,
    };
    let mut found = Found::default();
    let mut pairs = None;
    let convert = |Row { line, cells }: Row| {
        let mut cells = cells.into_iter().zip(&wanted);
        let mut next = || cells.next().map_or((Value::Null, &wanted[0]), |cell| cell);
        let (cell, column) = next();
        let first = filled_text(cell, column, line)?;
        let second = match next() {
            (Value::Null, column) if !column.required => None,
            (cell, column) => Some(filled_text(cell, column, line)?),
        };
        let target = match labels {
            Labels::Unread => Target::None,
            Labels::Several(set) => {
                let names = match &of_columns {
                    Some(_) => marked(cells, line)?,
                    None => {
                        let (cell, column) = next();
                        listed(cell, column, line, source)?
                    }
                };
                let id = |(name, is_number): (String, bool)| match set {
                    None => Ok(found.place(&name)),
                    Some(set) => known(set, &name, is_number, &wanted[2], line),
                };
                Target::Labels(ascending(names.into_iter().map(id).collect::<std::result::Result<_, _>>()?))
            }
            _ => {
                let (cell, column) = next();
                target(cell, column, line, source, labels, &mut found)?
            }
        };
        let is_pair = second.is_some();
        if *pairs.get_or_insert(is_pair) != is_pair {
            let (has, others) = if is_pair { ("a", "none") } else { ("no", "one") };
            let detail = format!(
                "{has} `pair`, but the rows before have {others}; expected pairs alone or single texts alone"
            );
            return Err(row_problem(Some(line), "pairs beside single texts", detail));
        }
        Ok(TextExample { text: first, pair: second, target })
    };
    let mut loaded =
        rows::load(source, &files, |path, format| rows::open(path, format, source, &wanted), convert)?;
    let set = match labels {
        Labels::Found | Labels::Several(None) => {
            let (set, ids) = found.into_set()?;
            for example in &mut loaded.examples {
                match &mut example.target {
                    Target::Class(seen) => *seen = ids[*seen],
                    Target::Labels(seen) => {
                        *seen = ascending(seen.iter().map(|place| ids[*place]).collect());
                    }
                    Target::Value(_) | Target::None => {}
                }
            }
            Some(set)
        }
        Labels::Of(set) | Labels::Several(Some(set)) => Some(set.clone()),
        Labels::Values | Labels::Unread => None,
    };
    Ok((loaded, set))
}

/// Labels in order of first occurrence.
#[derive(Default)]
pub(super) struct Found {
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl Found {
    /// The set of labels, and the id there of each [`place`](Self::place).
    ///
    /// # Errors
    /// As [`LabelSet::found`].
    pub fn into_set(self) -> Result<(LabelSet, Vec<usize>)> {
        let set = LabelSet::found(self.names.iter().cloned())?;
        let ids = self.names.iter().map(|name| set.id(name).expect("the set was made of these names"));
        let ids = ids.collect();
        Ok((set, ids))
    }

    /// A label's index in order of first occurrence.
    pub fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.names.push(name.to_owned());
        self.places.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }
}

/// The labels with 0/1 columns named by `columns`, if any.
fn label_columns(source: &LabelledSource) -> Result<Option<LabelSet>> {
    let Some(Columns::Many(columns)) = source.columns.get("labels") else { return Ok(None) };
    let name = |column: &Column| match column {
        Column::Name(name) => Ok(name.clone()),
        Column::Number(number) => {
            let problem = format!("{number}, expected the names of columns: each is a label's name");
            Err(source.setting("columns.labels", problem))
        }
    };
    let names = columns.iter().map(name).collect::<Result<Vec<_>>>()?;
    LabelSet::given(names).map(Some)
}

/// The labels whose columns are 1 in a row.
fn marked<'a>(
    cells: impl Iterator<Item = (Value, &'a RequestedColumn)>,
    line: u64,
) -> std::result::Result<Vec<(String, bool)>, Problem> {
    let mut names = Vec::new();
    for (cell, column) in cells {
        let is_set = match label(cell, column, line)?.0.as_str() {
            "1" | "1.0" | "true" => true,
            "0" | "0.0" | "false" => false,
            other => {
                let detail = format!("`{}`, expected 1 or 0: whether the row has the label", excerpt(other));
                return Err(column.bad(line, "label is neither 0 nor 1", detail));
            }
        };
        if let (true, Column::Name(name)) = (is_set, &column.column) {
            names.push((name.clone(), false));
        }
    }
    Ok(names)
}

/// The labels in a cell, and for each whether the file has it as a number.
fn listed(
    cell: Value,
    column: &RequestedColumn,
    line: u64,
    source: &LabelledSource,
) -> std::result::Result<Vec<(String, bool)>, Problem> {
    let names = match cell {
        Value::Array(cells) => {
            let fraction = cells.iter().find(|cell| cell.is_f64());
            if let Some(found) = fraction {
                let detail = format!("{found}, expected the names of the row's labels");
                return Err(column.bad(line, "label with a fraction", detail));
            }
            cells.into_iter().map(|cell| label(cell, column, line)).collect::<std::result::Result<_, _>>()?
        }
        Value::String(text) if text.trim().is_empty() => Vec::new(),
        Value::String(text) => {
            let delimiter = source.label_delimiter.as_deref().unwrap_or(",");
            text.split(delimiter).map(|name| (name.trim().to_owned(), false)).collect()
        }
        other => {
            let detail = format!("{}, expected a list of labels", kind_of(&other));
            return Err(column.bad(line, "column without a list", detail));
        }
    };
    match names.iter().any(|(name, _): &(String, bool)| name.is_empty()) {
        true => Err(column.bad(line, "no label", "an empty label among others, expected a name")),
        false => Ok(names),
    }
}

/// Each number once, in order.
fn ascending(mut ids: Vec<usize>) -> Vec<usize> {
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The id of a label, which must be in the set.
fn known(
    set: &LabelSet,
    name: &str,
    is_number: bool,
    column: &RequestedColumn,
    line: u64,
) -> std::result::Result<usize, Problem> {
    let id = if is_number { set.id_of_number(name) } else { set.id(name) };
    id.ok_or_else(|| {
        let detail = format!("`{}`, expected one of {}", excerpt(name), set.shown());
        column.bad(line, "unknown label", detail)
    })
}

pub(super) fn target(
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
        Labels::Unread | Labels::Several(_) => Ok(Target::None),
        Labels::Found => Ok(Target::Class(found.place(name))),
        Labels::Of(set) => known(set, name, is_number, wanted, line).map(Target::Class),
        Labels::Values => match name.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Target::Value(value)),
            _ => {
                let detail = format!("`{}`, expected a finite number", excerpt(name));
                Err(wanted.bad(line, "label is not a number", detail))
            }
        },
    }
}

/// A label as trimmed text, and whether the file has it as a number.
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
