//! `cloze fill-mask`.

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use cloze_evaluation::table::percent;
use cloze_model::blocks::quantize_int8;
use cloze_trainer::fill_mask::{Candidate, FillMask};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::answers::{AnswerArgs, Answers};
use crate::compute::Compute;
use crate::input::{Asked, Blank, InputArgs, TEXT};
use crate::lines::{BATCH, Longer};
use crate::model;
use crate::rows::RowFormat;

/// Predict the most likely tokens for the masks in a text.
///
/// Example: cloze fill-mask --model google-bert/bert-base-uncased 'The [MASK] of the United States'
///
/// A mask is the model's own mask token: [MASK] for BERT, <mask> for RoBERTa. Texts come from the command line,
/// or from standard input or a file: lines, or rows of JSON lines, CSV, TSV or Parquet. Blank lines are passed over. Each
/// mask is filled independently; the others stay masked.
///
/// A row is printed unchanged, with "masks" as an extra key of its object, or as an extra cell holding JSON; a
/// Parquet row is printed as an object. If the input already has a column or key of that name, rename the
/// answer's with --answer-prefix.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze fill-mask --model runs/tiny/model --top-k 1 --json < lines.txt
  cloze fill-mask --model runs/tiny/model --columns text=sentence --input sentences.csv --output filled.csv")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Number of tokens to show per mask.
    #[arg(short = 'k', long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top_k: usize,
    /// Print one JSON object per text; always so for JSON lines and Parquet.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    answers: AnswerArgs,
    #[command(flatten)]
    compute: Compute,
    /// The texts (default: the lines of standard input).
    #[arg(
        value_name = "TEXT",
        conflicts_with_all = [
            "input", "input_format", "columns", "delimiter", "quoting", "no_header", "on_bad_row", "max_skipped", "answer_prefix"
        ]
    )]
    texts: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let device = args.compute.open()?;
    let mut filler = FillMask::load(&model::folder(&args.model)?, &device)?;
    if args.compute.int8 {
        quantize_int8(&mut filler);
    }
    let fill = |text: &str| args.compute.run(|| filler.fill(text, args.top_k));
    let plain = |text: &str, masks: &[Vec<Candidate>]| match args.json {
        true => json!({ "text": text, "masks": json(masks) }).to_string(),
        false => table(text, masks),
    };
    if !args.texts.is_empty() {
        let mut output = args.answers.output_of_words()?;
        for text in &args.texts {
            output.line(plain(text, &fill(text)?))?;
            output.flush()?;
        }
        return output.finish();
    }
    let mut input = args.input.open(Asked {
        fields: &TEXT,
        expected: r#"{"text": "…"} or "…""#,
        replaced: &[],
        default: RowFormat::Lines,
        longer: Longer::Refused,
        blank: Blank::PassedOver,
    })?;
    let mut answers = Answers::new(&args.answers, &input, vec!["masks"])?;
    loop {
        let rows = input.read(BATCH)?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            let text = row.text();
            let masks = match fill(text) {
                Ok(masks) => masks,
                Err(error) => {
                    input.refuse(&row.place, error.into())?;
                    continue;
                }
            };
            match input.is_text() {
                true => answers.line(plain(text, &masks))?,
                false => answers.write(row, &json!({ "masks": json(&masks) }))?,
            }
            answers.flush()?;
        }
    }
    answers.finish()
}

/// `[[{"token": ..., "id": ..., "probability": ..., "filled": ...}]]`
fn json(masks: &[Vec<Candidate>]) -> Value {
    let candidate = |candidate: &Candidate| {
        json!({
            "token": candidate.token,
            "id": candidate.id,
            "probability": candidate.probability,
            "filled": candidate.filled,
        })
    };
    masks.iter().map(|candidates| candidates.iter().map(candidate).collect::<Value>()).collect()
}

/// The text, and below it a line for each candidate: token, probability, filled text.
fn table(text: &str, masks: &[Vec<Candidate>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (number, candidates) in masks.iter().enumerate() {
        if masks.len() > 1 {
            table.add_row([format!("mask {}", number + 1)]);
        }
        for candidate in candidates {
            let percent = percent(f64::from(candidate.probability));
            table.add_row([&candidate.token, &percent, &candidate.filled]);
        }
    }
    if let Some(percent) = table.column_mut(1) {
        percent.set_cell_alignment(CellAlignment::Right);
    }
    format!("{text}\n{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates() -> Vec<Candidate> {
        let candidate = |token: &str, probability| Candidate {
            id: 7,
            token: token.to_owned(),
            probability,
            filled: format!("a {token}"),
        };
        vec![candidate("cat", 0.5), candidate("elephant", 0.051)]
    }

    #[test]
    fn a_table_lines_its_columns_up() {
        assert_eq!(
            table("a [MASK]", &[candidates()]),
            "a [MASK]\n cat       50.0 %  a cat\n elephant   5.1 %  a elephant\n"
        );
        let mut rare = candidates();
        rare[1].probability = 0.0001;
        assert!(table("a [MASK]", &[rare]).contains(" elephant  <0.1 %  a elephant\n"));
    }

    #[test]
    fn masks_are_numbered_only_where_there_are_several() {
        assert!(!table("a [MASK]", &[candidates()]).contains("mask 1"));
        let two = table("[MASK] [MASK]", &[candidates(), candidates()]);
        assert!(two.contains("mask 1") && two.contains("mask 2"), "{two}");
    }

    #[test]
    fn json_keeps_the_order() {
        let line = json(&[candidates()]).to_string();
        assert!(line.starts_with(r#"[[{"token":"cat","id":7,"#), "{line}");
    }
}
