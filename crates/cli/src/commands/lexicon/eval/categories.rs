//! `cloze lexicon eval categories`.

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use cloze_data::Random;
use cloze_data::labelled::LabelSet;
use cloze_evaluation::embeddings::{Vectors, v_measure};
use cloze_evaluation::lexicon::category_clusters;
use cloze_evaluation::table::{self, grouped};
use serde::Serialize;

use super::questions::{self, Question, required};
use super::{Common, percent};
use crate::commands::lexicon::vectors;

/// Cluster words, and compare the clusters with their categories.
///
/// Example: cloze lexicon eval categories --vectors words.npy battig.csv
///
/// Columns are word and category unless --columns says otherwise. The vectors, scaled to length 1, are clustered by
/// k-means into as many clusters as there are categories; of several runs, the one with the smallest sum of squared
/// distances is taken. Purity is the share of words whose category is the most frequent one of their cluster.
#[derive(clap::Args)]
pub struct Args {
    /// Tables of words and their categories.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    #[arg(long, value_name = "FILE", help = vectors::HELP)]
    vectors: PathBuf,
    /// Runs of k-means, each with other initial centres.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    runs: usize,
    /// The seed of the initial centres.
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
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
    words: usize,
    found: usize,
    categories: usize,
    purity: f64,
    v_measure: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let vectors = args.common.reading.read(&args.vectors)?;
    let directions = vectors.directions();
    let mut files = Vec::new();
    for file in &args.files {
        let rows =
            questions::read(&args.common.rows, file, &[required("word"), required("category")], |_| None)?;
        let known = |row: &Question| {
            let [word, category] = row.words([0, 1]);
            Some((vectors.find(word)?, category.to_owned()))
        };
        let known: Vec<(usize, String)> = rows.iter().filter_map(known).collect();
        if known.is_empty() {
            return Err(questions::none_known(file, &args.vectors.display().to_string(), &rows, "words"));
        }
        let names = LabelSet::found(known.iter().map(|(_, category)| category.as_str()))?;
        let categories: Vec<usize> = known.iter().filter_map(|(_, category)| names.id(category)).collect();
        let width = vectors.width();
        let values: Vec<f32> =
            known.iter().flat_map(|(word, _)| directions[word * width..][..width].iter().copied()).collect();
        let mut random = Random::derive(args.seed, &[]);
        let found =
            category_clusters(Vectors::new(&values, width)?, &categories, args.runs, &mut || random.unit())?;
        files.push(OfFile {
            file: file.clone(),
            words: rows.len(),
            found: known.len(),
            categories: names.len(),
            purity: found.purity,
            v_measure: v_measure(&categories, &found.clusters).v_measure,
        });
    }
    let found = Found { files };
    args.common.show(&found, || {
        let row = |of: &OfFile| {
            [
                of.file.clone(),
                grouped(of.words as u64),
                percent(of.found as f64 / of.words as f64),
                grouped(of.categories as u64),
                percent(of.purity),
                percent(of.v_measure),
            ]
        };
        let header = ["categories", "words", "with vectors", "categories", "purity", "V-measure"];
        table::numbers(header, found.files.iter().map(row))
    })
}
