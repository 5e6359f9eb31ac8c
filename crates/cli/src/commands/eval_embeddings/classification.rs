//! `cloze eval-embeddings classification`.

use anyhow::{Result, anyhow};
use clap::builder::RangedU64ValueParser;
use cloze_data::labelled::{Labels, Target, TextExample};
use cloze_evaluation::embeddings::{LogisticConfig, linear_probe};
use cloze_evaluation::report::{ClassExample, ClassPredictions};

use super::Common;
use super::rows::read;
use crate::output::say;
use crate::progress::Progress;
use crate::rows::RowArgs;
use crate::text_vectors::PromptArgs;

/// Classification: train a linear classifier on vectors and evaluate it on others.
///
/// Example: cloze eval-embeddings classification --model sentence-transformers/all-MiniLM-L6-v2 --columns
/// text=review,label=stars --train reviews.csv test.csv
///
/// Columns are text and label unless --columns says otherwise. The classifier is scikit-learn's
/// LogisticRegression(C): logistic regression with an L2 penalty. The main metric is accuracy.
#[derive(clap::Args)]
pub struct Args {
    /// Labelled texts to evaluate on.
    #[arg(value_name = "FILE")]
    file: String,
    /// Labelled texts to train on.
    #[arg(long, value_name = "FILE")]
    train: String,
    /// Inverse regularization strength: smaller values mean a stronger penalty.
    #[arg(short, value_name = "C", default_value_t = 1.0, value_parser = positive)]
    c: f64,
    /// Maximum number of L-BFGS steps.
    #[arg(
        long,
        value_name = "N",
        default_value_t = LogisticConfig::default().max_iterations,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000)
    )]
    max_iterations: usize,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    common: Common,
}

fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a number above 0".to_owned())
}

pub fn run(args: &Args) -> Result<()> {
    let usual = [("text", "text"), ("label", "label")];
    let (train, labels) = read(&args.rows, &args.train, &usual, Labels::Found)?;
    let labels = labels.ok_or_else(|| anyhow!("{}: no classes", args.train))?;
    let (test, _) = read(&args.rows, &args.file, &usual, Labels::Of(&labels))?;
    let texts: Vec<&str> = train.iter().chain(&test).map(|example| example.text.as_str()).collect();
    let embedded = args.common.open()?.embed(&texts, args.prompt.prompt())?;
    let (train_vectors, test_vectors) = embedded.vectors()?.split_at(train.len());
    let (train_classes, test_classes) = (classes(&train), classes(&test));
    let config =
        LogisticConfig { c: args.c, max_iterations: args.max_iterations, ..LogisticConfig::default() };
    let mut progress = Progress::new("steps", false);
    let found = linear_probe(
        (train_vectors, &train_classes),
        (test_vectors, &test_classes),
        labels.len(),
        config,
        &mut |steps| progress.show(steps, None),
    );
    progress.finish();
    let found = found?;
    if !found.classifier.is_converged() {
        say(format_args!(
            "the classifier did not converge in {} steps; raise --max-iterations",
            found.classifier.iterations()
        ));
    }
    let example = |place: usize| {
        let (gold, predicted) = (test_classes[place], found.predicted[place]);
        let probabilities = &found.probabilities[place];
        ClassExample {
            id: format!("{}, example {}", args.file, place + 1),
            texts: vec![test[place].text.clone()],
            gold,
            predicted,
            score: probabilities[predicted],
            loss: -probabilities[gold].ln(),
        }
    };
    let examples = (0..test.len()).map(example).collect();
    let predictions = ClassPredictions { labels: labels.names().to_vec(), positive: None, examples };
    args.common.show("classification", &args.file, &found.figures, Some(&predictions))
}

fn classes(examples: &[TextExample]) -> Vec<usize> {
    let class = |example: &TextExample| match example.target {
        Target::Class(class) => Some(class),
        _ => None,
    };
    examples.iter().filter_map(class).collect()
}
