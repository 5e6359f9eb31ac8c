//! `cloze knowledge choices`.

use anyhow::Result;
use clap::ValueEnum;
use cloze_data::knowledge::{ChoiceItem, ChoiceItems};
use cloze_evaluation::knowledge::ChoiceTally;
use cloze_trainer::likelihood::SentenceScore;
use serde::Serialize;
use serde_json::json;

use super::common::{Common, refusal, told};
use crate::lines::BATCH;
use crate::progress::Progress;

/// Measure common sense with choices: how often the right sentence has the highest score.
///
/// Example: cloze knowledge choices --model runs/tiny/model --on-bad-row skip CATS/commonsense_ability_test
///
/// Files are text as CATs' (Zhou et al. 2020): a label from 0 and the sentences, separated by the byte 0x01; a dual item has
/// two labels, each with its sentences. Prints accuracy by test, and of dual items how often both choices are right and how
/// often both are wrong: the authors call either consistent. Two items of CATs' sm.txt are equal sentences, which --on-bad-row
/// skip leaves out.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze knowledge choices --model openai-community/gpt2 --json CATS/Robust_commonsense_test/swap.txt
  cloze knowledge choices --model runs/tiny/model --by sum --on-bad-row skip --out runs/cats CATS")]
pub struct Args {
    /// What sentences are compared by.
    #[arg(long, value_enum, default_value_t = By::Mean)]
    by: By,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum By {
    /// The mean over the pieces, as the authors do.
    Mean,
    /// The sum over the pieces.
    Sum,
}

#[derive(Serialize)]
struct Item<'a> {
    test: &'a str,
    labels: Vec<usize>,
    sentences: Vec<&'a [String]>,
    scores: Vec<Vec<f64>>,
    right: Vec<bool>,
}

pub fn run(args: &Args) -> Result<()> {
    let common = &args.common;
    let files = common.suite(&["txt"])?;
    let model = common.load()?;
    let mut written = common.items()?;
    let mut items = ChoiceItems::new(files, &common.bad.source());
    let mut progress = Progress::new("items", false);
    let (mut tally, mut n) = (ChoiceTally::default(), 0);
    loop {
        let (mut batch, mut sentences) = (Vec::<ChoiceItem>::new(), Vec::new());
        while batch.len() < BATCH {
            let Some(item) = items.next().transpose().map_err(told)? else { break };
            let all = item.choices.iter().flat_map(|choice| &choice.sentences);
            match all.map(|sentence| model.encode(sentence, None)).collect::<Result<Vec<_>, _>>() {
                Ok(all) => {
                    sentences.extend(all);
                    batch.push(item);
                }
                Err(error) => {
                    items
                        .refuse(&item.path, item.line, "refused by the model", refusal(error)?)
                        .map_err(told)?;
                }
            }
        }
        if batch.is_empty() {
            break;
        }
        let scores =
            common.scoring.compute.run(|| model.score(&sentences, &mut |_| progress.show(n, None)))?;
        let of = |score: &SentenceScore| if args.by == By::Mean { score.mean() } else { score.sum() };
        let mut scores = scores.iter().map(of);
        for item in &batch {
            let scores: Vec<Vec<f64>> = item
                .choices
                .iter()
                .map(|choice| scores.by_ref().take(choice.sentences.len()).collect())
                .collect();
            let right: Vec<bool> = item
                .choices
                .iter()
                .zip(&scores)
                .map(|(choice, scores)| best(scores) == choice.label)
                .collect();
            tally.add(&item.test, &right, item.choices[0].sentences.len());
            written.write(&Item {
                test: &item.test,
                labels: item.choices.iter().map(|choice| choice.label).collect(),
                sentences: item.choices.iter().map(|choice| &choice.sentences[..]).collect(),
                scores,
                right,
            })?;
        }
        n += batch.len();
        progress.show(n, None);
    }
    progress.finish();
    common.check_skipped(items.skipped(), n)?;
    let figures = json!({ "single": tally.single(), "dual": tally.dual() });
    common.show("choices", n, &tally.tables(), &figures, written)
}

/// The first of the highest scores.
fn best(scores: &[f64]) -> usize {
    (0..scores.len()).rev().max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::best;

    #[test]
    fn of_equal_scores_the_first_is_chosen() {
        assert_eq!(best(&[-1.0, -2.0, -1.0]), 0);
        assert_eq!(best(&[-3.0, -2.0, -2.0]), 1);
    }
}
