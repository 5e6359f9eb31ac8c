//! `cloze eval-embeddings retrieval`.

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use cloze_data::labelled::retrieval_set;
use cloze_evaluation::embeddings::{Documents, Hit, Retrieval};
use cloze_model::huggingface::SentenceConfig;
use cloze_trainer::TrainerError;
use cloze_trainer::embed::Prompt;
use indicatif::HumanCount;
use rayon::prelude::*;

use super::{Common, Similarity};
use crate::lines;
use crate::output::say;
use crate::progress::Progress;

/// Queries searched between progress updates.
const TOGETHER: usize = 64;

/// Retrieval: search documents for queries and compare the rankings with relevance judgements.
///
/// Example: cloze eval-embeddings retrieval --model sentence-transformers/all-MiniLM-L6-v2 scifact
///
/// The folder has BEIR's layout: corpus.jsonl, queries.jsonl and qrels/test.tsv. All documents are compared
/// with each query, except one with the query's own id, as in BEIR. Metrics are trec_eval's. The model's prompt
/// `query` is put before queries and its prompt `document`, `passage` or `corpus` before documents, if it has
/// them. The main metric is nDCG@10.
#[derive(clap::Args)]
pub struct Args {
    /// The folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Which judgements to use: the name of a file in `qrels`.
    #[arg(long, value_name = "NAME", default_value = "test")]
    split: String,
    /// The cutoff ranks k of the metrics.
    #[arg(
        short,
        value_name = "K,K,…",
        value_delimiter = ',',
        default_value = "1,3,5,10,100",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000)
    )]
    k: Vec<usize>,
    /// How vectors are compared.
    #[arg(long, value_enum, default_value = "cosine")]
    similarity: Similarity,
    /// Put this text before each query, instead of the model's prompt.
    #[arg(long, value_name = "TEXT")]
    query_prompt_text: Option<String>,
    /// Put this text before each document, instead of the model's prompt.
    #[arg(long, value_name = "TEXT")]
    document_prompt_text: Option<String>,
    /// Maximum bytes of a line; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    #[command(flatten)]
    common: Common,
}

pub fn run(args: &Args) -> Result<()> {
    let set = retrieval_set(&args.folder, &args.split, args.max_line_bytes).map_err(TrainerError::from)?;
    if set.n_unjudged > 0 {
        say(format_args!("skipped queries without judgements: {}", HumanCount(set.n_unjudged as u64)));
    }
    if set.n_absent > 0 {
        say(format_args!(
            "judgements of documents missing from the corpus: {}; relevant ones count as not found, as in trec_eval",
            HumanCount(set.n_absent as u64)
        ));
    }
    let model = args.common.open()?;
    let prompts = SentenceConfig::load(&model.folder)?.unwrap_or_default().prompts;
    let prompt = |text: &Option<String>, names: &[&str]| match text {
        Some(text) => Some(Prompt::Text(text.clone())),
        None => {
            names.iter().find(|name| prompts.contains_key(**name)).map(|name| Prompt::Name((*name).into()))
        }
    };
    let embed = |texts: &[String], prompt| {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        model.embed(&texts, prompt)
    };
    let of_documents = prompt(&args.document_prompt_text, &["document", "passage", "corpus"]);
    let documents = embed(&set.documents, of_documents)?;
    let queries = embed(&set.queries, prompt(&args.query_prompt_text, &["query"]))?;
    let documents = Documents::new(&set.document_ids, documents.vectors()?, args.similarity.into());
    let queries = queries.vectors()?;
    let mut ks = args.k.clone();
    ks.sort_unstable();
    ks.dedup();
    let deepest = ks.last().copied().unwrap_or_default();
    let mut retrieval = Retrieval::new(&ks);
    let mut progress = Progress::new("queries", false);
    let places: Vec<usize> = (0..queries.len()).collect();
    for together in places.chunks(TOGETHER) {
        let nearest = |place: &usize| documents.nearest(&set.query_ids[*place], queries.get(*place), deepest);
        let found: Vec<Vec<Hit>> = together.par_iter().map(nearest).collect();
        for (place, hits) in together.iter().zip(&found) {
            retrieval.add(hits.iter().map(|hit| hit.id), &set.judgements[*place]);
            progress.show(place + 1, Some((place + 1) as f64 / queries.len() as f64));
        }
    }
    progress.finish();
    args.common.show("retrieval", &args.folder.display().to_string(), &retrieval.figures(), None)
}
