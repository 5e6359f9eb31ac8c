//! `cloze tokenizer train`.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use cloze_data::labelled::{Named, records};
use cloze_data::{CorpusConfig, DataError, Format, OnError, SkipReport, documents};
use cloze_tokenizer::train::{BpeTrainer, TrainProgress, WordPieceScore, WordPieceTrainer};
use cloze_tokenizer::{Error as TokenizerError, Normalizer, Tokenizer};
use indicatif::{HumanBytes, HumanCount};

use crate::failure::WrongUsage;
use crate::output::{Output, say, write_atomic};
use crate::progress::{LiveLine, live_line};
use crate::rows::{BadRowArgs, RowArgs, RowFormat, text_of};

/// Train a tokenizer on text files.
///
/// Example: cloze tokenizer train --model wordpiece --vocab-size 8192 --out my-tokenizer corpus/*.txt
///
/// Files are plain text, or tables with a text in each row, in the field text. Writes DIR/tokenizer.json,
/// plus DIR/vocab.txt for wordpiece, and prints the path of tokenizer.json.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze tokenizer train --model bpe --vocab-size 8192 --columns text=review --out my-tokenizer reviews.csv
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
    #[command(flatten)]
    rows: RowArgs,
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

pub fn run(args: &Args) -> Result<()> {
    let mut live = io::stderr().is_terminal().then(|| live_line("{spinner} {wide_msg}"));
    let tokenizer = train(args, &mut |state| show(&mut live, state));
    drop(live);
    let tokenizer = tokenizer?;

    fs::create_dir_all(&args.out).with_context(|| format!("cannot create {}", args.out.display()))?;
    if args.model == Kind::Wordpiece {
        write_atomic(&args.out.join("vocab.txt"), &vocabulary(&tokenizer))?;
    }
    let path = args.out.join("tokenizer.json");
    write_atomic(&path, &tokenizer.to_json())?;
    let [n_tokens, asked] = [tokenizer.vocab_size(), args.vocab_size].map(|n| HumanCount(n as u64));
    match tokenizer.vocab_size() < args.vocab_size {
        true => say(format_args!(
            "{n_tokens} tokens, fewer than --vocab-size {asked}: nothing else in the texts occurs often enough to be a token; \
             more text gives more, and so may a smaller --min-frequency"
        )),
        false => say(format_args!("{n_tokens} tokens")),
    }
    let mut output = Output::new();
    output.line(path.display())?;
    output.flush()
}

fn train(args: &Args, progress: &mut dyn FnMut(TrainProgress)) -> Result<Tokenizer> {
    args.rows.check_fields(&["text"])?;
    let counted = Counted::default();
    let texts = args.texts(&counted)?;
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
    tokenizer.map_err(|error| match error {
        TokenizerError::Invalid { at, message } if at == "vocab_size" => {
            WrongUsage::new(anyhow!("--vocab-size: {message}")).into()
        }
        error => error.into(),
    })
}

/// What was read, and what was left out.
#[derive(Default)]
struct Counted {
    skipped: RefCell<SkipReport>,
    /// Lines and rows that were not left out.
    used: Cell<u64>,
}

impl Counted {
    /// Adds the counts of a file.
    fn add(&self, skipped: &SkipReport, used: u64) {
        self.skipped.borrow_mut().add(skipped);
        self.used.set(self.used.get() + used);
    }
}

/// Texts with what went wrong reading them.
type Texts<'a> = Box<dyn Iterator<Item = Result<String, Box<dyn Error + Send + Sync>>> + 'a>;

impl Args {
    /// The texts of all files, in order. What is read and left out is `counted`, and too much left out is an error after the
    /// last text.
    fn texts<'a>(&'a self, counted: &'a Counted) -> Result<Texts<'a>> {
        let mut all: Texts<'a> = Box::new(std::iter::empty());
        for file in &self.files {
            let texts = match self.rows.format(Some(Path::new(file)), RowFormat::Lines) {
                RowFormat::Lines => self.documents(file, counted)?,
                _ => self.cells(file, counted)?,
            };
            all = Box::new(all.chain(texts));
        }
        let check = move || -> Option<Result<String, Box<dyn Error + Send + Sync>>> {
            if !self.rows.bad.skips() {
                return None;
            }
            let (skipped, used) = (counted.skipped.borrow(), counted.used.get());
            self.rows.bad.check_skipped("all files", &skipped, used).err().map(|error| Err(error.into()))
        };
        Ok(Box::new(all.chain(std::iter::once_with(check).flatten())))
    }

    /// The documents of text files.
    fn documents<'a>(&'a self, file: &str, counted: &'a Counted) -> Result<Texts<'a>> {
        self.rows.check_lines()?;
        let bad = &self.rows.bad;
        let corpus = CorpusConfig {
            files: vec![file.to_owned()],
            format: if self.rows.has_format() { Format::Text } else { Format::Auto },
            on_error: if bad.skips() { OnError::Skip } else { OnError::Fail },
            // All files have one limit together.
            max_skipped: bad.skips().then_some(1.0),
            max_line_bytes: bad.max_line_bytes(),
            named: Named::CommandLine,
            ..CorpusConfig::default()
        };
        let documents = documents(&corpus, Path::new(""));
        let mut documents = documents.map_err(|error| match error {
            DataError::NoFiles { pattern, .. } => anyhow!("no file matches `{pattern}`"),
            error => anyhow!(error),
        })?;
        Ok(Box::new(std::iter::from_fn(move || match documents.next() {
            Some(Ok(document)) => Some(Ok(document.text().to_owned())),
            Some(Err(error)) => Some(Err(told(error).into())),
            None => {
                counted.add(documents.skipped(), documents.used());
                None
            }
        })))
    }

    /// The texts of a table's rows.
    fn cells<'a>(&'a self, file: &str, counted: &'a Counted) -> Result<Texts<'a>> {
        let column = self.rows.record_column("text", true);
        let mut records = records(&self.rows.source([file])?, Path::new(""), vec![column])?;
        let mut used = 0;
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                let record = match records.next() {
                    Some(Ok(record)) => record,
                    Some(Err(error)) => return Some(Err(BadRowArgs::told(error).into())),
                    None => {
                        counted.add(records.skipped(), used);
                        return None;
                    }
                };
                match text_of(record.cells.into_iter().next(), false) {
                    Ok(text) => {
                        used += 1;
                        return Some(Ok(text));
                    }
                    Err((reason, problem)) => {
                        if let Err(error) = records.refuse(record.line, reason, problem.to_owned()) {
                            return Some(Err(BadRowArgs::told(error).into()));
                        }
                    }
                }
            }
        })))
    }
}

/// Words the error of a corpus, which a config file describes, for the command line.
fn told(error: DataError) -> DataError {
    match error {
        DataError::Input { path, line, problem } => {
            let problem = format!("{problem}; correct it, or skip such parts with --on-bad-row skip");
            DataError::LabelledFile { path, line, problem }
        }
        error => error,
    }
}

/// The tokens in order of id, one per line, as in BERT's `vocab.txt`.
fn vocabulary(tokenizer: &Tokenizer) -> String {
    let ids = 0..tokenizer.vocab_size() as u32;
    ids.filter_map(|id| tokenizer.id_to_token(id)).flat_map(|token| [token, "\n"]).collect()
}

fn show(live: &mut Option<LiveLine>, state: TrainProgress) {
    let Some(live) = live else { return };
    match state {
        TrainProgress::Counting { bytes, words, .. } => live.show(format!(
            "counting words: {} read, {} distinct",
            HumanBytes(bytes),
            HumanCount(words as u64)
        )),
        TrainProgress::Merging { done, total } => live.show(format!(
            "joining pairs: {} of {} tokens",
            HumanCount(done as u64),
            HumanCount(total as u64)
        )),
        _ => {}
    }
}
