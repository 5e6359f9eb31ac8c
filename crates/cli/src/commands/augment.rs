//! `cloze augment`.

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use cloze_trainer::augment::{AugmentConfig, augment};
use cloze_trainer::fill_mask::FillMask;
use serde_json::json;

use crate::answers::{AnswerArgs, Answers};
use crate::compute::Compute;
use crate::input::{Asked, Blank, InputArgs, TEXT};
use crate::lines::{BATCH, Longer};
use crate::model;
use crate::rows::RowFormat;

/// Make more training texts: copies with words replaced by others that a masked language model expects there.
///
/// Example: cloze augment --model google-bert/bert-base-uncased --columns text=review --input reviews.csv --output more.csv
///
/// A student learns from its teacher on such copies what a small data set does not show (TinyBERT, Jiao et al. 2020). Each
/// word of letters is masked by itself, and with the probability --share a copy has one of the model's most probable words
/// in its place. Copies that are equal are left out.
///
/// Texts are lines of standard input or of a file, or rows of JSON lines, CSV, TSV or Parquet. A line is printed, and its
/// copies after it. A row is printed with its text in an extra column or key "augmented", and then once for each copy: train
/// with --set 'data.train.columns.text="augmented"'. What is drawn depends on --seed and the text's number alone.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze augment --model runs/tiny/model --copies 5 < lines.txt > more.txt
  cloze augment --model runs/tiny/model --columns text=sentence --input train.tsv --output more.tsv")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Copies of each text.
    #[arg(long, value_name = "N", default_value_t = AugmentConfig::default().copies, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    copies: usize,
    /// The probability with which a word of a copy is replaced.
    #[arg(long, value_name = "P", default_value_t = AugmentConfig::default().share, value_parser = share)]
    share: f64,
    /// The number of most probable words that a replacement is drawn from.
    #[arg(long, value_name = "N", default_value_t = AugmentConfig::default().candidates, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    candidates: usize,
    /// The seed of all draws.
    #[arg(long, value_name = "N", default_value_t = AugmentConfig::default().seed)]
    seed: u64,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    answers: AnswerArgs,
    #[command(flatten)]
    compute: Compute,
}

pub fn run(args: &Args) -> Result<()> {
    let device = args.compute.open()?;
    let filler = FillMask::load(&model::folder(&args.model)?, &device)?;
    let Args { copies, share, candidates, seed, .. } = *args;
    let config = AugmentConfig { copies, share, candidates, seed };
    let mut input = args.input.open(Asked {
        fields: &TEXT,
        expected: r#"{"text": "…"} or "…""#,
        replaced: &[],
        default: RowFormat::Lines,
        longer: Longer::Refused,
        blank: Blank::PassedOver,
    })?;
    let mut answers = Answers::new(&args.answers, &input, vec!["augmented"])?;
    let mut number = 0;
    loop {
        let rows = input.read(BATCH)?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            let text = row.text();
            let made = args.compute.run(|| augment(&filler, text, number, &config));
            number += 1;
            let copies = match made {
                Ok(copies) => copies,
                Err(error) => {
                    input.refuse(&row.place, error.into())?;
                    continue;
                }
            };
            for copy in std::iter::once(text).chain(copies.iter().map(String::as_str)) {
                match input.is_text() {
                    true => answers.line(copy)?,
                    false => answers.write(row, &json!({ "augmented": copy }))?,
                }
            }
            answers.flush()?;
        }
    }
    answers.finish()
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}
