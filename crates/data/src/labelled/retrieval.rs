//! Retrieval sets: documents, queries, and which documents answer which query.

use super::records::{Record, RecordColumn, records};
use super::rows::excerpt;
use super::source::{Column, LabelledSource};
use crate::{DataError, Result};
use serde_json::Value;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A retrieval test set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RetrievalSet {
    /// The documents' ids, each once.
    pub document_ids: Vec<String>,
    /// The documents: the title and a space, if there is a title, then the text.
    pub documents: Vec<String>,
    /// The ids of the queries with judgements, each once.
    pub query_ids: Vec<String>,
    /// These queries.
    pub queries: Vec<String>,
    /// For each query, the judged documents with their grades; above 0 is relevant.
    pub judgements: Vec<BTreeMap<String, i64>>,
    /// Number of queries without judgements, which are dropped.
    pub n_unjudged: usize,
    /// Number of judgements for documents missing from the corpus. As in trec_eval, they count as relevant
    /// documents never found.
    pub n_absent: usize,
}

const LAYOUT: &str =
    "expected a folder in BEIR's layout, with corpus.jsonl, queries.jsonl and qrels/test.tsv";

/// Reads a folder in BEIR's layout (Thakur et al. 2021).
///
/// `corpus.jsonl` has `_id`, `text` and optionally `title`; `queries.jsonl` has `_id` and `text`;
/// `qrels/SPLIT.tsv` has a header and the columns `query-id`, `corpus-id` and `score`. Each may be compressed
/// with gzip or zstd, or be a Parquet file.
///
/// # Errors
/// A missing or empty file; an unusable row, with its line; a duplicate id, a judgement of an unknown query,
/// or conflicting judgements of a document for a query; no judgements.
pub fn retrieval_set(folder: &Path, split: &str, max_line_bytes: usize) -> Result<RetrievalSet> {
    let (corpus, queries) = (file(folder, "corpus", "jsonl")?, file(folder, "queries", "jsonl")?);
    let qrels = file(&folder.join("qrels"), split, "tsv")?;
    let (document_ids, documents) = texts(&corpus, max_line_bytes)?;
    let (query_ids, queries) = texts(&queries, max_line_bytes)?;
    let known: HashSet<&str> = document_ids.iter().map(String::as_str).collect();
    let places: HashMap<&str, usize> =
        query_ids.iter().enumerate().map(|(place, id)| (id.as_str(), place)).collect();
    let mut set = RetrievalSet { documents, ..RetrievalSet::default() };
    // Each with its line.
    let mut judgements: Vec<BTreeMap<String, (i64, u64)>> = vec![BTreeMap::new(); query_ids.len()];
    for row in rows(&qrels, &[("query-id", true), ("corpus-id", true), ("score", true)], max_line_bytes)? {
        let row = row?;
        let (line, [query, document, grade]) = (row.line, three(row.cells));
        let bad = |problem: String| bad(&qrels, Some(line), problem);
        let (Some(query), Some(document)) = (id(&query), id(&document)) else {
            return Err(bad("an id is neither a string nor a number".into()));
        };
        let place = places.get(query.as_str()).ok_or_else(|| {
            bad(format!("there is no query `{}`; expected an `_id` of queries.jsonl", excerpt(&query)))
        })?;
        let is_absent = !known.contains(document.as_str());
        let grade = match &grade {
            Value::String(text) => text.trim().parse().ok(),
            other => other.as_i64(),
        };
        let grade = grade.ok_or_else(|| bad("column `score`: expected a whole number".into()))?;
        match judgements[*place].entry(document) {
            Entry::Vacant(entry) => {
                entry.insert((grade, line));
                set.n_absent += usize::from(is_absent);
            }
            Entry::Occupied(entry) if entry.get().0 != grade => {
                let (before, at) = entry.get();
                return Err(bad(format!(
                    "the document `{}` has the grade {grade} for the query `{}`, and {before} on line {at}; expected one \
                     grade",
                    excerpt(entry.key()),
                    excerpt(&query)
                )));
            }
            Entry::Occupied(_) => {}
        }
    }
    let n_queries = query_ids.len();
    for ((id, query), judged) in query_ids.into_iter().zip(queries).zip(judgements) {
        if !judged.is_empty() {
            set.query_ids.push(id);
            set.queries.push(query);
            set.judgements.push(judged.into_iter().map(|(id, (grade, _))| (id, grade)).collect());
        }
    }
    set.document_ids = document_ids;
    set.n_unjudged = n_queries - set.query_ids.len();
    Ok(set)
}

/// The file of this name, whatever its format.
fn file(folder: &Path, name: &str, ending: &str) -> Result<PathBuf> {
    let endings = [ending.to_owned(), format!("{ending}.gz"), format!("{ending}.zst"), "parquet".into()];
    let path = |ending: &String| folder.join(format!("{name}.{ending}"));
    let found = endings.iter().map(path).find(|path| path.is_file());
    found.ok_or_else(|| bad(&path(&endings[0]), None, format!("there is no such file; {LAYOUT}")))
}

/// Ids and texts of a file.
fn texts(path: &Path, max_line_bytes: usize) -> Result<(Vec<String>, Vec<String>)> {
    let (mut ids, mut texts) = (Vec::new(), Vec::new());
    let mut lines: HashMap<String, u64> = HashMap::new();
    for row in rows(path, &[("_id", true), ("text", true), ("title", false)], max_line_bytes)? {
        let row = row?;
        let (line, [found, text, title]) = (row.line, three(row.cells));
        let bad = |problem: String| bad(path, Some(line), problem);
        let Some(id) = id(&found) else {
            return Err(bad("column `_id`: expected a string or a number".into()));
        };
        let text = match (&title, &text) {
            (Value::String(title), Value::String(text)) => format!("{title} {text}").trim().to_owned(),
            (_, Value::String(text)) => text.trim().to_owned(),
            _ => return Err(bad("column `text`: expected a string".into())),
        };
        if let Some(before) = lines.insert(id.clone(), line) {
            return Err(bad(format!(
                "the id `{}` is also on line {before}; ids must be unique",
                excerpt(&id)
            )));
        }
        ids.push(id);
        texts.push(text);
    }
    Ok((ids, texts))
}

/// The rows of a file; at least one.
fn rows(
    path: &Path,
    columns: &[(&str, bool)],
    max_line_bytes: usize,
) -> Result<impl Iterator<Item = Result<Record>> + use<>> {
    let column = |(name, required): &(&str, bool)| RecordColumn {
        field: (*name).into(),
        column: Column::Name((*name).into()),
        required: *required,
    };
    let source = LabelledSource { max_line_bytes, ..LabelledSource::new([path.display().to_string()]) };
    let columns = columns.iter().map(column).collect();
    let mut rows = records(&source, Path::new(""), columns)?.peekable();
    match rows.peek() {
        None => Err(bad(path, None, "it has no rows: it is empty or has only a header".into())),
        Some(_) => Ok(rows),
    }
}

/// The cells of three columns.
fn three(cells: Vec<Value>) -> [Value; 3] {
    let mut cells = cells.into_iter();
    std::array::from_fn(|_| cells.next().unwrap_or(Value::Null))
}

fn id(cell: &Value) -> Option<String> {
    match cell {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

fn bad(path: &Path, line: Option<u64>, problem: String) -> DataError {
    DataError::LabelledFile { path: path.into(), line, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const CORPUS: &str = "{\"_id\": \"d1\", \"title\": \"Sea\", \"text\": \"salt water\"}\n\
                          {\"_id\": \"d2\", \"title\": \"\", \"text\": \"bread \"}\n{\"_id\": 3, \"text\": \"a king\"}\n";
    const QUERIES: &str = "{\"_id\": \"q1\", \"text\": \"ocean\"}\n{\"_id\": \"q2\", \"text\": \"food\"}\n\
                           {\"_id\": \"q3\", \"text\": \"none\"}\n";
    const QRELS: &str = "query-id\tcorpus-id\tscore\nq2\td2\t2\nq1\td1\t1\nq1\t3\t0\n";

    fn read(corpus: &str, queries: &str, qrels: &str) -> std::result::Result<RetrievalSet, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("qrels")).unwrap();
        for (name, text) in [("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels/test.tsv", qrels)]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let shown =
            |error: DataError| error.to_string().replace(&format!("{}/", folder.path().display()), "");
        retrieval_set(folder.path(), "test", 1 << 20).map_err(shown)
    }

    #[test]
    fn queries_without_judgement_are_left_out_and_counted() {
        let set = read(CORPUS, QUERIES, QRELS).unwrap();
        assert_eq!(set.document_ids, ["d1", "d2", "3"]);
        assert_eq!(set.documents, ["Sea salt water", "bread", "a king"]);
        assert_eq!(
            (set.query_ids, set.queries),
            (vec!["q1".into(), "q2".into()], vec!["ocean".into(), "food".into()])
        );
        assert_eq!((set.n_unjudged, set.n_absent), (1, 0));
        let grades = |pairs: &[(&str, i64)]| pairs.iter().map(|(id, grade)| ((*id).into(), *grade)).collect();
        assert_eq!(
            set.judgements,
            [grades(&[("d1", 1), ("3", 0)]), grades(&[("d2", 2)])] as [BTreeMap<String, i64>; 2]
        );
    }

    #[test]
    fn judged_documents_that_the_corpus_lacks_are_kept_and_counted() {
        let set = read(CORPUS, QUERIES, &format!("{QRELS}q1\td9\t2\nq3\td8\t1\nq3\td8\t1\n")).unwrap();
        assert_eq!((set.n_unjudged, set.n_absent, set.document_ids.len()), (0, 2, 3));
        assert_eq!((set.judgements[0]["d9"], set.judgements[2]["d8"]), (2, 1));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let header = "query-id\tcorpus-id\tscore\n";
        let cases = [
            (read("", QUERIES, QRELS), "corpus.jsonl: it has no rows: it is empty or has only a header"),
            (
                read(CORPUS, QUERIES, header),
                "qrels/test.tsv: it has no rows: it is empty or has only a header",
            ),
            (
                read(CORPUS, QUERIES, &format!("{header}q1\td1\t1\nq9\td1\t1\n")),
                "qrels/test.tsv:3: there is no query `q9`; expected an `_id` of queries.jsonl",
            ),
            (
                read(CORPUS, QUERIES, &format!("{header}q1\td1\tgood\n")),
                "qrels/test.tsv:2: column `score`: expected a whole number",
            ),
            (
                read(CORPUS, QUERIES, &format!("{QRELS}q2\td2\t2\nq2\td2\t1\n")),
                "qrels/test.tsv:6: the document `d2` has the grade 1 for the query `q2`, and 2 on line 2; expected one grade",
            ),
            (
                read(&format!("{CORPUS}{CORPUS}"), QUERIES, QRELS),
                "corpus.jsonl:4: the id `d1` is also on line 1; ids must be unique",
            ),
            (
                read(CORPUS, "{\"_id\": \"q1\", \"text\": 7}\n", QRELS),
                "queries.jsonl:1: column `text`: expected a string",
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(found.unwrap_err(), expected);
        }
        let folder = tempfile::tempdir().unwrap();
        let error = retrieval_set(folder.path(), "test", 1 << 20).unwrap_err().to_string();
        assert!(error.ends_with(&format!("corpus.jsonl: there is no such file; {LAYOUT}")), "{error}");
    }
}
