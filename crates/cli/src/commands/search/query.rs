//! `cloze search query`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::builder::RangedU64ValueParser;
use cloze_search::{Condition, Found, Index, Method, SearchConfig, recall};
use cloze_tokenizer::Sequence;
use serde::Serialize;
use serde_json::{Map, Value};
use terminal_size::{Width, terminal_size};

use super::embedding::{Embedded, Embedding, is_of_images};
use super::hits;
use crate::compute::Compute;
use crate::lines::{self, BATCH, Batch, Lines, Longer};
use crate::model::OtherModel;
use crate::output::{Output, say};

/// Find the nearest texts to each query, or the nearest images to an image.
///
/// Example: cloze search query --index my-index 'a storm at sea'
///
/// A query of an index of images is an image: a path, data:image/png;base64,... or {"image": "..."}. The answer has "image" in
/// place of "text".
///
/// Prints a JSON line for each query: {"query": …, "found": [{"id": …, "score": …, "text": …, "fields": {…}},
/// …]}, the nearest first; on a terminal, a readable list. The score is the cosine, the dot product or the Euclidean distance. An empty query
/// is an error, but blank lines of standard input are passed over. Queries before one that fails are still answered.
#[derive(clap::Args)]
pub struct Args {
    /// Queries (default: standard input, one per line).
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// The index's folder.
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// The model (default: the one that the index was built with).
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    other: OtherModel,
    /// Number of texts to return.
    #[arg(short, long = "top-k", value_name = "K", default_value_t = SearchConfig::default().k, value_parser = up_to_a_million())]
    k: usize,
    /// Keep only texts with, or without, this value of a field: key=value, key!=value. All conditions must
    /// hold.
    #[arg(long = "where", value_name = "KEY=VALUE")]
    conditions: Vec<Condition>,
    /// Compare every vector.
    #[arg(long)]
    exact: bool,
    /// Candidates kept during graph search; more improve recall and take longer.
    #[arg(long, value_name = "N", default_value_t = SearchConfig::default().breadth, value_parser = up_to_a_million(),
        conflicts_with = "exact")]
    breadth: usize,
    /// Rescore this many times K rows found by quantized codes with their full vectors.
    #[arg(long, value_name = "N", default_value_t = SearchConfig::default().rescored, value_parser = up_to_a_million(),
        conflicts_with = "exact")]
    rescored: usize,
    /// Report recall against an exact search at the end, on standard error.
    #[arg(long)]
    recall: bool,
    /// Print JSON on a terminal too.
    #[arg(long)]
    json: bool,
    /// Bytes of a query to keep. If the model's maximum length truncates a longer query anyway, its beginning
    /// is encoded; otherwise it is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    #[command(flatten)]
    compute: Compute,
}

fn up_to_a_million() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1_000_000)
}

#[derive(Serialize)]
pub(super) struct Answer<'a> {
    pub query: &'a str,
    pub found: Vec<Neighbour>,
}

#[derive(Serialize)]
pub(super) struct Neighbour {
    pub id: String,
    pub score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
}

/// A queried index.
struct Asked<'a> {
    index: Index,
    embedding: Embedding<'a>,
    config: SearchConfig,
    output: Output,
    /// The width of the terminal that hits are shown on; without one they are JSON.
    terminal: Option<u16>,
    /// For all queries so far, if recall is requested: the rows found, and the exact nearest ones.
    compared: Option<[Vec<Vec<Found>>; 2]>,
}

pub fn run(args: &Args) -> Result<()> {
    let index = Index::open(&args.index)?;
    if index.info().rows == 0 {
        say(format_args!(
            "{} has no rows, so nothing is found: put some in with `cloze search add`, or run an interrupted `cloze search index` \
             again",
            args.index.display()
        ));
    }
    let embedding = Embedding::of_index(&index, args.model.as_deref(), &args.other, &args.compute)?;
    let config = SearchConfig {
        k: args.k,
        method: if args.exact { Method::Exact } else { Method::Auto },
        breadth: args.breadth,
        rescored: args.rescored,
        conditions: args.conditions.clone(),
    };
    let compared = args.recall.then(<[Vec<Vec<Found>>; 2]>::default);
    let terminal = (!args.json && io::stdout().is_terminal())
        .then(|| terminal_size().map_or(hits::USUAL_WIDTH, |(Width(width), _)| width));
    let mut asked = Asked { index, embedding, config, output: Output::new(), terminal, compared };
    if args.texts.is_empty() {
        let mut lines = Lines::stdin(args.max_line_bytes, Longer::Cut);
        let mut batch = Batch::default();
        while lines.read(BATCH, &mut batch)? {
            // A blank line is no query.
            let filled = || batch.numbered().filter(|(_, line)| !line.text.trim().is_empty());
            let texts: Vec<(&str, Sequence)> =
                filled().map(|(_, line)| (line.text, Sequence::from(line))).collect();
            let numbers: Vec<usize> = filled().map(|(number, _)| number).collect();
            asked.answer(&texts, |place| lines.place(numbers[place]))?;
        }
    } else {
        let texts: Vec<(&str, Sequence)> =
            args.texts.iter().map(|text| (text.as_str(), Sequence::Text(text))).collect();
        asked.answer(&texts, |place| format!("query {}", place + 1))?;
    }
    if let Some([found, truth]) = &asked.compared {
        say(format_args!(
            "recall at {}: {:.4} of {} queries",
            args.k,
            recall(found, truth),
            indicatif::HumanCount(found.len() as u64)
        ));
    }
    asked.output.finish()
}

impl Asked<'_> {
    /// Answers queries that were read together. Queries before a failing one are still answered.
    fn answer(&mut self, texts: &[(&str, Sequence<'_>)], place: impl Fn(usize) -> String) -> Result<()> {
        let mut failed = None;
        let mut good = texts;
        if let Some(empty) = texts.iter().position(|(text, _)| text.trim().is_empty()) {
            failed = Some(anyhow!("{}: the query is empty", place(empty)));
            good = &texts[..empty];
        }
        let sequences: Vec<Sequence> = good.iter().map(|(_, sequence)| *sequence).collect();
        let Embedded { values: vectors, refused } = self.embedding.embed(&sequences)?;
        if let Some(error) = refused {
            let index = vectors.len() / self.embedding.width();
            failed = Some(error.context(place(index)));
            good = &good[..index];
        }
        let of_images = is_of_images(&self.index);
        let found = self.index.find(&vectors, &self.config)?;
        for ((query, _), found) in good.iter().zip(&found) {
            let neighbour = |found: &Found| {
                let row = self.index.row(found.place)?;
                let (text, image) = if of_images { (None, Some(row.text)) } else { (Some(row.text), None) };
                Ok(Neighbour { id: row.id, score: found.score, text, image, fields: row.fields })
            };
            let found = found.iter().map(neighbour).collect::<Result<_>>()?;
            let answer = Answer { query, found };
            match self.terminal {
                Some(width) => self.output.line(hits::shown(&answer, width))?,
                None => self.output.line(serde_json::to_string(&answer)?)?,
            }
        }
        self.output.flush()?;
        if let Some([all, truth]) = &mut self.compared {
            let exact = SearchConfig { method: Method::Exact, ..self.config.clone() };
            truth.extend(self.index.find(&vectors, &exact)?);
            all.extend(found);
        }
        failed.map_or(Ok(()), Err)
    }
}
