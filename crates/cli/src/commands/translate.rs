//! `cloze translate`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use cloze_model::generate::{self, BeamSearch, LengthPenalty, Search};
use cloze_model::huggingface::DecodeOptions;
use cloze_tokenizer::{Error, Sequence};
use cloze_trainer::TrainerError;
use cloze_trainer::engine::replicas::{bytes_of, words_of};
use cloze_trainer::translate::{TranslateConfig, Translation, Translator};
use indicatif::HumanCount;
use serde_json::{Value, json};

use crate::compute::Compute;
use crate::failure::by_option;
use crate::lines::{self, BATCH, Batch, Line, Lines, Longer};
use crate::model::{self, EnsembleArgs};
use crate::output::{Output, say};
use crate::progress::Progress;
use crate::ranks;

/// Translate lines of text on standard input.
///
/// Example: cloze translate --model Helsinki-NLP/opus-mt-en-de < english.txt > german.txt
///
/// Each input line is a source, and each output line its translation; a blank line has an empty one. A source
/// longer than the model's maximum is translated without its end.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze translate --model runs/multi30k/model --beam 5 --n-best 5 --json < source.en
  cloze translate --model runs/multi30k/model --alignment < source.en
  cloze translate --model runs/seed-1/model --model runs/seed-2/model < source.en")]
pub struct Args {
    #[arg(long, value_name = "MODEL", required = true, help = model::for_ensemble())]
    model: Vec<String>,
    #[command(flatten)]
    ensemble: EnsembleArgs,
    /// Beam size; 1 is greedy decoding (default: from the folder, else 5).
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    beam: Option<usize>,
    /// The exponent A of the length penalty that divides log-probabilities: larger values favour longer
    /// translations (default: from the folder, else 1).
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    length_penalty: Option<f64>,
    /// The base of the length penalty.
    #[arg(long, value_enum, default_value_t = Penalty::Power)]
    penalty: Penalty,
    /// The weight B of the coverage penalty, for source tokens with little attention; requires a model with
    /// attention to its source.
    #[arg(long, value_name = "B", default_value_t = 0.0, allow_negative_numbers = true)]
    coverage_penalty: f64,
    /// When the beam search ends (default: from the folder, else false).
    #[arg(long, value_enum)]
    early_stopping: Option<EarlyStopping>,
    /// Groups of beams for diverse beam search, for more varied n-best lists.
    #[arg(long, value_name = "N", default_value_t = 1)]
    groups: usize,
    /// Penalty on a token's log-probability if another group has just written it.
    #[arg(long, value_name = "D", default_value_t = 0.5, allow_negative_numbers = true)]
    diversity: f32,
    /// Number of translations per line, best first, each on its own line: `number ||| translation ||| score`.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    n_best: Option<usize>,
    /// Append ` ||| ` and the word alignment: source-target pairs, from 0, with the highest attention.
    #[arg(long)]
    alignment: bool,
    /// Replace an unknown piece with the source word that got the most attention.
    #[arg(long)]
    replace_unknown: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Lines processed at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch: usize,
    /// Maximum tokens of a translation (default: from the folder, else twice the source's plus 10).
    #[arg(long, value_name = "N")]
    max_new: Option<usize>,
    /// Minimum tokens of a translation (default: from the folder, else 0).
    #[arg(long, value_name = "N")]
    min_new: Option<usize>,
    /// Penalise tokens that already occur in the translation; 1 has no effect (default: from the folder, else
    /// 1).
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Let no sequence of N tokens occur twice; 0 for no limit (default: from the folder, else 0).
    #[arg(long, value_name = "N")]
    no_repeat_ngram: Option<usize>,
    /// Write only the pieces in this file, one per line, and what ends a text.
    #[arg(long, value_name = "FILE")]
    candidates: Option<PathBuf>,
    /// Ignore this key of the folder's generation_config.json; may be repeated.
    #[arg(long, value_name = "KEY")]
    ignore: Vec<String>,
    /// Text that every translation begins with.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Bytes of a line to keep. If the model's maximum length truncates a longer line anyway, its beginning is
    /// translated; otherwise it is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    #[command(flatten)]
    compute: Compute,
}

#[derive(Clone, Copy, ValueEnum)]
enum Penalty {
    /// The length.
    Power,
    /// (5 + length) / 6, as in GNMT.
    Gnmt,
}

/// As in transformers.
#[derive(Clone, Copy, ValueEnum)]
pub enum EarlyStopping {
    /// Stop if the best unfinished hypothesis, ended now, would score lower than all finished ones.
    False,
    /// Stop once there are as many finished hypotheses as beams.
    True,
    /// Stop if no unfinished hypothesis can score higher, however it continues.
    Never,
}

impl From<EarlyStopping> for generate::EarlyStopping {
    fn from(early_stopping: EarlyStopping) -> Self {
        match early_stopping {
            EarlyStopping::False => Self::Likely,
            EarlyStopping::True => Self::Full,
            EarlyStopping::Never => Self::Never,
        }
    }
}

impl Args {
    /// The arguments that override the folder's settings.
    fn decoding(&self) -> DecodeOptions {
        let mut options = DecodeOptions::default();
        options.ignored = self.ignore.clone();
        let settings = &mut options.settings;
        settings.beams = self.beam;
        settings.sample = self.beam.map(|_| false);
        settings.length_penalty = self.length_penalty;
        settings.early_stopping = self.early_stopping.map(Into::into);
        (settings.max_new, settings.min_new) = (self.max_new, self.min_new);
        settings.repetition_penalty = self.repetition_penalty;
        settings.no_repeat_ngram = self.no_repeat_ngram;
        options
    }

    /// The search with the arguments' changes.
    fn change(&self, search: Search) -> Search {
        let n_best = self.n_best.unwrap_or(1);
        let mut beam = match search {
            Search::Beam(beam) => beam,
            Search::Sample(_) => return search,
            _ => BeamSearch::new(1),
        };
        beam.beams = self.beam.unwrap_or(beam.beams.max(n_best));
        if beam.beams == 1 {
            return Search::Greedy;
        }
        let alpha = beam.length_penalty.alpha();
        beam.length_penalty = match self.penalty {
            Penalty::Power => LengthPenalty::Power(alpha),
            Penalty::Gnmt => LengthPenalty::Gnmt(alpha),
        };
        beam.coverage_penalty = self.coverage_penalty;
        (beam.groups, beam.diversity) = (self.groups, self.diversity);
        Search::Beam(beam)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mean = args.ensemble.mean(args.model.len())?;
    let device = args.compute.open()?;
    let mut config = TranslateConfig::default();
    config.n_best = args.n_best.unwrap_or(1);
    config.decoding = args.decoding();
    config.alignment = args.alignment;
    config.replace_unknown = args.replace_unknown;
    config.batch = args.batch;
    config.int8 = args.compute.int8;
    config.candidates.clone_from(&args.candidates);
    let members = model::members(&args.model, |folder| {
        Translator::load_with(folder, config.clone(), &device, |search| args.change(search))
            .map_err(by_option)
    })?;
    let translator = Translator::ensemble(members, mean)?;
    // The lines of texts, each with its number.
    let part = |texts: &[(usize, String, bool)]| {
        let sequences: Vec<Sequence<'_>> =
            texts.iter().map(|(_, text, goes_on)| Line { text, goes_on: *goes_on }.into()).collect();
        let prefixes = vec![args.prefix.as_deref().unwrap_or_default(); texts.len()];
        let translations = translator.translate(&sequences, &prefixes).ok()?;
        let mut lines = format!("{}\n", translations.truncated);
        args.compute.run(|| {
            for ((number, text, _), translations) in texts.iter().zip(translations) {
                for line in printed(args, *number, text, &translations.ok()?) {
                    lines += &format!("{line}\n");
                }
            }
            Some(())
        })?;
        Some(words_of(lines.as_bytes()))
    };
    if ranks::helps(part)? {
        return Ok(());
    }
    let mut output = Output::new();
    let mut progress = Progress::new("lines", io::stdout().is_terminal());
    let (mut count, mut truncated) = (0, 0);
    let mut lines = Lines::stdin(args.max_line_bytes, Longer::Cut);
    let mut batch = Batch::default();
    while lines.read(BATCH, &mut batch)? {
        let owned = |(number, line): (usize, Line<'_>)| (number, line.text.to_owned(), line.goes_on);
        if let Some(parts) = ranks::shared(|| batch.numbered().map(owned).collect(), part)? {
            for words in parts {
                let lines = String::from_utf8(bytes_of(&words))?;
                let (n_truncated, lines) = lines.split_once('\n').unwrap_or_default();
                truncated += n_truncated.parse::<usize>()?;
                output.bytes(lines.as_bytes())?;
            }
            output.flush()?;
            count += batch.len();
            progress.show(count, None);
            continue;
        }
        let texts: Vec<Sequence> = batch.iter().map(Sequence::from).collect();
        let mut failed = None;
        let mut good = &texts[..];
        // The lines before one that fails have their translations.
        let translations = loop {
            let prefixes = vec![args.prefix.as_deref().unwrap_or_default(); good.len()];
            match translator.translate(good, &prefixes) {
                Ok(translations) => break translations,
                Err(TrainerError::Tokenizer(Error::Batch { index, source, .. })) => {
                    failed = Some(lines.failure(batch.first() + index, batch.line(index), *source));
                    good = &texts[..index];
                }
                Err(error) => return Err(by_option(error)),
            }
        };
        truncated += translations.truncated;
        args.compute.run(|| {
            for ((number, line), translations) in batch.numbered().zip(translations) {
                let translations = translations.with_context(|| lines.place(number))?;
                print(args, &mut output, number, line.text, &translations)?;
                if batch.len() == 1 {
                    output.flush()?;
                }
                progress.show(count + number + 1 - batch.first(), None);
            }
            Ok::<_, anyhow::Error>(())
        })?;
        output.flush()?;
        if let Some(error) = failed {
            return Err(error);
        }
        count += batch.len();
    }
    ranks::done()?;
    progress.finish();
    if truncated > 0 {
        say(format_args!(
            "{} of {} lines are longer than {} tokens and were translated without their ends",
            HumanCount(truncated as u64),
            HumanCount(count as u64),
            translator.max_len()
        ));
    }
    output.flush()
}

fn print(args: &Args, output: &mut Output, number: usize, source: &str, all: &[Translation]) -> Result<()> {
    printed(args, number, source, all).into_iter().try_for_each(|line| output.line(line))
}

/// What is printed of a text's translations.
fn printed(args: &Args, number: usize, source: &str, all: &[Translation]) -> Vec<String> {
    match args.json {
        true => vec![json(source, all).to_string()],
        false => all.iter().map(|translation| plain(translation, args.n_best.map(|_| number))).collect(),
    }
}

/// The translation on one line, with its number and score in an n-best list, and with its alignment.
fn plain(translation: &Translation, number: Option<usize>) -> String {
    // A line of the output is a line of the input.
    let text = translation.text.replace(['\n', '\r'], " ");
    let mut line = match number {
        Some(number) => format!("{number} ||| {text} ||| {:.6}", translation.score),
        None => text,
    };
    if let Some(alignment) = &translation.alignment {
        line.push_str(" |||");
        for (source, target) in alignment.pairs() {
            line.push_str(&format!(" {source}-{target}"));
        }
    }
    line
}

/// `{"source": ..., "translations": [{"text": ..., "score": ..., ...}]}`
fn json(source: &str, all: &[Translation]) -> Value {
    let translations = all.iter().map(|translation| {
        let Translation { text, score, log_prob, tokens, cut, alignment, .. } = translation;
        let mut one = json!({
            "text": text,
            "score": score,
            "log_probability": log_prob,
            "tokens": tokens,
            "cut": cut,
        });
        if let Some(alignment) = alignment {
            one["alignment"] = json!(alignment.pairs());
            one["weights"] = json!(alignment.weights);
        }
        one
    });
    json!({ "source": source, "translations": translations.collect::<Vec<_>>() })
}
