//! `cloze generate`.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use cloze_model::generate::{BeamSearch, LengthPenalty, Sampling, Search};
use cloze_tokenizer::Error;
use cloze_trainer::TrainerError;
use cloze_trainer::generate::{Continuation, GenerateConfig, Generator};
use indicatif::HumanCount;
use serde_json::{Value, json};

use crate::compute::Compute;
use crate::lines::{self, BATCH, Batch, Lines, Longer};
use crate::model;
use crate::output::{Output, say};

/// Write on from texts with a language model.
///
/// Texts come from the command line, or from standard input, a line each. Without a setting that draws
/// (--temperature, --top-k, --top-p, --min-p) the most likely token is written each time. A single text
/// on a terminal grows as it is written. A text that has more tokens than the model takes is
/// continued without its beginning.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze generate --model openai-community/gpt2 'The old man sat by'
  cloze generate --model openai-community/gpt2 --temperature 0.8 --top-p 0.95 --n 3 --seed 7 'Once upon a time'
  cloze generate --model openai-community/gpt2 --json --max-new 20 < prompts.txt")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Tokens to write at most.
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_new: usize,
    /// Tokens to write at least.
    #[arg(long, value_name = "N", default_value_t = 0)]
    min_new: usize,
    /// Draw tokens by their probabilities: below 1 likely ones become likelier still, above 1 less so.
    #[arg(long, value_name = "T")]
    temperature: Option<f32>,
    /// Draw from the K most likely tokens.
    #[arg(long, value_name = "K", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top_k: Option<usize>,
    /// Draw from the fewest tokens whose probabilities sum to P.
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Draw from tokens that have this share of the likeliest one's probability.
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Make tokens less likely that stand in the text already: 1 does nothing.
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true)]
    repetition_penalty: f32,
    /// Let sequences of N tokens occur once at most; 0 for any number of times.
    #[arg(long, value_name = "N", default_value_t = 0)]
    no_repeat_ngram: usize,
    /// Follow N hypotheses at a time, and write the most likely one.
    #[arg(
        long,
        value_name = "N",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000),
        conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"]
    )]
    beam: Option<usize>,
    /// With --beam, the exponent of the length that log-probabilities are divided by.
    #[arg(long, value_name = "A", default_value_t = 1.0, allow_negative_numbers = true, requires = "beam")]
    length_penalty: f64,
    /// Let the tokens of a text see one another, for a model that was trained with prefixes (`blocks.prefix_share`).
    #[arg(long)]
    bidirectional_prompt: bool,
    /// Of the random numbers: the same text and seed give the same continuations.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Continuations of each text.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    n: usize,
    /// Texts that are worked on at a time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: usize,
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

impl Args {
    fn search(&self) -> Search {
        let Self { temperature, top_k, top_p, min_p, .. } = self;
        if let Some(beams) = self.beam {
            let penalty = LengthPenalty::Power(self.length_penalty);
            return match beams {
                1 => Search::Greedy,
                beams => Search::Beam(BeamSearch::new(beams).with_length_penalty(penalty)),
            };
        }
        if temperature.is_none() && top_k.is_none() && top_p.is_none() && min_p.is_none() {
            return Search::Greedy;
        }
        let mut sampling = Sampling::default();
        sampling.temperature = temperature.unwrap_or(sampling.temperature);
        sampling.top_k = top_k.unwrap_or(sampling.top_k);
        sampling.top_p = top_p.unwrap_or(sampling.top_p);
        sampling.min_p = min_p.unwrap_or(sampling.min_p);
        Search::Sample(sampling)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let device = args.compute.open()?;
    let mut config = GenerateConfig::default();
    config.search = args.search();
    config.n = args.n;
    (config.max_new, config.min_new) = (args.max_new, args.min_new);
    config.repetition_penalty = args.repetition_penalty;
    config.no_repeat_ngram = args.no_repeat_ngram;
    config.seed = args.seed;
    config.batch = args.batch;
    config.int8 = args.compute.int8;
    config.bidirectional_prompts = args.bidirectional_prompt;
    let generator = Generator::load(&model::folder(&args.model)?, config, &device)?;
    let mut output = Output::new();
    let (mut count, mut truncated) = (0, 0);
    match &args.texts[..] {
        [text]
            if !args.json
                && args.n == 1
                && args.beam.is_none_or(|beam| beam == 1)
                && io::stdout().is_terminal() =>
        {
            return show(args, &generator, text);
        }
        [] => {
            let mut lines = Lines::stdin(args.max_line_bytes, Longer::Refused);
            let mut batch = Batch::default();
            while lines.read(BATCH, &mut batch)? {
                let texts: Vec<&str> = batch.iter().map(|line| line.text).collect();
                let (n_truncated, failed) = write(args, &generator, &texts, &mut output)?;
                if let Some((index, error)) = failed {
                    return Err(error.context(lines.place(batch.first() + index)));
                }
                count += texts.len();
                truncated += n_truncated;
            }
        }
        texts => {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (n_truncated, failed) = write(args, &generator, &texts, &mut output)?;
            if let Some((index, error)) = failed {
                return Err(error.context(format!("text {}", index + 1)));
            }
            count = texts.len();
            truncated = n_truncated;
        }
    }
    say_truncated(&generator, truncated, count);
    output.flush()
}

fn say_truncated(generator: &Generator, truncated: usize, count: usize) {
    if let Some(most) = generator.max_len().filter(|_| truncated > 0) {
        say(format_args!(
            "{} of {} texts are longer than {most} tokens and were continued without their beginnings",
            HumanCount(truncated as u64),
            HumanCount(count as u64),
        ));
    }
}

/// Writes the continuations of texts. Of how many the beginning was left out, and the first text that failed, after the
/// results of those before it.
fn write(
    args: &Args,
    generator: &Generator,
    texts: &[&str],
    output: &mut Output,
) -> Result<(usize, Option<(usize, anyhow::Error)>)> {
    let (mut good, mut failed) = (texts, None);
    let continuations = loop {
        match generator.generate(good, None) {
            Ok(continuations) => break continuations,
            Err(TrainerError::Tokenizer(Error::Batch { index, source, .. })) => {
                failed = Some((index, anyhow::Error::new(*source)));
                good = &texts[..index];
            }
            Err(error) => return Err(error.into()),
        }
    };
    let truncated = continuations.truncated;
    args.compute.run(|| {
        for (index, (text, continuations)) in good.iter().zip(continuations).enumerate() {
            match continuations {
                Err(error) => {
                    failed = Some((index, error.into()));
                    break;
                }
                Ok(all) if args.json => output.line(json(text, &all))?,
                Ok(all) => {
                    for continuation in &all {
                        output.line(format_args!("{text}{}", continuation.text))?;
                    }
                }
            }
            output.flush()?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok((truncated, failed))
}

/// Shows a single text as it grows.
fn show(args: &Args, generator: &Generator, text: &str) -> Result<()> {
    // Who closes the terminal sees nothing of what follows, and is told nothing.
    let print = |text: &str| {
        let mut output = io::stdout();
        let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    };
    print(text);
    let listener = Box::new(move |_: usize, _: usize, new: &str| print(new));
    let mut continuations = generator.generate(&[text], Some(listener))?;
    let truncated = continuations.truncated;
    let result = args.compute.run(|| continuations.next());
    print("\n");
    say_truncated(generator, truncated, 1);
    result.transpose()?;
    Ok(())
}

/// `{"text": ..., "continuations": [{"text": ..., "score": ..., "log_probability": ..., "tokens": ..., "ended": ...}]}`
fn json(text: &str, all: &[Continuation]) -> Value {
    let continuations = all.iter().map(|continuation| {
        let Continuation { text, score, log_prob, n_tokens, ended, .. } = continuation;
        json!({ "text": text, "score": score, "log_probability": log_prob, "tokens": n_tokens, "ended": ended })
    });
    json!({ "text": text, "continuations": continuations.collect::<Vec<_>>() })
}
