//! `cloze eval-embeddings clustering`.

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use cloze_data::Random;
use cloze_data::labelled::{Labels, Target};
use cloze_evaluation::embeddings::{VMeasure, first_centres, lloyd, v_measure};
use cloze_evaluation::figures::Figures;

use super::Common;
use super::rows::read;
use crate::progress::Progress;
use crate::rows::RowArgs;
use crate::text_vectors::PromptArgs;

/// Maximum number of k-means iterations, as in scikit-learn.
const MAX_ITERATIONS: usize = 300;

/// Clustering: compare k-means clusters with classes.
///
/// Example: cloze eval-embeddings clustering --model sentence-transformers/all-MiniLM-L6-v2 --columns
/// text=review,label=product reviews.csv
///
/// Columns are text and label unless --columns says otherwise. There are as many clusters as classes. Metrics
/// are means over several runs of k-means; v_measure_std is the standard deviation of the main one, the
/// V-measure.
#[derive(clap::Args)]
pub struct Args {
    /// Labelled texts.
    #[arg(value_name = "FILE")]
    file: String,
    /// Runs of k-means, each with different initial centres.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    runs: usize,
    /// The seed of the initial centres.
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    common: Common,
}

pub fn run(args: &Args) -> Result<()> {
    let usual = [("text", "text"), ("label", "label")];
    let (examples, labels) = read(&args.rows, &args.file, &usual, Labels::Found)?;
    let n_classes = labels.map_or(0, |labels| labels.len());
    let class = |target: &Target| match target {
        Target::Class(class) => Some(*class),
        _ => None,
    };
    let classes: Vec<usize> = examples.iter().filter_map(|example| class(&example.target)).collect();
    let texts: Vec<&str> = examples.iter().map(|example| example.text.as_str()).collect();
    let embedded = args.common.open()?.embed(&texts, args.prompt.prompt())?;
    let vectors = embedded.vectors()?;
    let mut progress = Progress::new("runs of k-means", false);
    let mut found: Vec<VMeasure> = Vec::with_capacity(args.runs);
    for run in 0..args.runs {
        let mut random = Random::derive(args.seed, &[run as u64]);
        let centres = first_centres(vectors, n_classes, &mut || random.unit())?;
        found.push(v_measure(&classes, &lloyd(vectors, centres, MAX_ITERATIONS).labels));
        progress.show(run + 1, Some((run + 1) as f64 / args.runs as f64));
    }
    progress.finish();
    let mean = |value: fn(&VMeasure) -> f64| found.iter().map(value).sum::<f64>() / found.len() as f64;
    let v = mean(|found| found.v_measure);
    let variance = found.iter().map(|found| (found.v_measure - v).powi(2)).sum::<f64>() / found.len() as f64;
    let figures = [
        ("v_measure", v),
        ("v_measure_std", variance.sqrt()),
        ("homogeneity", mean(|found| found.homogeneity)),
        ("completeness", mean(|found| found.completeness)),
    ];
    args.common.show("clustering", &args.file, &Figures::new(texts.len(), figures), None)
}
