//! Sentences to embed: single ones, pairs, pairs with scores or classes, and pairs with negatives.

use super::labels::LabelSet;
use super::rows::{self, RequestedColumn, Row, filled_text};
use super::source::{Columns, LabelledSource, Loaded, Task};
use super::texts::{Found, label};
use crate::Result;
use serde_json::Value;
use std::path::Path;

/// A sentence, with what is known about its similarity to others.
#[derive(Debug, Clone, PartialEq)]
pub struct SentenceExample {
    /// The sentence, or the first of a pair.
    pub text: String,
    /// The second of a pair.
    pub pair: Option<String>,
    /// Sentences less similar to the first than the second is.
    pub negatives: Vec<String>,
    /// The pair's similarity.
    pub score: Option<f64>,
    /// The pair's relation, such as entailment: an index in a [`LabelSet`].
    pub class: Option<usize>,
}

impl SentenceExample {
    /// All its sentences: the first, the second, the negatives.
    pub fn texts(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.text).chain(&self.pair).chain(&self.negatives)
    }
}

/// Reads sentences: the column `text`, and `pair`, `negatives` and `label` if `columns` names them.
/// `negatives` is a column with a text or a list of texts, or a list of columns; `label` has finite numbers,
/// the scores. A column `class` is not read.
///
/// # Errors
/// As [`texts`](super::texts).
pub fn sentences(source: &LabelledSource, base: &Path) -> Result<Loaded<SentenceExample>> {
    read(source, base, None)
}

/// Reads sentences with the classes (names or numbers) in the column `class`, and the set of classes.
///
/// # Errors
/// Those of [`sentences`]; a row without a class.
pub fn classified_sentences(
    source: &LabelledSource,
    base: &Path,
) -> Result<(Loaded<SentenceExample>, LabelSet)> {
    let mut found = Found::default();
    let mut loaded = read(source, base, Some(&mut found))?;
    let (set, ids) = found.into_set()?;
    for class in loaded.examples.iter_mut().filter_map(|example| example.class.as_mut()) {
        *class = ids[*class];
    }
    Ok((loaded, set))
}

/// Reads sentences, and their classes into `found` if given: an example's class is its index there.
fn read(
    source: &LabelledSource,
    base: &Path,
    mut found: Option<&mut Found>,
) -> Result<Loaded<SentenceExample>> {
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
    wanted
        .extend(columns.iter().map(|column| RequestedColumn::of("negatives", column.clone(), source.named)));
    let has_score = source.configured("label").is_some();
    if has_score {
        wanted.push(RequestedColumn::required("label", source));
    }
    if found.is_some() {
        wanted.push(RequestedColumn::required("class", source));
    }
    let convert = |Row { line, cells }: Row| {
        let mut cells = cells.into_iter().zip(&wanted);
        let mut next = || cells.next().map_or((Value::Null, &wanted[0]), |cell| cell);
        let (cell, column) = next();
        let first = filled_text(cell, column, line)?;
        let mut pair = None;
        if has_pair {
            let (cell, column) = next();
            pair = Some(filled_text(cell, column, line)?);
        }
        let mut negatives = Vec::new();
        for _ in columns {
            match next() {
                (cell @ Value::Array(_), column) => negatives.extend(rows::filled_texts(cell, column, line)?),
                (cell, column) => negatives.push(filled_text(cell, column, line)?),
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
        let mut class = None;
        if let Some(found) = &mut found {
            let (cell, column) = next();
            let (name, _) = label(cell, column, line)?;
            if name.is_empty() {
                return Err(column.bad(line, "no class", "empty, expected a class"));
            }
            class = Some(found.place(&name));
        }
        Ok(SentenceExample { text: first, pair, negatives, score, class })
    };
    rows::load(source, &files, |path, format| rows::open(path, format, source, &wanted), convert)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(columns: &str, lines: &str, read: impl FnOnce(&LabelledSource) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, lines).unwrap();
        let mut source = LabelledSource::new([path.to_str().unwrap()]);
        source.columns = serde_json::from_str(columns).unwrap();
        read(&source)
    }

    fn read(columns: &str, lines: &str) -> Result<Vec<SentenceExample>> {
        with(columns, lines, |source| Ok(sentences(source, Path::new(""))?.examples))
    }

    #[test]
    fn columns_decide_what_is_read() {
        let lines = r#"{"text": "a", "b": "b", "c": ["c", "d"], "e": "e", "y": 0.5}"#;
        let found = read("{}", lines).unwrap();
        let alone =
            SentenceExample { text: "a".into(), pair: None, negatives: vec![], score: None, class: None };
        assert_eq!(found, [alone]);
        let columns = r#"{"pair": "b", "negatives": ["c", "e"], "label": "y"}"#;
        let found = read(columns, lines).unwrap();
        assert_eq!(found[0].texts().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
        assert_eq!(found[0].score, Some(0.5));
        let error = read(columns, &lines.replace("0.5", "\"NaN\"")).unwrap_err().to_string();
        assert!(error.contains("expected a finite number"), "{error}");
    }

    #[test]
    fn classes_are_names_or_numbers() {
        let of = |lines: &str| {
            with(r#"{"pair": "b", "class": "c"}"#, lines, |source| {
                let (loaded, set) = classified_sentences(source, Path::new(""))?;
                let classes: Option<Vec<usize>> =
                    loaded.examples.iter().map(|example| example.class).collect();
                Ok::<_, crate::DataError>((classes.unwrap(), set.names().to_vec()))
            })
        };
        let line = |class: &str| format!("{{\"text\": \"a\", \"b\": \"b\", \"c\": {class}}}\n");
        let lines = |classes: &[&str]| classes.iter().map(|class| line(class)).collect::<String>();
        let names = ["contradiction", "entailment", "neutral"].map(str::to_owned);
        let found = of(&lines(&["\"neutral\"", "\"entailment\"", "\" neutral\"", "\"contradiction\""]));
        assert_eq!(found.unwrap(), (vec![2, 1, 2, 0], names.to_vec()));
        let numbers = ["2", "10"].map(str::to_owned);
        assert_eq!(of(&lines(&["10", "2", "10"])).unwrap(), (vec![1, 0, 1], numbers.to_vec()));
        let error = of(&lines(&["\"\""])).unwrap_err().to_string();
        assert!(error.contains("expected a class"), "{error}");
        // Where they are not asked for they may be missing.
        let found = read(r#"{"pair": "b", "class": "c"}"#, r#"{"text": "a", "b": "b"}"#).unwrap();
        assert_eq!(found[0].class, None);
    }
}
