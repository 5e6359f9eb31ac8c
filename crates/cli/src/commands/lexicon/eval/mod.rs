//! `cloze lexicon eval`.

mod analogy;
mod categories;
mod questions;
mod relations;
mod similarity;
mod translation;

use anyhow::Result;
use clap::Subcommand;
use serde::Serialize;

use super::vectors::VectorArgs;
use crate::output::Output;
use crate::rows::RowArgs;

/// Evaluate word vectors: similarity, analogies, categories, relations and translation.
///
/// Example: cloze lexicon eval similarity --vectors words.npy simlex.csv
///
/// Vectors are those of `cloze lexicon build`, or text in the format of word2vec or GloVe. Files of questions are tables
/// with the columns of vecto's word-benchmarks; --columns names other ones. Questions with a word that has no vector are
/// left out, and every figure comes with how many were asked.
#[derive(Subcommand)]
#[command(after_long_help = "\
More examples:
  cloze lexicon eval analogy --vectors words.npy google-analogies.csv --json
  cloze lexicon eval categories --vectors glove.6B.300d.txt --limit 50000 battig.csv
  cloze lexicon eval relations --vectors words.npy bless.csv
  cloze lexicon eval translation --source english.npy --target german.npy --train train.tsv --test test.tsv")]
pub enum Command {
    Similarity(similarity::Args),
    Analogy(analogy::Args),
    Categories(categories::Args),
    Relations(relations::Args),
    Translation(translation::Args),
}

/// Runs `command`.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Similarity(args) => similarity::run(args),
        Command::Analogy(args) => analogy::run(args),
        Command::Categories(args) => categories::run(args),
        Command::Relations(args) => relations::run(args),
        Command::Translation(args) => translation::run(args),
    }
}

/// The options of every evaluation.
#[derive(clap::Args)]
struct Common {
    #[command(flatten)]
    reading: VectorArgs,
    #[command(flatten)]
    rows: RowArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Common {
    /// Prints a table, or one JSON object if asked for.
    fn show(&self, object: &impl Serialize, table: impl FnOnce() -> String) -> Result<()> {
        let mut output = Output::new();
        match self.json {
            true => output.line(serde_json::to_string(object)?)?,
            false => output.line(table())?,
        }
        output.finish()
    }
}

/// A share in a table; a dash where there is nothing to divide by.
fn percent(share: f64) -> String {
    if share.is_finite() { cloze_evaluation::table::percent(share) } else { "–".to_owned() }
}

/// A correlation or a mean in a table, likewise.
fn decimals(number: f64) -> String {
    if number.is_finite() { format!("{number:.4}") } else { "–".to_owned() }
}
