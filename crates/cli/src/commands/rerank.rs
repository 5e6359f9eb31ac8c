//! `cloze rerank`.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::builder::RangedU64ValueParser;
use cloze::{Error, Ranked, Reranker};
use cloze_trainer::finetune::Predictor;
use indicatif::HumanCount;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compute::Compute;
use crate::lines::{self, Batch, Line, Lines};
use crate::model;
use crate::output::{Output, say};

/// Queries that are worked on together at most.
const QUERIES: usize = 64;

/// Rerank the candidates of each query with a cross-encoder, JSON lines in and out.
///
/// The model reads a query and a candidate together and has one number for them, or two classes. A line of input is
/// {"query": "...", "candidates": ["...", ...]}, or what `cloze search query` prints, whose rows are in "found". A candidate may
/// be an object with its "text"; its other keys are kept, but for "place" and "score", which the output has itself.
///
/// Prints {"query": ..., "found": [{"place": ..., "score": ..., "text": ...}, ...]} for each line, the best candidate first; the
/// place is that among the line's candidates, from 0, and the score is the model's, in the place of another one. An empty line
/// has null.
#[derive(clap::Args)]
#[command(after_long_help = r#"Examples:
  cloze search query --index INDEX -k 100 'how do ships float' | cloze rerank --model MODEL --top 10
  cloze rerank --model cross-encoder/ms-marco-MiniLM-L6-v2 --input candidates.jsonl --output ranked.jsonl
  echo '{"query": "a storm", "candidates": ["bread", "wind and rain"]}' | cloze rerank --model MODEL"#)]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// A file of JSON lines (default: standard input).
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The file to write, which is there when all of it is done (default: standard output).
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print only so many candidates of each query.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top: Option<usize>,
    /// Bytes of a line at most; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    #[command(flatten)]
    compute: Compute,
}

/// A line of input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    query: String,
    #[serde(alias = "found")]
    candidates: Vec<Candidate>,
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
    query: &'a str,
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

    /// What is printed of it.
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
    let mut lines = Lines::of(args.input.as_deref(), args.max_line_bytes)?;
    let predictor = Predictor::load(&model::folder(&args.model)?, &device, args.compute.int8)?;
    let reranker = Reranker::try_from(predictor)?;
    let mut output = Output::of(args.output.as_deref())?;
    let mut read = Batch::default();
    let (mut count, mut truncated) = (0, 0);
    while lines.read(QUERIES, &mut read)? {
        let (mut requests, mut failed) = (Vec::new(), None);
        for line in read.iter() {
            match request(line) {
                Ok(request) => requests.push(request),
                Err(error) => {
                    failed = Some(error.context(lines.place(read.first() + requests.len())));
                    break;
                }
            }
        }
        let rankings = loop {
            let of = |request: &Option<Request>| match request {
                Some(Request { query, candidates }) => {
                    (query.clone(), candidates.iter().map(|one| one.text().to_owned()).collect())
                }
                None => (String::new(), Vec::new()),
            };
            let queries: Vec<(String, Vec<String>)> = requests.iter().map(of).collect();
            match args.compute.run(|| reranker.rank_all(&queries)) {
                Ok(rankings) => break rankings,
                // Those before it have their answers.
                Err(Error::Input { place, source }) => {
                    failed = Some(anyhow!(source).context(lines.place(read.first() + place)));
                    requests.truncate(place);
                }
                Err(error) => return Err(error.into()),
            }
        };
        for (request, ranked) in requests.iter().zip(&rankings.queries) {
            let Some(Request { query, candidates }) = request else {
                output.line("null")?;
                continue;
            };
            let best = ranked.iter().take(args.top.unwrap_or(usize::MAX));
            let found = best.map(|ranked| candidates[ranked.place].fitting(*ranked)).collect();
            output.line(serde_json::to_string(&Answer { query, found })?)?;
            count += candidates.len();
        }
        truncated += rankings.truncated;
        output.flush()?;
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
    output.finish()
}

/// The query and candidates in a line; none in an empty one.
fn request(line: Line) -> Result<Option<Request>> {
    if line.text.trim().is_empty() {
        return Ok(None);
    }
    let expected = r#"expected {"query": "...", "candidates": ["...", ...]}"#;
    serde_json::from_str(line.text).map(Some).context(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Request>> {
        request(Line { text, goes_on: false })
    }

    #[test]
    fn lines_of_a_search_are_read_too() {
        assert!(of(" ").unwrap().is_none());
        let plain = of(r#"{"query": "q", "candidates": ["a", {"text": "b", "id": 7}]}"#).unwrap().unwrap();
        assert_eq!(plain.candidates.iter().map(Candidate::text).collect::<Vec<_>>(), ["a", "b"]);
        let found =
            of(r#"{"query": "q", "found": [{"id": "t1", "score": 0.5, "text": "a"}]}"#).unwrap().unwrap();
        let printed = serde_json::to_value(found.candidates[0].fitting(ranked(0, 0.25))).unwrap();
        assert_eq!(printed, serde_json::json!({"place": 0, "score": 0.25, "text": "a", "id": "t1"}));
        for (bad, problem) in [
            ("q", "expected value"),
            (r#"{"query": "q"}"#, "missing field `candidates`"),
            (r#"{"query": "q", "candidates": [7]}"#, "a candidate is a string"),
            (r#"{"query": "q", "candidates": [], "k": 1}"#, "unknown field `k`"),
        ] {
            let error = format!("{:#}", of(bad).unwrap_err());
            assert!(error.contains(problem) && !error.contains('\n'), "{error}");
        }
    }

    fn ranked(place: usize, score: f64) -> Ranked {
        Ranked::new(place, score)
    }
}
