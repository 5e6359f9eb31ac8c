//! `cloze fill-mask`.

use anyhow::{Context, Result};
use clap::builder::RangedU64ValueParser;
use cloze_trainer::fill_mask::{Candidate, FillMask};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use crate::compute::Compute;
use crate::lines::{self, BATCH, Batch, Lines, Longer};
use crate::model;
use crate::output::Output;

/// Fill the masks in a text with what the model finds most likely.
///
/// A mask is the model's own mask token: [MASK] for BERT, <mask> for RoBERTa. Texts come from the
/// command line, or from standard input, a line each. Each mask is filled on its own, the others
/// stay.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze fill-mask --model runs/tiny/model 'The [MASK] of the United States'
  cloze fill-mask --model runs/tiny/model --top-k 1 --json < lines.txt")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// How many tokens to show for a mask.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top_k: usize,
    /// Print one JSON object for each text.
    #[arg(long)]
    json: bool,
    /// Bytes of a line at most; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    #[command(flatten)]
    compute: Compute,
    /// The texts (default: the lines of standard input).
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let device = args.compute.open()?;
    let mut filler = FillMask::load(&model::folder(&args.model)?, &device)?;
    if args.compute.int8 {
        filler.quantize_int8();
    }
    let mut output = Output::new();
    let mut print = |text: &str| {
        let masks = args.compute.run(|| filler.fill(text, args.top_k))?;
        output.line(if args.json { json(text, &masks) } else { table(text, &masks) })?;
        output.flush()
    };
    for text in &args.texts {
        print(text)?;
    }
    if args.texts.is_empty() {
        let mut lines = Lines::stdin(args.max_line_bytes, Longer::Refused);
        let mut batch = Batch::default();
        while lines.read(BATCH, &mut batch)? {
            for (number, line) in batch.numbered() {
                print(line.text).with_context(|| lines.place(number))?;
            }
        }
    }
    Ok(())
}

/// `{"text": ..., "masks": [[{"token": ..., "id": ..., "probability": ..., "filled": ...}]]}`
fn json(text: &str, masks: &[Vec<Candidate>]) -> String {
    let candidate = |candidate: &Candidate| {
        json!({
            "token": candidate.token,
            "id": candidate.id,
            "probability": candidate.probability,
            "filled": candidate.filled,
        })
    };
    let masks: Vec<Vec<_>> =
        masks.iter().map(|candidates| candidates.iter().map(candidate).collect()).collect();
    json!({ "text": text, "masks": masks }).to_string()
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
            let percent = format!("{:.1} %", 100.0 * candidate.probability);
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
    }

    #[test]
    fn masks_are_numbered_only_where_there_are_several() {
        assert!(!table("a [MASK]", &[candidates()]).contains("mask 1"));
        let two = table("[MASK] [MASK]", &[candidates(), candidates()]);
        assert!(two.contains("mask 1") && two.contains("mask 2"), "{two}");
    }

    #[test]
    fn json_is_one_line_and_keeps_the_order() {
        let line = json("a [MASK]\t", &[candidates()]);
        assert!(line.starts_with(r#"{"text":"a [MASK]\t","masks":[[{"token":"cat","id":7,"#), "{line}");
        assert!(!line.contains('\n'));
    }
}
