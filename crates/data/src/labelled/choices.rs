//! Multiple choice: a context and its possible continuations.

use super::rows::{self, RequestedColumn, Row, excerpt, filled_text};
use super::source::{Columns, LabelledSource, Loaded, Task};
use super::texts::label;
use crate::Result;
use crate::corpus::Problem;
use serde_json::Value;
use std::path::Path;

/// A context and its choices, one of them correct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceExample {
    /// The text before the choices, or the question.
    pub context: String,
    /// Two or more.
    pub choices: Vec<String>,
    /// The index of the correct one, if known.
    pub label: Option<usize>,
}

/// Reads multiple choice: the columns `context`, `choices` (one that holds lists, or several columns) and,
/// unless they are not `labelled`, `label`: a number from [`LabelledSource::first_choice`] on, or a letter from
/// `A` on.
///
/// # Errors
/// As [`texts`](super::texts); a row with fewer than two choices is also bad.
pub fn choices(source: &LabelledSource, base: &Path, labelled: bool) -> Result<Loaded<ChoiceExample>> {
    let files = source.open(Task::Choices, base)?;
    let mut wanted = vec![RequestedColumn::required("context", source)];
    let mut several = 0;
    match source.columns.get("choices") {
        Some(Columns::Many(columns)) => {
            several = columns.len();
            wanted.extend(
                columns.iter().map(|column| RequestedColumn::of("choices", column.clone(), source.named)),
            );
        }
        _ => wanted.push(RequestedColumn::required("choices", source)),
    }
    if labelled {
        wanted.push(RequestedColumn::required("label", source));
    }
    let convert = |Row { line, cells }: Row| {
        let mut cells = cells.into_iter().zip(&wanted);
        let mut next = || cells.next().map_or((Value::Null, &wanted[0]), |cell| cell);
        let (cell, column) = next();
        let context = filled_text(cell, column, line)?;
        let (choices, column) = match source.columns.get("choices") {
            Some(Columns::Many(_)) => {
                let each = (0..several).map(|_| {
                    let (cell, column) = next();
                    filled_text(cell, column, line)
                });
                (each.collect::<std::result::Result<Vec<_>, _>>()?, &wanted[1.min(wanted.len() - 1)])
            }
            _ => {
                let (cell, column) = next();
                (rows::filled_texts(cell, column, line)?, column)
            }
        };
        if choices.len() < 2 {
            let detail = format!("{} choices, expected two or more", choices.len());
            return Err(column.bad(line, "too few choices", detail));
        }
        let label = match labelled {
            false => None,
            true => {
                let (cell, column) = next();
                Some(right(cell, column, line, choices.len(), source.first_choice.unwrap_or(0))?)
            }
        };
        Ok(ChoiceExample { context, choices, label })
    };
    rows::load(source, &files, |path, format| rows::open(path, format, source, &wanted), convert)
}

/// The index of the correct choice, from 0.
fn right(
    cell: Value,
    wanted: &RequestedColumn,
    line: u64,
    n_choices: usize,
    first: u64,
) -> std::result::Result<usize, Problem> {
    let (name, _) = label(cell, wanted, line)?;
    let place = match (name.parse::<u64>(), name.as_bytes()) {
        (Ok(number), _) => number.checked_sub(first),
        (_, [letter]) if letter.is_ascii_uppercase() => Some(u64::from(letter - b'A')),
        _ => None,
    };
    place.map(|place| place as usize).filter(|place| *place < n_choices).ok_or_else(|| {
        let last = first.saturating_add(n_choices as u64 - 1);
        let detail =
            format!("`{}`, expected one of {first} to {last}, or a letter from A on", excerpt(&name));
        wanted.bad(line, "unknown label", detail)
    })
}
