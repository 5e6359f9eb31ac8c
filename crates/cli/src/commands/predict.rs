//! `cloze predict`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::builder::RangedU64ValueParser;
use cloze_trainer::finetune::{Advance, Predictor};
use indicatif::HumanCount;

use crate::compute::Compute;
use crate::failure::WrongUsage;
use crate::lines::{self, BATCH, Batch, Line, Lines};
use crate::model;
use crate::output::{Output, say};
use crate::progress::Progress;

/// Predict what a fine-tuned model was trained for, JSON lines in and out.
///
/// The task is read from the model's folder.
///
/// Classes and numbers of {"text": "..."}, {"text": "...", "pair": "..."} or "...": a classifier prints
/// {"label": ..., "score": ..., "scores": {...}} with the probability of every label, a regression {"value":
/// ...}. So does a model of a prompt, with the labels of its verbaliser. A model of several labels prints {"labels":
/// [...], "scores": {...}}: the labels whose probability is above --threshold, and every label's.
///
/// Tags of {"words": ["...", ...]}, or of the words that white space divides in {"text": "..."} or "...":
/// {"words": [...], "tags": [...], "entities": [...]}. An entity has its "type", "first" and "last" word and
/// "text"; in a text also the characters "start" and "end", the first and the one after the last.
///
/// Answers to {"question": "...", "context": "..."}: {"answer": ..., "start": ..., "end": ..., "score": ...},
/// characters of the context and the probability; with --n-best also the best candidates as "n_best". A
/// model that may find no answer then says "", which starts and ends at null.
///
/// Choices of {"text": "...", "choices": ["...", ...]}, where "context" may stand for "text": {"choice": ...,
/// "score": ..., "scores": [...]}, the place of the best, from 0, and the probabilities.
///
/// Each line of input has its line of output: an empty one has null. A line that cannot be read is an
/// error that names it, after the lines before it; a file of output is then not made.
#[derive(clap::Args)]
#[command(after_long_help = r#"Examples:
  cloze predict --model runs/mrpc/model --input pairs.jsonl --output predictions.jsonl
  echo '{"text": "one long string of cliches"}' | cloze predict --model runs/sst2/model
  cloze predict --model runs/squad/model --n-best 3 < questions.jsonl
  echo '"Ada Lovelace was born in London ."' | cloze predict --model runs/wnut17/model
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
    /// List so many answers to each question, as many as the model's task keeps at most.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    n_best: Option<usize>,
    /// The probability above which one of several labels is predicted (default: the model's, 0.5 if it has none).
    #[arg(long, value_name = "P")]
    threshold: Option<f64>,
    /// Bytes of a line at most; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    #[command(flatten)]
    compute: Compute,
}

pub fn run(args: &Args) -> Result<()> {
    let device = args.compute.open()?;
    let mut lines = Lines::of(args.input.as_deref(), args.max_line_bytes)?;
    let mut predictor = Predictor::load(&model::folder(&args.model)?, &device, args.compute.int8)?;
    if let Some(n) = args.n_best {
        predictor.list(n).map_err(WrongUsage::new)?;
    }
    if let Some(threshold) = args.threshold {
        predictor.predict_above(threshold).map_err(WrongUsage::new)?;
    }
    let mut output = Output::of(args.output.as_deref())?;
    let mut progress = Progress::new("lines", args.output.is_none() && io::stdout().is_terminal());
    let size = lines.size().map(|size| size as f64);
    let (mut count, mut bytes, mut truncated) = (0, 0, 0);
    let mut read = Batch::default();
    while lines.read(BATCH, &mut read)? {
        let batch: Vec<Line> = read.iter().collect();
        let of_batch: usize = batch.iter().map(|line| line.text.len() + 1).sum();
        let advanced = &mut |advance: Advance| {
            let part = |all: usize| advance.share * all as f64;
            let share = size.map(|size| (bytes as f64 + part(of_batch)) / size);
            progress.show(count + part(batch.len()) as usize, share);
        };
        let predicted = args.compute.run(|| predictor.predict(&batch, advanced))?;
        predicted.values.iter().try_for_each(|value| output.line(value))?;
        output.flush()?;
        if let Some(error) = predicted.refused {
            return Err(error).with_context(|| lines.place(read.first() + predicted.values.len()));
        }
        count += batch.len();
        bytes += of_batch;
        truncated += predicted.truncated;
    }
    progress.finish();
    if truncated > 0 {
        say(format_args!(
            "{} of {} lines have more than {} tokens and were cut",
            HumanCount(truncated as u64),
            HumanCount(count as u64),
            predictor.max_len()
        ));
    }
    output.finish()
}
