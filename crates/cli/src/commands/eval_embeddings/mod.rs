//! `cloze eval-embeddings`: evaluates a model's vectors.

mod classification;
mod clustering;
mod pairs;
mod retrieval;
pub mod rows;

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use clap::{Subcommand, ValueEnum};
use cloze_evaluation::embeddings;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{Predictions, Report};
use cloze_trainer::embed::EmbedConfig;

use crate::compute::Compute;
use crate::model;
use crate::output::{Output, say};
use crate::text_vectors::Model;

/// Evaluate a model's embeddings as sentence-transformers and MTEB do.
///
/// Example: cloze eval-embeddings sts --model sentence-transformers/all-MiniLM-L6-v2 --columns
/// text=first,pair=second,label=score pairs.csv
///
/// Metrics equal those of scipy, scikit-learn, pytrec_eval and sentence-transformers' evaluators on the same
/// vectors. Each command prints a table, or with --json one object. Files are JSON lines, CSV, TSV, Parquet or
/// XML; --columns maps fields to columns.
#[derive(Subcommand)]
#[command(after_long_help = "\
More examples:
  cloze eval-embeddings sts --model MODEL --no-header --columns label=1,text=2,pair=3 --on-bad-row skip --max-skipped 1 sts2015.tsv
  cloze eval-embeddings pairs --model MODEL --similarity cosine,euclidean quora.jsonl")]
pub enum Command {
    Sts(pairs::StsArgs),
    Retrieval(retrieval::Args),
    Pairs(pairs::PairsArgs),
    Clustering(clustering::Args),
    Classification(classification::Args),
}

/// Runs `command`.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Sts(args) => pairs::sts(args),
        Command::Retrieval(args) => retrieval::run(args),
        Command::Pairs(args) => pairs::pairs(args),
        Command::Clustering(args) => clustering::run(args),
        Command::Classification(args) => classification::run(args),
    }
}

#[derive(clap::Args)]
struct Common {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Tokens processed at a time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = EmbedConfig::default().batch_tokens,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    batch_tokens: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write a report to this folder, replacing the files of an earlier one.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    compute: Compute,
}

impl Common {
    /// Finds the model and opens the device.
    fn open(&self) -> Result<Model<'_>> {
        Model::open(&self.model, self.batch_tokens, &self.compute)
    }

    /// Prints metrics of `kind`, such as `sts`, and writes the report if requested.
    fn show(
        &self,
        kind: &str,
        data: &str,
        figures: &Figures,
        predictions: Option<&dyn Predictions>,
    ) -> Result<()> {
        if let Some(out) = &self.out {
            let facts = [
                ("model", self.model.clone()),
                ("data", data.to_owned()),
                ("multiplies in", self.compute.to_string()),
            ];
            let title = format!("Embeddings: {kind}");
            Report { title: &title, facts: &facts, figures, predictions }.write(out)?;
            say(format_args!("{}", out.join("report.html").display()));
        }
        let mut output = Output::new();
        match self.json {
            true => output.line(serde_json::to_string(figures)?)?,
            false => output.line(figures)?,
        }
        output.flush()
    }
}

/// How vectors are compared.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Similarity {
    /// Cosine similarity.
    Cosine,
    /// Dot product.
    Dot,
    /// Negative Euclidean distance.
    Euclidean,
    /// Negative Manhattan distance.
    Manhattan,
}

impl From<Similarity> for embeddings::Similarity {
    fn from(similarity: Similarity) -> Self {
        match similarity {
            Similarity::Cosine => Self::Cosine,
            Similarity::Dot => Self::Dot,
            Similarity::Euclidean => Self::Euclidean,
            Similarity::Manhattan => Self::Manhattan,
        }
    }
}
