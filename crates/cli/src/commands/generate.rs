//! `cloze generate`.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use cloze_model::huggingface::DecodeOptions;
use cloze_tokenizer::Error;
use cloze_trainer::TrainerError;
use cloze_trainer::generate::{Continuation, Continuations, GenerateConfig, Generator};
use indicatif::HumanCount;
use serde_json::{Value, json};

use crate::compute::Compute;
use crate::failure::by_option;
use crate::lines::{self, BATCH, Batch, Lines, Longer};
use crate::model::{self, EnsembleArgs};
use crate::output::{Output, say};

/// Generate text with a language model.
///
/// Example: cloze generate --model openai-community/gpt2 --temperature 0.8 'The old man sat by'
///
/// Texts come from the command line, or from standard input, one per line; blank lines are passed over. Without a
/// sampling option (--temperature, --top-k, --top-p, --min-p), the folder's generation_config.json sets how tokens are
/// chosen; if it sets nothing, or with --beam 1, decoding is greedy. A single text on a terminal is shown as it is
/// generated. A text longer than the model's maximum is continued without its beginning.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze generate --model openai-community/gpt2 --temperature 0.8 --top-p 0.95 --n-best 3 --seed 7 'Once upon a time'
  cloze generate --model openai-community/gpt2 --json --max-new 20 < prompts.txt
  cloze generate --model runs/seed-1/model --model runs/seed-2/model 'The old man sat by'")]
pub struct Args {
    #[arg(long, value_name = "MODEL", required = true, help = model::for_ensemble())]
    model: Vec<String>,
    #[command(flatten)]
    ensemble: EnsembleArgs,
    /// Maximum number of new tokens (default: from the folder, else 64).
    #[arg(long, value_name = "N")]
    max_new: Option<usize>,
    /// Minimum number of new tokens (default: from the folder, else 0).
    #[arg(long, value_name = "N")]
    min_new: Option<usize>,
    /// Sample with this temperature: below 1 sharpens the distribution, above 1 flattens it.
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Sample from the K most likely tokens.
    #[arg(long, value_name = "K", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top_k: Option<usize>,
    /// Sample from the fewest tokens whose probabilities sum to P.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Sample from tokens with at least this fraction of the most likely token's probability.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Penalise tokens that already occur in the text; 1 has no effect (default: from the folder, else 1).
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Let no sequence of N tokens occur twice; 0 for no limit (default: from the folder, else 0).
    #[arg(long, value_name = "N")]
    no_repeat_ngram: Option<usize>,
    /// End a text where this is written, which is not part of it; may be repeated.
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    stop: Vec<String>,
    /// Write only the pieces in this file, one per line, and what ends a text.
    #[arg(long, value_name = "FILE")]
    candidates: Option<PathBuf>,
    /// Ignore this key of the folder's generation_config.json; may be repeated.
    #[arg(long, value_name = "KEY")]
    ignore: Vec<String>,
    /// Beam search with N hypotheses; writes the most likely one.
    #[arg(
        long,
        value_name = "N",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000),
        conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"]
    )]
    beam: Option<usize>,
    /// With --beam, the exponent of the length in length normalization (default: from the folder, else 1).
    #[arg(long, value_name = "A", allow_negative_numbers = true, requires = "beam")]
    length_penalty: Option<f64>,
    /// Let the prompt's tokens attend to one another, for models trained with prefixes (`blocks.prefix_share`).
    #[arg(long)]
    bidirectional_prompt: bool,
    /// Random seed: the same text and seed give the same continuations.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Continuations per text.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    n_best: usize,
    /// Texts processed at a time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: usize,
    /// Print one JSON object per text.
    #[arg(long)]
    json: bool,
    /// Maximum bytes of a line; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    #[command(flatten)]
    compute: Compute,
    /// The texts (default: the lines of standard input).
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
}

impl Args {
    /// The arguments that override the folder's settings.
    fn decoding(&self) -> DecodeOptions {
        let Self { temperature, top_k, top_p, min_p, .. } = *self;
        let mut options = DecodeOptions::default();
        options.ignored = self.ignore.clone();
        let settings = &mut options.settings;
        settings.beams = self.beam;
        settings.sample = self.beam.map(|_| false);
        if temperature.is_some() || top_k.is_some() || top_p.is_some() || min_p.is_some() {
            (settings.sample, settings.beams) = (Some(true), Some(1));
        }
        (settings.temperature, settings.top_k) = (temperature, top_k);
        (settings.top_p, settings.min_p) = (top_p, min_p);
        settings.length_penalty = self.length_penalty;
        (settings.max_new, settings.min_new) = (self.max_new, self.min_new);
        settings.repetition_penalty = self.repetition_penalty;
        settings.no_repeat_ngram = self.no_repeat_ngram;
        options
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mean = args.ensemble.mean(args.model.len())?;
    let device = args.compute.open()?;
    let mut config = GenerateConfig::default();
    config.decoding = args.decoding();
    config.stops.clone_from(&args.stop);
    config.n = args.n_best;
    config.seed = args.seed;
    config.batch = args.batch;
    config.int8 = args.compute.int8;
    config.candidates.clone_from(&args.candidates);
    config.bidirectional_prompts = args.bidirectional_prompt;
    let members = model::members(&args.model, |folder| {
        Generator::load(folder, config.clone(), &device).map_err(by_option)
    })?;
    let generator = Generator::ensemble(members, mean)?;
    let mut output = Output::new();
    let (mut count, mut told) = (0, Told::default());
    match &args.texts[..] {
        [text] if !args.json && args.n_best == 1 && !generator.has_beam() && io::stdout().is_terminal() => {
            return show(args, &generator, text);
        }
        [] => {
            let mut lines = Lines::stdin(args.max_line_bytes, Longer::Refused);
            let mut batch = Batch::default();
            while lines.read(BATCH, &mut batch)? {
                // A blank line is no text.
                let (numbers, texts): (Vec<usize>, Vec<&str>) = batch
                    .numbered()
                    .filter(|(_, line)| !line.text.trim().is_empty())
                    .map(|(number, line)| (number, line.text))
                    .unzip();
                if texts.is_empty() {
                    continue;
                }
                let (more, failed) = write(args, &generator, &texts, &mut output)?;
                if let Some((index, error)) = failed {
                    return Err(error.context(lines.place(numbers[index])));
                }
                count += texts.len();
                told.add(more);
            }
        }
        texts => {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (more, failed) = write(args, &generator, &texts, &mut output)?;
            if let Some((index, error)) = failed {
                return Err(error.context(format!("text {}", index + 1)));
            }
            count = texts.len();
            told = more;
        }
    }
    told.say(&generator, count);
    output.flush()
}

/// What the model's positions took away.
#[derive(Clone, Copy, Default)]
struct Told {
    /// The number of texts that lost their beginning.
    truncated: usize,
    /// The number of tokens of those beginnings.
    dropped: usize,
    /// The number of tokens that those texts have with their beginnings.
    dropped_of: usize,
    /// The number of continuations that end where the positions do.
    cut: usize,
}

impl Told {
    fn of(continuations: &Continuations<'_>) -> Self {
        let Continuations { truncated, dropped, dropped_of, .. } = *continuations;
        Self { truncated, dropped, dropped_of, cut: 0 }
    }

    fn add(&mut self, more: Self) {
        self.truncated += more.truncated;
        self.dropped += more.dropped;
        self.dropped_of += more.dropped_of;
        self.cut += more.cut;
    }

    fn say(self, generator: &Generator, count: usize) {
        if let Some(most) = generator.most_tokens().filter(|_| self.truncated > 0) {
            let [truncated, count, dropped, all, most] =
                [self.truncated, count, self.dropped, self.dropped_of, most].map(|n| HumanCount(n as u64));
            let what = match self.truncated {
                1 => format!("the first {dropped} of {all} tokens of a text were dropped"),
                _ => format!(
                    "{truncated} of {count} texts lost their beginnings, {dropped} of their {all} tokens"
                ),
            };
            say(format_args!(
                "{what}: the model has {most} positions, for a text and what is written; a smaller --max-new keeps more of the \
                 text"
            ));
        }
        if self.cut > 0 {
            let (n, ends) = (
                HumanCount(self.cut as u64),
                if self.cut == 1 { "continuation ends" } else { "continuations end" },
            );
            say(format_args!(
                "{n} {ends} where the model's positions do, before the maximum length: shorten the text, or ask for less with --max-new"
            ));
        }
    }
}

fn n_cut(continuations: &[Continuation]) -> usize {
    continuations.iter().filter(|one| one.out_of_positions).count()
}

/// Writes the continuations of texts. Returns what is to be told about them, and the first text that failed,
/// after writing the results of those before it.
fn write(
    args: &Args,
    generator: &Generator,
    texts: &[&str],
    output: &mut Output,
) -> Result<(Told, Option<(usize, anyhow::Error)>)> {
    let (mut good, mut failed) = (texts, None);
    let continuations = loop {
        match generator.generate(good, None) {
            Ok(continuations) => break continuations,
            Err(TrainerError::Tokenizer(Error::Batch { index, source, .. })) => {
                failed = Some((index, anyhow::Error::new(*source)));
                good = &texts[..index];
            }
            Err(error) => return Err(by_option(error)),
        }
    };
    let mut told = Told::of(&continuations);
    args.compute.run(|| {
        for (index, (text, continuations)) in good.iter().zip(continuations).enumerate() {
            told.cut += continuations.as_deref().map_or(0, n_cut);
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
    Ok((told, failed))
}

/// Shows a single text as it grows.
fn show(args: &Args, generator: &Generator, text: &str) -> Result<()> {
    // Who closes the terminal sees nothing of what follows, and is told nothing.
    let print = |text: &str| {
        let mut output = io::stdout();
        let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    };
    let shown = Arc::new(AtomicUsize::new(0));
    let written = shown.clone();
    let listener = Box::new(move |_: usize, _: usize, new: &str| {
        written.fetch_add(new.len(), Ordering::Relaxed);
        print(new);
    });
    let mut continuations = generator.generate(&[text], Some(listener))?;
    print(text);
    let mut told = Told::of(&continuations);
    let result = args.compute.run(|| continuations.next());
    // What never became a whole character.
    if let Some(Ok(all)) = &result
        && let Some(rest) = all.first().and_then(|one| one.text.get(shown.load(Ordering::Relaxed)..))
    {
        print(rest);
    }
    print("\n");
    told.cut = result.as_ref().map_or(0, |all| all.as_deref().map_or(0, n_cut));
    told.say(generator, 1);
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
