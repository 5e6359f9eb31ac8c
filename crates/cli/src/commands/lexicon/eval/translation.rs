//! `cloze lexicon eval translation`.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Result, bail};
use cloze_evaluation::lexicon::{
    OrthogonalMap, TranslationScores, WordVectors, normalized, translation_ranks,
};
use cloze_evaluation::table::{self, grouped};
use serde::Serialize;

use super::questions::{self, Question, required};
use super::{Common, decimals, percent};
use crate::commands::lexicon::vectors;
use crate::progress::Progress;

/// Map the vectors of one language onto those of another, and translate words by the nearest one.
///
/// Example: cloze lexicon eval translation --source english.npy --target german.npy --no-header --train train.tsv --test
/// test.tsv
///
/// Columns are source and target unless --columns says otherwise; without a header, the first two. The map is the
/// orthogonal one that brings the pairs of --train nearest (Procrustes), after vectors are scaled to length 1, centred
/// and scaled again. Words of --test are translated by the nearest of all target words, by cosine and by CSLS (Conneau et
/// al. 2018). A word with several translations counts once: any of them is right.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, value_name = "FILE", help = vectors::HELP)]
    source: PathBuf,
    /// The same of the other language.
    #[arg(long, value_name = "FILE")]
    target: PathBuf,
    /// A table of words and their translations, from which the map is found.
    #[arg(long, value_name = "FILE")]
    train: String,
    /// A table of words and their translations, which the map is tested on.
    #[arg(long, value_name = "FILE")]
    test: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Found {
    train_pairs: usize,
    train_found: usize,
    test_words: usize,
    test_found: usize,
    candidates: usize,
    cosine: Scores,
    csls: Scores,
}

#[derive(Serialize)]
struct Scores {
    p_at_1: f64,
    p_at_5: f64,
    mrr: f64,
}

impl Scores {
    fn of(ranks: &[usize]) -> Self {
        let TranslationScores { p_at_1, p_at_5, mrr } = TranslationScores::of(ranks);
        Self { p_at_1, p_at_5, mrr }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let source = args.common.reading.read(&args.source)?;
    let target = args.common.reading.read(&args.target)?;
    let width = source.width();
    if width != target.width() {
        bail!(
            "{} has vectors of {width} features, and {} of {}; expected the same number: build both with models of one width",
            args.source.display(),
            args.target.display(),
            target.width()
        );
    }
    let train = dictionary(args, &args.train)?;
    let test = dictionary(args, &args.test)?;
    let pairs = known(&source, &target, &train);
    let tested = known(&source, &target, &test);
    for (file, rows, found) in [(&args.train, &train, &pairs), (&args.test, &test, &tested)] {
        if found.is_empty() {
            let names = format!("{} or {}", args.source.display(), args.target.display());
            return Err(questions::none_known(file, &names, rows, "translations"));
        }
    }
    let [of_source, of_target] = [&source, &target].map(|vectors| normalized(vectors.values(), width));
    let rows = |values: &[f32], words: &mut dyn Iterator<Item = usize>| -> Vec<f32> {
        words.flat_map(|word| values[word * width..][..width].to_vec()).collect()
    };
    let map = OrthogonalMap::fit(
        &rows(&of_source, &mut pairs.iter().map(|(source, _)| *source)),
        &rows(&of_target, &mut pairs.iter().map(|(_, target)| *target)),
        width,
    );
    let queries = by_source(&tested);
    let mut progress = Progress::new("words compared", false);
    let all = target.len();
    let ranks = translation_ranks(&map.apply(&of_source), &of_target, width, &queries, &mut |done| {
        progress.show(done, Some(done as f64 / all as f64));
    });
    progress.finish();
    let mut test_words: Vec<&str> = test.iter().map(|row| row.words([0])[0]).collect();
    test_words.sort_unstable();
    test_words.dedup();
    let found = Found {
        train_pairs: train.len(),
        train_found: pairs.len(),
        test_words: test_words.len(),
        test_found: queries.len(),
        candidates: all,
        cosine: Scores::of(&ranks.cosine),
        csls: Scores::of(&ranks.csls),
    };
    args.common.show(&found, || {
        let share = |part: usize, all: usize| format!("{} of {}", grouped(part as u64), grouped(all as u64));
        let facts = [
            ("pairs to find the map from", share(found.train_found, found.train_pairs)),
            ("words translated", share(found.test_found, found.test_words)),
            ("candidates", grouped(found.candidates as u64)),
        ];
        let row = |name: &str, Scores { p_at_1, p_at_5, mrr }: &Scores| {
            [name.to_owned(), percent(*p_at_1), percent(*p_at_5), decimals(*mrr)]
        };
        let scores = table::numbers(
            ["nearest by", "P@1", "P@5", "MRR"],
            [row("cosine", &found.cosine), row("CSLS", &found.csls)],
        );
        format!("{}\n{scores}", table::facts("translation", facts))
    })
}

fn dictionary(args: &Args, file: &str) -> Result<Vec<Question>> {
    questions::read(&args.common.rows, file, &[required("source"), required("target")], |_| None)
}

/// The pairs of words that both have a vector.
fn known(source: &WordVectors, target: &WordVectors, rows: &[Question]) -> Vec<(usize, usize)> {
    let pair = |row: &Question| {
        let [word, translation] = row.words([0, 1]);
        Some((source.find(word)?, target.find(translation)?))
    };
    rows.iter().filter_map(pair).collect()
}

/// Words with all their translations, in the order of their first occurrence.
fn by_source(pairs: &[(usize, usize)]) -> Vec<(usize, Vec<usize>)> {
    let mut places: HashMap<usize, usize> = HashMap::new();
    let mut found: Vec<(usize, Vec<usize>)> = Vec::new();
    for (source, target) in pairs {
        let at = *places.entry(*source).or_insert_with(|| {
            found.push((*source, Vec::new()));
            found.len() - 1
        });
        found[at].1.push(*target);
    }
    found
}
