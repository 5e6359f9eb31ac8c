//! `cloze predict`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, Result};
use cloze_trainer::finetune::{Input, Predictor};
use indicatif::HumanCount;

use crate::device::{self, DeviceName};
use crate::lines::Lines;
use crate::model;
use crate::output::Output;
use crate::progress::Progress;

/// Lines that are sorted by length together, and whose predictions are in memory at once.
const WINDOW: usize = 2048;

/// Predict what a fine-tuned model was trained for, JSON lines in and out.
///
/// The task is read from the model's folder. Texts come as {"text": "..."} or "...", pairs of them as
/// {"text": "...", "pair": "..."}; of each, a classifier prints {"label": ..., "score": ..., "scores":
/// {...}} with the probability of every label, and a regression {"value": ...}.
///
/// Each line of input has its line of output: an empty one has null. A line that cannot be read is an
/// error that names it, after the lines before it; a file of output is then not made.
#[derive(clap::Args)]
#[command(after_long_help = r#"Examples:
  cloze predict --model runs/mrpc/model --input pairs.jsonl --output predictions.jsonl
  echo '{"text": "one long string of cliches"}' | cloze predict --model runs/sst2/model
  cloze predict --model distilbert/distilbert-base-uncased-finetuned-sst-2-english < texts.jsonl"#)]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// A file of JSON lines (default: standard input).
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The file to write, which is there when all of it is done (default: standard output).
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Multiply in 8 bits: faster, and a little less exact.
    #[arg(long)]
    int8: bool,
    #[arg(long, value_name = "DEVICE", help = device::HELP)]
    device: Option<DeviceName>,
}

pub fn run(args: &Args) -> Result<()> {
    let device = device::open(args.device)?;
    let mut lines = Lines::of(args.input.as_deref())?;
    let predictor = Predictor::load(&model::folder(&args.model)?, &device, args.int8)?;
    let mut output = Output::of(args.output.as_deref())?;
    let mut progress = Progress::new(args.output.is_none() && io::stdout().is_terminal());
    let (mut count, mut truncated) = (0, 0);
    while let Some((first, batch)) = lines.next_batch()? {
        for (number, window) in (first..).step_by(WINDOW).zip(batch.chunks(WINDOW)) {
            let mut failed = None;
            let read = window.iter().zip(number..).map_while(|(line, number)| {
                let input = predictor.read(line).with_context(|| lines.place(number));
                input.map_err(|error| failed = Some(error)).ok()
            });
            let inputs: Vec<Input> = read.collect();
            let predicted = predictor.predict(&inputs)?;
            predicted.values.iter().try_for_each(|value| output.line(value))?;
            output.flush()?;
            if let Some(error) = failed {
                return Err(error);
            }
            count += window.len();
            truncated += predicted.truncated;
            progress.show(count);
        }
    }
    progress.finish();
    if truncated > 0 {
        eprintln!(
            "{} of {} lines have more than {} tokens and were cut",
            HumanCount(truncated as u64),
            HumanCount(count as u64),
            predictor.max_len()
        );
    }
    output.finish()
}
