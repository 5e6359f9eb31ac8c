//! `cloze lexicon eval similarity`.

use std::path::PathBuf;

use anyhow::Result;
use cloze_evaluation::lexicon::word_similarity;
use cloze_evaluation::table::{self, grouped};
use serde::Serialize;

use super::questions::{self, Question, required};
use super::{Common, decimals, percent};
use crate::commands::lexicon::vectors;

/// Correlate cosines of word pairs with people's scores of similarity.
///
/// Example: cloze lexicon eval similarity --vectors words.npy simlex.csv
///
/// Columns are word1, word2 and similarity unless --columns says otherwise. The usual figure is Spearman's correlation.
/// Both correlations are those of gensim's evaluate_word_pairs.
#[derive(clap::Args)]
pub struct Args {
    /// Tables of word pairs with scores.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    #[arg(long, value_name = "FILE", help = vectors::HELP)]
    vectors: PathBuf,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Found {
    files: Vec<OfFile>,
}

#[derive(Serialize)]
struct OfFile {
    file: String,
    pairs: usize,
    found: usize,
    spearman: f64,
    pearson: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let vectors = args.common.reading.read(&args.vectors)?;
    let mut files = Vec::new();
    for file in &args.files {
        let fields = [required("word1"), required("word2"), required("similarity")];
        let rows = questions::read(&args.common.rows, file, &fields, bad_score)?;
        let pair = |row: &Question| {
            let [first, second, score] = row.words([0, 1, 2]);
            (first.to_owned(), second.to_owned(), score.parse().unwrap_or(f64::NAN))
        };
        let pairs: Vec<(String, String, f64)> = rows.iter().map(pair).collect();
        let similarity = word_similarity(&vectors, &pairs);
        if similarity.found == 0 {
            return Err(questions::none_known(file, &args.vectors.display().to_string(), &rows, "pairs"));
        }
        files.push(OfFile {
            file: file.clone(),
            pairs: pairs.len(),
            found: similarity.found,
            spearman: similarity.spearman,
            pearson: similarity.pearson,
        });
    }
    let found = Found { files };
    args.common.show(&found, || {
        let row = |of: &OfFile| {
            [
                of.file.clone(),
                grouped(of.pairs as u64),
                percent(of.found as f64 / of.pairs as f64),
                decimals(of.spearman),
                decimals(of.pearson),
            ]
        };
        table::numbers(
            ["similarity", "pairs", "with vectors", "Spearman", "Pearson"],
            found.files.iter().map(row),
        )
    })
}

/// What is wrong with a row's score.
fn bad_score(row: &Question) -> Option<String> {
    let [score] = row.words([2]);
    let is_number = score.parse().is_ok_and(|score: f64| score.is_finite());
    (!is_number).then(|| format!("the similarity is {score:?}; expected a number"))
}
