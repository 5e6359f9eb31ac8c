//! `cloze lexicon eval relations`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::builder::RangedU64ValueParser;
use cloze_data::Random;
use cloze_data::labelled::LabelSet;
use cloze_evaluation::lexicon::{RelationPair, RelationProbe, relation_probe, split_words};
use cloze_evaluation::table::{self, grouped};
use serde::Serialize;

use super::questions::{self, Question, required};
use super::{Common, percent};
use crate::commands::lexicon::vectors;
use crate::progress::Progress;

/// Train a probe to tell the relation of two words, and test it on words that it has not seen.
///
/// Example: cloze lexicon eval relations --vectors words.npy bless.csv
///
/// Columns are word1, word2 and relation unless --columns says otherwise. The probe is a logistic regression on both
/// vectors, side by side. Words, not pairs, are split into those to train on and those to test on; pairs of one of each
/// are left out. Figures are means over several splits. Beside them: the accuracy of a probe that sees the second word
/// alone, and the share of the most frequent relation.
#[derive(clap::Args)]
pub struct Args {
    /// A table of word pairs and their relations.
    #[arg(value_name = "FILE")]
    file: String,
    #[arg(long, value_name = "FILE", help = vectors::HELP)]
    vectors: PathBuf,
    /// The share of words to test on.
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = share)]
    test_share: f64,
    /// Different splits of the words.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    runs: usize,
    /// The seed of the splits.
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

/// Parses the share of words to test on.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "expected a number above 0 and below 1".to_owned())
}

#[derive(Serialize)]
struct Found {
    file: String,
    pairs: usize,
    found: usize,
    relations: usize,
    runs: Vec<Run>,
    accuracy: f64,
    f1_macro: f64,
    second_alone: f64,
    majority: f64,
}

#[derive(Serialize)]
struct Run {
    train: usize,
    test: usize,
    mixed: usize,
    unseen: usize,
    accuracy: f64,
    f1_macro: f64,
    second_alone: f64,
    majority: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let vectors = args.common.reading.read(&args.vectors)?;
    let fields = [required("word1"), required("word2"), required("relation")];
    let rows = questions::read(&args.common.rows, &args.file, &fields, |_| None)?;
    let known = |row: &Question| {
        let [first, second, relation] = row.words([0, 1, 2]);
        Some((vectors.find(first)?, vectors.find(second)?, relation.to_owned()))
    };
    let known: Vec<(usize, usize, String)> = rows.iter().filter_map(known).collect();
    if known.is_empty() {
        return Err(questions::none_known(&args.file, &args.vectors.display().to_string(), &rows, "pairs"));
    }
    let names = LabelSet::found(known.iter().map(|(.., relation)| relation.as_str()))?;
    let pair = |(first, second, relation): &(usize, usize, String)| {
        Some(RelationPair { first: *first, second: *second, relation: names.id(relation)? })
    };
    let pairs: Vec<RelationPair> = known.iter().filter_map(pair).collect();
    let mut progress = Progress::new("steps of probes", false);
    let mut steps = 0;
    let mut runs = Vec::with_capacity(args.runs);
    for number in 0..args.runs {
        let mut random = Random::derive(args.seed, &[number as u64]);
        let split = split_words(&pairs, args.test_share, &mut || random.unit());
        let probe = relation_probe(&vectors, &split, &mut |_| {
            steps += 1;
            progress.show(steps, None);
        });
        let too_few = || {
            format!(
                "{}: {} pairs to train on and {} to test on after a split of words; add pairs, or choose another \
                 --test-share or --seed",
                args.file,
                grouped(split.train.len() as u64),
                grouped(split.test.len() as u64)
            )
        };
        let RelationProbe { accuracy, f1_macro, second_alone, majority } = probe.with_context(too_few)?;
        let (train, test) = (split.train.len(), split.test.len());
        let (mixed, unseen) = (split.mixed, split.unseen);
        runs.push(Run { train, test, mixed, unseen, accuracy, f1_macro, second_alone, majority });
    }
    progress.finish();
    let mean = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    let found = Found {
        file: args.file.clone(),
        pairs: rows.len(),
        found: pairs.len(),
        relations: names.len(),
        accuracy: mean(|run| run.accuracy),
        f1_macro: mean(|run| run.f1_macro),
        second_alone: mean(|run| run.second_alone),
        majority: mean(|run| run.majority),
        runs,
    };
    args.common.show(&found, || {
        let mean = |of: fn(&Run) -> usize| {
            let sum: usize = found.runs.iter().map(of).sum();
            grouped((sum as f64 / found.runs.len() as f64).round() as u64)
        };
        let facts = [
            ("pairs", grouped(found.pairs as u64)),
            ("with vectors", percent(found.found as f64 / found.pairs as f64)),
            ("relations", grouped(found.relations as u64)),
            ("splits of words", grouped(found.runs.len() as u64)),
            ("pairs to train on", mean(|run| run.train)),
            ("pairs to test on", mean(|run| run.test)),
            ("pairs left out", mean(|run| run.mixed + run.unseen)),
            ("accuracy", percent(found.accuracy)),
            ("mean F1 of relations", percent(found.f1_macro)),
            ("accuracy from the second word alone", percent(found.second_alone)),
            ("the most frequent relation", percent(found.majority)),
        ];
        table::facts(&found.file, facts)
    })
}
