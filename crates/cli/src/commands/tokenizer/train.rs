//! `cloze tokenizer train`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use cloze_data::{CorpusConfig, Format, documents};
use cloze_tokenizer::train::{BpeTrainer, TrainProgress, WordPieceScore, WordPieceTrainer};
use cloze_tokenizer::{Normalizer, Tokenizer};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use crate::output::{Output, say, write_atomic};

/// Train a tokenizer on text files.
///
/// Writes DIR/tokenizer.json, plus DIR/vocab.txt for wordpiece, and prints the path of tokenizer.json.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze tokenizer train --model wordpiece --vocab-size 8192 --out my-tokenizer corpus/*.txt
  cloze tokenizer train --model byte-bpe --vocab-size 50265 --out my-tokenizer wiki.txt.zst")]
pub struct Args {
    /// The type of tokenizer model.
    #[arg(long, value_enum)]
    model: Kind,
    /// Vocabulary size, special tokens included; smaller if the text is too small.
    #[arg(long, value_name = "N")]
    vocab_size: usize,
    /// The output folder; created if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Ignore case: text is lower-cased first, for wordpiece without accents (wordpiece's default).
    #[arg(long, conflicts_with = "cased")]
    lowercase: bool,
    /// Keep case and accents (the default of bpe and byte-bpe).
    #[arg(long)]
    cased: bool,
    /// Do not merge pairs that occur less often than this.
    #[arg(long, value_name = "N", default_value_t = 2)]
    min_frequency: u64,
    /// Keep only the N most frequent characters; the others become unknown (not for byte-bpe).
    #[arg(long, value_name = "N")]
    limit_alphabet: Option<usize>,
    /// Maximum characters of a merged piece (bytes for byte-bpe).
    #[arg(long, value_name = "N")]
    max_token_chars: Option<usize>,
    /// How wordpiece chooses the next pair to merge.
    #[arg(long, value_enum, default_value_t = Score::Frequency)]
    score: Score,
    /// The files' format: auto, text, jsonl or parquet; auto goes by the file extension.
    #[arg(long = "input-format", alias = "format", value_name = "FORMAT", default_value = "auto",
        hide_possible_values = true, value_parser = format())]
    format: Format,
    /// The text column of JSON lines or Parquet.
    #[arg(long, value_name = "NAME", default_value = "text")]
    text_column: String,
    /// The text: files, folders or globs; plain or compressed with gzip or zstd.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// WordPiece with BERT's special tokens.
    Wordpiece,
    /// Byte-pair encoding of characters.
    Bpe,
    /// Byte-pair encoding of bytes, which can encode any text, with RoBERTa's special tokens.
    ByteBpe,
}

#[derive(Clone, Copy, ValueEnum)]
enum Score {
    /// The most frequent pair, as in Hugging Face's tokenizers.
    Frequency,
    /// The pair that increases likelihood most, freq(ab) / (freq(a) freq(b)), as in the literature.
    Likelihood,
}

fn format() -> impl TypedValueParser<Value = Format> {
    let names = ["auto", "text", "jsonl", "parquet"];
    PossibleValuesParser::new(names).map(|name| match name.as_str() {
        "text" => Format::Text,
        "jsonl" => Format::Jsonl,
        "parquet" => Format::Parquet,
        _ => Format::Auto,
    })
}

pub fn run(args: &Args) -> Result<()> {
    let progress = progress_line();
    let tokenizer = train(args, &mut |state| show(&progress, state));
    progress.finish_and_clear();
    let tokenizer = tokenizer?;

    fs::create_dir_all(&args.out).with_context(|| format!("cannot create {}", args.out.display()))?;
    if args.model == Kind::Wordpiece {
        write_atomic(&args.out.join("vocab.txt"), &vocabulary(&tokenizer))?;
    }
    let path = args.out.join("tokenizer.json");
    write_atomic(&path, &tokenizer.to_json())?;
    say(format_args!("{} tokens", HumanCount(tokenizer.vocab_size() as u64)));
    let mut output = Output::new();
    output.line(path.display())?;
    output.flush()
}

fn train(args: &Args, progress: &mut dyn FnMut(TrainProgress)) -> Result<Tokenizer> {
    let corpus = CorpusConfig {
        files: args.files.clone(),
        format: args.format,
        text_column: args.text_column.clone(),
        ..CorpusConfig::default()
    };
    let texts = documents(&corpus, Path::new(""))?
        .map(|document| document.map(|document| document.text().to_owned()));
    let tokenizer = match args.model {
        Kind::Wordpiece => WordPieceTrainer {
            vocab_size: args.vocab_size,
            min_frequency: args.min_frequency,
            limit_alphabet: args.limit_alphabet,
            lowercase: !args.cased,
            max_token_chars: args.max_token_chars,
            score: match args.score {
                Score::Frequency => WordPieceScore::Frequency,
                Score::Likelihood => WordPieceScore::Likelihood,
            },
            ..WordPieceTrainer::default()
        }
        .train_with(texts, progress),
        Kind::Bpe | Kind::ByteBpe => {
            let trainer = match args.model {
                Kind::Bpe => BpeTrainer::characters(),
                _ => BpeTrainer::default(),
            };
            BpeTrainer {
                vocab_size: args.vocab_size,
                min_frequency: args.min_frequency,
                limit_alphabet: args.limit_alphabet,
                max_token_chars: args.max_token_chars,
                normalizer: args.lowercase.then_some(Normalizer::Lowercase),
                ..trainer
            }
            .train_with(texts, progress)
        }
    };
    Ok(tokenizer?)
}

/// The tokens in order of id, one per line, as in BERT's `vocab.txt`.
fn vocabulary(tokenizer: &Tokenizer) -> String {
    let ids = 0..tokenizer.vocab_size() as u32;
    ids.filter_map(|id| tokenizer.id_to_token(id)).flat_map(|token| [token, "\n"]).collect()
}

/// A live progress line on standard error, if that is a terminal.
fn progress_line() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn show(bar: &ProgressBar, state: TrainProgress) {
    match state {
        TrainProgress::Counting { bytes, words, .. } => bar.set_message(format!(
            "counting words: {} read, {} distinct",
            HumanBytes(bytes),
            HumanCount(words as u64)
        )),
        TrainProgress::Merging { done, total } => bar.set_message(format!(
            "joining pairs: {} of {} tokens",
            HumanCount(done as u64),
            HumanCount(total as u64)
        )),
        _ => {}
    }
}
