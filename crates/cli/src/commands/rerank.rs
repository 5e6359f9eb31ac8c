//! `cloze rerank`.

use anyhow::{Context, Result, anyhow, bail};
use clap::builder::RangedU64ValueParser;
use cloze::{Error, Ranked, Reranker};
use cloze_trainer::finetune::{InputKey, Predictor};
use indicatif::HumanCount;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::answers::{AnswerArgs, Answers};
use crate::compute::Compute;
use crate::input::{Asked, Blank, InputArgs, Row};
use crate::lines::Longer;
use crate::model;
use crate::output::say;
use crate::rows::RowFormat;

/// Maximum number of queries processed together.
const QUERIES: usize = 64;

/// Rerank the candidates of each query with a cross-encoder, or score pairs of a query and a text.
///
/// Example: cloze rerank --model cross-encoder/ms-marco-MiniLM-L6-v2 --input pairs.csv --output scored.csv
///
/// The model reads a query and a candidate together and returns one score for them, or two classes. A line of
/// JSON is {"query": "...", "candidates": ["...", ...]}, or the output of `cloze search query`, with rows in
/// "found". A candidate may be an object with a "text"; its other keys are kept, except "place" and "score",
/// which are replaced.
///
/// Prints {"query": ..., "found": [{"place": ..., "score": ..., "text": ...}, ...]} for each line, the best
/// candidate first; the place is the candidate's index in the line, from 0, and the score is the model's,
/// replacing any other. Other keys of the line are kept. An empty line gives null.
///
/// A row of CSV, TSV or Parquet, or a line of JSON without candidates, is a pair: "query" and "text", in the
/// columns of these names or those in --columns. Rows are printed in order and unchanged, with "score" as an
/// extra cell or key; Parquet rows as JSON. If the input already has a column or key of that name, rename the
/// answer's with --answer-prefix.
#[derive(clap::Args)]
#[command(after_long_help = r#"More examples:
  cloze search query --index INDEX -k 100 'how do ships float' | cloze rerank --model MODEL --top-k 10
  cloze rerank --model cross-encoder/ms-marco-MiniLM-L6-v2 --input candidates.jsonl --output ranked.jsonl
  cloze rerank --model MODEL --columns query=question,text=passage --input pairs.csv --output scored.csv
  echo '{"query": "a storm", "candidates": ["bread", "wind and rain"]}' | cloze rerank --model MODEL"#)]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    answers: AnswerArgs,
    /// Print only the N best candidates of each query.
    #[arg(short = 'k', long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top_k: Option<usize>,
    #[command(flatten)]
    compute: Compute,
}

/// The fields of a row: the query, and one text or its candidates under either name.
const FIELDS: [InputKey; 4] = [
    InputKey { name: "query", required: true, list: false },
    InputKey { name: "text", required: false, list: false },
    InputKey { name: "candidates", required: false, list: true },
    InputKey { name: "found", required: false, list: true },
];

/// The fields of a line of cells, which hold no lists.
const PAIR: [InputKey; 2] = [
    InputKey { name: "query", required: true, list: false },
    InputKey { name: "text", required: true, list: false },
];

/// The expected form of an input line.
const EXPECTED: &str = r#"{"query": "…", "candidates": ["…", …]} or {"query": "…", "text": "…"}"#;

/// A row of input.
#[derive(Debug)]
struct Request {
    query: String,
    candidates: Vec<Candidate>,
    /// Whether it is a query with one text, which gets a score.
    is_pair: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a candidate is a string, or an object with its \"text\"")]
enum Candidate {
    Text(String),
    Row {
        text: String,
        #[serde(flatten)]
        rest: Map<String, Value>,
    },
}

#[derive(Serialize)]
struct Answer<'a> {
    found: Vec<Fitting<'a>>,
}

#[derive(Serialize)]
struct Fitting<'a> {
    place: usize,
    score: f64,
    text: &'a str,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Candidate {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Row { text, .. } => text,
        }
    }

    /// The part of the result to print.
    fn fitting(&self, ranked: Ranked) -> Fitting<'_> {
        let mut rest = match self {
            Self::Text(_) => Map::new(),
            Self::Row { rest, .. } => rest.clone(),
        };
        rest.retain(|key, _| !["place", "score"].contains(&key.as_str()));
        Fitting { place: ranked.place, score: ranked.score, text: self.text(), rest }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let device = args.compute.open()?;
    args.input.check()?;
    let predictor = Predictor::load(&model::folder(&args.model)?, &device, args.compute.int8)?;
    let reranker = Reranker::try_from(predictor)?;
    let mut input = args.input.open(Asked {
        fields: if args.input.is_cells() { &PAIR } else { &FIELDS },
        expected: EXPECTED,
        replaced: &["candidates", "found"],
        default: RowFormat::Jsonl,
        longer: Longer::Refused,
        blank: Blank::Answered,
    })?;
    let mut answers = Answers::new(&args.answers, &input, vec!["score"])?;
    let (mut count, mut truncated) = (0, 0);
    loop {
        let read = input.read(QUERIES)?;
        if read.is_empty() {
            break;
        }
        let (mut rows, mut requests, mut failed) = (Vec::new(), Vec::new(), None);
        for row in read {
            match request(&row) {
                Ok(request) => {
                    requests.push(request);
                    rows.push(row);
                }
                Err(error) => {
                    failed = input.refuse(&row.place, error).err();
                    if failed.is_some() {
                        break;
                    }
                }
            }
        }
        let rankings = loop {
            let of = |request: &Option<Request>| match request {
                Some(Request { query, candidates, .. }) => {
                    (query.clone(), candidates.iter().map(|one| one.text().to_owned()).collect())
                }
                None => (String::new(), Vec::new()),
            };
            let queries: Vec<(String, Vec<String>)> = requests.iter().map(of).collect();
            match args.compute.run(|| reranker.rank_all(&queries)) {
                Ok(rankings) => break rankings,
                Err(Error::Input { place, source }) => {
                    match input.refuse(&rows[place].place, anyhow!(source)) {
                        Ok(()) => {
                            rows.remove(place);
                            requests.remove(place);
                        }
                        // Those before it have their answers.
                        Err(error) => {
                            failed = Some(error);
                            requests.truncate(place);
                        }
                    }
                }
                Err(error) => return Err(error.into()),
            }
        };
        for ((row, request), ranked) in rows.iter().zip(&requests).zip(&rankings.queries) {
            match request {
                None => answers.write(row, &Value::Null)?,
                Some(Request { is_pair: true, .. }) => {
                    answers.write(row, &json!({ "score": ranked.first().map(|ranked| ranked.score) }))?;
                }
                Some(Request { candidates, .. }) => {
                    let best = ranked.iter().take(args.top_k.unwrap_or(usize::MAX));
                    let found = best.map(|ranked| candidates[ranked.place].fitting(*ranked)).collect();
                    answers.write_as(row, &["found"], &Answer { found })?;
                }
            }
            count += ranked.len();
        }
        truncated += rankings.truncated;
        answers.flush()?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    if truncated > 0 {
        say(format_args!(
            "{} of {} candidates have more than {} tokens with their query and were cut",
            HumanCount(truncated as u64),
            HumanCount(count as u64),
            reranker.max_len()
        ));
    }
    answers.finish()
}

/// The query and candidates in a row; none for an empty row.
fn request(row: &Row) -> Result<Option<Request>> {
    let Some([query, text, lists @ ..]) = row.fields.as_deref() else { return Ok(None) };
    let query = query.as_str().unwrap_or_default().to_owned();
    let lists: Vec<&Value> = lists.iter().filter(|list| !list.is_null()).collect();
    match (text.as_str(), &lists[..]) {
        (Some(text), []) => {
            let candidates = vec![Candidate::Text(text.to_owned())];
            Ok(Some(Request { query, candidates, is_pair: true }))
        }
        (None, [list]) => {
            let candidates = Vec::deserialize(*list).with_context(|| format!("expected {EXPECTED}"))?;
            Ok(Some(Request { query, candidates, is_pair: false }))
        }
        (None, []) => bail!("neither `candidates` nor `text`; expected {EXPECTED}"),
        _ => bail!("more than one of `candidates`, `found` and `text`; expected {EXPECTED}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: Value) -> Result<Option<Request>> {
        let field = |key: &InputKey| line.get(key.name).cloned().unwrap_or_default();
        let fields = Some(FIELDS.iter().map(field).collect());
        request(&Row::new(fields))
    }

    #[test]
    fn lines_of_a_search_are_read_too() {
        assert!(request(&Row::new(None)).unwrap().is_none());
        let plain = of(json!({"query": "q", "candidates": ["a", {"text": "b", "id": 7}]})).unwrap().unwrap();
        assert_eq!(plain.candidates.iter().map(Candidate::text).collect::<Vec<_>>(), ["a", "b"]);
        let found = of(json!({"query": "q", "found": [{"id": "t1", "score": 0.5, "text": "a"}]}));
        let found = found.unwrap().unwrap();
        assert!(!found.is_pair);
        let printed = serde_json::to_value(found.candidates[0].fitting(ranked(0, 0.25))).unwrap();
        assert_eq!(printed, json!({"place": 0, "score": 0.25, "text": "a", "id": "t1"}));
        assert!(of(json!({"query": "q", "text": "a"})).unwrap().unwrap().is_pair);
        for (bad, problem) in [
            (json!({"query": "q"}), "neither `candidates` nor `text`; expected {"),
            (json!({"query": "q", "candidates": [7]}), "a candidate is a string"),
            (json!({"query": "q", "candidates": "a"}), "expected a sequence"),
            (
                json!({"query": "q", "candidates": [], "text": "a"}),
                "more than one of `candidates`, `found` and `text`",
            ),
        ] {
            let error = format!("{:#}", of(bad).unwrap_err());
            assert!(error.contains(problem) && !error.contains('\n'), "{error}");
        }
    }

    fn ranked(place: usize, score: f64) -> Ranked {
        Ranked::new(place, score)
    }
}
