//! Sentences to embed: single ones, pairs, scored pairs, and pairs with negatives.

use super::rows::{self, RequestedColumn, Row, text};
use super::source::{Column, Columns, LabelledSource, Loaded, Task};
use super::texts::label;
use crate::Result;
use serde_json::Value;
use std::path::Path;

/// A sentence, and what is known of its likeness to others.
#[derive(Debug, Clone, PartialEq)]
pub struct SentenceExample {
    /// The sentence, or the first of a pair.
    pub text: String,
    /// The second of a pair.
    pub pair: Option<String>,
    /// Sentences that are less like the first than the second is.
    pub negatives: Vec<String>,
    /// How alike the pair is.
    pub score: Option<f64>,
}

impl SentenceExample {
    /// All its sentences: the first, the second, the negatives.
    pub fn texts(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.text).chain(&self.pair).chain(&self.negatives)
    }
}

/// Reads sentences: the column `text`, and of `pair`, `negatives` and `label` those that `columns` names. `negatives` is a
/// column with a text or a list of texts, or a list of columns; `label` has finite numbers, the scores.
///
/// # Errors
/// As [`texts`](super::texts).
pub fn sentences(source: &LabelledSource, base: &Path) -> Result<Loaded<SentenceExample>> {
    let files = source.open(Task::Sentences, base)?;
    let mut wanted = vec![RequestedColumn::required("text", source)];
    let has_pair = source.configured("pair").is_some();
    if has_pair {
        wanted.push(RequestedColumn::required("pair", source));
    }
    let columns = match source.columns.get("negatives") {
        None => &[][..],
        Some(Columns::One(column)) => std::slice::from_ref(column),
        Some(Columns::Many(columns)) => columns,
    };
    let negative = |column: &Column| RequestedColumn {
        field: "negatives".into(),
        column: column.clone(),
        required: true,
    };
    wanted.extend(columns.iter().map(negative));
    let has_score = source.configured("label").is_some();
    if has_score {
        wanted.push(RequestedColumn::required("label", source));
    }
    let convert = |Row { line, cells }: Row| {
        let mut cells = cells.into_iter().zip(&wanted);
        let mut next = || cells.next().map_or((Value::Null, &wanted[0]), |cell| cell);
        let (cell, column) = next();
        let first = text(cell, column, line)?;
        let mut pair = None;
        if has_pair {
            let (cell, column) = next();
            pair = Some(text(cell, column, line)?);
        }
        let mut negatives = Vec::new();
        for _ in columns {
            match next() {
                (cell @ Value::Array(_), column) => negatives.extend(rows::texts(cell, column, line)?),
                (cell, column) => negatives.push(text(cell, column, line)?),
            }
        }
        let mut score = None;
        if has_score {
            let (cell, column) = next();
            let (value, _) = label(cell, column, line)?;
            let value = value.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(|| {
                let detail = format!("`{}`, expected a finite number", rows::excerpt(&value));
                column.bad(line, "label is not a number", detail)
            })?;
            score = Some(value);
        }
        Ok(SentenceExample { text: first, pair, negatives, score })
    };
    rows::load(source, &files, |path, format| rows::open(path, format, source, &wanted), convert)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(columns: &str, lines: &str) -> Result<Vec<SentenceExample>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, lines).unwrap();
        let mut source = LabelledSource::new([path.to_str().unwrap()]);
        source.columns = serde_json::from_str(columns).unwrap();
        Ok(sentences(&source, Path::new(""))?.examples)
    }

    #[test]
    fn columns_decide_what_is_read() {
        let lines = r#"{"text": "a", "b": "b", "c": ["c", "d"], "e": "e", "y": 0.5}"#;
        let found = read("{}", lines).unwrap();
        assert_eq!(found, [SentenceExample { text: "a".into(), pair: None, negatives: vec![], score: None }]);
        let columns = r#"{"pair": "b", "negatives": ["c", "e"], "label": "y"}"#;
        let found = read(columns, lines).unwrap();
        assert_eq!(found[0].texts().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
        assert_eq!(found[0].score, Some(0.5));
        let error = read(columns, &lines.replace("0.5", "\"NaN\"")).unwrap_err().to_string();
        assert!(error.contains("expected a finite number"), "{error}");
    }
}
