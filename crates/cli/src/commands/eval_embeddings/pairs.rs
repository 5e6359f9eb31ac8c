//! `cloze eval-embeddings sts` and `pairs`: similarities of pairs of texts.

use anyhow::Result;
use cloze_data::labelled::{LabelSet, Labels, Target, TextExample};
use cloze_evaluation::embeddings::{pair_figures, sts_figures};

use super::rows::read;
use super::{Common, Similarity};
use crate::rows::RowArgs;
use crate::text_vectors::{Embedded, PromptArgs};

/// Semantic textual similarity: correlate similarities of pairs with human scores.
///
/// Example: cloze eval-embeddings sts --model sentence-transformers/all-MiniLM-L6-v2 --columns
/// text=first,pair=second,label=score pairs.csv
///
/// Columns are sentence1, sentence2 and score unless --columns says otherwise. The main metric is Spearman's
/// correlation.
#[derive(clap::Args)]
pub struct StsArgs {
    /// Scored pairs of texts.
    #[arg(value_name = "FILE")]
    file: String,
    /// How vectors are compared; comma-separated for several.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cosine")]
    similarity: Vec<Similarity>,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    common: Common,
}

/// Pair classification: decide by a similarity threshold which pairs belong together.
///
/// Example: cloze eval-embeddings pairs --model sentence-transformers/all-MiniLM-L6-v2 --columns
/// text=first,pair=second,label=same pairs.csv
///
/// Columns are sentence1, sentence2 and label unless --columns says otherwise; the label is 1 for pairs that
/// belong together, else 0. The main metric is average precision.
#[derive(clap::Args)]
pub struct PairsArgs {
    /// Labelled pairs of texts.
    #[arg(value_name = "FILE")]
    file: String,
    /// How vectors are compared; comma-separated for several.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cosine")]
    similarity: Vec<Similarity>,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    common: Common,
}

pub fn sts(args: &StsArgs) -> Result<()> {
    let usual = [("text", "sentence1"), ("pair", "sentence2"), ("label", "score")];
    let (examples, _) = read(&args.rows, &args.file, &usual, Labels::Values)?;
    let [first, second] = embed(&examples, &args.prompt, &args.common)?;
    let gold = |example: &TextExample| match example.target {
        Target::Value(value) => Some(value),
        _ => None,
    };
    let gold: Vec<f64> = examples.iter().filter_map(gold).collect();
    let figures = sts_figures(first.vectors()?, second.vectors()?, &gold, &similarities(&args.similarity));
    args.common.show("semantic textual similarity", &args.file, &figures, None)
}

pub fn pairs(args: &PairsArgs) -> Result<()> {
    let usual = [("text", "sentence1"), ("pair", "sentence2"), ("label", "label")];
    let labels = LabelSet::given(["0", "1"])?;
    let (examples, _) = read(&args.rows, &args.file, &usual, Labels::Of(&labels))?;
    let [first, second] = embed(&examples, &args.prompt, &args.common)?;
    let together: Vec<bool> = examples.iter().map(|example| example.target == Target::Class(1)).collect();
    let figures =
        pair_figures(first.vectors()?, second.vectors()?, &together, &similarities(&args.similarity));
    args.common.show("pair classification", &args.file, &figures, None)
}

/// The vectors of the first and of the second texts.
fn embed(examples: &[TextExample], prompt: &PromptArgs, common: &Common) -> Result<[Embedded; 2]> {
    let first = examples.iter().map(|example| example.text.as_str());
    let second = examples.iter().map(|example| example.pair.as_deref().unwrap_or_default());
    let all: Vec<&str> = first.chain(second).collect();
    Ok(common.open()?.embed(&all, prompt.prompt())?.halves())
}

fn similarities(names: &[Similarity]) -> Vec<cloze_evaluation::embeddings::Similarity> {
    let mut all: Vec<_> = names.iter().map(|name| (*name).into()).collect();
    // One that is named twice is measured once.
    let mut seen = Vec::new();
    all.retain(|similarity| {
        let is_new = !seen.contains(similarity);
        seen.push(*similarity);
        is_new
    });
    all
}
