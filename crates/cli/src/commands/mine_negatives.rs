//! `cloze mine-negatives`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::builder::RangedU64ValueParser;
use cloze_data::labelled::{Labels, Target, TextExample};
use cloze_model::huggingface::SentenceConfig;
use cloze_trainer::embed::{EmbedConfig, Prompt};
use cloze_trainer::mining::{MiningConfig, hard_negatives};
use indicatif::HumanCount;
use serde::Serialize;

use super::eval_embeddings::rows::read;
use crate::compute::Compute;
use crate::failure::WrongUsage;
use crate::lines::{BATCH, Batch, Lines};
use crate::model;
use crate::output::{Output, say};
use crate::rows::{BadRowArgs, RowArgs};
use crate::text_vectors::Model;

/// Mine hard negatives: texts that a model confuses with the right ones, to train it with.
///
/// Example: cloze mine-negatives --model sentence-transformers/all-MiniLM-L6-v2 --columns
/// text=question,pair=answer --output triplets.jsonl questions.csv
///
/// Rows of FILE are pairs of texts that belong together. For each, the model finds the texts of the pool that
/// are most similar to the first; those that are not paired with it are negatives. The pool is the second texts
/// of these pairs, or the lines of --pool. --on-bad-row is for both.
///
/// Prints {"text": ..., "pair": ..., "negatives": [...]} for each pair with a negative, which a config reads with columns = { pair = "pair", negatives = "negatives" }. Bounds are
/// those of sentence-transformers' mine_hard_negatives; similarities are cosines. The model's prompt `query` is
/// put before first texts and its prompt `document`, `passage` or `corpus` before the pool, if it has them.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze mine-negatives --model MODEL --columns text=sentence_A,pair=sentence_B,label=relatedness_score --min-label 4 \\
      --range-min 2 --relative-margin 0.05 --negatives 3 --output triplets.jsonl sick.tsv")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Pairs of texts.
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    rows: RowArgs,
    /// Keep only pairs with at least this label; --columns names the column `label`.
    #[arg(long, value_name = "X", value_parser = finite)]
    min_label: Option<f64>,
    /// A file with one text per line to mine negatives from (default: the second texts of the pairs that belong
    /// together).
    #[arg(long, value_name = "FILE")]
    pool: Option<PathBuf>,
    /// Maximum negatives per pair.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = up_to_a_million(1))]
    negatives: usize,
    /// Skip the N nearest texts within the bounds.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = up_to_a_million(0))]
    range_min: usize,
    /// Consider the N nearest texts (default: --range-min plus ten times --negatives).
    #[arg(long, value_name = "N", value_parser = up_to_a_million(1))]
    range_max: Option<usize>,
    /// A negative's similarity to the first text must be lower than the second text's by at least this.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = finite)]
    margin: Option<f64>,
    /// A negative's similarity to the first text must be at most 1 - X times the second text's.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = finite)]
    relative_margin: Option<f64>,
    /// Maximum similarity of a negative.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = finite)]
    max_score: Option<f64>,
    /// Minimum similarity of a negative.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = finite)]
    min_score: Option<f64>,
    /// Put this text before each first text, instead of the model's prompt.
    #[arg(long, value_name = "TEXT")]
    query_prompt_text: Option<String>,
    /// Put this text before each second text and each text of the pool, instead of the model's prompt.
    #[arg(long, value_name = "TEXT")]
    document_prompt_text: Option<String>,
    /// The output file, created only once it is complete (default: standard output).
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Tokens processed at a time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = EmbedConfig::default().batch_tokens,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    batch_tokens: usize,
    #[command(flatten)]
    compute: Compute,
}

fn up_to_a_million(least: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=1_000_000)
}

fn finite(text: &str) -> Result<f64, String> {
    text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| "expected a number".to_owned())
}

/// A line of output.
#[derive(Serialize)]
struct Triplets<'a> {
    text: &'a str,
    pair: &'a str,
    negatives: Vec<&'a str>,
}

impl Args {
    fn config(&self) -> Result<MiningConfig> {
        let mut config = MiningConfig::new(self.negatives);
        config.range_min = self.range_min;
        config.range_max = self.range_max.unwrap_or(self.range_min + config.range_max);
        if config.range_max <= config.range_min {
            let error = anyhow!(
                "--range-max {} leaves none after --range-min {}; expected a greater number",
                config.range_max,
                config.range_min
            );
            return Err(WrongUsage::new(error).into());
        }
        (config.margin, config.relative_margin) = (self.margin, self.relative_margin);
        (config.max_score, config.min_score) = (self.max_score, self.min_score);
        Ok(config)
    }

    /// The pairs of texts that belong together.
    fn pairs(&self) -> Result<Vec<TextExample>> {
        let mut usual = vec![("text", "text"), ("pair", "pair")];
        usual.extend(self.min_label.map(|_| ("label", "label")));
        let labels = if self.min_label.is_some() { Labels::Values } else { Labels::Unread };
        let (mut examples, _) = read(&self.rows, &self.file, &usual, labels)?;
        if let Some(least) = self.min_label {
            examples.retain(|example| matches!(example.target, Target::Value(label) if label >= least));
            if examples.is_empty() {
                bail!("{}: no pair has a label of {least} or more", self.file);
            }
        }
        Ok(examples)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let config = args.config()?;
    let examples = args.pairs()?;
    let second = |example: &'_ TextExample| example.pair.clone().unwrap_or_default();
    let pool = match &args.pool {
        Some(path) => distinct(lines_of(path, &args.rows.bad)?),
        None => distinct(examples.iter().map(second).collect()),
    };
    let seconds: Vec<String> = examples.iter().map(second).collect();
    let pairs: Vec<(&str, &str)> = examples
        .iter()
        .zip(&seconds)
        .map(|(example, second)| (example.text.as_str(), second.as_str()))
        .collect();

    let model = Model::open(&args.model, args.batch_tokens, &args.compute)?;
    let prompts = SentenceConfig::load(&model.folder)?.unwrap_or_default().prompts;
    let prompt = |text: &Option<String>, names: &[&str]| match text {
        Some(text) => Some(Prompt::Text(text.clone())),
        None => {
            names.iter().find(|name| prompts.contains_key(**name)).map(|name| Prompt::Name((*name).into()))
        }
    };
    let firsts: Vec<&str> = pairs.iter().map(|(first, _)| *first).collect();
    let anchors = model.embed(&firsts, prompt(&args.query_prompt_text, &["query"]))?;
    let of_documents = prompt(&args.document_prompt_text, &["document", "passage", "corpus"]);
    // Second texts and the pool have much in common, and equal texts are embedded once.
    let documents: Vec<&str> =
        pairs.iter().map(|(_, second)| *second).chain(pool.iter().map(String::as_str)).collect();
    let documents = model.embed(&documents, of_documents)?;
    let [positives, of_pool] = documents.split(pairs.len());
    let vectors = [anchors.vectors()?, positives.vectors()?, of_pool.vectors()?];
    let mined = hard_negatives(&pairs, vectors, &pool, &config);

    let read = std::iter::once(Path::new(&args.file)).chain(args.pool.as_deref());
    let mut output = Output::apart_from(args.output.as_deref(), read)?;
    for ((text, pair), negatives) in pairs.iter().zip(&mined).filter(|(_, negatives)| !negatives.is_empty()) {
        let negatives = negatives.iter().map(|negative| pool[negative.place].as_str()).collect();
        output.line(serde_json::to_string(&Triplets { text, pair, negatives })?)?;
    }
    let with = |n: fn(usize, usize) -> bool| mined.iter().filter(|all| n(all.len(), args.negatives)).count();
    let (none, fewer) = (with(|n, _| n == 0), with(|n, wanted| n > 0 && n < wanted));
    say(format_args!(
        "{} pairs, of which {} have fewer than {} negatives and {} have none and are skipped; the pool has {} texts",
        HumanCount(pairs.len() as u64),
        HumanCount(fewer as u64),
        args.negatives,
        HumanCount(none as u64),
        HumanCount(pool.len() as u64)
    ));
    output.finish()
}

/// Unique texts, in the order of first occurrence.
fn distinct(texts: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}

/// The lines of a file that are not blank. Unusable ones are left out on request, and counted.
fn lines_of(path: &Path, bad: &BadRowArgs) -> Result<Vec<String>> {
    let mut lines = Lines::of(Some(path), bad.max_line_bytes())?.skipping(bad.skips());
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    while lines.read(BATCH, &mut batch)? {
        all.extend(batch.iter().filter(|line| !line.text.trim().is_empty()).map(|line| line.text.to_owned()));
    }
    bad.check_skipped(lines.name(), lines.skipped(), all.len() as u64)?;
    match all.is_empty() {
        true => bail!("{}: the pool has no text", path.display()),
        false => Ok(all),
    }
}
