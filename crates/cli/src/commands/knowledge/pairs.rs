//! `cloze knowledge pairs`.

use anyhow::Result;
use cloze_data::knowledge::{MinimalPair, MinimalPairs};
use cloze_evaluation::knowledge::PairTally;
use serde::Serialize;
use serde_json::json;

use super::common::{Common, refusal, told};
use crate::lines::BATCH;
use crate::progress::Progress;

/// Measure grammar with minimal pairs: how often the good sentence has the higher score.
///
/// Example: cloze knowledge pairs --model google-bert/bert-base-uncased --on-bad-row skip blimp/data
///
/// Files are JSON lines as BLiMP's (Warstadt et al. 2020): {"sentence_good": "…", "sentence_bad": "…", "UID": "…",
/// "linguistics_term": "…"}. Prints accuracy by phenomenon and paradigm, with the published models of BLiMP beside them.
/// The scores are sums over pieces. Seven of BLiMP's pairs are equal sentences, which --on-bad-row skip leaves out.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze knowledge pairs --model openai-community/gpt2 --json blimp/data/npi_present_1.jsonl
  cloze knowledge pairs --model runs/tiny/model --metric pll --on-bad-row skip --out runs/blimp BLiMP.zip")]
pub struct Args {
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Item<'a> {
    paradigm: &'a str,
    phenomenon: &'a str,
    good: &'a str,
    bad: &'a str,
    good_score: f64,
    bad_score: f64,
    right: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let common = &args.common;
    let files = common.suite(&["jsonl"])?;
    let model = common.load()?;
    let mut items = common.items()?;
    let mut pairs = MinimalPairs::new(files, &common.bad.source());
    let mut progress = Progress::new("pairs", false);
    let (mut tally, mut n) = (PairTally::default(), 0);
    loop {
        let (mut batch, mut sentences) = (Vec::<MinimalPair>::new(), Vec::new());
        while batch.len() < BATCH {
            let Some(pair) = pairs.next().transpose().map_err(told)? else { break };
            let both =
                model.encode(&pair.good, None).and_then(|good| Ok([good, model.encode(&pair.bad, None)?]));
            match both {
                Ok(both) => {
                    sentences.extend(both);
                    batch.push(pair);
                }
                Err(error) => {
                    pairs
                        .refuse(&pair.path, pair.line, "refused by the model", refusal(error)?)
                        .map_err(told)?;
                }
            }
        }
        if batch.is_empty() {
            break;
        }
        let scores =
            common.scoring.compute.run(|| model.score(&sentences, &mut |_| progress.show(n, None)))?;
        for (pair, scores) in batch.iter().zip(scores.chunks(2)) {
            let (good_score, bad_score) = (scores[0].sum(), scores[1].sum());
            tally.add(&pair.paradigm, &pair.phenomenon, good_score, bad_score);
            items.write(&Item {
                paradigm: &pair.paradigm,
                phenomenon: &pair.phenomenon,
                good: &pair.good,
                bad: &pair.bad,
                good_score,
                bad_score,
                right: good_score > bad_score,
            })?;
        }
        n += batch.len();
        progress.show(n, None);
    }
    progress.finish();
    common.check_skipped(pairs.skipped(), n)?;
    let figures = json!({
        "overall": tally.overall(),
        "phenomena": tally.phenomena(),
        "paradigms": tally.paradigms(),
    });
    common.show("pairs", n, &tally.tables(), &figures, items)
}
